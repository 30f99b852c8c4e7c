//! More requests than can be answered: sent by the clock, whatever became of those before, over a few
//! HTTP/2 connections with as many streams as the gateway lets them have.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::producer::Word;
use crate::bench::connection::{Answer, Target};
use crate::bench::sink::Arrivals;

const CONNECTIONS: usize = 64;
const TICK: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_mins(2);
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// How many answers that are none are kept to be shown.
const MAX_SHOWN: usize = 3;

/// What a flood came to.
#[derive(Debug, Default)]
pub(crate) struct Flooded {
    /// Requests whose time came.
    pub(crate) due: u64,
    pub(crate) sent: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// Answered with something else, or not at all.
    pub(crate) other: u64,
    /// The first of those.
    pub(crate) shown: Vec<String>,
    /// From the moment an accepted one was due to its answer.
    pub(crate) waits: Vec<Duration>,
}

/// One HTTP/2 connection. Closed when dropped.
struct Line {
    sender: SendRequest<Full<Bytes>>,
    free: Arc<Semaphore>,
    driver: JoinHandle<()>,
}

impl Line {
    async fn open(target: &Target, streams: usize) -> Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // A broken connection shows in the requests that were under way.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender, free: Arc::new(Semaphore::new(streams)), driver })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) struct Water {
    /// With the whole address in it, as HTTP/2 wants it.
    pub(crate) target: Target,
    /// The event of a number.
    pub(crate) body: fn(u64) -> Bytes,
    /// Requests that one connection has under way at most; a server lets it have no more than 256.
    pub(crate) streams: usize,
}

impl Water {
    /// The most requests under way at one time.
    pub(crate) fn under_way(&self) -> usize {
        self.streams * CONNECTIONS
    }
}

/// Sends `per_second` for `lasts`. Each that is accepted is noted in `accepted`, which also gives out
/// the numbers.
pub(crate) async fn flood(
    water: &Arc<Water>,
    per_second: f64,
    lasts: Duration,
    accepted: &Arc<Arrivals>,
) -> Result<Flooded> {
    let mut lines = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let line = Line::open(&water.target, water.streams).await;
        lines.push(line.context("a producer's connection")?);
    }
    let mut flooded = Flooded::default();
    let mut answers = JoinSet::new();
    let mut turn = 0;
    let started = Instant::now();
    let mut clock = interval(TICK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while started.elapsed() < lasts {
        clock.tick().await;
        let due_by_now = whole_part(started.elapsed().as_secs_f64() * per_second);
        let fresh = due_by_now.saturating_sub(flooded.due);
        flooded.due = due_by_now;
        for _ in 0..fresh {
            // Who finds every stream taken gives up, as a client does that cannot connect.
            let Some((sender, permit)) = free_line(&lines, &mut turn) else { break };
            let number = accepted.take_number().context("there are no more numbers for events")?;
            flooded.sent += 1;
            answers.spawn(send(sender, permit, Arc::clone(water), number, Arc::clone(accepted)));
        }
        while let Some(answer) = answers.try_join_next() {
            flooded.note(answer.context("a request")?);
        }
    }
    // The last turn may have come before the end.
    flooded.due = whole_part(lasts.as_secs_f64() * per_second);
    while let Some(answer) = answers.join_next().await {
        flooded.note(answer.context("a request")?);
    }
    Ok(flooded)
}

impl Flooded {
    fn note(&mut self, answer: Result<Option<Duration>>) {
        match answer {
            Ok(Some(wait)) => {
                self.accepted += 1;
                self.waits.push(wait);
            }
            Ok(None) => self.refused += 1,
            Err(error) => {
                self.other += 1;
                if self.shown.len() < MAX_SHOWN {
                    self.shown.push(format!("{error:#}"));
                }
            }
        }
    }
}

/// A connection with a stream to spare; lines are asked in turn, each once.
fn free_line(
    lines: &[Line],
    turn: &mut usize,
) -> Option<(SendRequest<Full<Bytes>>, OwnedSemaphorePermit)> {
    for _ in 0..lines.len() {
        *turn = (*turn + 1) % lines.len();
        let line = &lines[*turn];
        if let Ok(permit) = Arc::clone(&line.free).try_acquire_owned() {
            return Some((line.sender.clone(), permit));
        }
    }
    None
}

/// How long it took if it was accepted, nothing if it was refused in good form.
async fn send(
    mut sender: SendRequest<Full<Bytes>>,
    _permit: OwnedSemaphorePermit,
    water: Arc<Water>,
    number: u64,
    accepted: Arc<Arrivals>,
) -> Result<Option<Duration>> {
    let due = Instant::now();
    let request = water.target.request((water.body)(number));
    let answered = timeout(PATIENCE, async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| anyhow!("reading the answer: {error}"))?.to_bytes();
        Ok::<_, anyhow::Error>(Answer { status: parts.status, headers: parts.headers, body })
    });
    let answer = answered.await.context("no answer")??;
    match Word::of(&answer)? {
        Word::Accepted { .. } => {
            accepted.note(number);
            Ok(Some(due.elapsed()))
        }
        Word::Refused => Ok(None),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and a cast saturates"
)]
fn whole_part(count: f64) -> u64 {
    count as u64
}
