//! What the engine counts for whoever watches it, and how it stands when it is asked: over all tenants
//! and endpoints, so that it takes the same place however many there are.
//!
//! Counting is adding to numbers, once for each event and each attempt, where they are confirmed anyway.
//! How things stand is looked up when somebody asks, and then not again for some seconds.

use std::time::Duration;

use postrider_core::delivery::State;
use postrider_core::endpoint::{Destination, EndpointState};
use postrider_core::lane::DEFAULT_LANES;
use postrider_core::pattern::is_reserved;
use postrider_core::{Class, Delivery, DeliveryId, EndpointId, SourceId, Timestamp};
use postrider_store::Error as StoreError;
use postrider_store::meter::{Counter, Histogram};
use postrider_store::record::Attempt;
use tokio::sync::Mutex;

use crate::breaker::BreakerState;
use crate::engine::Engine;
use crate::measures::Change;
use crate::shared::Shared;

/// How things stand is looked up no more often than this.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A store that does not answer for so long counts as unreachable.
const LOOK_WITHIN: Duration = Duration::from_secs(3);
/// Of how many endpoints that wait to be fetched from, or for a hub, the oldest delivery is looked up:
/// those that were made first.
const MAX_LOOKED_UP: usize = 512;
/// The first of each that are looked at: one that is not due yet, or with a worker, does not wait.
const LOOKED_AT: usize = 16;

/// Microseconds that an attempt takes.
const ATTEMPTS: &[u64] = &[
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 15_000_000, 30_000_000, 60_000_000,
];
/// Microseconds from an event's arrival to its delivery: from milliseconds to days of retries.
const LATENCIES: &[u64] = &[
    1_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
    3_600_000_000,
    21_600_000_000,
    86_400_000_000,
];

/// The way by which an event came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Api,
    Source,
    /// The gateway made it, to tell operators.
    Gateway,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Api, Self::Source, Self::Gateway];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Source => "source",
            Self::Gateway => "gateway",
        }
    }

    pub(crate) fn of(source: Option<SourceId>, kind: &str) -> Self {
        match source {
            Some(_) => Self::Source,
            None if is_reserved(kind) => Self::Gateway,
            None => Self::Api,
        }
    }
}

/// Whether something was tried before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try {
    First,
    Retry,
}

impl Try {
    pub const ALL: [Self; 2] = [Self::First, Self::Retry];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Retry => "retry",
        }
    }

    pub(crate) const fn of(number: u32) -> Self {
        if number <= 1 { Self::First } else { Self::Retry }
    }
}

/// What attempts can come to: delivered, or one of the classes.
pub const OUTCOMES: [Option<Class>; 4] =
    [None, Some(Class::Retryable), Some(Class::RateLimited), Some(Class::Final)];

/// The states in which a delivery ends.
pub const ENDS: [State; 4] = [State::Delivered, State::Failed, State::Dead, State::Cancelled];

/// What was counted since the start.
#[derive(Debug)]
pub struct Metrics {
    /// Events stored, as [`Way::ALL`].
    received: [Counter; 3],
    /// Events that were there already.
    pub duplicates: Counter,
    /// Events whose idempotency key another one has.
    pub conflicts: Counter,
    /// Webhooks that their sender cannot have signed.
    pub signatures_rejected: Counter,
    pub deliveries_created: Counter,
    /// As [`ENDS`].
    ended: [Counter; 4],
    /// As [`Try::ALL`], each as [`OUTCOMES`].
    attempts: [[Counter; 4]; 2],
    pub retries_scheduled: Counter,
    pub deferrals: Counter,
    /// Microseconds.
    pub attempt_spans: Histogram,
    /// Microseconds.
    pub latencies: Histogram,
    /// How things stood when somebody last looked.
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug, Clone)]
struct Seen {
    at: Duration,
    standing: Stored,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            received: Default::default(),
            duplicates: Counter::new(),
            conflicts: Counter::new(),
            signatures_rejected: Counter::new(),
            deliveries_created: Counter::new(),
            ended: Default::default(),
            attempts: Default::default(),
            retries_scheduled: Counter::new(),
            deferrals: Counter::new(),
            attempt_spans: Histogram::new(ATTEMPTS),
            latencies: Histogram::new(LATENCIES),
            seen: Mutex::const_new(None),
        }
    }
}

impl Metrics {
    pub fn received(&self, way: Way) -> u64 {
        self.received[way as usize].get()
    }

    pub fn ended(&self, state: State) -> u64 {
        end(state).map_or(0, |index| self.ended[index].get())
    }

    pub fn attempts(&self, which: Try, outcome: Option<Class>) -> u64 {
        self.attempts[which as usize][self::outcome(outcome)].get()
    }

    /// An event was stored, with so many deliveries.
    pub(crate) fn note_received(&self, way: Way, deliveries: usize) {
        self.received[way as usize].one();
        self.deliveries_created.add(deliveries as u64);
    }

    /// A change was made, perhaps by an attempt.
    pub(crate) fn note_settled(&self, change: &Change, attempt: Option<&Attempt>) {
        if let Some(attempt) = attempt {
            let which = Try::of(attempt.number);
            self.attempts[which as usize][outcome(attempt.class)].one();
            self.attempt_spans.observe_span(attempt.duration);
            let again = match change.state {
                State::Pending | State::Retrying => true,
                State::InFlight
                | State::Delivered
                | State::Failed
                | State::Dead
                | State::Cancelled => false,
            };
            if again {
                if attempt.counted { &self.retries_scheduled } else { &self.deferrals }.one();
            }
        }
        if let Some(index) = end(change.state) {
            self.ended[index].one();
        }
        if change.state == State::Delivered {
            self.latencies.observe_span(change.at.since(change.born));
        }
    }
}

/// Where a state counts among [`ENDS`].
const fn end(state: State) -> Option<usize> {
    match state {
        State::Delivered => Some(0),
        State::Failed => Some(1),
        State::Dead => Some(2),
        State::Cancelled => Some(3),
        State::Pending | State::Retrying | State::InFlight => None,
    }
}

/// Where an outcome counts among [`OUTCOMES`].
const fn outcome(class: Option<Class>) -> usize {
    match class {
        None => 0,
        Some(Class::Retryable) => 1,
        Some(Class::RateLimited) => 2,
        Some(Class::Final) => 3,
    }
}

/// How things stand.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The store answers, and this node takes part in what it is to take part in.
    pub ready: bool,
    /// Deliveries on their way from this node; what workers have is in the backlog.
    pub in_flight: usize,
    /// Deliveries in this node's memory that could go.
    pub window: usize,
    /// Deliveries by state in the whole store, as of some seconds ago at most, or as of when it last
    /// answered.
    pub backlog: Vec<(State, u64)>,
    /// How long the oldest has waited that could go, or be fetched.
    pub oldest_waiting: Duration,
    /// How long the oldest has waited that goes to a hub, whether or not that is connected.
    pub hub_lag: Duration,
    pub endpoints: Vec<(EndpointState, u64)>,
    /// Of the endpoints that this node carries.
    pub breakers: [(BreakerState, u64); 4],
    /// Hubs connected to this node.
    pub hubs_connected: usize,
    pub lanes: u16,
    /// Lanes that this node carries and may be sure of.
    pub lanes_owned: usize,
    /// Live nodes as far as this one knows, itself included.
    pub nodes: usize,
    pub operator_events_lost: u64,
}

/// What only the store knows.
#[derive(Debug, Clone, Default)]
struct Stored {
    reachable: bool,
    backlog: Vec<(State, u64)>,
    oldest_to_fetch: Option<Timestamp>,
    oldest_for_hubs: Option<Timestamp>,
}

impl Engine {
    /// What was counted since the start.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// How things stand: what this node knows as it is, what the store knows as of some seconds ago at
    /// most. It answers without the store, too.
    pub async fn standing(&self) -> Standing {
        let shared = &self.shared;
        let stored = shared.stored_standing().await;
        let now = shared.clock.now();
        let waited = |since: Option<Timestamp>| since.map_or(Duration::ZERO, |at| now.since(at));
        let view = shared.scheduler.lock().overview();
        let oldest = [view.waiting_since, stored.oldest_to_fetch].into_iter().flatten().min();
        let for_hubs = [view.hubs_waiting_since, stored.oldest_for_hubs];
        let census = shared.fleet.as_ref().map(crate::fleet::Fleet::census);
        let (lanes, lanes_owned, nodes) =
            census.unwrap_or((DEFAULT_LANES, usize::from(DEFAULT_LANES), 1));
        Standing {
            ready: stored.reachable && self.is_ready(),
            in_flight: view.in_flight,
            window: view.window,
            backlog: stored.backlog,
            oldest_waiting: waited(oldest),
            hub_lag: waited(for_hubs.into_iter().flatten().min()),
            endpoints: shared.endpoint_states(),
            breakers: view.breakers,
            hubs_connected: shared.hubs.connected(),
            lanes,
            lanes_owned,
            nodes,
            operator_events_lost: shared.operators.lost(),
        }
    }
}

impl Shared {
    async fn stored_standing(&self) -> Stored {
        let mut seen = self.metrics.seen.lock().await;
        let now = self.clock.monotonic();
        if let Some(seen) = seen.as_ref()
            && now.saturating_sub(seen.at) < LOOK_EVERY
        {
            return seen.standing.clone();
        }
        let looked = tokio::time::timeout(LOOK_WITHIN, self.look_at_store()).await;
        let standing = if let Ok(Ok(standing)) = looked {
            standing
        } else {
            // What was known is better than nothing; that it is old is said by not being ready.
            let known = seen.take().map(|seen| seen.standing).unwrap_or_default();
            Stored { reachable: false, ..known }
        };
        *seen = Some(Seen { at: now, standing: standing.clone() });
        standing
    }

    async fn look_at_store(&self) -> Result<Stored, StoreError> {
        let backlog = self.store.totals().await?;
        let now = self.clock.now();
        let (mut oldest_to_fetch, mut oldest_for_hubs) = (None, None);
        for (endpoint, to) in self.not_in_memory() {
            let first = DeliveryId::from_i64(0);
            let oldest = self.store.unfinished(endpoint, first, None, LOOKED_AT).await?;
            let could_go = |delivery: &&Delivery| match delivery.state {
                State::Pending | State::Retrying => delivery.due <= now,
                State::InFlight
                | State::Delivered
                | State::Failed
                | State::Dead
                | State::Cancelled => false,
            };
            let oldest = oldest.iter().map(|oldest| &oldest.delivery).find(could_go);
            let known = match to {
                To::Workers => &mut oldest_to_fetch,
                To::Hub => &mut oldest_for_hubs,
            };
            *known = [*known, oldest.map(|oldest| oldest.born)].into_iter().flatten().min();
        }
        Ok(Stored { reachable: true, backlog, oldest_to_fetch, oldest_for_hubs })
    }

    /// Endpoints that are to receive, and whose deliveries may be in no memory.
    fn not_in_memory(&self) -> Vec<(EndpointId, To)> {
        let routes = self.routes.load();
        let mut found: Vec<(EndpointId, To)> = routes
            .all()
            .filter(|route| route.endpoint.state == EndpointState::Active)
            .filter_map(|route| {
                let to = match route.endpoint.spec.destination {
                    Destination::Pull => To::Workers,
                    Destination::Hub(_) => To::Hub,
                    Destination::Url(_) | Destination::Command(_) | Destination::Handler(_) => {
                        return None;
                    }
                };
                Some((route.id(), to))
            })
            .collect();
        found.sort_by_key(|(endpoint, _)| *endpoint);
        found.truncate(MAX_LOOKED_UP);
        found
    }

    fn endpoint_states(&self) -> Vec<(EndpointState, u64)> {
        let routes = self.routes.load();
        // A deleted one is in no table of routes.
        let live = EndpointState::ALL.into_iter().filter(|state| *state != EndpointState::Deleted);
        let mut counts: Vec<_> = live.map(|state| (state, 0)).collect();
        for route in routes.all() {
            let place = counts.iter_mut().find(|(state, _)| *state == route.endpoint.state);
            if let Some((_, count)) = place {
                *count += 1;
            }
        }
        counts
    }
}

/// Who gets the deliveries of an endpoint that does not answer by itself.
#[derive(Debug, Clone, Copy)]
enum To {
    Workers,
    Hub,
}

#[cfg(test)]
mod tests;
