//! The load generator: producers that post as fast as they are answered, or at a fixed rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::StatusCode;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::connection::{Connection, Target};

/// How many connections the producers use unless a measure says otherwise.
pub(crate) const CONNECTIONS: usize = 64;
/// The longest a producer waits for one answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a producer that was refused waits before it tries again.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(10);

/// Producers at work, each on its own connection, each sending the next when the last is answered.
#[derive(Debug)]
pub(crate) struct Producers {
    tally: Arc<Tally>,
    tasks: JoinSet<Result<()>>,
}

#[derive(Debug, Default)]
struct Tally {
    accepted: AtomicU64,
    refused: AtomicU64,
    stop: AtomicBool,
}

/// What producers came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Produced {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
}

impl Producers {
    /// Starts once every connection is open; they are spread over the targets evenly. `next` gives
    /// the bodies; a producer ends when there is none.
    pub(crate) async fn start<F>(targets: &[Target], connections: usize, next: F) -> Result<Self>
    where
        F: Fn() -> Option<Bytes> + Send + Sync + 'static,
    {
        let next = Arc::new(next);
        let tally = Arc::new(Tally::default());
        let mut opened = Vec::with_capacity(connections);
        for target in targets.iter().cycle().take(connections) {
            let connection = Connection::open(target.address).await;
            opened.push((connection.context("a producer's connection")?, target.clone()));
        }
        let mut tasks = JoinSet::new();
        for (connection, target) in opened {
            let (tally, next) = (Arc::clone(&tally), Arc::clone(&next));
            tasks.spawn(async move { produce(connection, &target, &tally, next.as_ref()).await });
        }
        Ok(Self { tally, tasks })
    }

    /// How many events have been acknowledged so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.tally.accepted.load(Ordering::Acquire)
    }

    /// Lets each producer finish what it has under way.
    pub(crate) async fn stop(self) -> Result<Produced> {
        self.tally.stop.store(true, Ordering::Release);
        self.finish().await
    }

    /// Waits until there is nothing left to send.
    pub(crate) async fn finish(mut self) -> Result<Produced> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a producer")??;
        }
        Ok(Produced {
            accepted: self.tally.accepted.load(Ordering::Acquire),
            refused: self.tally.refused.load(Ordering::Acquire),
        })
    }
}

async fn produce(
    mut connection: Connection,
    target: &Target,
    tally: &Tally,
    next: &(dyn Fn() -> Option<Bytes> + Send + Sync),
) -> Result<()> {
    while !tally.stop.load(Ordering::Acquire) {
        let Some(body) = next() else { break };
        let sent = connection.send(target.request(body));
        let answer = timeout(PATIENCE, sent).await.context("no answer to a producer")??;
        match answer.status {
            StatusCode::ACCEPTED => {
                tally.accepted.fetch_add(1, Ordering::AcqRel);
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                tally.refused.fetch_add(1, Ordering::AcqRel);
                tokio::time::sleep(PAUSE_AFTER_REFUSAL).await;
            }
            status => {
                let said = String::from_utf8_lossy(&answer.body);
                anyhow::bail!("a producer was answered {status}: {said}");
            }
        }
    }
    Ok(())
}

/// Sends `count` bodies at `per_second` whatever becomes of them, spread over `connections`, and
/// returns when each was to go. A connection that is still busy when its turn comes delays the
/// request, but not the moment it counts from.
pub(crate) async fn paced<F>(
    target: &Target,
    connections: usize,
    per_second: u32,
    count: usize,
    body: F,
) -> Result<Vec<std::time::Instant>>
where
    F: Fn(usize) -> Bytes + Send + Sync + 'static,
{
    let body = Arc::new(body);
    let step = Duration::from_secs(1) / per_second;
    let turns = u32::try_from(connections).context("connections")?;
    let mut opened = Vec::with_capacity(connections);
    for _ in 0..connections {
        opened.push(Connection::open(target.address).await.context("a producer's connection")?);
    }
    let start = Instant::now() + step;
    let mut tasks = JoinSet::new();
    for (index, mut connection) in opened.into_iter().enumerate() {
        let (target, body) = (target.clone(), Arc::clone(&body));
        let first = start + step * u32::try_from(index).context("connections")?;
        tasks.spawn(async move {
            let mut clock = interval_at(first, step * turns);
            clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut due = first;
            let mut sent = Vec::new();
            for number in (index..count).step_by(connections) {
                let late = Instant::now() >= due;
                clock.tick().await;
                // Timers wake up to a millisecond late: that is not the target's doing. A busy
                // connection is.
                let counts_from = if late { due } else { Instant::now() };
                due += step * turns;
                let request = target.request(body(number));
                let answer =
                    timeout(PATIENCE, connection.send(request)).await.context("no answer")??;
                let status = answer.status;
                ensure!(status.is_success(), "a paced request was answered {status}");
                sent.push((number, counts_from.into_std()));
            }
            Ok(sent)
        });
    }
    let mut sent = Vec::with_capacity(count);
    while let Some(ended) = tasks.join_next().await {
        sent.extend(ended.context("a paced producer")??);
    }
    sent.sort_unstable_by_key(|(number, _)| *number);
    Ok(sent.into_iter().map(|(_, at)| at).collect())
}

#[cfg(test)]
mod tests {
    use super::super::event;
    use super::super::sink::{Manner, Sink};
    use super::*;

    #[tokio::test]
    async fn paced_requests_all_go_and_are_known_by_number() {
        let sink = Sink::start(Manner::Answer, 50).await.expect("a sink");
        let target = Target::new(sink.address, None).expect("a target");
        let payload = |number: usize| {
            let mut text = String::new();
            event::write_payload(&mut text, number as u64);
            text.into()
        };
        let sent = paced(&target, 4, 1_000, 50, payload).await.expect("all answered");
        assert_eq!(sent.len(), 50);
        assert_eq!(sink.arrivals.unique(), 50);
        for (number, sent) in sent.iter().enumerate() {
            assert!(sink.arrivals.at(number as u64).is_some_and(|arrived| arrived > *sent));
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_no_acknowledgement_fails_the_run() {
        let sink = Sink::start(Manner::Answer, 1).await.expect("a sink");
        let target = Target::new(sink.address, None).expect("a target");
        let producers =
            Producers::start(&[target], 1, || Some(Bytes::new())).await.expect("a connection");
        let error = producers.finish().await.expect_err("200 is not 202").to_string();
        assert!(error.contains("200"), "{error}");
    }
}
