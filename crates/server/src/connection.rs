//! Connections: accepting them, keeping them within bounds, and ending them in good order.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower_service::Service;

use crate::front::Front;
use crate::hub_socket;
use crate::stopping::{self, Stopping};
use crate::throttle::Peer;

/// After a failed accept (no descriptors left, say) it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
const MAX_HEADERS: usize = 100;
const MAX_HTTP2_STREAMS: u32 = 256;
const HTTP2_PING_EVERY: Duration = Duration::from_secs(20);

/// What a client may take of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Further ones wait in the backlog of the operating system.
    pub max_connections: u32,
    /// A connection that sends no whole request head for this long is closed; an idle one too.
    pub header_timeout: Duration,
    pub max_header_bytes: usize,
    /// How long a stop waits for requests that are under way.
    pub drain: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_connections: 4_096,
            header_timeout: Duration::from_mins(1),
            max_header_bytes: 64 << 10,
            drain: Duration::from_secs(10),
        }
    }
}

/// A connection's place among those that there may be. A connection that has become something else
/// keeps it: it still is one, and a stop waits for it.
#[derive(Debug, Clone)]
pub(crate) struct Place(#[expect(dead_code, reason = "held")] Arc<OwnedSemaphorePermit>);

/// What answers requests, on as many connections as there are.
pub trait Answers:
    Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Answers for S where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

impl Front {
    /// [`serve`] with the gateway's own answers. It takes nothing generic, so that what every request
    /// passes through is compiled with this crate, and optimised as this crate is.
    pub async fn serve(
        self,
        listener: TcpListener,
        limits: ConnectionLimits,
        shutdown: BoxFuture<'_, ()>,
    ) -> io::Result<()> {
        serve(listener, self, limits, shutdown).await
    }
}

/// Serves until `shutdown` ends, then lets what is under way finish within `limits.drain`.
pub async fn serve(
    listener: TcpListener,
    answers: impl Answers,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let builder = Arc::new(builder(limits));
    let places = Arc::new(Semaphore::new(limits.max_connections as usize));
    let (stop, stopping) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            listener.accept().await.map(|(stream, from)| (stream, from.ip(), place))
        };
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accepted => match accepted {
                Ok((stream, from, place)) => {
                    let stopping = Stopping::when(stopping.clone());
                    let builder = Arc::clone(&builder);
                    let answers = answers.clone();
                    tokio::spawn(carry(stream, from, builder, answers, limits, stopping, place));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    tokio::select! {
                        () = &mut shutdown => break,
                        () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                    }
                }
            },
        }
    }
    drop(listener);
    stop.send_replace(true);
    let all = places.acquire_many(limits.max_connections);
    if tokio::time::timeout(limits.drain, all).await.is_err() {
        tracing::warn!("some requests were not finished in time and are cut off");
    }
    Ok(())
}

fn builder(limits: ConnectionLimits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(limits.max_header_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING_EVERY)
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX));
    builder
}

/// One connection from its start to its end, or until a WebSocket takes it over. It holds its place
/// until then.
async fn carry(
    stream: TcpStream,
    from: IpAddr,
    builder: Arc<auto::Builder<TokioExecutor>>,
    answers: impl Answers,
    limits: ConnectionLimits,
    mut stopping: Stopping,
    place: OwnedSemaphorePermit,
) {
    // Answers are small and whole: waiting for more to send would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let spoken = AtomicBool::new(false);
    let place = Place(Arc::new(place));
    let told = stopping.clone();
    let peer = Peer::from(from);
    let service = service_fn(|mut request: Request<Incoming>| {
        spoken.store(true, Ordering::Relaxed);
        let path = request.uri().path();
        let (lasts, is_hub) = (stopping::concerns(path), path == hub_socket::PATH);
        let extensions = request.extensions_mut();
        extensions.insert(peer);
        if lasts {
            extensions.insert(told.clone());
        }
        if is_hub {
            extensions.insert(place.clone());
        }
        // Always ready, so it need not be asked.
        answers.clone().call(request)
    });
    let io = TokioIo::new(stream);
    let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
    // Until the first request it is not known which protocol is spoken, and so nobody else looks
    // at the time.
    let mut silence = pin!(tokio::time::sleep(limits.header_timeout));
    let mut watched = true;
    loop {
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopping.wait() => break,
            () = silence.as_mut(), if watched => {
                if !spoken.load(Ordering::Relaxed) {
                    return;
                }
                watched = false;
                continue;
            }
        };
        return log_end(ended);
    }
    connection.as_mut().graceful_shutdown();
    // A connection that has not said a word is not waited for.
    if spoken.load(Ordering::Relaxed) {
        log_end(connection.await);
    }
}

fn log_end(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Errors of the connection that was to be accepted, not of the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
