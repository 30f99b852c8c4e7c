//! One attempt from start to finish: ask `step` whether it may start, have it carried, ask the
//! policy what the answer means and `step` what that makes of the delivery, and pass that on to be
//! settled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::delivery::{Next, State, Transition, Why};
use postrider_core::outcome::Sighting;
use postrider_core::{
    Class, Delivery, DeliveryId, EndpointId, Happening, HubId, Outcome, SpanId, Timestamp, step,
};
use postrider_store::record::{Attempt, Response, Waiting};
use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::carrier::{Carried, Parcel};
use crate::route::Route;
use crate::sampled::Kind;
use crate::scheduler::{Health, hub_of};
use crate::settler::Verdict;
use crate::shared::Shared;
use crate::{hubs, spans};

pub(crate) async fn deliver(shared: Arc<Shared>, route: Arc<Route>, waiting: Waiting) {
    let (endpoint, delivery) = (waiting.endpoint, waiting.id);
    let hub = hub_of(&route);
    let verdict = match start(&shared, &route, &waiting) {
        Start::Go => attempt(&shared, &route, waiting).await,
        Start::Ends(next) => Some(Verdict {
            at: shared.clock.now(),
            route,
            waiting,
            next,
            attempt: None,
            health: Health::Unknown,
            lease: None,
            result: None,
            tenure: None,
        }),
        Start::NotDue => None,
    };
    // What it has come to is handed on before the wait, and so has no room in the task.
    if let Some(submitted) = end(&shared, hub, endpoint, delivery, verdict) {
        submitted.await;
    }
}

/// Has the delivery settled, or puts it back if it came back untried.
fn end(
    shared: &Arc<Shared>,
    hub: Option<HubId>,
    endpoint: EndpointId,
    delivery: DeliveryId,
    verdict: Option<Verdict>,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let went_well = verdict.as_ref().is_some_and(|one| one.next.state == State::Delivered);
    if let Some(hub) = hub.filter(|_| !went_well) {
        // Before it is put back, or it would be sent in vain.
        hubs::note_ended(shared, hub);
    }
    let Some(verdict) = verdict else {
        let now = shared.clock.now();
        shared.scheduler.lock().put_back(endpoint, delivery, now);
        shared.settled.notify_waiters();
        shared.pump();
        return None;
    };
    Some(shared.settler.submit(verdict))
}

pub(crate) enum Start {
    Go,
    Ends(Next),
    NotDue,
}

/// Whether an attempt may start now, and what becomes of the delivery if it may not.
pub(crate) fn start(shared: &Shared, route: &Route, waiting: &Waiting) -> Start {
    let (now, jitter) = (shared.clock.now(), shared.entropy.jitter());
    match step(&waiting.delivery, Happening::Start, &route.policy, now, jitter) {
        Transition::Moves(next) => match next.state {
            State::InFlight => Start::Go,
            State::Pending
            | State::Retrying
            | State::Delivered
            | State::Failed
            | State::Dead
            | State::Cancelled => Start::Ends(next),
        },
        Transition::Stays(Why::NotDue) => Start::NotDue,
        Transition::Stays(
            why @ (Why::NotInFlight
            | Why::InFlight
            | Why::AlreadyDelivered
            | Why::AlreadyEnded
            | Why::WithinAge),
        ) => unreachable!("only waiting deliveries are scheduled, but {} is {why:?}", waiting.id),
    }
}

/// None if it came back untried.
async fn attempt(shared: &Arc<Shared>, route: &Arc<Route>, waiting: Waiting) -> Option<Verdict> {
    let started_at = shared.clock.now();
    let clock = Instant::now();
    let number = waiting.tries + 1;
    let span = spans::attempt(shared, &waiting.event);
    let carried = shared
        .carrier
        .carry(Parcel {
            route: Arc::clone(route),
            event: Arc::clone(&waiting.event),
            delivery: waiting.id,
            number,
            started_at,
            trace: spans::onward(&waiting.event, span),
        })
        .await;
    let report = match carried {
        Carried::Reported(report) => report,
        Carried::Returned => return None,
    };
    let tried = Tried {
        started_at,
        duration: clock.elapsed(),
        outcome: route.policy.classify(report.sighting, report.retry_after),
        status: match report.sighting {
            Sighting::Status(status) => Some(status),
            Sighting::Exit(_)
            | Sighting::Network
            | Sighting::Timeout
            | Sighting::Done
            | Sighting::Told(_) => None,
        },
        error: report.error,
        response: report.response,
        result: report.result,
        span,
    };
    Some(conclude(shared, route, waiting, tried))
}

/// What one try came to.
pub(crate) struct Tried {
    pub(crate) started_at: Timestamp,
    pub(crate) duration: Duration,
    pub(crate) outcome: Outcome,
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<String>,
    pub(crate) response: Option<Response>,
    pub(crate) result: Option<String>,
    /// Under which it is recorded, if it is.
    pub(crate) span: Option<SpanId>,
}

/// What a try makes of a delivery.
pub(crate) fn conclude(
    shared: &Shared,
    route: &Arc<Route>,
    waiting: Waiting,
    tried: Tried,
) -> Verdict {
    let outcome = tried.outcome;
    let in_flight = Delivery { state: State::InFlight, ..waiting.delivery };
    let at = shared.clock.now();
    let happening = Happening::Finish(outcome);
    let Transition::Moves(next) =
        step(&in_flight, happening, &route.policy, at, shared.entropy.jitter())
    else {
        unreachable!("a delivery in flight takes any outcome");
    };
    let (class, health) = match outcome {
        Outcome::Delivered => (None, Health::Good),
        Outcome::Failed { class, .. } => (
            Some(class),
            match class {
                Class::Retryable => Health::Bad,
                // It said no, but it is there.
                Class::Final => Health::Good,
                Class::RateLimited => Health::Unknown,
            },
        ),
    };
    let attempt = Attempt {
        number: waiting.tries + 1,
        counted: next.counted,
        started_at: tried.started_at,
        duration: tried.duration,
        status: tried.status,
        class,
        error: tried.error,
        response: tried.response,
    };
    log(shared, &waiting, &next, &attempt);
    spans::tell(shared, tried.span, route, &waiting, &next, &attempt);
    Verdict {
        at,
        route: Arc::clone(route),
        waiting,
        next,
        attempt: Some(attempt),
        health,
        lease: None,
        result: tried.result,
        tenure: None,
    }
}

/// Says what an attempt came to, of very many alike the first few. Successes at the first try are the
/// hot path: they are for whoever wants to see everything.
pub(crate) fn log(shared: &Shared, waiting: &Waiting, next: &Next, attempt: &Attempt) {
    let retry = attempt.number > 1;
    let (kind, level) = match next.state {
        State::Delivered if retry => (Kind::Retried, Level::INFO),
        State::Delivered => (Kind::Delivered, Level::DEBUG),
        State::Pending | State::Retrying if attempt.counted => (Kind::Failed, Level::INFO),
        State::Pending | State::Retrying => (Kind::Deferred, Level::INFO),
        State::Failed => (Kind::Refused, Level::WARN),
        State::Dead => (Kind::Dead, Level::WARN),
        State::InFlight | State::Cancelled => return,
    };
    // Most attempts are successes that nobody wants to hear of: they cost no look at the clock.
    if level > LevelFilter::current() {
        return;
    }
    let now = shared.clock.now();
    if !shared.sampled.admits(kind, waiting.endpoint, now) {
        return;
    }
    let (delivery, event, endpoint) = (waiting.id, waiting.event.id, waiting.endpoint);
    let (number, took, status) = (attempt.number, attempt.duration, attempt.status);
    let class = attempt.class.map(Class::as_str);
    let error = attempt.error.as_deref().unwrap_or_default();
    let which = if retry { "retry" } else { "first attempt" };
    let delay = next.due.map(|due| due.since(now)).unwrap_or_default();
    match kind {
        Kind::Delivered => {
            tracing::debug!(%delivery, %event, %endpoint, attempt = number, status, ?took, "{which} succeeded");
        }
        Kind::Retried => {
            tracing::info!(%delivery, %event, %endpoint, attempt = number, status, ?took, "{which} succeeded");
        }
        Kind::Failed => {
            tracing::info!(%delivery, %event, %endpoint, attempt = number, class, status, ?delay, error, "{which} failed, next one scheduled");
        }
        Kind::Deferred => {
            tracing::info!(%delivery, %event, %endpoint, attempt = number, class, status, ?delay, error, "{which} put off: the endpoint asked for time");
        }
        Kind::Refused => {
            tracing::warn!(%delivery, %event, %endpoint, attempt = number, class, status, error, "{which} failed, refused for good");
        }
        Kind::Dead => {
            let reason = next.reason.map(postrider_core::Reason::as_str);
            tracing::warn!(%delivery, %event, %endpoint, attempt = number, class, status, reason, error, "{which} failed, gave up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_task<F: Future>(_: impl Fn(Arc<Shared>, Arc<Route>, Waiting) -> F) -> usize {
        size_of::<F>()
    }

    /// There is one for every delivery: it is allocated, moved and given free as often. With what the
    /// runtime adds it stays within what allocators have at hand.
    #[test]
    fn the_task_of_a_delivery_is_small() {
        let bytes = size_of_task(deliver);
        assert!(bytes <= 640, "{bytes} bytes");
    }
}
