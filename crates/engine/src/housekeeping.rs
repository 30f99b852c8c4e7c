//! Tidies up, once at the start and then every hour: deliveries past their age die, history past
//! its time is removed, with what charts no longer show and sessions that nobody uses, and since when
//! endpoints fail is written down. In small steps, so that deliveries go on meanwhile.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::Transition;
use postrider_core::endpoint::EndpointState;
use postrider_core::{DeliveryId, EndpointId, EventId, Happening, step};
use postrider_store::Error as StoreError;
use postrider_store::journal::Cutoffs;
use postrider_store::measures::Grain;
use postrider_store::record::Settle;

use crate::error::Error;
use crate::operate::Reserved;
use crate::route::Route;
use crate::settler::{self, Decision};
use crate::shared::Shared;
use crate::{endpoints, failing};

/// Rows looked at in one step.
const STEP: usize = 500;
/// Longer than any session lasts: this only removes what is worth nothing any more.
const SESSION_KEPT: Duration = Duration::from_hours(24);

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        // Counted from the beginning: what grew old while it went on has not been looked at.
        let (clock, every) = (&shared.clock, shared.options.housekeeping_every);
        let (next, at_latest) = (clock.now().plus(every), clock.monotonic().saturating_add(every));
        tidy(&shared).await;
        // By both clocks: one that is set back puts nothing off, and one that is set forward makes
        // things old at once.
        while clock.now() < next && clock.monotonic() < at_latest {
            let left = at_latest.saturating_sub(clock.monotonic());
            clock.sleep_until(next.min(clock.now().plus(left))).await;
        }
    }
}

async fn tidy(shared: &Arc<Shared>) {
    endpoints::drop_lapsed_secrets(shared).await;
    failing::review(shared).await;
    let routes = shared.routes.load_full();
    for route in routes.all().filter(|route| shared.looks_after(route.id())) {
        note(expire(shared, route).await, "the age sweep was cut short");
    }
    let looked_at = endpoints::end_deleted(shared).await;
    note(looked_at, "what deleted endpoints have left was not looked at");
    if !shared.keeps_house() {
        return;
    }
    note(forget(shared).await, "the retention sweep was cut short");
    note(forget_endpoints(shared).await, "deleted endpoints were not forgotten");
    note(forget_measures(shared).await, "what charts no longer show was not removed");
    note(end_sessions(shared).await, "sessions past their time were not removed");
}

/// Says what was not done, unless it is because the gateway stops.
fn note(done: Result<(), impl Into<Error>>, trouble: &'static str) {
    match done.map_err(Into::into) {
        Ok(()) | Err(Error::Store(StoreError::Closed)) => {}
        Err(error) => tracing::warn!(%error, "{trouble}"),
    }
}

/// Lets deliveries die that are older than their endpoint's policy allows.
async fn expire(shared: &Arc<Shared>, route: &Route) -> Result<(), Error> {
    let Some(cutoff) = endpoints::age_cutoff(route, shared.clock.now()) else { return Ok(()) };
    let endpoint = route.id();
    let mut after = DeliveryId::from_i64(0);
    loop {
        let old = shared.store.unfinished(endpoint, after, Some(cutoff), STEP).await?;
        let Some(last) = old.last() else { return Ok(()) };
        after = last.id;
        let mut reserved = Vec::with_capacity(old.len());
        let mut decisions = Vec::with_capacity(old.len());
        for row in old {
            let Some(reservation) = Reserved::of(shared, endpoint, row.id, row.event).await else {
                continue;
            };
            reserved.push(reservation);
            let (now, jitter) = (shared.clock.now(), shared.entropy.jitter());
            let moved = step(&row.delivery, Happening::Sweep, &route.policy, now, jitter);
            let Transition::Moves(next) = moved else { continue };
            let event = shared.store.event(row.tenant, row.event).await?;
            let metadata = event.as_ref().and_then(|event| event.metadata.as_deref());
            decisions.push(Decision {
                tenant: row.tenant,
                event: row.event,
                correlation_id: settler::correlation(metadata),
                settle: Settle {
                    id: row.id,
                    endpoint,
                    fence: row.fence,
                    in_line: row.in_line,
                    from: row.delivery.state,
                    next,
                    at: now,
                    attempt: None,
                    lease: None,
                    result: None,
                    tenure: None,
                },
            });
        }
        let expired = decisions.len();
        settler::apply(shared, decisions, None).await?;
        log_expired(endpoint, expired);
    }
}

fn log_expired(endpoint: EndpointId, expired: usize) {
    if expired > 0 {
        tracing::warn!(%endpoint, expired, "deliveries grew too old and are dead");
    }
}

/// Removes what has been kept long enough.
async fn forget(shared: &Arc<Shared>) -> Result<(), Error> {
    let (now, keep) = (shared.clock.now(), shared.options.retention);
    let cutoffs = Cutoffs {
        delivered: now.minus(keep.delivered),
        failed: now.minus(keep.failed),
        dead: now.minus(keep.dead),
        events: now.minus(keep.delivered),
    };
    let mut after = EventId::from_i64(0);
    let (mut deliveries, mut events) = (0, 0);
    loop {
        let swept = shared.store.sweep_retention(cutoffs, after, STEP).await?;
        deliveries += swept.deliveries_removed;
        events += swept.events_removed;
        match swept.next {
            Some(next) => after = next,
            None => break,
        }
    }
    if deliveries + events > 0 {
        tracing::info!(deliveries, events, "removed what was past its retention");
    }
    Ok(())
}

/// Removes endpoints that were deleted so long ago that no history of them is left.
async fn forget_endpoints(shared: &Arc<Shared>) -> Result<(), Error> {
    let keep = shared.options.retention;
    let cutoff = shared.clock.now().minus(keep.delivered.max(keep.failed).max(keep.dead));
    for endpoint in shared.store.endpoints().await? {
        if endpoint.state == EndpointState::Deleted && endpoint.updated_at < cutoff {
            shared.store.forget_endpoint(endpoint.id).await?;
        }
    }
    Ok(())
}

async fn forget_measures(shared: &Arc<Shared>) -> Result<(), Error> {
    for grain in Grain::ALL {
        let kept = Duration::from_millis(grain.kept_millis().unsigned_abs());
        let before = shared.clock.now().minus(kept);
        while shared.store.forget_measures(grain, before, STEP).await? >= STEP as u64 {}
    }
    Ok(())
}

async fn end_sessions(shared: &Arc<Shared>) -> Result<(), Error> {
    let before = shared.clock.now().minus(SESSION_KEPT);
    while shared.store.end_old_sessions(before, before, STEP).await? >= STEP as u64 {}
    Ok(())
}
