//! The other side of the demo: services on this machine that take webhooks, each in a way of its own.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

/// A webhook of the demo is much smaller.
const MAX_BODY_BYTES: usize = 64 << 10;
/// How often the rate limiting one takes something, and how long it asks to be left alone.
const ONE_EVERY: Duration = Duration::from_millis(1_200);
const ASKS_FOR_SECONDS: &str = "2";

/// How a receiver treats what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    Healthy,
    /// Fails two times out of five.
    Flaky,
    /// Takes its time.
    Slow,
    /// Takes one now and then, and says so.
    RateLimiting,
    /// Refuses what it does not like, for good.
    Picky,
}

/// All of them. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Receivers {
    pub(super) healthy: String,
    pub(super) flaky: String,
    pub(super) slow: String,
    pub(super) rate_limiting: String,
    pub(super) picky: String,
    /// A port where nobody listens.
    pub(super) dead: String,
    _listening: JoinSet<()>,
    /// Kept, so that nobody else takes the port.
    _dead: TcpSocket,
}

impl Receivers {
    pub(super) async fn start() -> std::io::Result<Self> {
        let mut listening = JoinSet::new();
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, 1], 0).into())?;
        Ok(Self {
            healthy: start(&mut listening, Manner::Healthy).await?,
            flaky: start(&mut listening, Manner::Flaky).await?,
            slow: start(&mut listening, Manner::Slow).await?,
            rate_limiting: start(&mut listening, Manner::RateLimiting).await?,
            picky: start(&mut listening, Manner::Picky).await?,
            dead: format!("http://{}/hook", socket.local_addr()?),
            _listening: listening,
            _dead: socket,
        })
    }
}

/// Listens on a port of its own, and says where.
async fn start(listening: &mut JoinSet<()>, manner: Manner) -> std::io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let receiver = Arc::new(Receiver { manner, count: AtomicU64::new(0), taken: Mutex::new(None) });
    listening.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            // The gateway has a few connections to each of its endpoints at most.
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = listener.accept().await else { return };
            let receiver = Arc::clone(&receiver);
            let service = service_fn(move |request| {
                let receiver = Arc::clone(&receiver);
                async move { Ok::<_, Infallible>(receiver.answer(request).await) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            connections.spawn(async move { drop(connection.await) });
        }
    });
    Ok(url)
}

#[derive(Debug)]
struct Receiver {
    manner: Manner,
    count: AtomicU64,
    /// When it last took something.
    taken: Mutex<Option<Instant>>,
}

impl Receiver {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let kind = request.headers().get("postrider-event-type").cloned();
        let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
        if body.is_err() {
            return say(StatusCode::BAD_REQUEST, "the body could not be read");
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        match self.manner {
            Manner::Healthy => say(StatusCode::OK, "thank you"),
            Manner::Flaky => match count % 5 {
                1 => say(StatusCode::SERVICE_UNAVAILABLE, "the database is being restarted"),
                3 => say(StatusCode::INTERNAL_SERVER_ERROR, "TypeError: total is undefined"),
                _ => say(StatusCode::OK, "thank you"),
            },
            Manner::Slow => {
                tokio::time::sleep(Duration::from_millis(700 + count % 4 * 500)).await;
                say(StatusCode::OK, "thank you for your patience")
            }
            Manner::RateLimiting => self.limit(),
            Manner::Picky => match kind {
                Some(kind) if kind == "user.deleted" => {
                    say(StatusCode::UNPROCESSABLE_ENTITY, "we do not know this user")
                }
                Some(_) | None => say(StatusCode::OK, "thank you"),
            },
        }
    }

    fn limit(&self) -> Response<Full<Bytes>> {
        let mut taken = self.taken.lock();
        if taken.is_some_and(|taken| taken.elapsed() < ONE_EVERY) {
            let mut response = say(StatusCode::TOO_MANY_REQUESTS, "slower, please");
            let wait = http::HeaderValue::from_static(ASKS_FOR_SECONDS);
            response.headers_mut().insert(RETRY_AFTER, wait);
            return response;
        }
        *taken = Some(Instant::now());
        say(StatusCode::OK, "thank you")
    }
}

fn say(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
