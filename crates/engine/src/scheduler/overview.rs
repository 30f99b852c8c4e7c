//! How the scheduler stands as a whole, for whoever watches the gateway: one walk over the endpoints.

use postrider_core::Timestamp;

use super::{Queue, Scheduler};
use crate::breaker::BreakerState;
use crate::route::sends;

/// Sums over all endpoints that this node carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overview {
    /// On their way from this node; what workers have is in the store's counts.
    pub(crate) in_flight: usize,
    /// In memory, waiting for a turn.
    pub(crate) window: usize,
    /// When the age of the oldest began that waits in memory, of endpoints that are sent to.
    pub(crate) waiting_since: Option<Timestamp>,
    /// The same of those behind a hub.
    pub(crate) hubs_waiting_since: Option<Timestamp>,
    pub(crate) breakers: [(BreakerState, u64); 4],
}

impl Scheduler {
    pub(crate) fn overview(&self) -> Overview {
        let states = [
            BreakerState::Closed,
            BreakerState::Open,
            BreakerState::HalfOpen,
            BreakerState::Ramping,
        ];
        let mut view = Overview {
            in_flight: self.in_flight,
            window: 0,
            waiting_since: None,
            hubs_waiting_since: None,
            breakers: states.map(|state| (state, 0)),
        };
        for queue in self.queues.values().filter(|queue| queue.carried.is_here()) {
            view.add(queue);
        }
        view
    }
}

impl Overview {
    fn add(&mut self, queue: &Queue) {
        self.window += queue.window.len();
        let state = queue.breaker.state();
        if let Some((_, count)) = self.breakers.iter_mut().find(|(known, _)| *known == state) {
            *count += 1;
        }
        if !sends(queue.route.endpoint.state) {
            return;
        }
        let oldest = queue.window.first_key_value().map(|(_, waiting)| waiting.event.born());
        let known = if queue.hub.is_some() {
            &mut self.hubs_waiting_since
        } else {
            &mut self.waiting_since
        };
        *known = [*known, oldest].into_iter().flatten().min();
    }
}
