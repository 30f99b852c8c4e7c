//! Several nodes on one store: this node's membership, what it carries, and what it and the others
//! tell one another.
//!
//! A node believes in what it holds from the moment before it last asked the store until a second
//! before the lease ends that it was given then. The store counts from when it answered, so whoever
//! takes over begins later than this node ends, whatever their clocks say. Words between nodes are
//! hints: what is lost is found by looking at the store, once a second.
//!
//! Reading order: [`beats`] keeps the membership and moves lanes, [`looks`] finds what words did not
//! tell, [`reload`] follows configuration, [`hearing`] and [`outbox`] are the ends of the wire,
//! [`words`] what goes over it, [`asks`] questions to a node that carries something.

pub(crate) mod asks;
pub(crate) mod beats;
mod clock;
pub(crate) mod hearing;
pub(crate) mod looks;
pub(crate) mod outbox;
pub(crate) mod reload;
pub(crate) mod words;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::lane::DEFAULT_LANES;
use postrider_core::{EndpointId, HubId, Lane, Timestamp};
use postrider_store::Error as StoreError;
use postrider_store::fleet::{
    Beat, Charge, Fleet as Register, Member, NUMBER_REST, NewNode, NodeId, NodeRecord, Pulse,
    Tenure, To,
};
use tokio::sync::Notify;

use crate::engine::Engine;
use crate::error::Error;
use crate::ports::Clock;
use crate::shared::Shared;

use asks::Asks;
use clock::StoreClock;
use outbox::Outbox;
use reload::Configuration;
use words::Word;

/// This node stops believing in its lease so long before it ends: clocks do not run equally fast.
const MARGIN: Duration = Duration::from_secs(1);

/// How a node appears to others, where several share a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOptions {
    /// What people call it.
    pub name: String,
    /// Where it listens, for people.
    pub address: String,
    /// What only one process at a time can be in, such as a locked file of this machine: whoever was
    /// there before is gone, and need not be waited for.
    pub place: Option<String>,
    /// For how long the others wait for a node that does not answer before they take over.
    pub lease: Duration,
    /// How many lanes a new store gets.
    pub lanes: u16,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            name: "postrider".into(),
            address: String::new(),
            place: None,
            lease: Duration::from_secs(10),
            lanes: DEFAULT_LANES,
        }
    }
}

/// The nodes that share a store.
#[derive(Debug, Clone)]
pub struct Nodes {
    /// The one that was asked.
    pub me: NodeId,
    pub lanes: u16,
    /// In the order they joined, those that ended within the last hour included.
    pub nodes: Vec<NodeRecord>,
}

pub(crate) struct Fleet {
    options: NodeOptions,
    lanes: u16,
    clock: Arc<StoreClock>,
    inner: Mutex<Inner>,
    /// What it holds is believed in until then: monotonic time, and the machine's own clock, which
    /// also counts the time that a machine sleeps. Milliseconds.
    believed_until: AtomicU64,
    believed_until_wall: AtomicI64,
    /// Told when the store is to be asked at once.
    beat: Notify,
    look: Notify,
    outbox: Outbox,
    asks: Asks,
    configuration: Configuration,
    /// Who follows the stream here.
    listeners: AtomicUsize,
    /// What the others were last told of that.
    told_listening: AtomicBool,
    /// Somebody on another node follows the stream.
    listened: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    node: NodeId,
    number: u8,
    /// What this node holds, and carries unless it is leaving it.
    held: HashMap<Charge, Tenure>,
    leaving: HashSet<Charge>,
    /// Who holds what, as far as is known.
    holders: HashMap<Charge, NodeId>,
    members: Vec<Member>,
    stopping: bool,
    /// Its lease ran out while the store could not be asked, and so did those of the others: until
    /// then they are given time to come back, in monotonic time.
    patient_until: Duration,
    waiting_since: Option<Timestamp>,
}

/// The first answer of the store, to be acted upon when everything is loaded.
pub(crate) struct First {
    beat: Beat,
    asked: Asked,
}

/// When the store was asked.
#[derive(Debug, Clone, Copy)]
struct Asked {
    monotonic: Duration,
    wall: Timestamp,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Joins the others and asks the store how things stand.
    pub(crate) async fn join(
        store: &dyn Register,
        options: NodeOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, First), StoreError> {
        let joined = store.join(new_node(&options, clock.now())).await?;
        let fleet = Self {
            lanes: joined.lanes,
            clock: Arc::new(StoreClock::over(clock)),
            inner: Mutex::new(Inner {
                node: joined.node,
                number: joined.number,
                held: HashMap::new(),
                leaving: HashSet::new(),
                holders: HashMap::new(),
                members: Vec::new(),
                stopping: false,
                patient_until: Duration::ZERO,
                waiting_since: None,
            }),
            believed_until: AtomicU64::new(0),
            believed_until_wall: AtomicI64::new(i64::MIN),
            beat: Notify::new(),
            look: Notify::new(),
            outbox: Outbox::default(),
            asks: Asks::default(),
            configuration: Configuration::default(),
            listeners: AtomicUsize::new(0),
            told_listening: AtomicBool::new(false),
            listened: AtomicBool::new(false),
            options,
        };
        let asked = fleet.asked();
        let beat = store.beat(fleet.pulse(0)).await?;
        let gone = || StoreError::Unavailable("the node was forgotten as it joined".into());
        let beat = beat.ok_or_else(gone)?;
        fleet.clock.set(beat.now);
        Ok((fleet, First { beat, asked }))
    }

    /// The store's time, which is the same for all nodes.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    pub(crate) fn node(&self) -> NodeId {
        self.inner.lock().node
    }

    pub(crate) fn number(&self) -> u8 {
        self.inner.lock().number
    }

    pub(crate) fn lanes(&self) -> u16 {
        self.lanes
    }

    fn asked(&self) -> Asked {
        let machine = self.clock.machine();
        Asked { monotonic: machine.monotonic(), wall: machine.now() }
    }

    fn pulse(&self, in_flight: usize) -> Pulse {
        let inner = self.inner.lock();
        Pulse {
            node: inner.node,
            takes: !inner.stopping && !self.is_patient(&inner),
            now: self.clock.machine().now(),
            listens: self.listeners.load(Ordering::Relaxed) > 0,
            in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
            waiting_since: inner.waiting_since,
        }
    }

    fn believe_since(&self, asked: Asked) {
        let span = self.options.lease.saturating_sub(MARGIN.min(self.options.lease / 4));
        let until = asked.monotonic + span;
        let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.believed_until.store(until, Ordering::Release);
        let wall = asked.wall.plus(span).as_millis();
        self.believed_until_wall.store(wall, Ordering::Release);
    }

    /// Whether it takes nothing from nodes that do not answer: it has not answered itself of late. A
    /// store that was away for longer than a lease would otherwise give everything to whoever asks
    /// first, and what the others have in flight would be sent twice.
    fn is_patient(&self, inner: &Inner) -> bool {
        self.clock.machine().monotonic() < inner.patient_until
    }

    /// What it knew was too old to be believed when it asked.
    fn be_patient(&self) {
        let until = self.clock.machine().monotonic() + self.options.lease / 2;
        self.inner.lock().patient_until = until;
    }

    /// Whether it may be sure that nobody else carries what it holds.
    pub(crate) fn believes(&self) -> bool {
        let machine = self.clock.machine();
        let passed = machine.monotonic().as_millis();
        passed < u128::from(self.believed_until.load(Ordering::Acquire))
            && machine.now().as_millis() < self.believed_until_wall.load(Ordering::Acquire)
    }

    /// The tenure of the lane that looks after something, if it is this node's.
    pub(crate) fn keeps(&self, lane: Lane) -> Option<Tenure> {
        let inner = self.inner.lock();
        let tenure = inner.held.get(&Charge::Lane(lane)).copied();
        tenure.filter(|_| !inner.leaving.contains(&Charge::Lane(lane)) && self.believes())
    }

    pub(crate) fn lane_of(&self, endpoint: EndpointId) -> Lane {
        Lane::of(endpoint, self.lanes)
    }

    /// Another node that holds this, if it is known.
    pub(crate) fn holder(&self, charge: Charge) -> Option<NodeId> {
        let inner = self.inner.lock();
        inner.holders.get(&charge).copied().filter(|holder| *holder != inner.node)
    }

    /// Other live nodes, as far as is known.
    fn others(&self) -> Vec<NodeId> {
        let inner = self.inner.lock();
        inner.members.iter().map(|member| member.node).filter(|node| *node != inner.node).collect()
    }

    pub(crate) fn is_listened_to(&self) -> bool {
        self.listened.load(Ordering::Relaxed)
    }

    /// Whether the ids it makes are its own: the number that tells them apart may be another node's
    /// some time after the lease has ended.
    pub(crate) fn may_give_out_ids(&self) -> bool {
        let passed = self.clock.machine().monotonic().saturating_sub(NUMBER_REST / 2);
        passed.as_millis() < u128::from(self.believed_until.load(Ordering::Acquire))
    }

    fn tell(&self, store: &dyn Register, to: To, word: &Word) {
        if let Some(text) = word.encode() {
            store.tell(self.node(), to, text);
        }
    }

    /// Somebody has to work on a new job, perhaps another node.
    pub(crate) fn tell_of_job(&self, store: &dyn Register) {
        self.tell(store, To::All, &Word::Job);
    }

    /// Nothing new is taken, and everything is handed over as soon as nothing of it is in flight.
    fn begin_stop(&self) -> Vec<Charge> {
        let mut inner = self.inner.lock();
        inner.stopping = true;
        let all: Vec<Charge> = inner.held.keys().copied().collect();
        inner.leaving.extend(&all);
        all
    }

    /// How many lanes there are, how many this node carries and may be sure of, and how many nodes
    /// live as far as it knows.
    pub(crate) fn census(&self) -> (u16, usize, usize) {
        let believes = self.believes();
        let inner = self.inner.lock();
        let lanes = inner.held.keys().filter(|charge| match charge {
            Charge::Lane(_) => believes && !inner.leaving.contains(*charge),
            Charge::Hub(_) => false,
        });
        (self.lanes, lanes.count(), inner.members.len().max(1))
    }

    fn note_waiting(&self, since: Option<Timestamp>) {
        self.inner.lock().waiting_since = since;
    }
}

fn new_node(options: &NodeOptions, now: Timestamp) -> NewNode {
    NewNode {
        name: options.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        address: options.address.clone(),
        place: options.place.clone(),
        lease: options.lease,
        lanes: options.lanes,
        now,
    }
}

/// While it is held, what other nodes tell the world is told here too.
#[derive(Debug)]
pub struct Listening {
    shared: Arc<Shared>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(fleet) = &self.shared.fleet {
            fleet.listeners.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Engine {
    /// The nodes that share the store; none where it has one at a time.
    pub async fn nodes(&self) -> Result<Option<Nodes>, Error> {
        let Some((fleet, store)) = self.shared.sharing() else { return Ok(None) };
        let nodes = store.nodes(fleet.clock.machine().now()).await?;
        Ok(Some(Nodes { me: fleet.node(), lanes: fleet.lanes, nodes }))
    }

    /// Whether it takes part in what it is to take part in.
    pub fn is_ready(&self) -> bool {
        self.shared.fleet.as_ref().is_none_or(Fleet::believes)
    }

    /// What happens on other nodes is told here too, from the next beat on, while the answer is held.
    pub fn listen(&self) -> Listening {
        if let Some(fleet) = &self.shared.fleet
            && fleet.listeners.fetch_add(1, Ordering::Relaxed) == 0
        {
            fleet.beat.notify_one();
        }
        Listening { shared: Arc::clone(&self.shared) }
    }

    /// Begins to hand over what this node carries, so that others take it at once. It goes on
    /// accepting what comes.
    pub fn hand_over(&self) {
        let shared = &self.shared;
        let Some(fleet) = &shared.fleet else { return };
        let lanes: Vec<Charge> = fleet.begin_stop();
        let lanes: Vec<Charge> =
            lanes.into_iter().filter(|charge| matches!(charge, Charge::Lane(_))).collect();
        shared.scheduler.lock().revoke(&lanes, shared.clock.now());
        fleet.beat.notify_one();
    }
}

impl Shared {
    /// The fleet that this node is one of, and the store's side of it.
    pub(crate) fn sharing(&self) -> Option<(&Fleet, &dyn Register)> {
        self.fleet.as_ref().zip(self.store.fleet())
    }

    /// Whether this node looks after an endpoint: sweeps it, and ends it when it is deleted. Unlike
    /// to carry it, that does not depend on a hub.
    pub(crate) fn looks_after(&self, endpoint: EndpointId) -> bool {
        self.fleet.as_ref().is_none_or(|fleet| fleet.keeps(fleet.lane_of(endpoint)).is_some())
    }

    /// Whether it does what is to be done once for all nodes.
    pub(crate) fn keeps_house(&self) -> bool {
        self.fleet.as_ref().is_none_or(|fleet| fleet.keeps(Lane(0)).is_some())
    }

    /// Takes a hub from whoever has it, and carries its endpoints from now on.
    pub(crate) async fn seize_hub(&self, hub: HubId) -> Result<Option<Tenure>, StoreError> {
        let Some((fleet, store)) = self.sharing() else { return Ok(None) };
        let node = fleet.node();
        let tenure = store.seize(node, hub).await?;
        let charge = Charge::Hub(hub);
        {
            let mut inner = fleet.inner.lock();
            inner.held.insert(charge, tenure);
            inner.leaving.remove(&charge);
            inner.holders.insert(charge, node);
        }
        fleet.tell(store, To::All, &Word::Seized { hub, epoch: tenure.epoch });
        Ok(Some(tenure))
    }

    /// A hub has gone from this node: it is given up when nothing of it is in flight any more.
    pub(crate) fn leave_hub(&self, hub: HubId) {
        let Some(fleet) = &self.fleet else { return };
        let charge = Charge::Hub(hub);
        {
            let mut inner = fleet.inner.lock();
            if inner.held.contains_key(&charge) {
                inner.leaving.insert(charge);
            }
        }
        self.scheduler.lock().revoke(&[charge], self.clock.now());
        fleet.beat.notify_one();
    }
}
