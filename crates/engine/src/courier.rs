//! One attempt from start to finish: ask `step` whether it may start, have it carried, ask the
//! policy what the answer means and `step` what that makes of the delivery, and pass that on to be
//! settled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::delivery::{Next, State, Transition, Why};
use postrider_core::outcome::Sighting;
use postrider_core::{Class, Delivery, Happening, Outcome, Timestamp, step};
use postrider_store::record::{Attempt, Response, Waiting};

use crate::carrier::{Carried, Parcel};
use crate::hubs;
use crate::route::Route;
use crate::scheduler::{Health, hub_of};
use crate::settler::Verdict;
use crate::shared::Shared;

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
    let went_well = verdict.as_ref().is_some_and(|one| one.next.state == State::Delivered);
    if let Some(hub) = hub.filter(|_| !went_well) {
        // Before it is put back, or it would be sent in vain.
        hubs::note_ended(&shared, hub);
    }
    let Some(verdict) = verdict else {
        let now = shared.clock.now();
        shared.scheduler.lock().put_back(endpoint, delivery, now);
        shared.settled.notify_waiters();
        shared.pump();
        return;
    };
    shared.settler.submit(verdict).await;
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
    let carried = shared
        .carrier
        .carry(Parcel {
            route: Arc::clone(route),
            event: Arc::clone(&waiting.event),
            delivery: waiting.id,
            number,
            started_at,
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
    log(&waiting, &next, &attempt);
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

/// Successes at the first try are the hot path and are not logged one by one.
pub(crate) fn log(waiting: &Waiting, next: &Next, attempt: &Attempt) {
    let (delivery, endpoint) = (waiting.id, waiting.endpoint);
    let number = attempt.number;
    let error = attempt.error.as_deref().unwrap_or_default();
    match next.state {
        State::Delivered if number > 1 => {
            tracing::info!(%delivery, %endpoint, attempt = number, "retry succeeded");
        }
        State::Retrying => {
            let delay = next.due.map(|due| due.since(attempt.started_at)).unwrap_or_default();
            let kind = if number == 1 { "first attempt" } else { "retry" };
            tracing::info!(%delivery, %endpoint, attempt = number, ?delay, error, "{kind} failed, next one scheduled");
        }
        State::Failed => {
            tracing::warn!(%delivery, %endpoint, attempt = number, error, "refused for good");
        }
        State::Dead => {
            let reason = next.reason.map_or("", postrider_core::Reason::as_str);
            tracing::warn!(%delivery, %endpoint, attempt = number, reason, error, "gave up");
        }
        State::Delivered | State::Pending | State::InFlight | State::Cancelled => {}
    }
}
