//! The endpoint of a bench: takes what arrives, and knows how long it was on its way.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use postrider_engine::ports::{Entropy as _, SystemEntropy};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::latency::Times;
use crate::Failure;

/// The largest event that a gateway can be told to take.
const MAX_BODY_BYTES: usize = 101 << 20;

/// How many events are known by when they were accepted. Of more, only the number is.
const MAX_TRACKED: usize = 1_000_000;

/// A gateway has a few connections to each of its endpoints.
const MAX_CONNECTIONS: usize = 4_096;

pub(super) struct Receiver {
    pub(super) url: String,
    pub(super) arrivals: Arrivals,
    listening: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Receiver {
    pub(super) async fn listen(address: SocketAddr) -> Result<Self, Failure> {
        let unheard = || format!("--receive: cannot listen on {address}");
        let listener = TcpListener::bind(address).await.with_context(unheard)?;
        let address = listener.local_addr().with_context(unheard)?;
        // What others may send to the port is not counted.
        let [first, second, third, fourth, ..] = SystemEntropy.secret_bytes();
        let path = format!("/bench/{:08x}", u32::from_be_bytes([first, second, third, fourth]));
        let arrivals = Arrivals::new();
        let listening = tokio::spawn(serve(listener, path.clone().into(), arrivals.clone()));
        Ok(Self { url: format!("http://{address}{path}"), arrivals, listening })
    }
}

async fn serve(listener: TcpListener, path: Arc<str>, arrivals: Arrivals) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (path, arrivals) = (Arc::clone(&path), arrivals.clone());
        let service = service_fn(move |request| {
            let (path, arrivals) = (Arc::clone(&path), arrivals.clone());
            async move { Ok::<_, Infallible>(answer(request, &path, &arrivals).await) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move { drop(connection.await) });
    }
}

async fn answer(
    request: Request<Incoming>,
    path: &str,
    arrivals: &Arrivals,
) -> Response<Full<Bytes>> {
    let at = Instant::now();
    let mut response = Response::new(Full::default());
    if request.uri().path() != path {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    let again = request.headers().get("postrider-attempt").is_some_and(|attempt| attempt != "1");
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
    let Ok(body) = body else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let payload: Option<Value> = serde_json::from_slice(&body.to_bytes()).ok();
    match payload.and_then(|payload| payload["n"].as_u64()) {
        Some(number) if !again => arrivals.arrived(number, at),
        Some(_) => arrivals.state.lock().repeated += 1,
        // Of the same type, but not sent by this program.
        None => {}
    }
    response
}

/// Which events have been accepted, and which have arrived.
#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    state: Arc<Mutex<State>>,
    count: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct State {
    /// By number: one of the two is still to come.
    under_way: HashMap<u64, Half>,
    times: Times,
    repeated: u64,
    last: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum Half {
    Accepted(Instant),
    /// A delivery can be faster than the answer to the producer.
    Arrived,
}

impl Arrivals {
    fn new() -> Self {
        Self { state: Arc::default(), count: Arc::new(watch::Sender::new(0)) }
    }

    /// The gateway said yes to this one.
    pub(super) fn accepted(&self, number: u64, at: Instant) {
        let state = &mut *self.state.lock();
        match state.under_way.remove(&number) {
            Some(Half::Arrived) => state.times.add(std::time::Duration::ZERO),
            Some(Half::Accepted(_)) | None => state.keep(number, Half::Accepted(at)),
        }
    }

    fn arrived(&self, number: u64, at: Instant) {
        {
            let state = &mut *self.state.lock();
            state.last = Some(at);
            match state.under_way.remove(&number) {
                Some(Half::Accepted(since)) => state.times.add(at.saturating_duration_since(since)),
                Some(Half::Arrived) | None => state.keep(number, Half::Arrived),
            }
        }
        self.count.send_modify(|count| *count += 1);
    }

    pub(super) fn count(&self) -> u64 {
        *self.count.borrow()
    }

    /// Waits for so many.
    pub(super) async fn all_of(&self, accepted: u64) {
        let mut count = self.count.subscribe();
        // The sender is here.
        let _arrived = count.wait_for(|count| *count >= accepted).await;
    }

    pub(super) fn repeated(&self) -> u64 {
        self.state.lock().repeated
    }

    pub(super) fn last(&self) -> Option<Instant> {
        self.state.lock().last
    }

    pub(super) fn times(&self) -> Times {
        self.state.lock().times.clone()
    }
}

impl State {
    fn keep(&mut self, number: u64, half: Half) {
        if self.under_way.len() < MAX_TRACKED {
            self.under_way.insert(number, half);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_way_is_measured_whichever_end_is_known_first() {
        let arrivals = Arrivals::new();
        let now = Instant::now();
        arrivals.accepted(1, now);
        arrivals.arrived(1, now + Duration::from_millis(40));
        arrivals.arrived(2, now);
        arrivals.accepted(2, now + Duration::from_millis(9));
        arrivals.accepted(3, now);
        assert_eq!(arrivals.count(), 2);
        let times = arrivals.times();
        assert_eq!(times.count(), 2);
        assert_eq!(times.within(0), Some(Duration::ZERO));
        assert_eq!(times.within(1_000), Some(Duration::from_millis(40)));
        assert_eq!(arrivals.state.lock().under_way.len(), 1);
        arrivals.all_of(2).await;
    }
}
