//! Decides which waiting delivery goes next. Synchronous, without clock or I/O: time is an argument.
//!
//! Each endpoint has a bounded window of deliveries in memory; the rest stays in the store and is
//! paged in when its turn comes. Endpoints take turns; within one the oldest event goes first. A
//! delivery keeps its slot until what became of it is on disk, so that the number in flight is also
//! the most that a crash can repeat. Endpoints whose deliveries are fetched have a [`Desk`] instead.
//! Where several nodes share the store, only what this one has in its charge is sent.

mod charges;
mod desk;
mod overview;
mod slots;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use postrider_core::{DeliveryId, EndpointId, EventId, HubId, State, Timestamp};
use postrider_store::fleet::Tenure;
use postrider_store::journal::Paged;
use postrider_store::record::Waiting;
use serde::{Deserialize, Serialize};

use crate::breaker::{Breaker, BreakerOptions, BreakerState, Change};
use crate::bucket::Bucket;
use crate::route::{Place, Route, sends};

use charges::Charges;
pub(crate) use charges::{Legacy, charge_of};
use desk::Desk;
pub(crate) use desk::{Allowance, Queueing};
use slots::HubSlots;

/// Deliveries of one endpoint kept in memory.
pub(crate) const WINDOW: usize = 1_024;
/// Bytes of bodies of one endpoint kept in memory; one delivery is kept whatever its size.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;
/// Below this a window is filled up from the store.
const LOW_WATER: usize = WINDOW / 2;
/// Every endpoint may have this many in flight even when all global slots are taken: slow
/// endpoints that fill the slots must not hold up the others.
const RESERVED: usize = 4;
/// Bytes in flight to one endpoint; one delivery goes whatever its size.
const IN_FLIGHT_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Scheduler {
    queues: HashMap<EndpointId, Queue>,
    /// The endpoints that have no queue because workers come for their deliveries.
    desks: HashMap<EndpointId, Desk>,
    hubs: HubSlots,
    /// What this node carries; none if it carries everything.
    charges: Option<Charges>,
    /// Endpoints that another node carries and that something was stored for: at once, or due at a
    /// certain time. Bounded by how many endpoints there are.
    elsewhere: BTreeMap<EndpointId, Option<Timestamp>>,
    /// Endpoints that may have something to send, in the order of their turns.
    turns: VecDeque<EndpointId>,
    /// Endpoints to look at again at a certain time.
    alarms: BTreeSet<(Timestamp, EndpointId)>,
    /// Endpoints whose window wants filling.
    hungry: BTreeSet<EndpointId>,
    /// Events that are being stored and not offered yet.
    arriving: HashMap<EventId, Meanwhile>,
    /// When alarms were last looked at.
    rung_at: Timestamp,
    in_flight: usize,
    max_in_flight: usize,
    breaker: BreakerOptions,
    stopped: bool,
}

#[derive(Debug)]
struct Queue {
    route: Arc<Route>,
    /// What forwards to it, if it is not reached directly.
    hub: Option<HubId>,
    /// Not sent to until its route is put again.
    suspended: bool,
    carried: Carried,
    /// Due deliveries, oldest event first.
    window: BTreeMap<(EventId, DeliveryId), Waiting>,
    window_bytes: usize,
    in_flight: HashMap<DeliveryId, Flight>,
    in_flight_bytes: usize,
    /// Taken out of scheduling while an operator's change is under way.
    reserved: HashSet<DeliveryId>,
    /// Ready deliveries may be in the store that are not in the window.
    spilled: bool,
    /// When the earliest timed delivery in the store is due.
    next_due: Option<Timestamp>,
    /// A page is being read; what ends meanwhile must not come back with it.
    page: Option<Reading>,
    /// When a page was last asked for.
    asked_at: Timestamp,
    /// The next one is not asked for before then.
    pages_after: Option<Timestamp>,
    hold_until: Option<Timestamp>,
    bucket: Option<Bucket>,
    breaker: Breaker,
    alarm: Option<Timestamp>,
    in_turns: bool,
}

/// A page under way.
#[derive(Debug, Default)]
struct Reading {
    /// What has ended since it was asked for.
    ended: HashSet<DeliveryId>,
    /// What it shows may have been changed by another node.
    void: bool,
}

/// Who sends to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carried {
    /// This node: there is no other.
    Always,
    /// This node, by this right.
    By(Tenure),
    /// Another node, or nobody.
    Elsewhere,
}

impl Carried {
    fn is_here(self) -> bool {
        self != Self::Elsewhere
    }

    fn tenure(self) -> Option<Tenure> {
        match self {
            Self::By(tenure) => Some(tenure),
            Self::Always | Self::Elsewhere => None,
        }
    }
}

/// What is known of a delivery in flight.
#[derive(Debug, Clone, Copy)]
struct Flight {
    bytes: usize,
    /// It is stored as `retrying`, not as `pending`.
    retry: bool,
    /// The hub that has it, wherever its endpoint's next ones go.
    hub: Option<HubId>,
    /// By what right it was sent.
    tenure: Option<Tenure>,
}

/// Why an endpoint is not sent to right now, and until when if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Blocked {
    Stopped,
    Hold(Timestamp),
    Breaker(Option<Timestamp>),
    RateLimit(Timestamp),
    /// All its own slots are taken.
    Busy,
    /// All global slots are taken.
    Crowded,
    /// Its hub is away.
    Offline,
}

/// What happened to an event's deliveries between their being stored and being offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    Nothing,
    /// A page found one of them: one that nobody offers has to be noted as stored.
    PassedOver,
    /// An operator had hold of one of them: none may be offered as it was when it was made.
    Reserved,
}

/// What a finished attempt means for its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    Bad,
    /// Says nothing about the endpoint.
    Unknown,
}

/// How a delivery left its slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish {
    pub(crate) endpoint: EndpointId,
    pub(crate) delivery: DeliveryId,
    pub(crate) health: Health,
    pub(crate) hold_until: Option<Timestamp>,
    /// When it is to be tried again.
    pub(crate) due: Option<Timestamp>,
}

/// How an endpoint stands, for those who look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointHealth {
    pub in_flight: usize,
    /// How many of these are stored as `retrying`; the others are stored as `pending`.
    pub in_flight_retries: usize,
    /// Deliveries in memory, waiting for their turn.
    pub window: usize,
    pub breaker: BreakerState,
    pub hold_until: Option<Timestamp>,
}

impl Scheduler {
    pub(crate) fn new(max_in_flight: usize, breaker: BreakerOptions) -> Self {
        Self {
            queues: HashMap::new(),
            desks: HashMap::new(),
            hubs: HubSlots::default(),
            charges: None,
            elsewhere: BTreeMap::new(),
            turns: VecDeque::new(),
            alarms: BTreeSet::new(),
            hungry: BTreeSet::new(),
            arriving: HashMap::new(),
            rung_at: Timestamp::MIN,
            in_flight: 0,
            max_in_flight,
            breaker,
            stopped: false,
        }
    }

    /// Takes in an endpoint, or its new configuration.
    pub(crate) fn put_route(&mut self, route: &Arc<Route>, now: Timestamp) {
        let id = route.id();
        let limit = route.endpoint.spec.rate_limit;
        let full = || limit.map(|limit| Bucket::full(limit, now));
        if matches!(route.place, Place::Pull) {
            self.put_desk(route, full);
            return;
        }
        let away = self.desks.remove(&id).map(|desk| {
            desk.ring();
            desk.away
        });
        if let Some(queue) = self.queues.get_mut(&id) {
            if queue.route.endpoint.spec.rate_limit != limit {
                queue.bucket = full();
            }
            queue.route = Arc::clone(route);
            queue.suspended = false;
            let hub = hub_of(route);
            if queue.hub != hub {
                // What is in flight goes on the old way, and comes back from there.
                if let Some(old) = std::mem::replace(&mut queue.hub, hub) {
                    self.hubs.remove(old, id);
                }
                if let Some(new) = hub {
                    self.hubs.add(new, id);
                }
            }
        } else {
            let hub = hub_of(route);
            if let Some(hub) = hub {
                self.hubs.add(hub, id);
            }
            // These are on their way since it was sent to the last time.
            let in_flight = away.unwrap_or_default();
            let queue = Queue {
                route: Arc::clone(route),
                hub,
                suspended: false,
                carried: match self.charges {
                    None => Carried::Always,
                    Some(_) => Carried::Elsewhere,
                },
                window: BTreeMap::new(),
                window_bytes: 0,
                in_flight_bytes: in_flight.values().map(|flight| flight.bytes).sum(),
                in_flight,
                reserved: HashSet::new(),
                spilled: true,
                next_due: None,
                page: None,
                asked_at: Timestamp::MIN,
                pages_after: None,
                hold_until: None,
                bucket: full(),
                breaker: Breaker::new(self.breaker),
                alarm: None,
                in_turns: false,
            };
            self.queues.insert(id, queue);
        }
        self.assign(id, now);
        self.look_at(id, now);
    }

    fn put_desk(&mut self, route: &Arc<Route>, full: impl FnOnce() -> Option<Bucket>) {
        let id = route.id();
        let limit = route.endpoint.spec.rate_limit;
        if let Some(desk) = self.desks.get_mut(&id) {
            if desk.route.endpoint.spec.rate_limit != limit {
                desk.bucket = full();
            }
            desk.route = Arc::clone(route);
            desk.suspended = false;
            desk.ring();
            return;
        }
        let mut desk = Desk::new(Arc::clone(route), full());
        if let Some(queue) = self.forget_queue(id) {
            desk.away = queue.in_flight;
        }
        self.desks.insert(id, desk);
    }

    /// Takes a queue out. What it has in flight is still counted.
    fn forget_queue(&mut self, id: EndpointId) -> Option<Queue> {
        let queue = self.queues.remove(&id)?;
        if let Some(hub) = queue.hub {
            self.hubs.remove(hub, id);
        }
        if let Some(at) = queue.alarm {
            self.alarms.remove(&(at, id));
        }
        self.hungry.remove(&id);
        self.turns.retain(|turn| *turn != id);
        Some(queue)
    }

    /// Where the workers of an endpoint stand; none for one that is sent to.
    pub(crate) fn queueing(&self, id: EndpointId) -> Option<Arc<Queueing>> {
        self.desks.get(&id).map(Desk::queueing)
    }

    /// What a worker may have of an endpoint now.
    pub(crate) fn allow(
        &mut self,
        id: EndpointId,
        wanted: usize,
        now: Timestamp,
    ) -> Result<Allowance, Blocked> {
        if self.stopped {
            return Err(Blocked::Stopped);
        }
        self.desks.get_mut(&id).ok_or(Blocked::Stopped)?.allow(wanted, now)
    }

    /// Takes back what a worker was allowed and did not get.
    pub(crate) fn disallow(&mut self, id: EndpointId, count: usize) {
        if let Some(desk) = self.desks.get_mut(&id) {
            desk.give_back(count);
        }
    }

    /// How many a hub can take at once; none while it is away.
    pub(crate) fn set_hub(&mut self, hub: HubId, capacity: Option<usize>, now: Timestamp) {
        for endpoint in self.hubs.set_capacity(hub, capacity) {
            self.look_at(endpoint, now);
        }
    }

    pub(crate) fn hub_in_flight(&self, hub: HubId) -> usize {
        self.hubs.in_flight(hub)
    }

    /// Takes a hub's slot for something that is in no queue.
    pub(crate) fn enter_hub(&mut self, hub: HubId) -> Result<(), Blocked> {
        if let Some(blocked) = self.hubs.obstacle(hub) {
            return Err(blocked);
        }
        self.hubs.take(hub);
        Ok(())
    }

    /// Gives a hub's slot back to those who waited for it.
    pub(crate) fn leave_hub(&mut self, hub: HubId, now: Timestamp) {
        for endpoint in self.hubs.give_back(hub) {
            self.look_at(endpoint, now);
        }
    }

    /// Sends nothing more to an endpoint until its route is put again: it is about to be disabled,
    /// and what waits must not be refused meanwhile.
    pub(crate) fn suspend(&mut self, id: EndpointId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.suspended = true;
        }
        if let Some(desk) = self.desks.get_mut(&id) {
            desk.suspended = true;
        }
    }

    /// Forgets an endpoint. What it has in flight ends as usual.
    pub(crate) fn remove_route(&mut self, id: EndpointId) {
        let mut forgotten = HashMap::new();
        if let Some(queue) = self.forget_queue(id) {
            forgotten = queue.in_flight;
        }
        if let Some(desk) = self.desks.remove(&id) {
            desk.ring();
            forgotten = desk.away;
        }
        self.in_flight -= forgotten.len();
        for hub in forgotten.values().filter_map(|flight| flight.hub) {
            self.leave_hub(hub, self.rung_at);
        }
    }

    /// Announces that the deliveries of an event are about to be stored and will be offered by
    /// whoever stores them. Until [`Scheduler::arrived`] no page brings them in: it might bring one
    /// that has already gone when it is offered.
    pub(crate) fn expect(&mut self, event: EventId) {
        self.arriving.insert(event, Meanwhile::Nothing);
    }

    /// Ends what [`Scheduler::expect`] began.
    pub(crate) fn arrived(&mut self, event: EventId) -> Meanwhile {
        self.arriving.remove(&event).unwrap_or(Meanwhile::Nothing)
    }

    /// Offers a delivery that has just been stored and may go at once. Returns false for an
    /// endpoint that is not known.
    pub(crate) fn offer(&mut self, waiting: Waiting, now: Timestamp) -> bool {
        let id = waiting.endpoint;
        let Some(queue) = self.queues.get_mut(&id) else { return self.ring_desk(id) };
        if !queue.carried.is_here() {
            return self.note_elsewhere(id, None);
        }
        if queue.reserved.contains(&waiting.id) {
            queue.spilled = true;
        } else if queue.holds(waiting.id, waiting.event.id) {
            // A page was faster.
        } else if queue.spilled || !queue.has_room() {
            // While older ones wait in the store, a newer one has to wait there too.
            queue.spilled = true;
        } else {
            queue.insert(waiting);
        }
        self.look_at(id, now);
        true
    }

    /// Tells that the store has something for the endpoint: at once, or due at a certain time.
    pub(crate) fn note_stored(
        &mut self,
        id: EndpointId,
        due: Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        let Some(queue) = self.queues.get_mut(&id) else { return self.ring_desk(id) };
        if !queue.carried.is_here() {
            return self.note_elsewhere(id, due);
        }
        match due {
            Some(due) => queue.next_due = Some(queue.next_due.map_or(due, |known| known.min(due))),
            None => queue.spilled = true,
        }
        self.look_at(id, now);
        true
    }

    /// Calls those who wait at a desk, of whatever node: there may be something. False if there is no
    /// such desk.
    fn ring_desk(&mut self, id: EndpointId) -> bool {
        let Some(desk) = self.desks.get(&id) else { return false };
        desk.ring();
        if self.charges.is_some() {
            self.note_elsewhere(id, None);
        }
        true
    }

    /// The next delivery to send, with a slot taken for it.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<(Arc<Route>, Waiting)> {
        if self.stopped {
            return None;
        }
        for _ in 0..self.turns.len() {
            let id = self.turns.pop_front()?;
            let crowded = self.in_flight >= self.max_in_flight;
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            queue.in_turns = false;
            if queue.window.is_empty() {
                self.look_at(id, now);
                continue;
            }
            let forwarding = queue.hub.and_then(|hub| self.hubs.obstacle(hub));
            match queue.may_send(now, crowded, forwarding) {
                Ok(()) => {
                    let sent =
                        queue.take_oldest().map(|waiting| (Arc::clone(&queue.route), waiting));
                    self.in_flight += 1;
                    if let Some(hub) = queue.hub {
                        self.hubs.take(hub);
                    }
                    self.look_at(id, now);
                    return sent;
                }
                Err(Blocked::Crowded) => {
                    queue.in_turns = true;
                    self.turns.push_back(id);
                }
                Err(
                    Blocked::Hold(until)
                    | Blocked::RateLimit(until)
                    | Blocked::Breaker(Some(until)),
                ) => {
                    self.set_alarm(id, until);
                }
                Err(Blocked::Busy) if forwarding == Some(Blocked::Busy) => {
                    if let Some(hub) = queue.hub {
                        self.hubs.turn_away(hub, id);
                    }
                }
                // What ends, resumes or changes will look at it again.
                Err(
                    Blocked::Stopped | Blocked::Busy | Blocked::Breaker(None) | Blocked::Offline,
                ) => {}
            }
        }
        None
    }

    /// Gives back a slot that was taken for a delivery which came back untried, or turned out not to
    /// be due because the clock was set back. The store knows whether it waits for a time at all.
    pub(crate) fn put_back(&mut self, id: EndpointId, delivery: DeliveryId, now: Timestamp) {
        if self.release(id, delivery, now)
            && let Some(bucket) = self.queues.get_mut(&id).and_then(|queue| queue.bucket.as_mut())
        {
            bucket.give_back();
        }
        self.note_stored(id, None, now);
    }

    /// Frees the slot of a delivery whose end, or next attempt, is on disk.
    pub(crate) fn finish(&mut self, finish: Finish, now: Timestamp) -> Option<Change> {
        self.release(finish.endpoint, finish.delivery, now);
        if let Some(desk) = self.desks.get_mut(&finish.endpoint) {
            if let Some(until) = finish.hold_until {
                desk.hold_until = Some(desk.hold_until.map_or(until, |known| known.max(until)));
            }
            // There is one to be had again, or a hand free for another.
            desk.ring();
            return None;
        }
        let queue = self.queues.get_mut(&finish.endpoint)?;
        if let Some(until) = finish.hold_until {
            queue.hold_until = Some(queue.hold_until.map_or(until, |known| known.max(until)));
        }
        let change = match finish.health {
            Health::Good => queue.breaker.succeeded(queue.route.max_in_flight),
            Health::Bad => queue.breaker.failed(now),
            Health::Unknown => None,
        };
        if let Some(due) = finish.due.filter(|_| queue.carried.is_here()) {
            queue.next_due = Some(queue.next_due.map_or(due, |known| known.min(due)));
        }
        self.look_at(finish.endpoint, now);
        change
    }

    /// Takes a delivery out of scheduling while an operator changes it. False if it is in flight.
    pub(crate) fn reserve(&mut self, id: EndpointId, delivery: DeliveryId, event: EventId) -> bool {
        let Some(queue) = self.queues.get_mut(&id) else {
            // What waits at a desk is in nobody's memory; its fence tells two who change it apart.
            return !self.is_in_flight(id, delivery);
        };
        if queue.in_flight.contains_key(&delivery) {
            return false;
        }
        if let Some(meanwhile) = self.arriving.get_mut(&event) {
            *meanwhile = Meanwhile::Reserved;
        }
        queue.remove(event, delivery);
        queue.reserved.insert(delivery)
    }

    /// Ends a reservation. The delivery is found in the store again if it still waits.
    pub(crate) fn unreserve(&mut self, id: EndpointId, delivery: DeliveryId, now: Timestamp) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.reserved.remove(&delivery);
            if let Some(page) = &mut queue.page {
                page.ended.insert(delivery);
            }
        }
        self.note_stored(id, None, now);
    }

    /// Endpoints whose windows want filling, each with the deliveries it holds already. A page of
    /// each has to be read and given to [`Scheduler::paged`], or failed with
    /// [`Scheduler::page_failed`].
    pub(crate) fn hungry(&mut self) -> Vec<(EndpointId, Vec<DeliveryId>)> {
        let ids = std::mem::take(&mut self.hungry);
        let mut pages = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            let held = queue.window.keys().map(|(_, delivery)| *delivery);
            let held =
                held.chain(queue.in_flight.keys().copied()).chain(queue.reserved.iter().copied());
            pages.push((id, held.collect()));
            // From here on, what is noted is in addition to what the page will say.
            queue.spilled = false;
            queue.next_due = None;
            queue.page = Some(Reading::default());
            queue.asked_at = self.rung_at;
            queue.pages_after = None;
        }
        pages
    }

    pub(crate) fn paged(&mut self, id: EndpointId, paged: Paged, now: Timestamp) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let Reading { ended, void } = queue.page.take().unwrap_or_default();
        if void || !queue.carried.is_here() {
            queue.spilled = queue.carried.is_here();
            self.look_at(id, now);
            return;
        }
        queue.spilled |= paged.more;
        if let Some(due) = paged.next_due {
            queue.next_due = Some(queue.next_due.map_or(due, |known| known.min(due)));
        }
        for waiting in paged.waiting {
            if let Some(meanwhile) = self.arriving.get_mut(&waiting.event.id) {
                if *meanwhile == Meanwhile::Nothing {
                    *meanwhile = Meanwhile::PassedOver;
                }
            } else if !ended.contains(&waiting.id) && !queue.holds(waiting.id, waiting.event.id) {
                queue.insert(waiting);
            }
        }
        queue.keep_oldest();
        self.look_at(id, now);
    }

    /// The page could not be read: try again at `retry_at`.
    pub(crate) fn page_failed(&mut self, id: EndpointId, retry_at: Timestamp, now: Timestamp) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.page = None;
        queue.spilled = true;
        queue.wait_with_pages(Some(retry_at));
        self.look_at(id, now);
    }

    /// Looks at every endpoint whose alarm has rung, or at all if the clock was set back: what was
    /// to last a second might last a day otherwise.
    pub(crate) fn ring(&mut self, now: Timestamp) {
        if now < self.rung_at {
            for id in self.queued() {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.pages_after = None;
                }
                self.look_at(id, now);
            }
        }
        self.rung_at = now;
        while let Some(&(at, id)) = self.alarms.first() {
            if at > now {
                break;
            }
            self.alarms.pop_first();
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.alarm = None;
            }
            self.look_at(id, now);
        }
    }

    /// All endpoints with a queue, oldest first: whatever is done for each is done in the same order
    /// whenever the same happens.
    fn queued(&self) -> Vec<EndpointId> {
        let mut ids: Vec<EndpointId> = self.queues.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn next_alarm(&self) -> Option<Timestamp> {
        self.alarms.first().map(|(at, _)| *at)
    }

    pub(crate) fn wants_pages(&self) -> bool {
        !self.hungry.is_empty()
    }

    /// Starts nothing more, and sends away who waits.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        for desk in self.desks.values() {
            desk.ring();
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// More of this endpoint waits for a slot.
    pub(crate) fn has_backlog(&self, id: EndpointId) -> bool {
        self.queues.get(&id).is_some_and(|queue| queue.spilled || !queue.window.is_empty())
    }

    pub(crate) fn is_in_flight(&self, id: EndpointId, delivery: DeliveryId) -> bool {
        self.queues.get(&id).is_some_and(|queue| queue.in_flight.contains_key(&delivery))
            || self.desks.get(&id).is_some_and(|desk| desk.away.contains_key(&delivery))
    }

    pub(crate) fn health(&self, id: EndpointId) -> Option<EndpointHealth> {
        if let Some(desk) = self.desks.get(&id) {
            return Some(EndpointHealth {
                in_flight: desk.away.len(),
                in_flight_retries: desk.away.values().filter(|flight| flight.retry).count(),
                window: 0,
                breaker: BreakerState::Closed,
                hold_until: desk.hold_until,
            });
        }
        self.queues.get(&id).map(|queue| EndpointHealth {
            in_flight: queue.in_flight.len(),
            in_flight_retries: queue.in_flight.values().filter(|flight| flight.retry).count(),
            window: queue.window.len(),
            breaker: queue.breaker.state(),
            hold_until: queue.hold_until,
        })
    }

    /// Why a ready delivery of this endpoint has not gone.
    pub(crate) fn blocked(&self, id: EndpointId, now: Timestamp) -> Option<Blocked> {
        let limited = |bucket: &Option<Bucket>| {
            let mut bucket = bucket.clone()?;
            bucket.take(now).err().map(Blocked::RateLimit)
        };
        if let Some(desk) = self.desks.get(&id) {
            return desk.obstacle(now).or_else(|| limited(&desk.bucket));
        }
        let queue = self.queues.get(&id)?;
        let crowded = self.in_flight >= self.max_in_flight;
        let forwarding = queue.hub.and_then(|hub| self.hubs.obstacle(hub));
        if !queue.carried.is_here() && queue.hub.is_some() {
            return Some(Blocked::Offline);
        }
        queue.obstacle(now, crowded, forwarding).or_else(|| limited(&queue.bucket))
    }

    /// When the age of the oldest began that waits in memory.
    pub(crate) fn waiting_since(&self) -> Option<Timestamp> {
        let oldest = |queue: &Queue| Some(queue.window.first_key_value()?.1.event.born());
        self.queues.values().filter_map(oldest).min()
    }

    /// Workers get nothing of an endpoint until then.
    pub(crate) fn hold_desk(&mut self, id: EndpointId, until: Timestamp) {
        if let Some(desk) = self.desks.get_mut(&id) {
            desk.hold_until = Some(desk.hold_until.map_or(until, |known| known.max(until)));
        }
    }

    fn release(&mut self, id: EndpointId, delivery: DeliveryId, now: Timestamp) -> bool {
        let flight = if let Some(queue) = self.queues.get_mut(&id) {
            let Some(flight) = queue.in_flight.remove(&delivery) else { return false };
            queue.in_flight_bytes -= flight.bytes;
            if let Some(page) = &mut queue.page {
                page.ended.insert(delivery);
            }
            flight
        } else {
            let desk = self.desks.get_mut(&id);
            let Some(flight) = desk.and_then(|desk| desk.away.remove(&delivery)) else {
                return false;
            };
            flight
        };
        self.in_flight -= 1;
        if let Some(hub) = flight.hub {
            self.leave_hub(hub, now);
        }
        true
    }

    /// Puts an endpoint where it belongs after anything about it changed: among those that may
    /// send, those that want a page, and those with an alarm set.
    fn look_at(&mut self, id: EndpointId, now: Timestamp) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if !queue.is_open() {
            return;
        }
        if !queue.window.is_empty() && !queue.in_turns {
            queue.in_turns = true;
            self.turns.push_back(id);
        }
        let due = queue.next_due;
        let wants = queue.spilled || due.is_some_and(|due| due <= now);
        let mut alarm = due.filter(|due| *due > now);
        if queue.page.is_none() && wants && queue.window.len() < LOW_WATER && queue.has_room() {
            match queue.pages_after.filter(|after| *after > now) {
                Some(after) => alarm = Some(alarm.map_or(after, |due| due.min(after))),
                None => {
                    self.hungry.insert(id);
                }
            }
        }
        if let Some(at) = alarm {
            self.set_alarm(id, at);
        }
    }

    fn set_alarm(&mut self, id: EndpointId, at: Timestamp) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if queue.alarm.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(known) = queue.alarm.replace(at) {
            self.alarms.remove(&(known, id));
        }
        self.alarms.insert((at, id));
    }
}

impl Queue {
    fn is_open(&self) -> bool {
        self.carried.is_here() && !self.suspended && sends(self.route.endpoint.state)
    }

    /// Forgets what waits: somebody else is to send it. What is in flight stays.
    fn shed(&mut self) {
        self.window.clear();
        self.window_bytes = 0;
        self.spilled = false;
        self.next_due = None;
        if let Some(page) = &mut self.page {
            page.void = true;
        }
    }

    /// No page is read before then, whatever wants one.
    fn wait_with_pages(&mut self, until: Option<Timestamp>) {
        self.pages_after = self.pages_after.max(until);
    }

    fn has_room(&self) -> bool {
        self.window.is_empty() || (self.window.len() < WINDOW && self.window_bytes < WINDOW_BYTES)
    }

    fn holds(&self, delivery: DeliveryId, event: EventId) -> bool {
        self.in_flight.contains_key(&delivery)
            || self.reserved.contains(&delivery)
            || self.window.contains_key(&(event, delivery))
    }

    fn insert(&mut self, waiting: Waiting) {
        self.window_bytes += waiting.event.body.len();
        self.window.insert((waiting.event.id, waiting.id), waiting);
    }

    fn remove(&mut self, event: EventId, delivery: DeliveryId) {
        if let Some(waiting) = self.window.remove(&(event, delivery)) {
            self.window_bytes -= waiting.event.body.len();
        }
    }

    /// Leaves what is too much to the store, newest first.
    fn keep_oldest(&mut self) {
        while let Some((_, newest)) = self.window.last_key_value() {
            let others_bytes = self.window_bytes - newest.event.body.len();
            let others = self.window.len() - 1;
            if others < WINDOW && (others == 0 || others_bytes < WINDOW_BYTES) {
                break;
            }
            self.window_bytes = others_bytes;
            self.window.pop_last();
            self.spilled = true;
        }
    }

    /// Everything that stands in the way of sending, except the rate limit.
    /// `forwarding` is what stands in the way of its hub.
    fn obstacle(
        &self,
        now: Timestamp,
        crowded: bool,
        forwarding: Option<Blocked>,
    ) -> Option<Blocked> {
        if !self.is_open() {
            return Some(Blocked::Stopped);
        }
        if forwarding == Some(Blocked::Offline) {
            return forwarding;
        }
        if let Some(until) = self.hold_until.filter(|until| *until > now) {
            return Some(Blocked::Hold(until));
        }
        let in_flight = self.in_flight.len();
        if in_flight >= self.breaker.allowance(now) as usize {
            // A probe whose time has come waits for those that are still in flight.
            return Some(Blocked::Breaker(self.breaker.probe_at().filter(|at| *at > now)));
        }
        if in_flight >= self.route.max_in_flight as usize || self.in_flight_bytes >= IN_FLIGHT_BYTES
        {
            return Some(Blocked::Busy);
        }
        if forwarding.is_some() {
            return forwarding;
        }
        (crowded && in_flight >= RESERVED).then_some(Blocked::Crowded)
    }

    fn may_send(
        &mut self,
        now: Timestamp,
        crowded: bool,
        forwarding: Option<Blocked>,
    ) -> Result<(), Blocked> {
        if let Some(blocked) = self.obstacle(now, crowded, forwarding) {
            return Err(blocked);
        }
        match &mut self.bucket {
            Some(bucket) => bucket.take(now).map_err(Blocked::RateLimit),
            None => Ok(()),
        }
    }

    fn take_oldest(&mut self) -> Option<Waiting> {
        let (_, waiting) = self.window.pop_first()?;
        let bytes = waiting.event.body.len();
        self.window_bytes -= bytes;
        self.in_flight_bytes += bytes;
        let retry = waiting.delivery.state == State::Retrying;
        let tenure = self.carried.tenure();
        self.in_flight.insert(waiting.id, Flight { bytes, retry, hub: self.hub, tenure });
        self.breaker.sent();
        Some(waiting)
    }
}

/// The hub that an endpoint's deliveries go through.
pub(crate) fn hub_of(route: &Route) -> Option<HubId> {
    match route.place {
        Place::Hub(hub) => Some(hub),
        Place::Url(_) | Place::Command(_) | Place::Pull | Place::Handler(_) => None,
    }
}

#[cfg(test)]
mod tests;
