//! How much each hub can take: its endpoints share what it can hold at once.

use std::collections::{BTreeSet, HashMap, VecDeque};

use postrider_core::{EndpointId, HubId};

use super::Blocked;

#[derive(Debug, Default)]
pub(super) struct HubSlots {
    hubs: HashMap<HubId, Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    /// None: it is away.
    capacity: Option<usize>,
    /// What was given to it and has not come back, whatever way its endpoint goes by now.
    in_flight: usize,
    endpoints: BTreeSet<EndpointId>,
    /// Endpoints that found it full, in the order in which they came.
    turned_away: VecDeque<EndpointId>,
}

impl HubSlots {
    pub(super) fn add(&mut self, hub: HubId, endpoint: EndpointId) {
        self.hubs.entry(hub).or_default().endpoints.insert(endpoint);
    }

    /// An endpoint leaves. What it has in flight stays where it is.
    pub(super) fn remove(&mut self, hub: HubId, endpoint: EndpointId) {
        if let Some(slots) = self.hubs.get_mut(&hub) {
            slots.endpoints.remove(&endpoint);
            slots.turned_away.retain(|waiting| *waiting != endpoint);
        }
        self.forget_idle(hub);
    }

    /// Returns the endpoints that this concerns.
    pub(super) fn set_capacity(&mut self, hub: HubId, capacity: Option<usize>) -> Vec<EndpointId> {
        let slots = self.hubs.entry(hub).or_default();
        slots.capacity = capacity;
        slots.turned_away.clear();
        let endpoints = slots.endpoints.iter().copied().collect();
        self.forget_idle(hub);
        endpoints
    }

    pub(super) fn obstacle(&self, hub: HubId) -> Option<Blocked> {
        let slots = self.hubs.get(&hub);
        match slots.and_then(|slots| Some((slots.in_flight, slots.capacity?))) {
            None => Some(Blocked::Offline),
            Some((in_flight, capacity)) => (in_flight >= capacity).then_some(Blocked::Busy),
        }
    }

    pub(super) fn take(&mut self, hub: HubId) {
        self.hubs.entry(hub).or_default().in_flight += 1;
    }

    /// Remembers an endpoint that has something for a full hub: it is looked at again in its turn.
    pub(super) fn turn_away(&mut self, hub: HubId, endpoint: EndpointId) {
        if let Some(slots) = self.hubs.get_mut(&hub)
            && !slots.turned_away.contains(&endpoint)
        {
            slots.turned_away.push_back(endpoint);
        }
    }

    /// Gives a slot back. Returns the endpoints that have waited for it, the first one first.
    pub(super) fn give_back(&mut self, hub: HubId) -> VecDeque<EndpointId> {
        let Some(slots) = self.hubs.get_mut(&hub) else { return VecDeque::new() };
        slots.in_flight = slots.in_flight.saturating_sub(1);
        let has_room = slots.capacity.is_some_and(|capacity| slots.in_flight < capacity);
        let waiting =
            if has_room { std::mem::take(&mut slots.turned_away) } else { VecDeque::new() };
        self.forget_idle(hub);
        waiting
    }

    pub(super) fn in_flight(&self, hub: HubId) -> usize {
        self.hubs.get(&hub).map_or(0, |slots| slots.in_flight)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.hubs.is_empty()
    }

    /// Forgets a hub that is away, has nothing and that nobody is behind.
    fn forget_idle(&mut self, hub: HubId) {
        let is_idle = |slots: &Slots| {
            slots.capacity.is_none() && slots.in_flight == 0 && slots.endpoints.is_empty()
        };
        if self.hubs.get(&hub).is_some_and(is_idle) {
            self.hubs.remove(&hub);
        }
    }
}
