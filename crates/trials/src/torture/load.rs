//! Producers at a steady pace over all nodes: some send once and take what comes, some insist.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::ledger::{Ledger, Manner, Parcel};
use super::random::Random;
use crate::bench::connection::{Answer, Connection, Target};
use crate::bench::peer::KEY;

/// A node that has not answered by then is taken for one that does not: longer than a node waits for
/// a database that does not answer it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(25);
/// After a no, or nobody.
const BEFORE_ANOTHER_TRY: Duration = Duration::from_millis(25);
/// From the end of the load to the last acknowledgement to those who insist.
const FINISHED_WITHIN: Duration = Duration::from_mins(2);

const ONCE: Manner = Manner { batches: false, insists: false };
const INSISTING: Manner = Manner { batches: false, insists: true };
const BATCHES: Manner = Manner { batches: true, insists: false };
const INSISTING_BATCHES: Manner = Manner { batches: true, insists: true };

/// Each producer, and how many requests of a thousand events are its own: a batch has 13 events on
/// average.
const PRODUCERS: [(Manner, u32); 7] = [
    (ONCE, 130),
    (ONCE, 130),
    (INSISTING, 130),
    (INSISTING, 130),
    (INSISTING, 130),
    (BATCHES, 13),
    (INSISTING_BATCHES, 13),
];

/// Where the nodes listen; none where one is down.
pub(crate) type Roster = Vec<Option<SocketAddr>>;

#[derive(Debug)]
pub(crate) struct Load {
    tasks: JoinSet<()>,
    end: watch::Sender<bool>,
}

#[derive(Debug, Clone)]
struct Producer {
    manner: Manner,
    pace: Duration,
    ledger: Arc<Ledger>,
    roster: watch::Receiver<Roster>,
    end: watch::Receiver<bool>,
    random: Random,
}

impl Load {
    /// Some `rate` events a second, as long as everything is well.
    pub(crate) fn start(
        rate: u32,
        ledger: &Arc<Ledger>,
        roster: &watch::Receiver<Roster>,
        random: &mut Random,
    ) -> Self {
        let (end, ending) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for (manner, requests) in PRODUCERS {
            let producer = Producer {
                manner,
                pace: Duration::from_secs(1_000) / (rate.max(1) * requests),
                ledger: Arc::clone(ledger),
                roster: roster.clone(),
                end: ending.clone(),
                random: random.fork(),
            };
            tasks.spawn(producer.produce());
        }
        Self { tasks, end }
    }

    /// Waits until everything that was begun is acknowledged, or was not and need not be.
    pub(crate) async fn finish(mut self) -> Result<()> {
        self.end.send_replace(true);
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.context("a producer")?;
            }
            Ok(())
        };
        timeout(FINISHED_WITHIN, all).await.with_context(|| {
            format!("a producer that insists was not told yes within {FINISHED_WITHIN:?}")
        })?
    }
}

impl Producer {
    async fn produce(mut self) {
        let mut clock = interval(self.pace);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut way = Way { next: self.random.index(64), connections: Vec::new() };
        loop {
            tokio::select! {
                biased;
                _ = self.end.wait_for(|ended| *ended) => return,
                _ = clock.tick() => {}
            }
            let Some(parcel) = self.ledger.draw(self.manner, &mut self.random) else { return };
            self.carry(&parcel, &mut way).await;
        }
    }

    /// Sends it once, or until it is acknowledged.
    async fn carry(&self, parcel: &Parcel, way: &mut Way) {
        loop {
            let roster = self.roster.borrow().clone();
            if let Some(address) = way.choose(&roster) {
                match way.ask(address, parcel).await {
                    Some(answer) if self.is_settled(parcel, &answer) => return,
                    Some(_) => {}
                    None => self.ledger.note_silence(),
                }
                if !parcel.manner.insists {
                    return;
                }
            }
            tokio::time::sleep(BEFORE_ANOTHER_TRY).await;
        }
    }

    /// Writes an answer down; false if it asks to come back.
    fn is_settled(&self, parcel: &Parcel, answer: &Answer) -> bool {
        match answer.status {
            StatusCode::ACCEPTED | StatusCode::OK => {
                let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                if let Some(ids) = parcel.ids(&body) {
                    self.ledger.acknowledge(parcel, ids);
                } else {
                    self.complain(parcel, answer);
                }
                true
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                if !answer.headers.contains_key(http::header::RETRY_AFTER) {
                    self.complain(parcel, answer);
                }
                self.ledger.note_refusal();
                false
            }
            _ => {
                self.complain(parcel, answer);
                true
            }
        }
    }

    fn complain(&self, parcel: &Parcel, answer: &Answer) {
        let (numbers, status) = (&parcel.numbers, answer.status);
        let said = String::from_utf8_lossy(&answer.body);
        self.ledger.complain(format!("events {numbers:?} were answered with {status}: {said}"));
    }
}

/// One producer's connections.
#[derive(Debug)]
struct Way {
    /// Whose turn it is.
    next: usize,
    connections: Vec<Option<(SocketAddr, Connection)>>,
}

impl Way {
    /// The next node that is up.
    fn choose(&mut self, roster: &Roster) -> Option<SocketAddr> {
        self.connections.resize_with(roster.len(), || None);
        for _ in 0..roster.len() {
            self.next = (self.next + 1) % roster.len();
            if let Some(address) = roster[self.next] {
                return Some(address);
            }
        }
        None
    }

    /// The answer of the node whose turn it is, if there is one.
    async fn ask(&mut self, address: SocketAddr, parcel: &Parcel) -> Option<Answer> {
        let kept = self.connections[self.next].take().filter(|(known, _)| *known == address);
        let asking = async {
            let target = Target::new(address, Some(KEY))?.at(Method::POST, parcel.path())?;
            let mut connection = match kept {
                Some((_, connection)) => connection,
                None => Connection::open(address).await?,
            };
            let answer = connection.send(target.request(parcel.text.clone().into())).await?;
            anyhow::Ok((connection, answer))
        };
        let (connection, answer) = timeout(ANSWERED_WITHIN, asking).await.ok()?.ok()?;
        self.connections[self.next] = Some((address, connection));
        Some(answer)
    }
}
