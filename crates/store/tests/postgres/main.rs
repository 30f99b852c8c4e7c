//! The `PostgreSQL` backend passes the suite, and does what only a server can be asked to do.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use postrider_core::{EndpointId, EventId, TenantId, Timestamp};
use postrider_store::Store;
use postrider_store::conformance::Place;
use postrider_store::journal::Journal as _;
use postrider_store::postgres::{Options, Postgres};
use postrider_store::record::{Event, NewDelivery, NewEvent};
use postrider_store::sealing::{Keyring, SealingKey};

mod cluster;
mod copying;
mod days;
mod encrypted;
mod fleet;
mod opening;
mod schema;
mod sealed;
mod trouble;
mod turns;
mod words;

use cluster::Cluster;

fn keyring() -> Keyring {
    Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key")
}

/// A database of its own on the shared server.
struct Database {
    url: String,
}

impl Database {
    /// Nothing is in it but the tables.
    fn new() -> Self {
        Self { url: Cluster::shared().copy_of(template()) }
    }

    /// Nothing at all is in it.
    fn bare() -> Self {
        Self { url: Cluster::shared().database() }
    }

    fn name(&self) -> &str {
        let (_, rest) = self.url.split_once(":///").expect("a URL");
        rest.split('?').next().expect("a name")
    }

    /// Runs SQL in it as somebody else would.
    fn sql(&self, sql: &str) -> String {
        Cluster::shared().sql(self.name(), sql)
    }

    async fn store(&self, options: Options) -> Postgres {
        Postgres::connect(&self.url, options, keyring()).await.expect("it opens")
    }
}

/// The name of a database with the tables in it, made once: copying one is faster than making them.
/// It has the parts of some of the days in which the cases of the suite take place.
fn template() -> &'static str {
    static TEMPLATE: LazyLock<String> = LazyLock::new(|| {
        let database = Database::bare();
        let make = |url: String| {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let store = Postgres::connect(&url, few(), keyring()).await.expect("it opens");
                store.close().await;
            });
        };
        let url = database.url.clone();
        // The tests have runtimes of their own, which must not wait for another.
        std::thread::spawn(move || make(url)).join().expect("made");
        database.sql(
            "SET search_path = postrider; SELECT make_day(731 + d) FROM generate_series(0, 9) d",
        );
        database.name().to_owned()
    });
    &TEMPLATE
}

/// Few connections: many tests run at the same time.
fn few() -> Options {
    Options {
        writers: 2,
        journal_readers: 1,
        ledger_readers: 1,
        lock_patience: Duration::from_secs(10),
        ..Options::default()
    }
}

#[async_trait]
impl Place for Database {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.store(few()).await)
    }
}

postrider_store::conformance!(Database::new());

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
