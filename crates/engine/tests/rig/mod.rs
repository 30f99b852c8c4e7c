//! An engine on a real database and the machine's clock, for tests that need no API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::endpoint::{Destination, Ordering, Spec};
use postrider_core::pattern::Pattern;
use postrider_core::signing::Scheme;
use postrider_core::{EndpointId, TenantId, policy};
use postrider_engine::ports::{SystemClock, SystemEntropy};
use postrider_engine::{Engine, Options, Submission};
use postrider_store::sqlite::{self, Sqlite};
use tempfile::TempDir;

// Parts of it are for tests of the API.
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../../../server/tests/harness/sink.rs"]
pub(crate) mod sink;

use sink::Sink;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How many each endpoint may have in flight.
pub(crate) const IN_FLIGHT: u32 = 16;

pub(crate) async fn start(max_in_flight: usize) -> (Engine, TempDir) {
    let data = TempDir::new().expect("a folder");
    let path = data.path().join("postrider.db");
    let store = Sqlite::open(&path, sqlite::Options::default()).expect("a database");
    let options = Options {
        allowed: vec!["127.0.0.0/8".parse().expect("a network")],
        max_in_flight,
        // Longer than any test: nobody is freed by it.
        default_timeout: Duration::from_hours(1),
        default_endpoint_in_flight: IN_FLIGHT,
        ..Options::default()
    };
    let (store, clock, entropy) = (Arc::new(store), Arc::new(SystemClock), Arc::new(SystemEntropy));
    (Engine::start(options, store, clock, entropy).await.expect("the engine starts"), data)
}

pub(crate) async fn listen(engine: &Engine, sink: &Sink, event_type: &str) -> EndpointId {
    let spec = Spec {
        name: None,
        destination: Destination::Url(sink.url()),
        event_types: vec![Pattern::Exact(event_type.to_owned())],
        policy: policy::Spec::default(),
        ordering: Ordering::None,
        rate_limit: None,
        max_in_flight: None,
        timeout: None,
        headers: BTreeMap::new(),
        signing: Scheme::default(),
        metadata: serde_json::Map::new(),
    };
    engine.create_endpoint(TenantId::DEFAULT, spec, None).await.expect("an endpoint").id
}

pub(crate) async fn send(engine: &Engine, event_type: &str, count: usize) {
    let event = |number: usize| Submission {
        kind: event_type.to_owned(),
        content_type: "text/plain".into(),
        body: Bytes::from(number.to_string()),
        idempotency_key: None,
        ordering_key: None,
        deliver_at: None,
        metadata: None,
    };
    let events = (0..count).map(event).collect();
    engine.accept(TenantId::DEFAULT, events).await.expect("accepted");
}
