//! Where deliveries go: a server that notes when each event arrived, and answers, or hangs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::interval;

use super::event;

const MAX_BODY_BYTES: usize = 64 << 10;
const MAX_CONNECTIONS: usize = 8_192;
const POLL: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// 200 with an empty body, at once.
    Answer,
    /// Takes the request and never answers.
    Hang,
}

/// Serves until dropped.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
    pub(crate) arrivals: Arc<Arrivals>,
    server: JoinHandle<()>,
}

impl Sink {
    /// `capacity` is how many numbers its [`Arrivals`] can hand out.
    pub(crate) async fn start(manner: Manner, capacity: usize) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let arrivals = Arc::new(Arrivals::new(capacity));
        let server = tokio::spawn(serve(listener, manner, Arc::clone(&arrivals)));
        Ok(Self { address, arrivals, server })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// When each numbered event was sent and when it first arrived.
#[derive(Debug)]
pub(crate) struct Arrivals {
    epoch: Instant,
    next: AtomicU64,
    unique: AtomicU64,
    repeated: AtomicU64,
    /// By number: nanoseconds after the epoch, 0 for not yet.
    at: Box<[AtomicU64]>,
}

impl Arrivals {
    /// `capacity` is how many numbers it can hand out.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            epoch: Instant::now(),
            next: AtomicU64::new(0),
            unique: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            at: (0..capacity).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// A number for an event that is about to be sent; none once all are used.
    pub(crate) fn take_number(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        usize::try_from(number).is_ok_and(|index| index < self.at.len()).then_some(number)
    }

    /// How many different events have arrived.
    pub(crate) fn unique(&self) -> u64 {
        self.unique.load(Ordering::Acquire)
    }

    /// How many arrivals were of an event that had arrived before.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Acquire)
    }

    pub(crate) fn at(&self, number: u64) -> Option<Instant> {
        let nanos = self.at.get(usize::try_from(number).ok()?)?.load(Ordering::Acquire);
        (nanos > 0).then(|| self.epoch + Duration::from_nanos(nanos))
    }

    /// Waits until `wanted` different events have arrived, no longer than `patience`.
    pub(crate) async fn reach(&self, wanted: u64, patience: Duration) -> Result<()> {
        let started = Instant::now();
        let mut poll = interval(POLL);
        while self.unique() < wanted {
            let arrived = self.unique();
            ensure!(
                started.elapsed() < patience,
                "{arrived} of {wanted} events arrived within {patience:?}"
            );
            poll.tick().await;
        }
        Ok(())
    }

    /// The event of this number is here.
    pub(crate) fn note(&self, number: u64) {
        let now = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        let slot = usize::try_from(number).ok().and_then(|index| self.at.get(index));
        // A number that was not handed out is none of ours either.
        let Some(slot) = slot else { return };
        match slot.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => self.unique.fetch_add(1, Ordering::AcqRel),
            Err(_) => self.repeated.fetch_add(1, Ordering::AcqRel),
        };
    }
}

async fn serve(listener: TcpListener, manner: Manner, arrivals: Arc<Arrivals>) {
    // Dropping the set with this task ends every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                // A connection that broke before it was taken shows at its other end.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(answer(stream, manner, Arc::clone(&arrivals)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(stream: TcpStream, manner: Manner, arrivals: Arc<Arrivals>) {
    let respond = service_fn(|request: Request<Incoming>| {
        let arrivals = Arc::clone(&arrivals);
        async move {
            let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
            // What is not one of ours is no arrival.
            let number = body.ok().and_then(|body| event::number(&body.to_bytes()));
            if let Some(number) = number {
                arrivals.note(number);
            }
            match manner {
                Manner::Answer => Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())),
                Manner::Hang => std::future::pending().await,
            }
        }
    });
    if stream.set_nodelay(true).is_ok() {
        // How a connection ends is the business of the one that opened it.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), respond).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::{Connection, Target};
    use super::*;

    fn payload(number: u64) -> Bytes {
        let mut text = String::new();
        event::write_payload(&mut text, number);
        text.into()
    }

    #[tokio::test]
    async fn arrivals_are_noted_once_by_number() {
        let sink = Sink::start(Manner::Answer, 2).await.expect("it starts");
        let target = Target::new(sink.address, None).expect("a target");
        let mut connection = Connection::open(sink.address).await.expect("a connection");
        assert_eq!(sink.arrivals.take_number(), Some(0));
        assert_eq!(sink.arrivals.take_number(), Some(1));
        assert_eq!(sink.arrivals.take_number(), None);
        for body in [payload(1), payload(1), payload(9), Bytes::from_static(b"{}")] {
            let answer = connection.send(target.request(body)).await.expect("an answer");
            assert_eq!(answer.status, 200);
        }
        assert_eq!((sink.arrivals.unique(), sink.arrivals.repeated()), (1, 1));
        assert!(sink.arrivals.at(1).is_some());
        assert!(sink.arrivals.at(0).is_none());
    }

    #[tokio::test]
    async fn a_hanging_sink_takes_the_event_and_does_not_answer() {
        let sink = Sink::start(Manner::Hang, 1).await.expect("it starts");
        let target = Target::new(sink.address, None).expect("a target");
        let mut connection = Connection::open(sink.address).await.expect("a connection");
        tokio::select! {
            answer = connection.send(target.request(payload(0))) => panic!("answered: {answer:?}"),
            reached = sink.arrivals.reach(1, Duration::from_mins(1)) => reached.expect("it arrives"),
        }
    }
}
