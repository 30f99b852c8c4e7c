//! The `SQLite` backend passes the suite, and does what only a file can be asked to do.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use postrider_core::{EndpointId, EventId, TenantId, Timestamp};
use postrider_store::Store;
use postrider_store::conformance::Place;
use postrider_store::record::{Event, NewDelivery, NewEvent};
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{Options, Sqlite};
use tempfile::TempDir;

mod backup;
mod company;
mod files;
mod leases;
mod log;
mod sealed;
mod trouble;

fn keyring() -> Keyring {
    Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key")
}

/// A directory with one database in it.
struct Directory(TempDir);

impl Directory {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("postrider.db")
    }

    fn store(&self, options: Options) -> Sqlite {
        Sqlite::open(&self.path(), options, keyring()).expect("it opens")
    }
}

#[async_trait]
impl Place for Directory {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.store(Options { shared: true, ..Options::default() }))
    }
}

postrider_store::conformance!(Directory::new());

const ENDPOINT: EndpointId = EndpointId::from_i64(7);
const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// The `number`-th event, with one delivery.
fn event(number: i64, body: &Bytes) -> NewEvent {
    let event = Event {
        id: EventId::from_i64(EventId::floor(NOW).as_i64() + number * 2),
        tenant: TenantId::DEFAULT,
        kind: "order.created".to_owned(),
        content_type: "application/json".to_owned(),
        body: body.clone(),
        idempotency_key: None,
        ordering_key: None,
        metadata: None,
        received_at: NOW,
        deliver_at: None,
        source: None,
        verified: None,
        headers: Vec::new(),
        filter_errors: None,
        trace: None,
    };
    let deliveries = vec![NewDelivery { endpoint: ENDPOINT, line: None }];
    NewEvent { event: Arc::new(event), deliveries }
}
