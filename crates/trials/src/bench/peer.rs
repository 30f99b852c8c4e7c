//! What the gateway is held against. The null server is the gateway itself, on a store that says yes
//! and forgets. The pass-through has the same HTTP server, the same HTTP client and the same headers on
//! the wire, with nothing stored in between, or with events and deliveries stored by hand. Each runs as
//! a process of its own, as the gateway does, and ends with the bench.

use std::borrow::Cow;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use postrider_core::EventId;
use postrider_engine::destination::{Destination, Guard};
use postrider_engine::http_client::{Client, ClientOptions, Post};
use postrider_engine::ports::{Clock as _, Entropy as _, SystemClock, SystemEntropy};
use postrider_engine::{Engine, Options};
use postrider_server::{
    Answers, ConnectionLimits, Front, Inbound, Keys, ServerOptions, ensure_admin_key,
};
use postrider_store::record::delivery_id;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use postrider_store::{Journal as _, Store};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::connection::{Target, bearer};
use super::durable::Durable;
use super::forgetful::Forgetful;
use super::process::Process;
use super::store_cycle::{self, Delivered};

/// The key that producers present to the gateway and to its peers.
pub(crate) const KEY: &str = "pr_bench_0123456789abcdefghijklmnopqrstuvwxyz";
/// How many pushes the pass-through has under way at once.
const PASS_IN_FLIGHT: usize = 64;
const PASS_DEADLINE: Duration = Duration::from_secs(30);

/// A running peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) process: Process,
}

impl Peer {
    /// The one that acknowledges and does nothing.
    pub(crate) fn null() -> Result<Self> {
        Self::start(&["bench-null"])
    }

    /// The one that pushes each payload to `to`.
    pub(crate) fn pass(to: SocketAddr) -> Result<Self> {
        Self::start(&["bench-pass", "--to", &to.to_string()])
    }

    /// The one that does so too, but stores each event by hand first; with nowhere to push it only
    /// stores. `data` is its folder.
    pub(crate) async fn by_hand(to: Option<SocketAddr>, data: &Path) -> Result<Self> {
        // The store makes the tables.
        store_cycle::open(data)?.close().await;
        let data = data.to_str().context("a folder whose name is no text")?;
        let to = to.map(|to| to.to_string());
        let to = to.as_deref().map_or(vec![], |to| vec!["--to", to]);
        Self::start(&[&["bench-pass", "--data", data], &to[..]].concat())
    }

    fn start(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(command)?;
        let printed = process.child().stdout.take().context("the peer's output")?;
        let mut line = String::new();
        BufReader::new(printed).read_line(&mut line)?;
        let address =
            line.trim().parse().with_context(|| format!("{arguments:?} said {line:?}"))?;
        Ok(Self { address, process })
    }

    pub(crate) fn target(&self) -> Result<Target> {
        Target::new(self.address, Some(KEY))?.at(http::Method::POST, "/v1/events")
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct PassArguments {
    /// Where payloads go, if anywhere
    #[arg(long)]
    to: Option<SocketAddr>,
    /// Where they are stored before they are acknowledged, if they are
    #[arg(long)]
    data: Option<PathBuf>,
}

pub(crate) fn serve_null() -> Result<()> {
    let folder = tempfile::tempdir()?;
    serve(null_router(folder.path()))
}

pub(crate) fn serve_pass(arguments: &PassArguments) -> Result<()> {
    serve(async { pass_router(arguments.to, arguments.data.as_deref()) })
}

/// Prints its address, then serves until the process that started it closes its input.
fn serve(answers: impl Future<Output = Result<impl Answers>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let answers = answers.await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let ended = async {
            // It ends with its input, whatever that has to say.
            let _ = tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await;
        };
        postrider_server::serve(listener, answers, ConnectionLimits::default(), ended).await?;
        Ok(())
    })
}

/// The whole gateway, but for storing events.
async fn null_router(folder: &Path) -> Result<Front> {
    let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])])?;
    let kept = Sqlite::open(&folder.join("null.db"), sqlite::Options::default(), keyring)?;
    let store: Arc<dyn Store> = Arc::new(Forgetful { kept });
    let entropy = Arc::new(SystemEntropy);
    ensure_admin_key(&*store, SystemClock.now(), entropy.secret_bytes(), Some(KEY)).await?;
    let (keys, inbound) = (Keys::load(&*store).await?, Inbound::load(&*store).await?);
    let options = Options::default();
    let engine = Engine::start(options, store, Arc::new(SystemClock), entropy).await?;
    Ok(postrider_server::router(engine, keys, inbound, ServerOptions::default()))
}

fn pass_router(to: Option<SocketAddr>, data: Option<&Path>) -> Result<Router> {
    let state = Arc::new(Pass {
        yes: Yes::new()?,
        push: to.map(Push::new).transpose()?,
        durable: data.map(Durable::open).transpose()?,
    });
    Ok(Router::new().route("/v1/events", post(pass)).with_state(state))
}

/// What it takes to acknowledge an event: the key and the next id.
#[derive(Debug)]
struct Yes {
    key: HeaderValue,
    count: AtomicU64,
}

#[derive(Debug)]
struct Pass {
    yes: Yes,
    push: Option<Push>,
    durable: Option<Durable>,
}

/// The way to where payloads go.
#[derive(Debug)]
struct Push {
    client: Client,
    destination: Arc<Destination>,
    permits: Arc<Semaphore>,
}

/// An event as the gateway's contract has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Posted<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// The gateway's acknowledgement, of the same size.
#[derive(Debug, Serialize)]
struct Acknowledgement<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'a str,
    received_at: &'a str,
    deliveries: u32,
    duplicate: bool,
}

async fn pass(State(state): State<Arc<Pass>>, headers: HeaderMap, body: Bytes) -> Response {
    match state.accept(&headers, &body).await {
        Ok(acknowledgement) => acknowledgement,
        Err(refusal) => refusal.into_response(),
    }
}

impl Yes {
    fn new() -> Result<Self> {
        Ok(Self { key: bearer(KEY)?, count: AtomicU64::new(0) })
    }

    /// The answer, the type and the payload of an event.
    fn accept<'b>(
        &self,
        headers: &HeaderMap,
        body: &'b Bytes,
    ) -> Result<(Response, Cow<'b, str>, Bytes), StatusCode> {
        if headers.get(header::AUTHORIZATION) != Some(&self.key) {
            return Err(StatusCode::UNAUTHORIZED);
        }
        let event: Posted<'_> =
            serde_json::from_slice(body).map_err(|_| StatusCode::UNPROCESSABLE_ENTITY)?;
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let acknowledgement = Acknowledgement {
            id: format!("evt_{number:013}"),
            kind: &event.kind,
            received_at: "2026-01-01T00:00:00.000Z",
            deliveries: 1,
            duplicate: false,
        };
        let payload = body.slice_ref(event.payload.get().as_bytes());
        let answer = (StatusCode::ACCEPTED, axum::Json(acknowledgement)).into_response();
        Ok((answer, event.kind, payload))
    }
}

impl Pass {
    async fn accept(
        self: &Arc<Self>,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Response, StatusCode> {
        let (acknowledgement, kind, payload) = self.yes.accept(headers, body)?;
        let stored = match &self.durable {
            None => None,
            Some(durable) => {
                let deliveries = usize::from(self.push.is_some());
                let stored = durable.append(kind.into_owned(), payload.clone(), deliveries).await;
                Some(stored.map_err(|error| {
                    eprintln!("the pass-through could not store: {error:#}");
                    StatusCode::SERVICE_UNAVAILABLE
                })?)
            }
        };
        if let Some(push) = &self.push {
            // Waiting here, before the answer, keeps what is accepted and not yet pushed within bounds.
            let permit = Arc::clone(&push.permits).acquire_owned().await;
            let permit = permit.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
            let state = Arc::clone(self);
            tokio::spawn(async move {
                if let Err(error) = state.carry(payload, stored).await {
                    eprintln!("the pass-through could not push: {error:#}");
                }
                drop(permit);
            });
        }
        Ok(acknowledgement)
    }

    async fn carry(&self, payload: Bytes, stored: Option<EventId>) -> Result<()> {
        let push = self.push.as_ref().context("nowhere to push to")?;
        let (Some(durable), Some(event)) = (&self.durable, stored) else {
            return push.send(payload).await.map(drop);
        };
        let (started_at, started) = (SystemClock.now(), Instant::now());
        let status = push.send(payload).await?;
        let (id, at) = (delivery_id(event, 0), SystemClock.now());
        durable.settle(Delivered { id, at, started_at, duration: started.elapsed(), status })
    }
}

impl Push {
    fn new(to: SocketAddr) -> Result<Self> {
        let guard = Guard::new(vec![to.ip().into()]);
        let destination = Arc::new(guard.check_url(&format!("http://{to}/hook"))?);
        let options = ClientOptions {
            guard: Arc::new(guard),
            extra_roots: Vec::new(),
            revoked: Vec::new(),
            egress_proxy: None,
        };
        Ok(Self {
            client: Client::new(options)?,
            destination,
            permits: Arc::new(Semaphore::new(PASS_IN_FLIGHT)),
        })
    }

    async fn send(&self, payload: Bytes) -> Result<u16> {
        let post = Post {
            destination: Arc::clone(&self.destination),
            headers: pushed_headers(),
            body: payload,
            deadline: PASS_DEADLINE,
            tls: None,
        };
        let answer = self.client.post(post).await?;
        anyhow::ensure!((200..300).contains(&answer.status), "answered {}", answer.status);
        Ok(answer.status)
    }
}

/// Headers like those of a delivery, so that as much goes over the wire; none is worked out.
fn pushed_headers() -> HeaderMap {
    [
        ("webhook-id", "evt_01jb0000000000000000"),
        ("webhook-timestamp", "1767225600"),
        ("webhook-signature", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        ("postrider-event-type", "bench.live"),
        ("postrider-attempt", "1"),
        ("postrider-delivery-id", "dlv_01jb0000000000000000"),
        ("user-agent", "Postrider/0.0.0"),
        ("accept-encoding", "identity"),
        ("content-type", "application/json"),
    ]
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
    .into_iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::connection::Connection;
    use super::super::event;
    use super::super::load::{Produced, Producers};
    use super::super::sink::{Manner, Sink};
    use super::*;

    const EVENTS: u64 = 2_000;

    async fn start(answers: impl Answers) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let limits = ConnectionLimits::default();
        tokio::spawn(postrider_server::serve(listener, answers, limits, std::future::pending()));
        address
    }

    fn target(address: SocketAddr, key: Option<&str>) -> Target {
        let target = Target::new(address, key);
        target.and_then(|target| target.at(http::Method::POST, "/v1/events")).expect("a target")
    }

    async fn produce(address: SocketAddr) -> Produced {
        let numbers = AtomicU64::new(0);
        let next = move || {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            (number < EVENTS).then(|| event::single("bench.tick", number))
        };
        let target = target(address, Some(KEY));
        let producers = Producers::start(&[target], 8, next).await.expect("connections");
        producers.finish().await.expect("all acknowledged")
    }

    #[tokio::test]
    async fn the_null_server_acknowledges_and_keeps_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let address = start(null_router(folder.path()).await.expect("a router")).await;
        let produced = produce(address).await;
        assert_eq!((produced.accepted, produced.refused), (EVENTS, 0));
        let list = target(address, Some(KEY)).at(http::Method::GET, "/v1/events");
        let mut connection = Connection::open(address).await.expect("a connection");
        let request = list.expect("a target").request(Bytes::new());
        let listed = connection.send(request).await.expect("an answer");
        let listed: serde_json::Value = serde_json::from_slice(&listed.body).expect("JSON");
        assert_eq!(listed["data"], serde_json::json!([]));
    }

    #[tokio::test]
    async fn what_the_pass_through_accepts_arrives_once() {
        let capacity = usize::try_from(EVENTS).expect("a small number");
        let sink = Sink::start(Manner::Answer, capacity).await.expect("a sink");
        let router = pass_router(Some(sink.address), None).expect("a router");
        let produced = produce(start(router).await).await;
        assert_eq!(produced.accepted, EVENTS);
        sink.arrivals.reach(EVENTS, Duration::from_mins(1)).await.expect("all arrive");
        assert_eq!((sink.arrivals.unique(), sink.arrivals.repeated()), (EVENTS, 0));
    }

    #[tokio::test]
    async fn what_is_stored_by_hand_arrives_once_and_is_noted_as_delivered() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path();
        store_cycle::open(data).expect("a store").close().await;
        let capacity = usize::try_from(EVENTS).expect("a small number");
        let sink = Sink::start(Manner::Answer, capacity).await.expect("a sink");
        let router = pass_router(Some(sink.address), Some(data)).expect("a router");
        assert_eq!(produce(start(router).await).await.accepted, EVENTS);
        sink.arrivals.reach(EVENTS, Duration::from_mins(1)).await.expect("all arrive");
        assert_eq!((sink.arrivals.unique(), sink.arrivals.repeated()), (EVENTS, 0));

        assert_eq!(count(data, "events WHERE deliveries = 1"), EVENTS);
        // What was pushed last may not be noted yet: the writer does that when it comes to it.
        let mut poll = tokio::time::interval(Duration::from_millis(5));
        let noted = async {
            while count(data, "deliveries WHERE state = 1 AND place IS NULL") < EVENTS {
                poll.tick().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), noted).await.expect("all are noted");
    }

    #[tokio::test]
    async fn with_nowhere_to_push_events_are_only_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path();
        store_cycle::open(data).expect("a store").close().await;
        let router = pass_router(None, Some(data)).expect("a router");
        assert_eq!(produce(start(router).await).await.accepted, EVENTS);
        assert_eq!((count(data, "events"), count(data, "deliveries")), (EVENTS, 0));
    }

    /// How many rows there are of what is asked for.
    fn count(data: &Path, of: &str) -> u64 {
        let database = rusqlite::Connection::open(data.join("postrider.db")).expect("a database");
        let sql = format!("SELECT count(*) FROM {of}");
        let rows: i64 = database.query_row(&sql, (), |row| row.get(0)).expect("a count");
        rows.unsigned_abs()
    }

    #[tokio::test]
    async fn the_pass_through_refuses_what_the_gateway_would() {
        let sink = Sink::start(Manner::Answer, 8).await.expect("a sink");
        let address = start(pass_router(Some(sink.address), None).expect("a router")).await;
        let mut connection = Connection::open(address).await.expect("a connection");
        for (key, body, status) in [
            (Some(KEY), event::single("a.b", 1), 202),
            (None, event::single("a.b", 1), 401),
            (Some(KEY), Bytes::from_static(b"{\"type\":7}"), 422),
        ] {
            let request = target(address, key).request(body);
            let answer = connection.send(request).await.expect("an answer");
            assert_eq!(answer.status, status);
        }
    }
}
