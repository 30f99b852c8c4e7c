//! A receiver of webhooks: records what arrives and answers as told, at once or when released.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// How long anything that has to arrive may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    /// A header that has to be there.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        value.to_str().expect("text")
    }

    pub(crate) fn body_text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: &'static str,
    held: bool,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: "", held: false }
    }

    #[must_use]
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[must_use]
    pub(crate) fn body(mut self, body: &'static str) -> Self {
        self.body = body;
        self
    }

    /// Given only once [`Sink::release`] allows it.
    #[must_use]
    pub(crate) fn held(mut self) -> Self {
        self.held = true;
        self
    }
}

type Script = Box<dyn FnMut(&Received) -> Reply + Send>;

/// A running receiver.
pub(crate) struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Script>,
    received: Mutex<Vec<Received>>,
    count: watch::Sender<usize>,
    releases: Semaphore,
}

impl Sink {
    pub(crate) async fn start(script: impl FnMut(&Received) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            received: Mutex::default(),
            count: watch::Sender::new(0),
            releases: Semaphore::new(0),
        });
        tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared }
    }

    /// Answers everything the same way.
    pub(crate) async fn answering(status: u16) -> Self {
        Self::start(move |_| Reply::status(status)).await
    }

    /// Gives each answer once, and the last for ever.
    pub(crate) async fn in_turn(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        Self::start(move |_| match replies.len() {
            1 => replies[0].clone(),
            _ => replies.pop_front().expect("at least one"),
        })
        .await
    }

    /// Follows another script from here on.
    pub(crate) fn follow(&self, script: impl FnMut(&Received) -> Reply + Send + 'static) {
        *lock(&self.shared.script) = Box::new(script);
    }

    pub(crate) fn answer(&self, status: u16) {
        self.follow(move |_| Reply::status(status));
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Everything so far, in the order of arrival.
    pub(crate) fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.shared.received).len()
    }

    /// Bodies in the order of arrival.
    pub(crate) fn bodies(&self) -> Vec<String> {
        lock(&self.shared.received).iter().map(|one| one.body_text().to_owned()).collect()
    }

    /// Waits until `count` have arrived in all, and returns the last of those.
    pub(crate) async fn nth(&self, count: usize) -> Received {
        let mut arrived = self.shared.count.subscribe();
        let enough = arrived.wait_for(|arrived| *arrived >= count);
        let waited = tokio::time::timeout(PATIENCE, enough).await;
        assert!(waited.is_ok(), "{} of {count} arrived: {:?}", self.count(), self.bodies());
        lock(&self.shared.received)[count - 1].clone()
    }

    /// Lets `count` answers go that are held, or will be.
    pub(crate) fn release(&self, count: usize) {
        self.shared.releases.add_permits(count);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
        // A client that goes away in the middle is nothing to report.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let received = Received { headers: parts.headers, body };
    let reply = {
        let mut all = lock(&shared.received);
        // Scripted and recorded together, so that answers are given in the order of arrival.
        let reply = lock(&shared.script)(&received);
        all.push(received);
        shared.count.send_replace(all.len());
        reply
    };
    if reply.held {
        shared.releases.acquire().await.expect("never closed").forget();
    }
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::from(reply.body)).expect("a valid answer"))
}

/// A script that panicked has failed its test already.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
