//! A gateway in memory, as far as workers see one, with a fault for any request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use postrider_client::Gateway;
use postrider_client::worker::WorkerOptions;
use postrider_core::{DeliveryId, EndpointId, EventId, Timestamp, span};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::within;

pub(crate) const KEY: &str = "pr_0123456789abcdefghijklmnopqrstuvwxyz";
/// How often a waiting lease looks for work.
const TICK: Duration = Duration::from_millis(10);

/// One request, as it came.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
    /// From 1, in the order of arrival, among the requests of the same path.
    pub(crate) number: usize,
    /// How many deliveries were leased when it came.
    pub(crate) leased: usize,
}

impl Call {
    /// `lease`, `ack`, `nack`, `extend`.
    pub(crate) fn verb(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// What is done instead of an answer, or to it.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    Answer(u16, &'static [(&'static str, &'static str)], String),
    /// The connection breaks; nothing is done.
    Break,
    /// It is done, but the connection breaks before the answer.
    DoAndBreak,
    Hang,
    /// The answer is held back until [`Fake::release`].
    Hold,
    /// Every lease the request names lapses first.
    Lapse,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Leased,
    Done(Option<String>),
    Failed(String),
}

#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) state: State,
    pub(crate) attempts: u32,
    fence: u64,
    /// When it may be leased, or when its lease ends.
    at: Instant,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) deliveries: BTreeMap<i64, Delivery>,
    pub(crate) calls: Vec<Call>,
    pub(crate) connections: usize,
}

impl Seen {
    pub(crate) fn calls_of(&self, verb: &str) -> Vec<&Call> {
        self.calls.iter().filter(|call| call.verb() == verb).collect()
    }

    pub(crate) fn all(&self, wanted: &State) -> bool {
        self.deliveries.values().all(|delivery| delivery.state == *wanted)
    }
}

type Faults = dyn Fn(&Call) -> Option<Fault> + Send + Sync;

struct Shared {
    seen: Mutex<Seen>,
    changed: watch::Sender<()>,
    released: watch::Sender<bool>,
    faults: Box<Faults>,
}

pub(crate) struct Fake {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

pub(crate) const ENDPOINT: EndpointId = EndpointId::from_i64(1);

impl Fake {
    pub(crate) async fn start() -> Self {
        Self::with(|_| None).await
    }

    pub(crate) async fn with(
        faults: impl Fn(&Call) -> Option<Fault> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            changed: watch::Sender::new(()),
            released: watch::Sender::new(false),
            faults: Box::new(faults),
        });
        let serving = Arc::clone(&shared);
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("the listener stays");
                serving.look().connections += 1;
                let shared = Arc::clone(&serving);
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&shared), request));
                    let builder = auto::Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { address, shared, listening }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn gateway(&self) -> Gateway {
        Gateway::new(&self.url(), KEY).expect("valid")
    }

    pub(crate) fn put(&self, count: i64) {
        let mut seen = self.shared.look();
        let last = seen.deliveries.keys().next_back().copied().unwrap_or(0);
        for number in last + 1..=last + count {
            let at = Instant::now();
            let delivery = Delivery { state: State::Waiting, attempts: 0, fence: 0, at };
            seen.deliveries.insert(number, delivery);
        }
    }

    pub(crate) fn look(&self) -> MutexGuard<'_, Seen> {
        self.shared.look()
    }

    /// Lets go of every answer that is held back, and of those to come.
    pub(crate) fn release(&self) {
        self.shared.released.send_replace(true);
    }

    pub(crate) async fn until(&self, what: &str, enough: impl Fn(&Seen) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let looking = async {
            while !enough(&self.look()) {
                changed.changed().await.expect("the sender is ours");
            }
        };
        within(what, looking).await;
    }
}

/// Short leases, so that nothing has to be waited for.
pub(crate) fn options() -> WorkerOptions {
    let lease = Duration::from_secs(1);
    WorkerOptions { lease, drain: Duration::from_mins(1), ..WorkerOptions::new(ENDPOINT) }
}

impl Shared {
    fn look(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no test panics with it")
    }

    fn act(&self, call: &Call) -> (StatusCode, Value) {
        let answer = match call.verb() {
            "ack" | "nack" | "release" | "extend" => (StatusCode::OK, self.end(call)),
            _ => (StatusCode::OK, json!({ "path": call.path, "body": call.body })),
        };
        self.changed.send_replace(());
        answer
    }

    async fn lease(&self, call: &Call) -> (StatusCode, Value) {
        let wait = span::parse(call.body["wait"].as_str().unwrap_or("0s")).expect("a duration");
        let lease = span::parse(call.body["lease"].as_str().expect("given")).expect("a duration");
        let max = usize::try_from(call.body["max"].as_u64().expect("given")).expect("small");
        let end = Instant::now() + wait;
        loop {
            let taken = self.take(max, lease);
            if !taken.is_empty() || Instant::now() >= end {
                self.changed.send_replace(());
                return (StatusCode::OK, json!({ "leases": taken }));
            }
            tokio::time::sleep(TICK).await;
        }
    }

    fn take(&self, max: usize, lease: Duration) -> Vec<Value> {
        let now = Instant::now();
        let mut seen = self.look();
        let due = seen.deliveries.iter_mut().filter(|(_, delivery)| {
            matches!(delivery.state, State::Waiting | State::Leased) && delivery.at <= now
        });
        let taken = due.take(max).map(|(number, delivery)| {
            // What is still leased has lapsed.
            delivery.attempts += u32::from(delivery.state == State::Leased);
            delivery.state = State::Leased;
            delivery.fence += 1;
            delivery.at = now + lease;
            json!({
                "lease": format!("lse_{number}_{}", delivery.fence),
                "delivery_id": DeliveryId::from_i64(*number),
                "expires_at": Timestamp::from_millis(0),
                "attempt": delivery.attempts + 1,
                "event": {
                    "id": EventId::from_i64(*number),
                    "type": "order.created",
                    "content_type": "application/json",
                    "received_at": Timestamp::from_millis(0),
                    "payload": { "number": number },
                },
            })
        });
        taken.collect()
    }

    fn end(&self, call: &Call) -> Value {
        let now = Instant::now();
        let body = &call.body;
        let wait = |field: &str| body[field].as_str().map(|text| span::parse(text).expect("valid"));
        let mut results = Vec::new();
        let mut seen = self.look();
        for token in body["leases"].as_array().expect("given") {
            let delivery = find(&mut seen, token);
            let live = delivery.as_ref().is_some_and(|found| found.at > now);
            results.push(json!({ "lease": token, "ok": live, "expires_at": live.then_some(Timestamp::from_millis(0)) }));
            let Some(delivery) = delivery.filter(|_| live) else { continue };
            match (call.verb(), body["class"].as_str()) {
                ("ack", _) => {
                    let result = body["result"].as_str().map(str::to_owned);
                    delivery.state = State::Done(result);
                }
                ("nack", Some("final")) => {
                    let error = body["error"].as_str().expect("given").to_owned();
                    delivery.state = State::Failed(error);
                }
                ("nack", class) => {
                    let deferred = class == Some("rate_limited") && wait("retry_after").is_some();
                    delivery.attempts += u32::from(!deferred);
                    delivery.state = State::Waiting;
                    delivery.at = now + wait("retry_after").unwrap_or_default();
                }
                ("release", _) => {
                    delivery.state = State::Waiting;
                    delivery.at = now;
                }
                _ => delivery.at = now + wait("lease").expect("given"),
            }
        }
        json!({ "results": results })
    }

    fn lapse(&self, call: &Call) {
        let mut seen = self.look();
        for token in call.body["leases"].as_array().expect("given") {
            if let Some(delivery) = find(&mut seen, token) {
                delivery.at = Instant::now();
            }
        }
    }
}

/// The delivery that a token is good for.
fn find<'a>(seen: &'a mut Seen, token: &Value) -> Option<&'a mut Delivery> {
    let mut parts = token.as_str()?.split('_').skip(1);
    let (number, fence): (i64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let found = seen.deliveries.get_mut(&number)?;
    (found.state == State::Leased && found.fence == fence).then_some(found)
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| "the client is gone")?.to_bytes();
    let path = parts.uri.to_string();
    let call = {
        let mut seen = shared.look();
        let number = seen.calls.iter().filter(|call| call.path == path).count() + 1;
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let method = parts.method.to_string();
        let is_leased = |delivery: &&Delivery| delivery.state == State::Leased;
        let leased = seen.deliveries.values().filter(is_leased).count();
        let call = Call { method, path, headers: parts.headers, body, number, leased };
        seen.calls.push(call.clone());
        call
    };
    shared.changed.send_replace(());
    let fault = (shared.faults)(&call);
    match &fault {
        Some(Fault::Answer(status, headers, body)) => {
            let mut response = Response::builder().status(*status);
            for (name, value) in *headers {
                response = response.header(*name, *value);
            }
            return Ok(response.body(Full::from(body.clone())).expect("valid"));
        }
        Some(Fault::Break) => return Err("broken on purpose"),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Lapse) => shared.lapse(&call),
        Some(Fault::DoAndBreak | Fault::Hold) | None => {}
    }
    let (status, body) =
        if call.verb() == "lease" { shared.lease(&call).await } else { shared.act(&call) };
    match fault {
        Some(Fault::DoAndBreak) => return Err("broken on purpose"),
        Some(Fault::Hold) => {
            let mut released = shared.released.subscribe();
            drop(released.wait_for(|released| *released).await);
        }
        _ => {}
    }
    Ok(Response::builder().status(status).body(Full::from(body.to_string())).expect("valid"))
}
