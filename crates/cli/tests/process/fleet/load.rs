//! Producers that send over all nodes at a steady pace, and insist: what is not acknowledged is sent
//! again under the same key, wherever somebody answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::header::RETRY_AFTER;
use http::{Method, StatusCode};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Roster;
use crate::client::{Answer, Connection};
use crate::gateway::{KEY, payload, text};
use crate::within;

/// A node that has not answered by then is taken for one that does not: longer than a node waits for
/// a database that does not answer it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(25);
/// After nobody has said yes.
const BEFORE_ANOTHER_ROUND: Duration = Duration::from_millis(50);

/// One type of event, and how many come of it.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) per_second: u32,
    /// A single one waits for each acknowledgement before it sends the next event.
    pub(super) producers: usize,
}

/// An event that a node has said yes to.
#[derive(Debug, Clone)]
pub(super) struct Ack {
    pub(super) event: String,
    /// Which kind it is of is the remainder after division by the number of kinds. Of one kind,
    /// numbers grow.
    pub(super) number: u64,
    pub(super) node: usize,
    pub(super) at: Instant,
}

/// What producers met on the way.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// 503, each with a hint when to come back.
    pub(super) refused: AtomicUsize,
    /// No connection, or one that ended before its answer came.
    pub(super) broken: AtomicUsize,
    /// No answer at all.
    pub(super) silent: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    started: Instant,
}

#[derive(Debug)]
struct Shared {
    kinds: Vec<Kind>,
    roster: watch::Receiver<Roster>,
    acks: watch::Sender<Vec<Ack>>,
    /// What would be due later is not sent.
    end: watch::Sender<Option<Instant>>,
    trouble: Trouble,
}

impl Load {
    pub(super) fn start(kinds: Vec<Kind>, roster: watch::Receiver<Roster>) -> Self {
        let shared = Arc::new(Shared {
            kinds,
            roster,
            acks: watch::Sender::new(Vec::new()),
            end: watch::Sender::new(None),
            trouble: Trouble::default(),
        });
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for kind in 0..shared.kinds.len() {
            for first in 0..shared.kinds[kind].producers {
                tasks.spawn(produce(kind, first, started, Arc::clone(&shared)));
            }
        }
        Self { shared, tasks, started }
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    pub(super) fn acknowledged(&self) -> usize {
        self.shared.acks.borrow().len()
    }

    /// Waits until what was acknowledged is enough.
    pub(super) async fn until(&self, what: &str, enough: impl Fn(&[Ack]) -> bool) {
        let mut acks = self.shared.acks.subscribe();
        let waited = within(what, acks.wait_for(|acks| enough(acks))).await;
        drop(waited.expect("the sender is ours"));
    }

    /// Waits until each of these nodes has acknowledged something since then.
    pub(super) async fn accepted_by(&self, nodes: &[usize], since: Instant) {
        self.until("acknowledgements from every node", |acks| {
            let recent = || acks.iter().rev().take_while(|ack| ack.at >= since);
            nodes.iter().all(|node| recent().any(|ack| ack.node == *node))
        })
        .await;
    }

    pub(super) fn trouble(&self) -> &Trouble {
        &self.shared.trouble
    }

    /// Waits until everything that was due by now has been acknowledged.
    pub(super) async fn finish(&mut self) -> Vec<Ack> {
        let end = Instant::now();
        self.shared.end.send_replace(Some(end));
        while let Some(ended) = within("the end of a producer", self.tasks.join_next()).await {
            ended.expect("a producer panicked");
        }
        let acks = self.shared.acks.borrow().clone();
        let Trouble { refused, broken, silent } = &self.shared.trouble;
        println!(
            "{} events in {:.1} s and {:.1} s more; refused {}, broken off {}, unanswered {}",
            acks.len(),
            (end - self.started).as_secs_f64(),
            end.elapsed().as_secs_f64(),
            refused.load(Ordering::Relaxed),
            broken.load(Ordering::Relaxed),
            silent.load(Ordering::Relaxed)
        );
        acks
    }
}

async fn produce(kind: usize, first: usize, started: Instant, shared: Arc<Shared>) {
    let mut end = shared.end.subscribe();
    let Kind { per_second, producers, .. } = shared.kinds[kind].clone();
    let mut way = Way { next: kind + first, connections: Vec::new() };
    for turn in (first as u64..).step_by(producers) {
        let due = started + Duration::from_micros(turn * 1_000_000 / u64::from(per_second));
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(due.into()) => {}
            _ = end.wait_for(|end| end.is_some_and(|end| end < due)) => return,
        }
        if end.borrow().is_some_and(|end| end < due) {
            return;
        }
        let number = turn * shared.kinds.len() as u64 + kind as u64;
        let ack = way.insist(number, &shared.kinds[kind].name, &shared).await;
        shared.acks.send_modify(|acks| acks.push(ack));
    }
}

/// One producer's connections.
struct Way {
    /// Whose turn it is.
    next: usize,
    connections: Vec<Option<(SocketAddr, Connection)>>,
}

impl Way {
    async fn insist(&mut self, number: u64, kind: &str, shared: &Shared) -> Ack {
        let body = format!(
            r#"{{"type":"{kind}","idempotency_key":"key-{number}","payload":{}}}"#,
            payload(number)
        );
        loop {
            let roster = shared.roster.borrow().clone();
            self.connections.resize_with(roster.len(), || None);
            for _ in 0..roster.len() {
                self.next = (self.next + 1) % roster.len();
                let Some(address) = roster[self.next] else { continue };
                let Some(answer) = self.ask(address, &body, &shared.trouble).await else {
                    continue;
                };
                match answer.status {
                    StatusCode::ACCEPTED | StatusCode::OK => {
                        let event = text(&answer.body, "id");
                        return Ack { event, number, node: self.next, at: Instant::now() };
                    }
                    StatusCode::SERVICE_UNAVAILABLE => {
                        let hint = answer.headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok());
                        let wait = hint.and_then(|hint| hint.parse::<u32>().ok());
                        assert!(wait >= Some(1), "no hint ({hint:?}) with {}", answer.body);
                        shared.trouble.refused.fetch_add(1, Ordering::Relaxed);
                    }
                    other => panic!("event {number} was answered with {other}: {}", answer.body),
                }
            }
            tokio::time::sleep(BEFORE_ANOTHER_ROUND).await;
        }
    }

    /// The answer of a node, if there is one.
    async fn ask(&mut self, address: SocketAddr, body: &str, trouble: &Trouble) -> Option<Answer> {
        let kept = self.connections[self.next].take().filter(|(known, _)| *known == address);
        let asking = async {
            let mut connection = match kept {
                Some((_, connection)) => connection,
                None => Connection::open(address, KEY).await.ok()?,
            };
            let answer = connection.call(Method::POST, "/v1/events", body.to_owned()).await.ok()?;
            Some((connection, answer))
        };
        match timeout(ANSWERED_WITHIN, asking).await {
            Ok(Some((connection, answer))) => {
                self.connections[self.next] = Some((address, connection));
                Some(answer)
            }
            Ok(None) => {
                trouble.broken.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(_) => {
                trouble.silent.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}
