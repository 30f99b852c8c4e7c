//! A local service: what deliveries are forwarded to.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::within;

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) request: Request<Bytes>,
    /// Which connection of the service it came over, from 1.
    pub(crate) connection: usize,
    answer: oneshot::Sender<Response<Bytes>>,
}

impl Arrival {
    pub(crate) fn answer(self, response: Response<Bytes>) {
        self.answer.send(response).expect("somebody waits for the answer");
    }

    pub(crate) fn with(self, status: u16) {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        self.answer(response);
    }

    /// Waits until whoever asked has given up.
    pub(crate) async fn given_up(mut self) {
        within("the request to be given up", self.answer.closed()).await;
    }
}

/// Shows each request to the test, which answers it.
pub(crate) struct Service {
    address: SocketAddr,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let (sender, arrivals) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for connection in 1.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let sender = sender.clone();
                let serve = service_fn(move |request| arrive(request, connection, sender.clone()));
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), serve);
                tokio::spawn(serving);
            }
        });
        Self { address, arrivals }
    }

    /// One that answers everything at once with this status.
    pub(crate) async fn answering(status: u16) -> SocketAddr {
        let Self { address, mut arrivals } = Self::start().await;
        tokio::spawn(async move {
            while let Some(arrival) = arrivals.recv().await {
                arrival.with(status);
            }
        });
        address
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn next(&mut self) -> Arrival {
        within("a request at the service", self.arrivals.recv()).await.expect("it runs")
    }

    /// Whether there is no request that has not been taken.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.arrivals.try_recv().is_err()
    }
}

async fn arrive(
    request: Request<Incoming>,
    connection: usize,
    arrivals: mpsc::UnboundedSender<Arrival>,
) -> Result<Response<Full<Bytes>>, Arc<dyn std::error::Error + Send + Sync>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| Arc::new(error) as Arc<_>)?.to_bytes();
    let (answer, answered) = oneshot::channel();
    let request = Request::from_parts(head, body);
    // Once the test is over nobody looks at what still comes.
    let _ = arrivals.send(Arrival { request, connection, answer });
    let response = answered.await.map_err(|error| Arc::new(error) as Arc<_>)?;
    Ok(response.map(Full::new))
}
