//! Producers of a soak: streams of events at a steady rate, which can be held for a moment so that
//! what was acknowledged can be compared with what is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::{StatusCode, header};
use serde::Deserialize;
use tokio::sync::{RwLock, RwLockWriteGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::passage::Passage;
use crate::bench::connection::{Answer, Connection, Target};
use crate::bench::event;

/// The longest a producer waits for one answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// A connection sends one event after the other, and no more of them a second than it can on a slow
/// day.
const PER_CONNECTION: f64 = 50.0;

/// Events of one type.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) kind: &'static str,
    pub(crate) per_second: f64,
    pub(crate) order: Order,
    pub(crate) passage: Arc<Passage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// As many connections as it takes.
    Any,
    /// One connection, so that events are accepted in the order of their numbers.
    Kept,
}

/// Producers at work.
#[derive(Debug)]
pub(crate) struct Producers {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Read by whoever has a request under way.
    gate: RwLock<()>,
    stop: AtomicBool,
    events: AtomicU64,
    deliveries: AtomicU64,
    refused: AtomicU64,
}

/// What has been acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) events: u64,
    /// As the answers said.
    pub(crate) deliveries: u64,
    pub(crate) refused: u64,
}

impl Producers {
    /// Starts once every connection is open.
    pub(crate) async fn start(target: &Target, streams: &[Stream]) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut opened = Vec::new();
        for stream in streams {
            ensure!(stream.per_second > 0.0, "{} is sent at no rate", stream.kind);
            let connections = match stream.order {
                Order::Kept => 1,
                Order::Any => connections_for(stream.per_second),
            };
            let every = Duration::from_secs_f64(f64::from(connections) / stream.per_second);
            for index in 0..connections {
                let connection = Connection::open(target.address).await;
                let connection = connection.context("a producer's connection")?;
                opened.push((connection, stream.clone(), every, every * index / connections));
            }
        }
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for (connection, stream, every, offset) in opened {
            let (target, shared) = (target.clone(), Arc::clone(&shared));
            tasks.spawn(async move {
                let mut clock = interval_at(start + offset, every);
                clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
                let sent = produce(connection, &target, &stream, &shared, &mut clock).await;
                sent.with_context(|| format!("sending {}", stream.kind))
            });
        }
        Ok(Self { shared, tasks })
    }

    /// Lets what is under way be answered and nothing else begin, until the guard is dropped. What is
    /// acknowledged then is exactly what is stored.
    pub(crate) async fn hold(&self) -> (Acknowledged, RwLockWriteGuard<'_, ()>) {
        let guard = self.shared.gate.write().await;
        (self.shared.acknowledged(), guard)
    }

    /// Fails if one of them has.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.tasks.try_join_next() {
            None => Ok(()),
            Some(ended) => {
                ended.context("a producer")??;
                bail!("a producer ended before it was asked to")
            }
        }
    }

    pub(crate) async fn stop(mut self) -> Result<Acknowledged> {
        self.shared.stop.store(true, Ordering::Release);
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a producer")??;
        }
        Ok(self.shared.acknowledged())
    }
}

impl Shared {
    fn acknowledged(&self) -> Acknowledged {
        Acknowledged {
            events: self.events.load(Ordering::Acquire),
            deliveries: self.deliveries.load(Ordering::Acquire),
            refused: self.refused.load(Ordering::Acquire),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are small and positive, and a cast saturates"
)]
fn connections_for(per_second: f64) -> u32 {
    (per_second / PER_CONNECTION).ceil().max(1.0) as u32
}

async fn produce(
    mut connection: Connection,
    target: &Target,
    stream: &Stream,
    shared: &Shared,
    clock: &mut tokio::time::Interval,
) -> Result<()> {
    loop {
        clock.tick().await;
        let under_way = shared.gate.read().await;
        if shared.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        let number = stream.passage.depart().context("there are no more numbers for events")?;
        let request = target.request(event::single(stream.kind, number));
        let answer = timeout(PATIENCE, connection.send(request)).await.context("no answer")??;
        match Word::of(&answer)? {
            Word::Accepted { deliveries } => {
                stream.passage.note_accepted();
                shared.events.fetch_add(1, Ordering::AcqRel);
                shared.deliveries.fetch_add(deliveries, Ordering::AcqRel);
            }
            Word::Refused => {
                shared.refused.fetch_add(1, Ordering::AcqRel);
            }
        }
        drop(under_way);
    }
}

/// What a producer may be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Accepted {
        deliveries: u64,
    },
    /// 429 or 503, with a Retry-After.
    Refused,
}

#[derive(Deserialize)]
struct Receipt {
    deliveries: u64,
}

impl Word {
    /// Anything else is an error that says what it was.
    pub(crate) fn of(answer: &Answer) -> Result<Self> {
        match answer.status {
            StatusCode::ACCEPTED => {
                let receipt: Receipt = answer.json(StatusCode::ACCEPTED)?;
                Ok(Self::Accepted { deliveries: receipt.deliveries })
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let hint = answer.headers.get(header::RETRY_AFTER);
                let seconds = hint.and_then(|hint| hint.to_str().ok()?.parse::<u64>().ok());
                ensure!(seconds.is_some(), "answered {} without a Retry-After", answer.status);
                Ok(Self::Refused)
            }
            status => bail!("answered {status}: {}", String::from_utf8_lossy(&answer.body)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    #[test]
    fn only_an_acknowledgement_and_a_refusal_with_a_hint_are_answers() {
        for (status, hint, body, expected) in [
            (202, None, r#"{"id":"evt_1","deliveries":3}"#, Some(Word::Accepted { deliveries: 3 })),
            (202, None, "{}", None),
            (429, Some("1"), "", Some(Word::Refused)),
            (503, Some("2"), "", Some(Word::Refused)),
            (503, None, "", None),
            (429, Some("soon"), "", None),
            (200, None, r#"{"deliveries":1}"#, None),
            (500, Some("1"), "", None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(hint) = hint {
                headers.insert(header::RETRY_AFTER, hint.parse().expect("a header"));
            }
            let status = StatusCode::from_u16(status).expect("a status");
            let answer = Answer { status, headers, body: Bytes::from_static(body.as_bytes()) };
            assert_eq!(Word::of(&answer).ok(), expected, "{status} {hint:?} {body}");
        }
    }

    #[test]
    fn a_stream_has_connections_for_its_rate() {
        for (per_second, connections) in [(0.5, 1), (50.0, 1), (51.0, 2), (1_000.0, 20)] {
            assert_eq!(connections_for(per_second), connections);
        }
    }
}
