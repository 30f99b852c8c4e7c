//! A gateway under test, and the one way in which the tests talk to it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use postrider_core::Timestamp;
use postrider_engine::notices::{Notice, NoticeKind};
use postrider_engine::ports::{Clock, ManualClock, SystemClock, SystemEntropy};
use postrider_engine::{Engine, NodeOptions, Options};
use postrider_server::{
    ConnectionLimits, Inbound, Keys, ServerOptions, ensure_admin_key, router, serve,
};
use postrider_store::Store;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;

/// What is awaited arrives well before this, or the test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

pub(crate) struct Gateway {
    pub(crate) engine: Engine,
    pub(crate) clock: ManualClock,
    pub(crate) keys: Keys,
    pub(crate) key: String,
    pub(crate) address: SocketAddr,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) server: JoinHandle<std::io::Result<()>>,
    _folder: Arc<TempDir>,
}

/// A store, and who may get in.
struct Ground {
    folder: Arc<TempDir>,
    store: Arc<dyn Store>,
    key: String,
}

impl Ground {
    async fn new(options: sqlite::Options) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("postrider.db");
        let store = Sqlite::open(&path, options, keyring()).expect("a database");
        let store: Arc<dyn Store> = Arc::new(store);
        let key = ensure_admin_key(&*store, START, [7; 32], None)
            .await
            .expect("a key")
            .expect("the first start makes one");
        Self { folder: Arc::new(folder), store, key }
    }
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        Self::start_with(ServerOptions::default(), ConnectionLimits::default()).await
    }

    pub(crate) async fn start_with(options: ServerOptions, limits: ConnectionLimits) -> Self {
        let ground = Ground::new(sqlite::Options::default()).await;
        let clock = ManualClock::at(START);
        Self::on(&ground, Arc::new(clock.clone()), clock, options, limits).await
    }

    /// Two nodes on one store, each of which knows of the other and carries its share. They go by
    /// the machine's clock, because they wait for one another; their `clock` moves nothing.
    pub(crate) async fn start_two() -> [Self; 2] {
        let ground = Ground::new(sqlite::Options { shared: true, ..Default::default() }).await;
        let start = async || {
            let (clock, unused) = (Arc::new(SystemClock), ManualClock::at(START));
            let (options, limits) = (ServerOptions::default(), ConnectionLimits::default());
            Self::on(&ground, clock, unused, options, limits).await
        };
        let two = [start().await, start().await];
        let even = async {
            loop {
                let known = two[0].engine.nodes().await.expect("known").expect("nodes");
                let share = usize::from(known.lanes) / 2;
                if known.nodes.iter().filter(|node| node.held.len() == share).count() == 2 {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, even).await.expect("lanes are shared");
        two
    }

    async fn on(
        ground: &Ground,
        time: Arc<dyn Clock>,
        clock: ManualClock,
        options: ServerOptions,
        limits: ConnectionLimits,
    ) -> Self {
        let Ground { folder, store, key } = ground;
        let keys = Keys::load(&**store).await.expect("the keys");
        let allowed = vec!["127.0.0.0/8".parse().expect("a network")];
        // A disk that is busy with other things must not make the nodes give one another up.
        let node = NodeOptions { lease: PATIENCE, ..NodeOptions::default() };
        let engine = Engine::start(
            Options { allowed, node, ..Options::default() },
            Arc::clone(store),
            time,
            Arc::new(SystemEntropy),
        )
        .await
        .expect("the engine starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let inbound = Inbound::load(&**engine.store()).await.expect("the sources");
        let routes = router(engine.clone(), keys.clone(), inbound, options);
        let server = tokio::spawn(serve(listener, routes, limits, async {
            // A test that ends without a word stops its server too.
            let _ = stopped.await;
        }));
        let (key, folder) = (key.clone(), Arc::clone(folder));
        Self { engine, clock, keys, key, address, stop, server, _folder: folder }
    }

    /// A request without a body.
    pub(crate) async fn ask(&self, method: Method, path: &str) -> Reply {
        self.call(Call::new(method, path)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.call(Call::new(Method::POST, path).json(&body)).await
    }

    /// Makes an endpoint and answers with its id.
    pub(crate) async fn endpoint(&self, body: Value) -> String {
        let reply = self.post("/v1/endpoints", body).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Sends an event and answers with its id.
    pub(crate) async fn event(&self, body: Value) -> String {
        let reply = self.post("/v1/events", body).await;
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.json()["id"].as_str().expect("an id").to_owned()
    }

    /// The only delivery of an event, in full.
    pub(crate) async fn delivery_of(&self, event: &str) -> Value {
        let listed = self.get(&format!("/v1/events/{event}/deliveries")).await.json();
        let id = listed["data"][0]["id"].as_str().expect("a delivery").to_owned();
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
        self.get(&format!("/v1/deliveries/{id}")).await.json()
    }

    pub(crate) async fn call(&self, call: Call) -> Reply {
        let response = self.open(call).await;
        let (parts, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("in time");
        let body = body.expect("a whole body").to_bytes();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    /// The answer with its body still to be read.
    pub(crate) async fn open(&self, call: Call) -> http::Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        tokio::spawn(connection);
        let request = call.into_request(&self.key);
        let sent = sender.send_request(request);
        tokio::time::timeout(PATIENCE, sent).await.expect("in time").expect("an answer")
    }
}

/// One request.
pub(crate) struct Call {
    request: http::request::Builder,
    body: Bytes,
    keyed: bool,
}

impl Call {
    pub(crate) fn new(method: Method, path: &str) -> Self {
        let request = Request::builder().method(method).uri(path).header("host", "gateway.test");
        Self { request, body: Bytes::new(), keyed: true }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn without_key(mut self) -> Self {
        self.keyed = false;
        self
    }

    fn into_request(mut self, key: &str) -> Request<Full<Bytes>> {
        if self.keyed {
            self = self.header("authorization", &format!("Bearer {key}"));
        }
        self.request.body(Full::new(self.body)).expect("a request")
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The fields that a problem names, after a look at the rest of it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> Vec<String> {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let document = self.json();
        assert_eq!(document["status"], status);
        for member in ["type", "title", "detail"] {
            assert!(document[member].as_str().is_some_and(|text| !text.is_empty()), "{document}");
        }
        let errors = document["errors"].as_array().expect("a list of errors");
        errors
            .iter()
            .map(|error| {
                assert!(error["message"].is_string(), "{document}");
                error["field"].as_str().expect("a field").to_owned()
            })
            .collect()
    }
}

/// Waits for the next notice of a kind; others pass by.
pub(crate) async fn await_notice(
    notices: &mut broadcast::Receiver<Arc<Notice>>,
    kind: NoticeKind,
) -> Arc<Notice> {
    let found = async {
        loop {
            let notice = notices.recv().await.expect("the engine goes on");
            if notice.kind == kind {
                return notice;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no {kind:?} came"))
}

fn keyring() -> Keyring {
    Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key")
}
