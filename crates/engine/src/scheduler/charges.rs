//! What this node carries, where several share the store: which endpoints it sends to, and what has to
//! be told to the nodes that send to the others.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use postrider_core::{DeliveryId, EndpointId, Lane, Timestamp};
use postrider_store::fleet::{Charge, Tenure};

use super::{Carried, Scheduler, hub_of};
use crate::breaker::Breaker;
use crate::route::Route;

/// What other nodes say they have stored is read this often, for all endpoints at the same moments:
/// one question then brings what is there for all of them.
const BETWEEN_PAGES: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Charges {
    lanes: u16,
    held: HashMap<Charge, Tenure>,
}

/// How an endpoint stood when its last carrier left it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Legacy {
    pub(crate) hold_until: Option<Timestamp>,
    pub(crate) breaker: Option<String>,
}

/// What an endpoint is carried with.
pub(crate) fn charge_of(route: &Route, lanes: u16) -> Charge {
    hub_of(route).map_or_else(|| Charge::Lane(Lane::of(route.id(), lanes)), Charge::Hub)
}

fn next_moment(now: Timestamp) -> Timestamp {
    let every = i64::try_from(BETWEEN_PAGES.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis((now.as_millis() / every + 1) * every)
}

impl Scheduler {
    /// From here on nothing is sent but what was granted.
    pub(crate) fn share(&mut self, lanes: u16) {
        self.charges = Some(Charges { lanes, held: HashMap::new() });
    }

    /// This node carries these from now on. Each endpoint begins as its last carrier left it, with no
    /// more than the rate it may be sent to at: nobody knows how much of that was used elsewhere.
    pub(crate) fn grant(
        &mut self,
        tenures: &[Tenure],
        legacies: &HashMap<EndpointId, Legacy>,
        now: Timestamp,
    ) {
        let Some(charges) = &mut self.charges else { return };
        for tenure in tenures {
            charges.held.insert(tenure.charge, *tenure);
        }
        for id in self.queued() {
            if self.assign(id, now) {
                self.inherit(id, legacies.get(&id).unwrap_or(&Legacy::default()), now);
            }
            self.look_at(id, now);
        }
    }

    /// Another node is to carry these: nothing more of them is started.
    pub(crate) fn revoke(&mut self, revoked: &[Charge], now: Timestamp) {
        let Some(charges) = &mut self.charges else { return };
        for charge in revoked {
            charges.held.remove(charge);
        }
        for id in self.queued() {
            self.assign(id, now);
        }
    }

    /// Decides whether an endpoint is carried here. True if it was not, and is.
    pub(super) fn assign(&mut self, id: EndpointId, now: Timestamp) -> bool {
        let Some(charges) = &self.charges else { return false };
        let Some(queue) = self.queues.get_mut(&id) else { return false };
        let tenure = charges.held.get(&charge_of(&queue.route, charges.lanes)).copied();
        let carried = tenure.map_or(Carried::Elsewhere, Carried::By);
        if queue.carried == carried {
            return false;
        }
        queue.shed();
        queue.carried = carried;
        // All that waits is in the store.
        queue.spilled = carried.is_here();
        if let Some(bucket) = queue.bucket.as_mut().filter(|_| carried.is_here()) {
            bucket.drain(now);
        }
        let alarm = queue.alarm.take();
        if let Some(at) = alarm {
            self.alarms.remove(&(at, id));
        }
        self.hungry.remove(&id);
        carried.is_here()
    }

    /// An endpoint goes on as it was left.
    pub(crate) fn inherit(&mut self, id: EndpointId, legacy: &Legacy, now: Timestamp) {
        if let Some(desk) = self.desks.get_mut(&id) {
            desk.hold_until = legacy.hold_until;
        }
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.hold_until = legacy.hold_until;
            let noted = legacy.breaker.as_deref();
            queue.breaker = Breaker::restored(self.breaker, noted, now);
        }
    }

    pub(crate) fn carries(&self, id: EndpointId) -> bool {
        self.queues.get(&id).is_some_and(|queue| queue.carried.is_here())
    }

    /// It carries it, or hands out what it has to workers, as every node does.
    pub(crate) fn has_part_in(&self, id: EndpointId) -> bool {
        self.carries(id) || self.desks.contains_key(&id)
    }

    /// How many are in flight that were sent by this right.
    pub(crate) fn in_flight_of(&self, charge: Charge) -> usize {
        let queued = self.queues.values().flat_map(|queue| queue.in_flight.values());
        let away = self.desks.values().flat_map(|desk| desk.away.values());
        let of_charge = |tenure: &Option<Tenure>| tenure.is_some_and(|own| own.charge == charge);
        queued.chain(away).filter(|flight| of_charge(&flight.tenure)).count()
    }

    /// By what right a delivery in flight was sent.
    pub(crate) fn tenure_of(&self, id: EndpointId, delivery: DeliveryId) -> Option<Tenure> {
        let queued = self.queues.get(&id).and_then(|queue| queue.in_flight.get(&delivery));
        let away = || self.desks.get(&id).and_then(|desk| desk.away.get(&delivery));
        queued.or_else(away).and_then(|flight| flight.tenure)
    }

    /// Remembers that another node has something to send. Always true.
    pub(super) fn note_elsewhere(&mut self, id: EndpointId, due: Option<Timestamp>) -> bool {
        self.elsewhere
            .entry(id)
            // At once is before any time.
            .and_modify(|known| *known = known.zip(due).map(|(known, due)| known.min(due)))
            .or_insert(due);
        true
    }

    /// What other nodes have to be told since this was last asked.
    pub(crate) fn take_elsewhere(&mut self) -> BTreeMap<EndpointId, Option<Timestamp>> {
        std::mem::take(&mut self.elsewhere)
    }

    /// Another node says that the store has something for an endpoint.
    pub(crate) fn told_of(&mut self, id: EndpointId, due: Option<Timestamp>, now: Timestamp) {
        if let Some(desk) = self.desks.get(&id) {
            desk.ring();
            return;
        }
        let Some(queue) = self.queues.get_mut(&id).filter(|queue| queue.carried.is_here()) else {
            return;
        };
        if due.is_none() {
            // What others store comes in by pages: not one for every event.
            let lately = now >= queue.asked_at && now.since(queue.asked_at) < BETWEEN_PAGES;
            queue.wait_with_pages(lately.then(|| next_moment(now)));
        }
        self.note_stored(id, due, now);
    }

    /// Endpoints that the store has to be looked at for, because another node may have put something
    /// there: those that are carried and have nothing in memory, and those that workers wait for.
    pub(crate) fn idle(&self) -> Vec<EndpointId> {
        let idle = self.queues.iter().filter(|(_, queue)| {
            queue.carried.is_here()
                && queue.window.is_empty()
                && !queue.spilled
                && queue.page.is_none()
        });
        let mut ids: Vec<EndpointId> = idle.map(|(id, _)| *id).collect();
        ids.extend(self.desks.iter().filter(|(_, desk)| desk.has_waiters()).map(|(id, _)| *id));
        ids.sort_unstable();
        ids
    }

    /// What is worth keeping of an endpoint's breaker; none while it is closed.
    pub(crate) fn breaker_note(&self, id: EndpointId) -> Option<String> {
        self.queues.get(&id).and_then(|queue| queue.breaker.note())
    }
}
