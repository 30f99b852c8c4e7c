//! A whole gateway in this process: a database in a folder of its own, the engine on a clock that
//! the test moves, the API on a loopback port.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_engine::notices::Notice;
use postrider_engine::ports::{Clock as _, Entropy as _, ManualClock, SystemEntropy};
use postrider_engine::{Engine, Options};
use postrider_server::{ConnectionLimits, Inbound, Keys, ServerOptions, ensure_admin_key};
use postrider_store::Store;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::PATIENCE;
use super::client::{Answer, Client};
use super::sink::Sink;

const KEY: &str = "pr_0123456789abcdef0123456789abcdef";
const DATABASE: &str = "postrider.db";
/// 2027-01-15T08:00:00Z.
const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

pub(crate) struct Gateway {
    pub(crate) clock: ManualClock,
    pub(crate) client: Client,
    engine: Engine,
    data: TempDir,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

/// What is left of a gateway that has stopped.
pub(crate) struct Stopped {
    data: TempDir,
    pub(crate) at: Timestamp,
}

impl Gateway {
    /// A new gateway with nothing in it.
    pub(crate) async fn start() -> Self {
        let data = TempDir::new().expect("a folder");
        Self::open(data, START).await
    }

    async fn open(data: TempDir, now: Timestamp) -> Self {
        let store =
            Sqlite::open(&data.path().join(DATABASE), sqlite::Options::default(), keyring());
        let store: Arc<dyn Store> = Arc::new(store.expect("a database"));
        let entropy = Arc::new(SystemEntropy);
        ensure_admin_key(&*store, now, entropy.secret_bytes(), Some(KEY)).await.expect("a key");
        let keys = Keys::load(&*store).await.expect("keys");
        let clock = ManualClock::at(now);
        let options = Options {
            allowed: vec!["127.0.0.0/8".parse().expect("a network")],
            ..Options::default()
        };
        let engine = Engine::start(options, store, Arc::new(clock.clone()), entropy)
            .await
            .expect("the engine starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("an address");
        let inbound = Inbound::load(&**engine.store()).await.expect("the sources");
        let options = ServerOptions::default();
        let router = postrider_server::router(engine.clone(), keys, inbound, options);
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async move {
            let shutdown = async { drop(stopped.await) };
            let limits = ConnectionLimits::default();
            postrider_server::serve(listener, router, limits, shutdown).await.expect("served");
        });
        let client = Client { address, key: KEY.to_owned() };
        Self { clock, client, engine, data, stop, served }
    }

    /// Stops in good order.
    pub(crate) async fn stop(self) -> Stopped {
        drop(self.stop);
        self.served.await.expect("the server ends");
        let drained = self.engine.drain(PATIENCE).await;
        assert_eq!(drained.abandoned, 0);
        Stopped { data: self.data, at: self.clock.now() }
    }

    /// What is on disk at this moment, as if the machine had stopped dead.
    pub(crate) fn image(&self) -> Stopped {
        let data = TempDir::new().expect("a folder");
        copy_files(self.data.path(), data.path());
        Stopped { data, at: self.clock.now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.clock.advance(span);
    }

    /// Makes an endpoint and returns its id.
    pub(crate) async fn endpoint(&self, url: &str, fields: Value) -> String {
        let mut body = fields;
        body["url"] = url.into();
        text(&self.client.post("/v1/endpoints", &body).await.expect(201)["id"])
    }

    /// Sends an event with this payload.
    pub(crate) async fn send(&self, payload: &str) -> Sent {
        self.send_with(payload, json!({})).await
    }

    /// Sends an event with this payload and more fields.
    pub(crate) async fn send_with(&self, payload: &str, fields: Value) -> Sent {
        let receipt = self.submit(payload, fields).await.expect(202);
        self.sent(&receipt).await
    }

    /// Sends an event, and returns the answer whatever it is.
    pub(crate) async fn submit(&self, payload: &str, fields: Value) -> Answer {
        let mut body = fields;
        body["payload"] = payload.into();
        if body["type"].is_null() {
            body["type"] = "order.created".into();
        }
        self.client.post("/v1/events", &body).await
    }

    /// Looks up the deliveries of an event that was accepted.
    pub(crate) async fn sent(&self, receipt: &Value) -> Sent {
        let event = text(&receipt["id"]);
        let path = format!("/v1/events/{event}/deliveries");
        let listed = self.client.get(&path).await.expect(200);
        let deliveries = listed["data"].as_array().expect("a list");
        Sent { event, deliveries: deliveries.iter().map(|one| text(&one["id"])).collect() }
    }

    pub(crate) async fn delivery(&self, id: &str) -> Value {
        self.client.get(&format!("/v1/deliveries/{id}")).await.expect(200)
    }

    /// Waits until a delivery looks as wanted. It is looked at after every notice.
    pub(crate) async fn until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut feed = self.engine.notices().subscribe();
        loop {
            let delivery = self.delivery(id).await;
            if wanted(&delivery) {
                return delivery;
            }
            let noticed = timeout(PATIENCE, feed.recv()).await;
            let noticed =
                noticed.unwrap_or_else(|_| panic!("it never looked as wanted: {delivery:#}"));
            assert_ne!(noticed, Err(RecvError::Closed), "the engine is gone");
        }
    }

    pub(crate) async fn until_state(&self, id: &str, state: &str) -> Value {
        self.until(id, |delivery| delivery["state"] == state).await
    }

    /// Waits until a delivery has failed this many times that count and waits for its next try.
    pub(crate) async fn until_retrying(&self, id: &str, attempts: u32) -> Value {
        let retrying =
            |delivery: &Value| delivery["state"] == "retrying" && delivery["attempts"] == attempts;
        self.until(id, retrying).await
    }

    /// The notice of this kind about this delivery, once there is one.
    pub(crate) async fn notice(&self, kind: &str, delivery: &str) -> Arc<Notice> {
        let mut feed = self.engine.notices().subscribe();
        let fits = |notice: &Arc<Notice>| {
            let about = notice.delivery.as_ref().map(|about| about.delivery_id.to_string());
            notice.kind.as_str() == kind && about.as_deref() == Some(delivery)
        };
        if let Some(notice) = self.engine.notices().since(0).into_iter().find(fits) {
            return notice;
        }
        loop {
            let notice = timeout(PATIENCE, feed.recv()).await;
            let notice = notice.unwrap_or_else(|_| panic!("no {kind} of {delivery}"));
            let notice = notice.expect("the engine runs and the test keeps up");
            if fits(&notice) {
                return notice;
            }
        }
    }

    /// How many notices of this kind there have been about this delivery.
    pub(crate) fn notices(&self, kind: &str, delivery: &str) -> usize {
        let notices = self.engine.notices().since(0);
        let about = |notice: &&Arc<Notice>| {
            let id = notice.delivery.as_ref().map(|about| about.delivery_id.to_string());
            notice.kind.as_str() == kind && id.as_deref() == Some(delivery)
        };
        notices.iter().filter(about).count()
    }

    /// Asks again and again until the answer is as wanted: for what no notice tells of.
    pub(crate) async fn poll(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let asking = async {
            loop {
                let answer = self.client.get(path).await;
                if wanted(&answer) {
                    return answer;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{path} never was as wanted"))
    }

    /// An endpoint of its own kind of event, to see by it that time has been noticed.
    pub(crate) async fn bystander(&self) -> Sink {
        let sink = Sink::answering(200).await;
        self.endpoint(&sink.url(), json!({"event_types": ["bystander"]})).await;
        sink
    }

    /// Returns when everything that is due has had its chance: what becomes due after it has gone.
    /// Moves the clock by two milliseconds.
    pub(crate) async fn quiet(&self, bystander: &Sink) {
        for _ in 0..2 {
            let next = self.now().plus(Duration::from_millis(1));
            let fields = json!({"type": "bystander", "deliver_at": next.to_string()});
            let before = bystander.count();
            self.submit("are we there yet", fields).await.expect(202);
            self.clock.set(next);
            bystander.nth(before + 1).await;
        }
    }

    /// Moves the clock to a little before `due`, and waits until everything earlier has gone.
    pub(crate) async fn just_before(&self, due: Timestamp, bystander: &Sink) {
        self.clock.set(due.minus(Duration::from_millis(5)));
        self.quiet(bystander).await;
        assert!(self.now() < due);
    }
}

impl Stopped {
    /// Starts a gateway on the same data.
    pub(crate) async fn start_at(self, now: Timestamp) -> Gateway {
        Gateway::open(self.data, now).await
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

/// The time in a field that has to be one.
#[track_caller]
pub(crate) fn time(value: &Value) -> Timestamp {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no time: {value}"))
}

#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn copy_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

fn keyring() -> Keyring {
    Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key")
}
