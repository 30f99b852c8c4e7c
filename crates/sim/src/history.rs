//! What happened in a world, as nobody within it can see it whole: what producers were told, what
//! arrived at endpoints, what the store was made to hold, and which faults there were.

mod operations;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use postrider_core::delivery::State;
use postrider_core::{DeliveryId, EventId, TenantId, Timestamp};
use postrider_store::fleet::Tenure;
use postrider_store::record::{Settle, Settled};

use crate::clock::TrueTime;

#[cfg(test)]
pub(crate) use operations::Operation;
pub(crate) use operations::{Deed, Holding, Neighbour, Operations};

/// Shared by everybody who has something to tell.
#[derive(Debug, Clone)]
pub(crate) struct Chronicle {
    time: TrueTime,
    history: Arc<Mutex<History>>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) submitted: Vec<Submitted>,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) changes: Vec<Change>,
    /// Each of these may stop a node, or make it send again what had arrived.
    pub(crate) faults: Vec<Fault>,
    /// How often there was what holds up and repeats nothing.
    pub(crate) hitches: BTreeMap<Hitch, u64>,
    /// When the requests of each attempt left, by the true time.
    pub(crate) sent: BTreeMap<(DeliveryId, u32), Timestamp>,
    pub(crate) operations: Operations,
}

/// An event that a producer tried to send, perhaps several times.
#[derive(Debug, Clone)]
pub(crate) struct Submitted {
    pub(crate) tenant: TenantId,
    pub(crate) kind: String,
    pub(crate) body: Bytes,
    pub(crate) key: Option<String>,
    pub(crate) ordering_key: Option<String>,
    pub(crate) deliver_at: Option<Timestamp>,
    /// The event that a node said it is.
    pub(crate) acknowledged: Option<(EventId, Timestamp)>,
}

/// A request that reached an endpoint, or a lease or a hub's letter that reached its taker.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) at: Timestamp,
    pub(crate) node: usize,
    pub(crate) endpoint: usize,
    pub(crate) delivery: DeliveryId,
    pub(crate) webhook_id: String,
    pub(crate) attempt: u32,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// What it was answered with.
    pub(crate) status: Option<u16>,
    /// The network made it of another one: the node sent it once.
    pub(crate) copied: bool,
}

/// A change of a delivery that a node asked the store for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) at: Timestamp,
    pub(crate) node: usize,
    pub(crate) delivery: DeliveryId,
    pub(crate) from: State,
    pub(crate) to: State,
    pub(crate) due: Option<Timestamp>,
    pub(crate) fence: u32,
    pub(crate) tenure: Option<Tenure>,
    /// The number and the beginning, by the node's clock, of the attempt that led to it.
    pub(crate) attempt: Option<(u32, Timestamp)>,
    pub(crate) applied: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) at: Timestamp,
    pub(crate) node: usize,
    pub(crate) kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    Crash,
    Pause,
    ClockJump,
    /// Ended and started again, by whoever looks after it.
    Restart,
    /// The store did it, and nobody heard.
    Unheard,
    DiskFull,
    CutOff,
    LostRequest,
    LostAnswer,
    /// It came, perhaps after the node had stopped waiting for it.
    LateAnswer,
    /// One request that arrived twice.
    Duplicated,
    Partition,
    /// The connection of a hub broke.
    LostLine,
}

/// What goes wrong without any right to make something come twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hitch {
    /// The store refused, and had done nothing.
    Refused,
    SlowStore,
    LateRequest,
    LostWord,
    LateWord,
    DoubledWord,
    /// An endpoint failed for a while.
    Outage,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Crash => "crash",
            Self::Pause => "pause",
            Self::ClockJump => "clock jump",
            Self::Restart => "restart",
            Self::Unheard => "commit reported failed",
            Self::DiskFull => "disk full",
            Self::CutOff => "store cut off",
            Self::LostRequest => "lost request",
            Self::LostAnswer => "lost answer",
            Self::LateAnswer => "late answer",
            Self::Duplicated => "doubled request",
            Self::Partition => "partition",
            Self::LostLine => "lost hub line",
        })
    }
}

impl fmt::Display for Hitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Refused => "store refused",
            Self::SlowStore => "slow store",
            Self::LateRequest => "late request",
            Self::LostWord => "lost word",
            Self::LateWord => "late word",
            Self::DoubledWord => "doubled word",
            Self::Outage => "endpoint outage",
        })
    }
}

impl Chronicle {
    pub(crate) fn new(time: TrueTime) -> Self {
        Self { time, history: Arc::default() }
    }

    /// What happened in a world that never was.
    #[cfg(test)]
    pub(crate) fn of(history: History) -> Self {
        Self { time: TrueTime::begin(), history: Arc::new(Mutex::new(history)) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.time.now()
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.history.lock())
    }

    pub(crate) fn fault(&self, node: usize, kind: FaultKind) {
        let at = self.now();
        self.history.lock().faults.push(Fault { at, node, kind });
    }

    pub(crate) fn hitch(&self, hitch: Hitch) {
        *self.history.lock().hitches.entry(hitch).or_default() += 1;
    }

    pub(crate) fn submitting(&self, submitted: Submitted) -> usize {
        let mut history = self.history.lock();
        history.submitted.push(submitted);
        history.submitted.len() - 1
    }

    pub(crate) fn acknowledged(&self, index: usize, event: EventId) {
        let at = self.now();
        if let Some(submitted) = self.history.lock().submitted.get_mut(index) {
            submitted.acknowledged.get_or_insert((event, at));
        }
    }

    pub(crate) fn sent(&self, delivery: DeliveryId, attempt: u32) {
        let at = self.now();
        self.history.lock().sent.entry((delivery, attempt)).or_insert(at);
    }

    /// Returns where it stands, for its answer.
    pub(crate) fn arrived(&self, arrival: Arrival) -> usize {
        let mut history = self.history.lock();
        history.arrivals.push(arrival);
        history.arrivals.len() - 1
    }

    pub(crate) fn answered(&self, index: usize, status: u16) {
        if let Some(arrival) = self.history.lock().arrivals.get_mut(index) {
            arrival.status = Some(status);
        }
    }

    pub(crate) fn settled(&self, node: usize, settles: &[Settle], answers: &[Settled]) {
        let at = self.now();
        let changes = settles.iter().zip(answers).map(|(settle, answer)| Change {
            at,
            node,
            delivery: settle.id,
            from: settle.from,
            to: settle.next.state,
            due: settle.next.due,
            fence: settle.fence,
            tenure: settle.tenure,
            attempt: settle.attempt.as_ref().map(|attempt| (attempt.number, attempt.started_at)),
            applied: match answer {
                Settled::Applied { .. } => true,
                Settled::Stale => false,
            },
        });
        self.history.lock().changes.extend(changes);
    }
}

impl History {
    /// When the attempt that led to a change began, by the true time if that is known: a node whose
    /// clock was set wrong writes down another.
    pub(crate) fn began(&self, change: &Change) -> Option<Timestamp> {
        let (number, noted) = change.attempt?;
        Some(self.sent.get(&(change.delivery, number)).copied().unwrap_or(noted))
    }

    /// All that happened to a delivery, in order, for people.
    pub(crate) fn story(&self, delivery: DeliveryId) -> Vec<String> {
        let arrivals = self.arrivals.iter().filter(|one| one.delivery == delivery).map(|one| {
            let Arrival { at, node, attempt, status, copied, .. } = one;
            (*at, format!("attempt {attempt} of node {node} arrives, copied {copied}, {status:?}"))
        });
        let changes = self.changes.iter().filter(|one| one.delivery == delivery).map(|one| {
            let Change { at, node, from, to, due, applied, .. } = one;
            let began = self.began(one);
            let what = format!("node {node}: {from:?} to {to:?}, due {due:?}, applied {applied}");
            (*at, format!("{what}, attempt begun {began:?}"))
        });
        let mut story: Vec<_> = arrivals.chain(changes).collect();
        story.sort_by_key(|(at, _)| *at);
        story.into_iter().map(|(at, what)| format!("{at} {what}")).collect()
    }

    /// Two worlds with the same fingerprint were the same.
    pub(crate) fn fingerprint(&self) -> String {
        use std::fmt::Write as _;

        use sha2::{Digest as _, Sha256};
        let mut hasher = Sha256::new();
        for submitted in &self.submitted {
            let Submitted { tenant, kind, key, ordering_key, .. } = submitted;
            let Submitted { deliver_at, acknowledged, body, .. } = submitted;
            let told = (tenant, kind, key, ordering_key, deliver_at, acknowledged);
            hasher.update(format!("{told:?}"));
            hasher.update(body);
        }
        for arrival in &self.arrivals {
            let Arrival { at, node, endpoint, delivery, attempt, status, .. } = arrival;
            hasher.update(format!("{at} {node} {endpoint} {delivery} {attempt} {status:?}\n"));
        }
        hasher.update(format!("{:?}{:?}", self.changes, self.faults));
        hasher.update(format!("{:?}", self.hitches));
        let digest: [u8; 32] = hasher.finalize().into();
        digest.iter().take(8).fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}
