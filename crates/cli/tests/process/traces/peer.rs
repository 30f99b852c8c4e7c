//! Whoever is posted to, which keeps all of what it got; and a post with any headers.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::Answer;
use crate::gateway::{Gateway, KEY};
use crate::within;

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) path: String,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Received {
    pub(super) fn maybe(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().expect("text"));
        assert!(values.next().is_none(), "{name} came twice");
        value
    }

    #[track_caller]
    pub(super) fn header(&self, name: &str) -> &str {
        self.maybe(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    Status(StatusCode),
    Never,
}

#[derive(Debug)]
pub(super) struct Peer {
    address: SocketAddr,
    received: Arc<watch::Sender<Vec<Received>>>,
    listening: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Peer {
    /// Answers each request by how many came before it.
    pub(super) async fn start(reply: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let received = Arc::new(watch::Sender::new(Vec::new()));
        let (reply, seen) = (Arc::new(reply), Arc::clone(&received));
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("the listener stays");
                let (seen, reply) = (Arc::clone(&seen), Arc::clone(&reply));
                let service = service_fn(move |request| {
                    let (seen, reply) = (Arc::clone(&seen), Arc::clone(&reply));
                    async move { answer(&seen, &*reply, request).await }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // A sender that is killed breaks its connections off.
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        Self { address, received, listening }
    }

    pub(super) async fn accepting() -> Self {
        Self::start(|_| Reply::Status(StatusCode::OK)).await
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until so many have come, and returns them all.
    pub(super) async fn take(&self, count: usize) -> Vec<Received> {
        self.until(|received| received.len() >= count).await
    }

    pub(super) async fn until(&self, enough: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let mut seen = self.received.subscribe();
        let waited = within("enough requests", seen.wait_for(|seen| enough(seen))).await;
        waited.expect("the sender is ours").clone()
    }

    pub(super) fn so_far(&self) -> Vec<Received> {
        self.received.borrow().clone()
    }
}

async fn answer(
    seen: &watch::Sender<Vec<Received>>,
    reply: &(dyn Fn(usize) -> Reply + Send + Sync),
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let received = Received { path: parts.uri.path().to_owned(), headers: parts.headers, body };
    let mut before = 0;
    seen.send_modify(|seen| {
        before = seen.len();
        seen.push(received);
    });
    match reply(before) {
        Reply::Status(status) => {
            let mut response = Response::new(Full::from("{}"));
            *response.status_mut() = status;
            Ok(response)
        }
        Reply::Never => std::future::pending().await,
    }
}

/// Posts JSON to the gateway, with these headers beside the usual ones.
pub(super) async fn post(
    gateway: &Gateway,
    path: &str,
    headers: &[(&str, String)],
    body: &str,
) -> Answer {
    let stream = TcpStream::connect(gateway.address).await.expect("it listens");
    let io = TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(io).await.expect("it speaks HTTP");
    tokio::spawn(async move { drop(connection.await) });
    let mut request = Request::post(path)
        .header(HOST, gateway.address.to_string())
        .header(AUTHORIZATION, format!("Bearer {KEY}"))
        .header(CONTENT_TYPE, "application/json");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::<Bytes>::from(body.to_owned())).expect("a valid request");
    let answer = within("an answer", sender.send_request(request)).await.expect("an answer");
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    Answer { status: parts.status, headers: parts.headers, body }
}
