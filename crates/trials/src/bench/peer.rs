//! What the gateway is held against. The null server is the gateway itself, on a store that says yes
//! and forgets. The pass-through has the same HTTP server, the same HTTP client and the same headers on
//! the wire, with nothing stored in between. Each runs as a process of its own, as the gateway does,
//! and ends with the bench.

use std::borrow::Cow;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use postrider_engine::destination::{Destination, Guard};
use postrider_engine::http_client::{Client, ClientOptions, Post};
use postrider_engine::ports::{Clock as _, Entropy as _, SystemClock, SystemEntropy};
use postrider_engine::{Engine, Options};
use postrider_server::{
    Answers, ConnectionLimits, Front, Inbound, Keys, ServerOptions, ensure_admin_key,
};
use postrider_store::Store;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::connection::{Target, bearer};
use super::forgetful::Forgetful;
use super::process::Process;

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
    /// Where payloads go
    #[arg(long)]
    to: SocketAddr,
}

pub(crate) fn serve_null() -> Result<()> {
    let folder = tempfile::tempdir()?;
    serve(null_router(folder.path()))
}

pub(crate) fn serve_pass(arguments: &PassArguments) -> Result<()> {
    let to = arguments.to;
    serve(async move { pass_router(to) })
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

fn pass_router(to: SocketAddr) -> Result<Router> {
    let guard = Guard::new(vec![to.ip().into()]);
    let destination = Arc::new(guard.check_url(&format!("http://{to}/hook"))?);
    let options = ClientOptions {
        guard: Arc::new(guard),
        extra_roots: Vec::new(),
        revoked: Vec::new(),
        egress_proxy: None,
    };
    let state = Arc::new(Pass {
        yes: Yes::new()?,
        client: Client::new(options)?,
        destination,
        permits: Arc::new(Semaphore::new(PASS_IN_FLIGHT)),
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
    let (acknowledgement, payload) = match state.yes.accept(&headers, &body) {
        Ok(accepted) => accepted,
        Err(refusal) => return refusal.into_response(),
    };
    // Waiting here, before the answer, keeps what is accepted and not yet pushed within bounds.
    let Ok(permit) = Arc::clone(&state.permits).acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    tokio::spawn(async move {
        if let Err(error) = state.push(payload).await {
            eprintln!("the pass-through could not push: {error:#}");
        }
        drop(permit);
    });
    acknowledgement
}

impl Yes {
    fn new() -> Result<Self> {
        Ok(Self { key: bearer(KEY)?, count: AtomicU64::new(0) })
    }

    fn accept(&self, headers: &HeaderMap, body: &Bytes) -> Result<(Response, Bytes), StatusCode> {
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
        Ok(((StatusCode::ACCEPTED, axum::Json(acknowledgement)).into_response(), payload))
    }
}

impl Pass {
    async fn push(&self, payload: Bytes) -> Result<()> {
        let post = Post {
            destination: Arc::clone(&self.destination),
            headers: pushed_headers(),
            body: payload,
            deadline: PASS_DEADLINE,
            tls: None,
        };
        let answer = self.client.post(post).await?;
        anyhow::ensure!((200..300).contains(&answer.status), "answered {}", answer.status);
        Ok(())
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
        let router = pass_router(sink.address).expect("a router");
        let produced = produce(start(router).await).await;
        assert_eq!(produced.accepted, EVENTS);
        sink.arrivals.reach(EVENTS, Duration::from_mins(1)).await.expect("all arrive");
        assert_eq!((sink.arrivals.unique(), sink.arrivals.repeated()), (EVENTS, 0));
    }

    #[tokio::test]
    async fn the_pass_through_refuses_what_the_gateway_would() {
        let sink = Sink::start(Manner::Answer, 8).await.expect("a sink");
        let address = start(pass_router(sink.address).expect("a router")).await;
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
