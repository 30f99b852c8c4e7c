//! A gateway whose dashboard is tested: a database in a folder of its own, a clock that the test
//! moves, everything on a loopback port.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_engine::ports::{Clock as _, ManualClock, SystemEntropy};
use postrider_engine::{Engine, Options};
use postrider_server::{
    ConnectionLimits, Inbound, Keys, ServerOptions, ensure_admin_key, router, serve,
};
use postrider_store::Store;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::client::Client;

/// 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

pub(crate) struct Gateway {
    pub(crate) engine: Engine,
    pub(crate) clock: ManualClock,
    pub(crate) keys: Keys,
    pub(crate) address: SocketAddr,
    /// The API, with the admin key.
    pub(crate) client: Client,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    _folder: TempDir,
}

impl Gateway {
    pub(crate) async fn start() -> Arc<Self> {
        Self::start_with(ServerOptions::default()).await
    }

    pub(crate) async fn start_with(options: ServerOptions) -> Arc<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("postrider.db");
        let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key");
        let store = Sqlite::open(&path, sqlite::Options::default(), keyring).expect("a database");
        let store: Arc<dyn Store> = Arc::new(store);
        let key = ensure_admin_key(&*store, START, [7; 32], None).await.expect("a key");
        let key = key.expect("the first start makes one");
        let keys = Keys::load(&*store).await.expect("the keys");
        let clock = ManualClock::at(START);
        let allowed = vec!["127.0.0.0/8".parse().expect("a network")];
        let engine = Engine::start(
            Options { allowed, ..Options::default() },
            store,
            Arc::new(clock.clone()),
            Arc::new(SystemEntropy),
        );
        let engine = engine.await.expect("the engine starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let inbound = Inbound::load(&**engine.store()).await.expect("the sources");
        let routes = router(engine.clone(), keys.clone(), inbound, options);
        let (stop, stopped) = oneshot::channel();
        // A test that ends without a word stops its server too.
        let stopped = async { drop(stopped.await) };
        tokio::spawn(serve(listener, routes, ConnectionLimits::default(), stopped));
        let client = Client { address, key };
        Arc::new(Self {
            engine,
            clock,
            keys,
            address,
            client,
            stop: Mutex::new(Some(stop)),
            _folder: folder,
        })
    }

    /// Begins a stop in good order.
    pub(crate) fn stop(&self) {
        drop(self.stop.lock().expect("no panic meanwhile").take());
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.clock.advance(span);
    }

    /// Makes a tenant; answers with a client that has a key of it.
    pub(crate) async fn tenant(&self, name: &str) -> Client {
        self.client.post("/v1/tenants", &json!({"name": name})).await.expect(201);
        let new = json!({"name": format!("{name}'s key"), "tenant": name});
        let made = self.client.post("/v1/keys", &new).await.expect(201);
        Client { key: text(&made["key"]), ..self.client.clone() }
    }

    /// Makes an endpoint with this URL and more fields, and returns its id.
    pub(crate) async fn endpoint(&self, url: &str, fields: Value) -> String {
        let mut body = fields;
        body["url"] = url.into();
        text(&self.client.post("/v1/endpoints", &body).await.expect(201)["id"])
    }

    /// Sends an event; answers with its id and that of its first delivery, if it has one.
    pub(crate) async fn send(&self, event: Value) -> Sent {
        let event = text(&self.client.post("/v1/events", &event).await.expect(202)["id"]);
        let listed = self.client.get(&format!("/v1/events/{event}/deliveries")).await.expect(200);
        let deliveries = listed["data"].as_array().expect("a list");
        Sent { event, deliveries: deliveries.iter().map(|one| text(&one["id"])).collect() }
    }

    /// Waits until a delivery is in this state. It is looked at after every notice.
    pub(crate) async fn until_state(&self, delivery: &str, state: &str) -> Value {
        let mut feed = self.engine.notices().subscribe();
        loop {
            let path = format!("/v1/deliveries/{delivery}");
            let found = self.client.get(&path).await.expect(200);
            if found["state"] == state {
                return found;
            }
            let noticed = timeout(PATIENCE, feed.recv()).await;
            let noticed = noticed.unwrap_or_else(|_| panic!("it never was {state}: {found:#}"));
            assert_ne!(noticed, Err(RecvError::Closed), "the engine is gone");
        }
    }
}

/// An event that was accepted.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) event: String,
    pub(crate) deliveries: Vec<String>,
}

impl Sent {
    /// The delivery of an event that goes to one endpoint.
    pub(crate) fn only(&self) -> &str {
        let [only] = &self.deliveries[..] else { panic!("not one: {self:?}") };
        only
    }
}

#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
