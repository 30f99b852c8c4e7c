//! A receiver of deliveries on a real socket, which writes down all that arrives.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::within;

/// One attempt, as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// `webhook-id`: the event.
    pub(crate) event: String,
    pub(crate) delivery: String,
    pub(crate) attempt: u32,
    pub(crate) body: Bytes,
    /// The number in the payload.
    pub(crate) number: u64,
    pub(crate) at: Instant,
}

/// What a sink does about an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Now(StatusCode),
    /// 200, so much later.
    After(Duration),
    /// 429: it asks to be left alone for so many seconds.
    Busy(u64),
    /// 200, once [`Sink::release`] has been called.
    WhenReleased,
    Never,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) arrivals: Vec<Arrival>,
    /// Events that were answered with 200.
    pub(crate) delivered: HashSet<String>,
}

#[derive(Debug)]
pub(crate) struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    seen: watch::Sender<Seen>,
    released: watch::Sender<bool>,
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Sink {
    pub(crate) async fn start(reply: impl Fn(&Arrival) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            seen: watch::Sender::new(Seen::default()),
            released: watch::Sender::new(false),
        });
        let reply = Arc::new(reply);
        let receiving = Arc::clone(&shared);
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("the listener stays");
                let (shared, reply) = (Arc::clone(&receiving), Arc::clone(&reply));
                let service = service_fn(move |request| {
                    let (shared, reply) = (Arc::clone(&shared), Arc::clone(&reply));
                    async move { answer(&shared, &*reply, request).await }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // A sender that is killed breaks its connections off.
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        Self { address, shared, listening }
    }

    pub(crate) async fn accepting() -> Self {
        Self::start(|_| Reply::Now(StatusCode::OK)).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Lets go of every answer that is held back, and of those to come.
    pub(crate) fn release(&self) {
        self.shared.released.send_replace(true);
    }

    /// Waits until what was seen is enough.
    pub(crate) async fn until(&self, what: &str, enough: impl Fn(&Seen) -> bool) {
        let mut seen = self.shared.seen.subscribe();
        let waited = within(what, seen.wait_for(|seen| enough(seen))).await;
        drop(waited.expect("the sender is ours"));
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.shared.seen.borrow().arrivals.clone()
    }

    pub(crate) fn delivered(&self) -> HashSet<String> {
        self.shared.seen.borrow().delivered.clone()
    }
}

async fn answer(
    shared: &Shared,
    reply: &(dyn Fn(&Arrival) -> Reply + Send + Sync),
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    // An attempt whose sender was killed half-way has not arrived.
    let body = body.collect().await?.to_bytes();
    let arrival = Arrival {
        event: header(&parts.headers, "webhook-id"),
        delivery: header(&parts.headers, "postrider-delivery-id"),
        attempt: header(&parts.headers, "postrider-attempt").parse().unwrap_or(0),
        number: serde_json::from_slice::<Value>(&body)
            .ok()
            .and_then(|payload| payload["number"].as_u64())
            .unwrap_or(u64::MAX),
        body,
        at: Instant::now(),
    };
    let reply = reply(&arrival);
    let event = arrival.event.clone();
    shared.seen.send_modify(|seen| {
        if reply == Reply::Now(StatusCode::OK) {
            seen.delivered.insert(event.clone());
        }
        seen.arrivals.push(arrival);
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = match reply {
        Reply::Now(status) => status,
        Reply::Busy(seconds) => {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
            StatusCode::TOO_MANY_REQUESTS
        }
        Reply::After(delay) => {
            // Whoever asked may be gone by then: it has been told nothing.
            tokio::time::sleep(delay).await;
            shared.seen.send_modify(|seen| seen.delivered.extend([event]));
            StatusCode::OK
        }
        Reply::WhenReleased => {
            let mut released = shared.released.subscribe();
            drop(released.wait_for(|released| *released).await);
            StatusCode::OK
        }
        Reply::Never => std::future::pending().await,
    };
    Ok(response)
}

/// Empty where it is missing, which no check lets pass.
fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
