//! A service that keeps whole requests, for a look at every byte of them.

use std::net::SocketAddr;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::within;

/// Requests that nobody has looked at yet.
const MOST_UNSEEN: usize = 16;

/// What the service answers every request with.
pub(super) const STATUS: StatusCode = StatusCode::CREATED;
pub(super) const BODY: &str = "taken";

#[derive(Debug)]
pub(super) struct Service {
    address: SocketAddr,
    requests: mpsc::Receiver<(Parts, Bytes)>,
    listening: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Service {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (seen, requests) = mpsc::channel(MOST_UNSEEN);
        let listening = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("the listener stays");
                let seen = seen.clone();
                let service = service_fn(move |request| answer(seen.clone(), request));
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        Self { address, requests, listening }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/hook?way=in", self.address)
    }

    /// The next request, head and body.
    pub(super) async fn next(&mut self) -> (Parts, Bytes) {
        within("a request", self.requests.recv()).await.expect("the sender is held")
    }
}

async fn answer(
    seen: mpsc::Sender<(Parts, Bytes)>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    seen.send((parts, body)).await.expect("somebody looks at them");
    let mut response = Response::new(Full::from(BODY));
    *response.status_mut() = STATUS;
    Ok(response)
}
