//! A receiver: it answers as it is told and keeps what it got.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use crate::gateway::PATIENCE;

/// More than any test sends.
const MAX_KEPT: usize = 1_024;

pub(crate) struct Sink {
    pub(crate) url: String,
    status: Arc<AtomicU16>,
    received: mpsc::Receiver<Received>,
    /// While it has no permit, requests are kept waiting for their answer.
    gate: Arc<Semaphore>,
}

#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Sink {
    /// Answers with `status` unless told otherwise.
    pub(crate) async fn answering(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let status = Arc::new(AtomicU16::new(status));
        let gate = Arc::new(Semaphore::new(1));
        let (keep, received) = mpsc::channel(MAX_KEPT);
        let service = {
            let (status, gate) = (Arc::clone(&status), Arc::clone(&gate));
            service_fn(move |request| {
                answer(request, Arc::clone(&status), Arc::clone(&gate), keep.clone())
            })
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { url, status, received, gate }
    }

    /// From here on.
    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Keeps requests waiting until what is returned is dropped.
    pub(crate) async fn hold(&self) -> tokio::sync::OwnedSemaphorePermit {
        Arc::clone(&self.gate).acquire_owned().await.expect("the gate stays")
    }

    pub(crate) async fn next(&mut self) -> Received {
        let next = tokio::time::timeout(PATIENCE, self.received.recv());
        next.await.expect("something arrives").expect("the sink goes on")
    }
}

async fn answer(
    request: Request<Incoming>,
    status: Arc<AtomicU16>,
    gate: Arc<Semaphore>,
    keep: mpsc::Sender<Received>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let status = status.load(Ordering::SeqCst);
    keep.try_send(Received { headers: parts.headers, body }).expect("room for what is received");
    drop(gate.acquire().await);
    let response = Response::builder().status(status).header("x-sink", "one");
    Ok(response.body(Full::from("noted")).expect("a response"))
}
