//! The producers of a bench.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_client::{Error, Gateway, Method};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::latency::Times;
use super::receiver::Arrivals;
use crate::Failure;

/// After a refusal that may pass a producer waits: as long as it is asked to, but no longer than the
/// longer of these, and no shorter than the other.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Load {
    pub(super) kind: String,
    pub(super) filling: usize,
    pub(super) connections: usize,
    pub(super) pace: Pace,
    pub(super) lasts: Duration,
    pub(super) arrivals: Option<Arrivals>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    PerSecond(u32),
    Max,
}

/// Producers at work.
pub(super) struct Running {
    producers: JoinSet<Result<Sent, Failure>>,
    shared: Arc<Shared>,
    sent: Sent,
    failure: Option<Failure>,
}

struct Shared {
    load: Load,
    body: Value,
    started: Instant,
    /// The number of the next event.
    next: AtomicU64,
    accepted: AtomicU64,
    stop: watch::Sender<bool>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) accepted: u64,
    pub(super) deliveries: u64,
    pub(super) times: Times,
    pub(super) errors: BTreeMap<String, u64>,
}

impl Load {
    pub(super) fn start(self, gateway: &Gateway) -> Running {
        let filling = "x".repeat(self.filling);
        let body = json!({ "type": self.kind, "payload": { "n": 0, "filling": filling } });
        let connections = self.connections;
        let shared = Arc::new(Shared {
            load: self,
            body,
            started: Instant::now(),
            next: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            stop: watch::Sender::new(false),
        });
        let mut producers = JoinSet::new();
        for _ in 0..connections {
            producers.spawn(produce(gateway.clone(), Arc::clone(&shared)));
        }
        Running { producers, shared, sent: Sent::default(), failure: None }
    }
}

impl Running {
    pub(super) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// What is under way is finished.
    pub(super) fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    /// Waits for the last producer. It can be called off and called again.
    pub(super) async fn ended(&mut self) {
        while let Some(ended) = self.producers.join_next().await {
            match ended {
                Ok(Ok(sent)) => self.sent.merge(sent),
                Ok(Err(failure)) => {
                    self.stop();
                    self.failure.get_or_insert(failure);
                }
                Err(panicked) => {
                    self.stop();
                    self.failure.get_or_insert(panicked.into());
                }
            }
        }
    }

    pub(super) async fn finish(mut self) -> Result<Sent, Failure> {
        self.ended().await;
        self.failure.map_or(Ok(self.sent), Err)
    }
}

impl Sent {
    fn merge(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.deliveries += other.deliveries;
        self.times.merge(&other.times);
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
    }
}

async fn produce(gateway: Gateway, shared: Arc<Shared>) -> Result<Sent, Failure> {
    let mut sent = Sent::default();
    let mut body = shared.body.clone();
    let mut stop = shared.stop.subscribe();
    let end = shared.started + shared.load.lasts;
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let due = match shared.load.pace {
            Pace::Max => Instant::now(),
            Pace::PerSecond(rate) => shared.started + due_after(number, rate),
        };
        if due >= end || *stop.borrow() {
            return Ok(sent);
        }
        if !wait(tokio::time::sleep_until(due), &mut stop).await {
            return Ok(sent);
        }
        // A gateway that cannot keep up makes events late; those that are left then are not sent.
        if Instant::now() >= end {
            return Ok(sent);
        }
        body["payload"]["n"] = number.into();
        match gateway.request(Method::POST, "/v1/events", Some(&body)).await {
            Ok(answer) => {
                let now = Instant::now();
                sent.accepted += 1;
                sent.deliveries += answer["deliveries"].as_u64().unwrap_or(0);
                sent.times.add(now.duration_since(due));
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                if let Some(arrivals) = &shared.load.arrivals {
                    arrivals.accepted(number, now.into_std());
                }
            }
            Err(error) if error.is_temporary() => {
                *sent.errors.entry(kind(&error)).or_default() += 1;
                let pause = error.retry_after().unwrap_or(SHORTEST_PAUSE);
                let pause = pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                if !wait(tokio::time::sleep(pause), &mut stop).await {
                    return Ok(sent);
                }
            }
            // It would be refused as often as it is sent.
            Err(error) => return Err(Failure::usage(error)),
        }
    }
}

/// When an event is due, from the start.
fn due_after(number: u64, rate: u32) -> Duration {
    let nanos = u128::from(number) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Whether the time came before the end.
async fn wait(time: impl Future<Output = ()>, stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = time => true,
        // The sender is shared with whoever waits.
        _ = stop.wait_for(|stop| *stop) => false,
    }
}

/// What refusals are counted by.
fn kind(error: &Error) -> String {
    match error {
        Error::Refused { status, kind, .. } if kind.is_empty() => status.to_string(),
        Error::Refused { status, kind, .. } => format!("{status} {kind}"),
        Error::Unreachable { .. } => "no answer".to_owned(),
        Error::BadAnswer { .. } => "an answer that is none".to_owned(),
        Error::Invalid(_) => "invalid".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_due_evenly() {
        for (number, rate, expected) in [
            (0, 1, Duration::ZERO),
            (1, 1, Duration::from_secs(1)),
            (250, 500, Duration::from_millis(500)),
            (1, 3, Duration::from_nanos(333_333_333)),
            (3, 3, Duration::from_secs(1)),
            (u64::MAX, 1, Duration::from_nanos(u64::MAX)),
        ] {
            assert_eq!(due_after(number, rate), expected, "{number} at {rate}");
        }
    }

    #[test]
    fn refusals_are_counted_by_their_kind() {
        let refused = |kind: &str| Error::Refused {
            status: 503,
            kind: kind.to_owned(),
            detail: String::new(),
            retry_after: None,
        };
        assert_eq!(kind(&refused("overloaded")), "503 overloaded");
        assert_eq!(kind(&refused("")), "503");
        let mut all = Sent::default();
        for _ in 0..2 {
            let errors = BTreeMap::from([("503".to_owned(), 3)]);
            all.merge(Sent { accepted: 2, deliveries: 4, errors, ..Sent::default() });
        }
        assert_eq!((all.accepted, all.deliveries, all.errors["503"]), (4, 8, 6));
    }
}
