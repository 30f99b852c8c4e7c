//! An engine on a real database and the machine's clock, for tests that need no API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::endpoint::{Destination, Ordering, Spec};
use postrider_core::pattern::Pattern;
use postrider_core::signing::Scheme;
use postrider_core::{EndpointId, EventId, TenantId, policy};
use postrider_engine::ports::{SystemClock, SystemEntropy};
use postrider_engine::{Accepted, Acting, Engine, Options, Private, Submission};
use postrider_store::sealing::{Keyring, SealingKey};
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
    let options = Options {
        max_in_flight,
        // Longer than any test: nobody is freed by it.
        default_timeout: Duration::from_hours(1),
        default_endpoint_in_flight: IN_FLIGHT,
        ..Options::default()
    };
    start_with(options).await
}

/// Starts with these options, and loopback allowed.
pub(crate) async fn start_with(options: Options) -> (Engine, TempDir) {
    let data = TempDir::new().expect("a folder");
    let path = data.path().join("postrider.db");
    let store = Sqlite::open(&path, sqlite::Options::default(), keyring()).expect("a database");
    let options = Options { allowed: vec!["127.0.0.0/8".parse().expect("a network")], ..options };
    let (store, clock, entropy) = (Arc::new(store), Arc::new(SystemClock), Arc::new(SystemEntropy));
    (Engine::start(options, store, clock, entropy).await.expect("the engine starts"), data)
}

fn keyring() -> Keyring {
    Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key")
}

pub(crate) async fn listen(engine: &Engine, sink: &Sink, event_type: &str) -> EndpointId {
    create(engine, spec(sink.url(), event_type)).await
}

pub(crate) async fn create(engine: &Engine, spec: Spec) -> EndpointId {
    engine
        .create_endpoint(Acting::gateway(TenantId::DEFAULT), spec, Private::default())
        .await
        .expect("an endpoint")
        .id
}

/// An endpoint that says nothing but where and what.
pub(crate) fn spec(url: String, event_type: &str) -> Spec {
    Spec {
        name: None,
        destination: Destination::Url(url),
        event_types: vec![Pattern::Exact(event_type.to_owned())],
        sources: Vec::new(),
        filter: None,
        policy: policy::Spec::default(),
        ordering: Ordering::None,
        rate_limit: None,
        max_in_flight: None,
        timeout: None,
        headers: BTreeMap::new(),
        signing: Scheme::default(),
        format: None,
        metadata: serde_json::Map::new(),
    }
}

/// Events whose bodies are their numbers, all in one commit.
pub(crate) async fn send(engine: &Engine, event_type: &str, count: usize) -> Vec<EventId> {
    let bodies = (0..count).map(|number| Bytes::from(number.to_string())).collect();
    send_bodies(engine, event_type, bodies).await
}

pub(crate) fn submission(event_type: &str, body: Bytes) -> Submission {
    Submission {
        kind: event_type.to_owned(),
        content_type: "text/plain".into(),
        body,
        idempotency_key: None,
        ordering_key: None,
        deliver_at: None,
        metadata: None,
        source: None,
        verified: None,
        headers: Vec::new(),
        trace: None,
    }
}

pub(crate) async fn send_bodies(
    engine: &Engine,
    event_type: &str,
    bodies: Vec<Bytes>,
) -> Vec<EventId> {
    let events = bodies.into_iter().map(|body| submission(event_type, body)).collect();
    let accepted = engine.accept(TenantId::DEFAULT, events).await.expect("accepted");
    let id = |one: Accepted| match one {
        Accepted::New { id, .. } => id,
        other @ (Accepted::Duplicate { .. } | Accepted::Conflict { .. }) => {
            panic!("no key was given, but {other:?}")
        }
    };
    accepted.into_iter().map(id).collect()
}
