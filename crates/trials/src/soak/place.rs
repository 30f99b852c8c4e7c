//! Where deliveries go in a soak: servers that answer well, late, badly or not at all, and see how
//! much comes at one time and in which order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::bench::event;
use crate::bench::sink::Arrivals;

const MAX_BODY_BYTES: usize = 64 << 10;
const MAX_CONNECTIONS: usize = 8_192;
/// Requests are counted by stretches of this length, for as many of them as an hour has; what comes
/// later counts for the last.
pub(crate) const STRETCH: Duration = Duration::from_millis(100);
const MAX_STRETCHES: usize = 36_000;
/// What a place that wants to be left alone asks for, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// How a place treats what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// 200 at once.
    Healthy,
    /// 200 after this long.
    Slow(Duration),
    /// 500, whatever comes.
    Failing,
    /// 200 for this long, then 503 without a hint for as long, and so on.
    Flapping(Duration),
    /// 429 with a Retry-After for the first `for_long` of every `every`, else 200.
    Limiting { every: Duration, for_long: Duration },
    /// Takes the request and never answers.
    Hanging,
    /// 422, whatever comes.
    Refusing,
    /// 500 to one request in so many, else 200.
    Stumbling(u64),
    /// 500 until it is back, then 200 after this long.
    Out(Duration),
}

/// Serves until dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) seen: Arc<Seen>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Place {
    /// What it answers well is noted in `arrivals`.
    pub(crate) async fn start(manner: Manner, arrivals: Arc<Arrivals>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Seen::new(manner, arrivals));
        let server = tokio::spawn(serve(listener, Arc::clone(&seen)));
        Ok(Self { seen, address, server })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What a place has seen.
#[derive(Debug)]
pub(crate) struct Seen {
    manner: Manner,
    arrivals: Arc<Arrivals>,
    since: Instant,
    requests: AtomicU64,
    flying: AtomicU64,
    most_flying: AtomicU64,
    stretches: Box<[AtomicU32]>,
    /// One more than the highest number that came.
    beyond: AtomicU64,
    out_of_order: AtomicU64,
    is_back: AtomicBool,
    answered_since_back: AtomicU64,
    too_steep: AtomicU64,
}

impl Seen {
    fn new(manner: Manner, arrivals: Arc<Arrivals>) -> Self {
        Self {
            manner,
            arrivals,
            since: Instant::now(),
            requests: AtomicU64::new(0),
            flying: AtomicU64::new(0),
            most_flying: AtomicU64::new(0),
            stretches: (0..MAX_STRETCHES).map(|_| AtomicU32::new(0)).collect(),
            beyond: AtomicU64::new(0),
            out_of_order: AtomicU64::new(0),
            is_back: AtomicBool::new(false),
            answered_since_back: AtomicU64::new(0),
            too_steep: AtomicU64::new(0),
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }

    /// The most requests that were here at one time.
    pub(crate) fn most_flying(&self) -> u64 {
        self.most_flying.load(Ordering::Acquire)
    }

    /// How often a number came after a higher one.
    pub(crate) fn out_of_order(&self) -> u64 {
        self.out_of_order.load(Ordering::Acquire)
    }

    /// How often more came at one time, since it is back, than one more than it had answered: a
    /// breaker that ramps up lets one more go for each answer.
    pub(crate) fn too_steep(&self) -> u64 {
        self.too_steep.load(Ordering::Acquire)
    }

    /// Ends an outage.
    pub(crate) fn come_back(&self) {
        self.is_back.store(true, Ordering::Release);
    }

    /// The stretch that is going on.
    pub(crate) fn stretch(&self) -> usize {
        stretch_after(self.since.elapsed())
    }

    /// How many requests came in each stretch from this one on, to the last that had any. During an
    /// outage none are counted.
    pub(crate) fn by_stretch(&self, from: usize) -> Vec<u32> {
        let counts = self.stretches.iter().skip(from).map(|count| count.load(Ordering::Acquire));
        let mut counts: Vec<u32> = counts.collect();
        let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        counts.truncate(used);
        counts
    }

    fn arrive(self: &Arc<Self>) -> Flight {
        self.requests.fetch_add(1, Ordering::AcqRel);
        let is_back = self.is_back.load(Ordering::Acquire);
        if is_back || !matches!(self.manner, Manner::Out(_)) {
            self.stretches[self.stretch()].fetch_add(1, Ordering::AcqRel);
        }
        let flying = self.flying.fetch_add(1, Ordering::AcqRel) + 1;
        self.most_flying.fetch_max(flying, Ordering::AcqRel);
        // Read in this order an answer that is given meanwhile counts, so nobody is blamed wrongly.
        if is_back && flying > self.answered_since_back.load(Ordering::Acquire) + 1 {
            self.too_steep.fetch_add(1, Ordering::AcqRel);
        }
        Flight(Arc::clone(self))
    }

    fn note_order(&self, number: u64) {
        let beyond = self.beyond.fetch_max(number + 1, Ordering::AcqRel);
        // The same one again is a retry.
        if number + 1 < beyond {
            self.out_of_order.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// What to answer now, and after how long.
    fn verdict(&self) -> (StatusCode, Duration) {
        let well = |well: bool| if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let elapsed = self.since.elapsed().as_millis();
        let status = match self.manner {
            Manner::Healthy | Manner::Hanging => StatusCode::OK,
            Manner::Slow(after) => return (StatusCode::OK, after),
            Manner::Flapping(span) => well((elapsed / span.as_millis().max(1)).is_multiple_of(2)),
            Manner::Limiting { every, for_long } => {
                let limits = elapsed % every.as_millis().max(1) < for_long.as_millis();
                if limits { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK }
            }
            Manner::Refusing => StatusCode::UNPROCESSABLE_ENTITY,
            Manner::Stumbling(one_in) => {
                let stumbles = self.requests().is_multiple_of(one_in.max(1));
                if stumbles { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
            }
            Manner::Out(after) if self.is_back.load(Ordering::Acquire) => {
                return (StatusCode::OK, after);
            }
            Manner::Failing | Manner::Out(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Duration::ZERO)
    }
}

fn stretch_after(time: Duration) -> usize {
    let stretch = time.as_millis() / STRETCH.as_millis();
    usize::try_from(stretch).unwrap_or(usize::MAX).min(MAX_STRETCHES - 1)
}

/// A request that is here, until it is answered or given up.
struct Flight(Arc<Seen>);

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.flying.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn serve(listener: TcpListener, seen: Arc<Seen>) {
    // Dropping the set with this task ends every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                // A connection that broke before it was taken shows at its other end.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(answer_all(stream, Arc::clone(&seen)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer_all(stream: TcpStream, seen: Arc<Seen>) {
    let respond = service_fn(|request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move { Ok::<_, Infallible>(answer(request, &seen).await) }
    });
    if stream.set_nodelay(true).is_ok() {
        // How a connection ends is the business of the one that opened it.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), respond).await;
    }
}

async fn answer(request: Request<Incoming>, seen: &Arc<Seen>) -> Response<Empty<Bytes>> {
    let _flight = seen.arrive();
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
    // What is not one of ours is no arrival.
    let number = body.ok().and_then(|body| event::number(&body.to_bytes()));
    if let Some(number) = number {
        seen.note_order(number);
    }
    let (status, after) = seen.verdict();
    if seen.manner == Manner::Hanging {
        std::future::pending::<()>().await;
    }
    if after > Duration::ZERO {
        tokio::time::sleep(after).await;
    }
    if let Some(number) = number.filter(|_| status == StatusCode::OK) {
        seen.arrivals.note(number);
    }
    if status == StatusCode::OK && seen.is_back.load(Ordering::Acquire) {
        seen.answered_since_back.fetch_add(1, Ordering::AcqRel);
    }
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::connection::{Connection, Target};

    async fn statuses(place: &Place, numbers: &[u64]) -> Vec<u16> {
        let target = Target::new(place.address, None).expect("a target");
        let mut connection = Connection::open(place.address).await.expect("a connection");
        let mut statuses = Vec::new();
        for number in numbers {
            let mut text = String::new();
            event::write_payload(&mut text, *number);
            let answer = connection.send(target.request(text.into())).await.expect("an answer");
            statuses.push(answer.status.as_u16());
        }
        statuses
    }

    async fn start(manner: Manner) -> Place {
        Place::start(manner, Arc::new(Arrivals::new(16))).await.expect("it starts")
    }

    #[tokio::test]
    async fn places_answer_in_their_manner() {
        let hour = Duration::from_hours(1);
        for (manner, expected) in [
            (Manner::Healthy, [200; 4]),
            (Manner::Slow(Duration::from_millis(1)), [200; 4]),
            (Manner::Failing, [500; 4]),
            (Manner::Flapping(hour), [200; 4]),
            (Manner::Limiting { every: hour, for_long: hour }, [429; 4]),
            (Manner::Limiting { every: hour, for_long: Duration::ZERO }, [200; 4]),
            (Manner::Refusing, [422; 4]),
            (Manner::Stumbling(2), [200, 500, 200, 500]),
            (Manner::Out(Duration::ZERO), [500; 4]),
        ] {
            let place = start(manner).await;
            assert_eq!(statuses(&place, &[0, 1, 2, 3]).await, expected, "{manner:?}");
            let well = expected.iter().filter(|status| **status == 200).count();
            assert_eq!(place.seen.arrivals.unique(), well as u64, "{manner:?}");
            assert_eq!(place.seen.requests(), 4);
            let counted = if manner == Manner::Out(Duration::ZERO) { 0 } else { 4 };
            assert_eq!(place.seen.by_stretch(0).iter().sum::<u32>(), counted, "{manner:?}");
        }
    }

    #[tokio::test]
    async fn what_overtakes_is_counted_and_a_retry_is_not() {
        let place = start(Manner::Healthy).await;
        statuses(&place, &[0, 1, 1, 2]).await;
        assert_eq!(place.seen.out_of_order(), 0);
        statuses(&place, &[4, 3]).await;
        assert_eq!(place.seen.out_of_order(), 1);
    }

    #[tokio::test]
    async fn more_at_one_time_than_were_answered_is_too_steep() {
        let place = start(Manner::Out(Duration::ZERO)).await;
        place.seen.come_back();
        let first = place.seen.arrive();
        assert_eq!(place.seen.too_steep(), 0, "a probe");
        let second = place.seen.arrive();
        assert_eq!((place.seen.too_steep(), place.seen.most_flying()), (1, 2));
        drop((first, second));
        assert_eq!(statuses(&place, &[0]).await, [200]);
        let flights = [place.seen.arrive(), place.seen.arrive()];
        assert_eq!(place.seen.too_steep(), 1, "two after one answer");
        drop(flights);
    }
}
