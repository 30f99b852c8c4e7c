//! An endpoint whose deliveries are fetched: what may be leased from it now, and when to look again.
//! What waits stays in the store; here is only what stands in the way.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider_core::{DeliveryId, Timestamp};
use tokio::sync::{Mutex, Notify};

use super::{Blocked, Flight};
use crate::bucket::Bucket;
use crate::route::{Route, sends};

#[derive(Debug)]
pub(crate) struct Desk {
    pub(super) route: Arc<Route>,
    /// Nothing is handed out until its route is put again.
    pub(super) suspended: bool,
    /// In flight since the endpoint was one that is sent to.
    pub(super) away: HashMap<DeliveryId, Flight>,
    pub(super) hold_until: Option<Timestamp>,
    pub(super) bucket: Option<Bucket>,
    waiting: Arc<Queueing>,
}

/// Where workers stand while there is nothing for them.
#[derive(Debug, Default)]
pub(crate) struct Queueing {
    /// Rung when there may be something.
    pub(crate) bell: Notify,
    /// How many listen for it.
    pub(crate) waiters: AtomicUsize,
    /// Held by the one that is being served: two would be shown the same deliveries.
    pub(crate) turn: Mutex<()>,
}

impl Queueing {
    /// Somebody waits, until the answer is dropped.
    pub(crate) fn enter(&self) -> Waiter<'_> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        Waiter(self)
    }
}

pub(crate) struct Waiter<'a>(&'a Queueing);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a worker may have.
#[derive(Debug)]
pub(crate) struct Allowance {
    pub(crate) route: Arc<Route>,
    pub(crate) count: usize,
    /// Not to be handed out.
    pub(crate) away: Vec<DeliveryId>,
}

impl Desk {
    pub(super) fn new(route: Arc<Route>, bucket: Option<Bucket>) -> Self {
        Self {
            route,
            suspended: false,
            away: HashMap::new(),
            hold_until: None,
            bucket,
            waiting: Arc::default(),
        }
    }

    pub(super) fn queueing(&self) -> Arc<Queueing> {
        Arc::clone(&self.waiting)
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.waiting.waiters.load(Ordering::Relaxed) > 0
    }

    pub(super) fn ring(&self) {
        self.waiting.bell.notify_waiters();
    }

    pub(super) fn obstacle(&self, now: Timestamp) -> Option<Blocked> {
        if self.suspended || !sends(self.route.endpoint.state) {
            return Some(Blocked::Stopped);
        }
        self.hold_until.filter(|until| *until > now).map(Blocked::Hold)
    }

    /// Up to `wanted`, each with a token taken for it.
    pub(super) fn allow(&mut self, wanted: usize, now: Timestamp) -> Result<Allowance, Blocked> {
        if let Some(blocked) = self.obstacle(now) {
            return Err(blocked);
        }
        let mut count = wanted;
        if let Some(bucket) = &mut self.bucket {
            for taken in 0..wanted {
                match bucket.take(now) {
                    Ok(()) => {}
                    Err(until) if taken == 0 => return Err(Blocked::RateLimit(until)),
                    Err(_) => {
                        count = taken;
                        break;
                    }
                }
            }
        }
        let away = self.away.keys().copied().collect();
        Ok(Allowance { route: Arc::clone(&self.route), count, away })
    }

    /// Takes back the tokens of what was not leased.
    pub(super) fn give_back(&mut self, tokens: usize) {
        if let Some(bucket) = &mut self.bucket {
            for _ in 0..tokens {
                bucket.give_back();
            }
        }
    }
}
