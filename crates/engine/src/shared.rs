//! What the parts of the engine have in common, and the two moves they all make: `pump`, which
//! starts whatever may start, and the driver, which wakes when time has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use postrider_core::{DeliveryId, EndpointId, Timestamp};
use postrider_store::journal::Pages;
use postrider_store::{Error as StoreError, Store};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use crate::carrier::Carrier;
use crate::carriers::command::Allowed;
use crate::destination::Guard;
use crate::endpoints::Disable;
use crate::engine::Options;
use crate::failing::Failing;
use crate::fleet::Fleet;
use crate::hubs::Hubs;
use crate::intake::Intake;
use crate::jobs::Jobs;
use crate::leases::Leasing;
use crate::measures::Measuring;
use crate::metrics::Metrics;
use crate::notices::{Draft, Notices};
use crate::operator::Operators;
use crate::ports::{Clock, Entropy};
use crate::route::Routes;
use crate::sampled::Sampled;
use crate::scheduler::{Scheduler, WINDOW, WINDOW_BYTES};
use crate::settler::Settler;
use crate::via::Instance;
use crate::{courier, endpoints};

/// Endpoints whose pages are read with one question.
const PAGES_TOGETHER: usize = 16;
/// Such questions asked at the same time.
pub(crate) const PAGES_AT_ONCE: usize = 4;
/// After a page could not be read, the wait before it is tried again.
const PAGE_PAUSE: Duration = Duration::from_millis(500);
/// The log says no more often than this that pages cannot be read.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);
/// The driver looks around at least this often, whatever the alarms say.
const LONGEST_NAP: Duration = Duration::from_hours(1);

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) commands: Allowed,
    pub(crate) carrier: Arc<dyn Carrier>,
    pub(crate) instance: Instance,
    pub(crate) hubs: Arc<Hubs>,
    /// Where several nodes share the store.
    pub(crate) fleet: Option<Fleet>,
    pub(crate) leasing: Leasing,
    pub(crate) jobs: Jobs,
    pub(crate) routes: ArcSwap<Routes>,
    pub(crate) scheduler: Mutex<Scheduler>,
    pub(crate) intake: Mutex<Intake>,
    pub(crate) notices: Notices,
    pub(crate) operators: Operators,
    /// Since when endpoints fail. Taken while the scheduler is locked, never the other way round.
    pub(crate) failing: Mutex<Failing>,
    pub(crate) settler: Settler,
    pub(crate) measures: Measuring,
    pub(crate) metrics: Metrics,
    /// What the log has said of late.
    pub(crate) sampled: Sampled,
    pub(crate) runtime: Handle,
    /// Configuration changes one at a time, so that memory and store agree on the last one.
    pub(crate) configuring: tokio::sync::Mutex<()>,
    /// Where no other nodes are: configuration may have been stored without anybody hearing of it.
    pub(crate) unsure: Notify,
    /// Notified after each settled batch.
    pub(crate) settled: Notify,
    pub(crate) wake: Notify,
    pub(crate) asleep_until: AtomicI64,
    pub(crate) pages: Semaphore,
    /// When it was last said that pages cannot be read.
    pub(crate) complained_at: AtomicI64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Reserves `count` consecutive ids.
    pub(crate) fn take_ids(&self, count: u32) -> i64 {
        self.intake.lock().ids.take(self.clock.now(), count)
    }

    /// Starts every delivery that may start now.
    pub(crate) fn pump(self: &Arc<Self>) {
        let now = self.clock.now();
        let believes = self.fleet.as_ref().is_none_or(Fleet::believes);
        let (started, wake, elsewhere) = {
            let mut scheduler = self.scheduler.lock();
            let started: Vec<_> = if believes {
                std::iter::from_fn(|| scheduler.next(now)).collect()
            } else {
                // Another node may carry what this one holds; the next beat will tell.
                Vec::new()
            };
            let asleep_until = self.asleep_until.load(Ordering::Acquire);
            let earlier = scheduler.next_alarm().is_some_and(|at| at.as_millis() < asleep_until);
            (started, earlier || scheduler.wants_pages(), scheduler.take_elsewhere())
        };
        self.tell_ready(elsewhere);
        for (route, waiting) in started {
            self.runtime.spawn(courier::deliver(Arc::clone(self), route, waiting));
        }
        if wake {
            self.wake.notify_one();
        }
    }

    /// A delivery was stored for an endpoint that has been deleted meanwhile: end it visibly.
    pub(crate) fn cancel_orphans(self: &Arc<Self>, endpoints: Vec<EndpointId>) {
        for endpoint in endpoints {
            self.runtime.spawn(endpoints::cancel_unfinished(Arc::clone(self), endpoint));
        }
    }

    /// After a write of which nobody knows whether it was done: the store is asked what it has for these
    /// endpoints, because nobody was told.
    pub(crate) fn look_again(
        self: &Arc<Self>,
        error: &StoreError,
        endpoints: impl IntoIterator<Item = EndpointId>,
    ) {
        if !error.leaves_doubt() {
            return;
        }
        let now = self.clock.now();
        let mut scheduler = self.scheduler.lock();
        for endpoint in endpoints {
            scheduler.note_stored(endpoint, None, now);
        }
        drop(scheduler);
        self.pump();
    }

    /// Tells the world, and those operators who asked to be told by an event.
    pub(crate) fn publish(&self, drafts: impl IntoIterator<Item = Draft>) {
        let routes = self.routes.load();
        let tells = routes.tells();
        self.notices.publish(drafts, |notice, audience| {
            if tells {
                self.operators.tell(&routes, notice, audience);
            }
            self.relay(notice);
        });
    }

    /// Writes down which endpoints have stopped or begun to answer, for whoever carries them next.
    pub(crate) fn note_breakers_later(
        self: &Arc<Self>,
        breakers: Vec<(EndpointId, Option<String>)>,
    ) {
        if breakers.is_empty() {
            return;
        }
        let shared = Arc::clone(self);
        self.runtime.spawn(async move {
            if let Err(error) = shared.store.note_breakers(breakers).await {
                tracing::warn!(%error, "could not write down which endpoints do not answer");
            }
        });
    }

    /// Says that pages cannot be read, of very many once.
    fn complain(&self, error: &StoreError, now: Timestamp) {
        let last = self.complained_at.load(Ordering::Relaxed);
        let (now, every) = (now.as_millis(), COMPLAIN_EVERY.as_millis());
        let lately = i128::from(now) - i128::from(last);
        if !(0..every.cast_signed()).contains(&lately) {
            self.complained_at.store(now, Ordering::Relaxed);
            tracing::warn!(%error, "could not read what waits, trying again");
        }
    }

    /// Disables an endpoint that is of no use, outside the settling path.
    pub(crate) fn disable_later(self: &Arc<Self>, disable: Disable) {
        self.runtime.spawn(endpoints::disable(Arc::clone(self), disable));
    }
}

/// Wakes when an alarm rings or a window wants filling.
pub(crate) async fn drive(shared: Arc<Shared>) {
    loop {
        let now = shared.clock.now();
        let (pages, alarm) = {
            let mut scheduler = shared.scheduler.lock();
            scheduler.ring(now);
            let alarm = scheduler.next_alarm().unwrap_or(Timestamp::MAX).min(now.plus(LONGEST_NAP));
            shared.asleep_until.store(alarm.as_millis(), Ordering::Release);
            (scheduler.hungry(), alarm)
        };
        for some in pages.chunks(PAGES_TOGETHER) {
            let endpoints = some.iter().map(|(endpoint, _)| *endpoint).collect();
            let held = some.iter().flat_map(|(_, held)| held).copied().collect();
            shared.runtime.spawn(fill(Arc::clone(&shared), endpoints, held));
        }
        shared.pump();
        tokio::select! {
            biased;
            () = shared.wake.notified() => {}
            () = shared.clock.sleep_until(alarm) => {}
        }
    }
}

async fn fill(shared: Arc<Shared>, endpoints: Vec<EndpointId>, held: Vec<DeliveryId>) {
    // The semaphore is never closed.
    let Ok(_permit) = shared.pages.acquire().await else { return };
    let asked_at = shared.clock.now();
    let wanted = Pages {
        endpoints: endpoints.clone(),
        now: asked_at,
        limit: WINDOW / 2,
        max_bytes: WINDOW_BYTES,
        held,
    };
    let paged = shared.store.pages(wanted).await;
    let now = shared.clock.now();
    match paged {
        Ok(paged) => {
            let mut scheduler = shared.scheduler.lock();
            for (endpoint, mut paged) in endpoints.into_iter().zip(paged) {
                // A page has what may be tried. What was ready when it was stored stays so, even if
                // the clock was set back to before that.
                for waiting in &mut paged.waiting {
                    waiting.delivery.due = waiting.delivery.due.min(asked_at);
                }
                scheduler.paged(endpoint, paged, now);
            }
        }
        Err(error) => {
            shared.complain(&error, now);
            let mut scheduler = shared.scheduler.lock();
            for endpoint in endpoints {
                scheduler.page_failed(endpoint, now.plus(PAGE_PAUSE), now);
            }
        }
    }
    shared.pump();
}
