//! Makes what was decided durable, many at a time, and only then lets go of the deliveries and
//! tells the world.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::{Next, State};
use postrider_core::{EndpointId, EventId, TenantId, Timestamp};
use postrider_store::Error as StoreError;
use postrider_store::audit::Audit;
use postrider_store::fleet::Tenure;
use postrider_store::journal::Urgency;
use postrider_store::record::{Attempt, LeaseIs, Settle, Settled, Waiting};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendError, TrySendError};

use crate::breaker::Change;
use crate::endpoints::{Cause, Disable};
use crate::notices::{Audience, DeliveryNotice, Draft, NoticeKind};
use crate::ports;
use crate::route::Route;
use crate::scheduler::{Finish, Health, Scheduler};
use crate::shared::Shared;
use crate::{failing, measures, operator};

/// Decided changes waiting for a commit. Every one has a slot, so slots bound it as well.
const QUEUE: usize = 4_096;
/// The most changes in one commit: enough to share its cost and to keep up with what is accepted.
const BATCH: usize = 128;
/// A change that is no first success writes a row of its own and moves in the indexes: it counts for
/// this many, so that a herd of timeouts does not hold up everybody else's commits.
const DEAR: usize = 4;
/// How long to wait before a failed commit is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is to become of one delivery, as decided by `step`.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) at: Timestamp,
    pub(crate) route: Arc<Route>,
    pub(crate) waiting: Waiting,
    pub(crate) next: Next,
    pub(crate) attempt: Option<Attempt>,
    pub(crate) health: Health,
    /// What has to be so of its lease.
    pub(crate) lease: Option<LeaseIs>,
    /// What whoever took it called its result.
    pub(crate) result: Option<String>,
    /// By what right it was sent.
    pub(crate) tenure: Option<Tenure>,
}

/// The way in.
#[derive(Debug, Clone)]
pub(crate) struct Settler {
    queue: mpsc::Sender<Verdict>,
}

impl Settler {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Verdict>) {
        let (queue, verdicts) = mpsc::channel(QUEUE);
        (Self { queue }, verdicts)
    }

    /// Leaves it to be settled. There is room for all that the engine has in flight; where more is allowed
    /// than that, whoever has no room waits. Only then is memory taken for the waiting: every delivery's
    /// task would have to carry it.
    pub(crate) fn submit(&self, verdict: Verdict) -> impl Future<Output = ()> + Send + use<> {
        let waiting = match self.queue.try_send(verdict) {
            Ok(()) => None,
            Err(TrySendError::Full(verdict)) => {
                let queue = self.queue.clone();
                Some(Box::pin(async move { queue.send(verdict).await }))
            }
            Err(TrySendError::Closed(verdict)) => {
                lose(&verdict);
                None
            }
        };
        async move {
            if let Some(waiting) = waiting
                && let Err(SendError(verdict)) = waiting.await
            {
                lose(&verdict);
            }
        }
    }
}

/// The receiving end lives as long as the engine; after it, there is nothing to settle into.
fn lose(verdict: &Verdict) {
    tracing::debug!(delivery = %verdict.waiting.id, "stopped before it was settled");
}

/// Settles until the engine is gone.
pub(crate) async fn run(shared: Arc<Shared>, mut verdicts: mpsc::Receiver<Verdict>) {
    let mut batch = Vec::with_capacity(BATCH);
    while verdicts.recv_many(&mut batch, BATCH).await > 0 {
        while !batch.is_empty() {
            let fitting = portion(&batch);
            settle(&shared, &mut batch, fitting).await;
        }
    }
}

/// How many of the batch go into one commit: at least one.
fn portion(batch: &[Verdict]) -> usize {
    let mut room = BATCH;
    let fitting = batch.iter().take_while(|verdict| {
        let cost = if verdict.next.state == State::Delivered { 1 } else { DEAR };
        let fits = room >= cost;
        room = room.saturating_sub(cost);
        fits
    });
    fitting.count().max(1)
}

/// Settles the first `count` of them and takes them out.
async fn settle(shared: &Arc<Shared>, all: &mut Vec<Verdict>, count: usize) {
    let batch = &mut all[..count];
    let urgency = {
        let scheduler = shared.scheduler.lock();
        if shared.fleet.is_some() {
            for verdict in batch.iter_mut() {
                let waiting = &verdict.waiting;
                verdict.tenure = scheduler.tenure_of(waiting.endpoint, waiting.id);
            }
        }
        let pressing = |verdict: &Verdict| {
            verdict.waiting.in_line || scheduler.has_backlog(verdict.waiting.endpoint)
        };
        if batch.iter().any(pressing) { Urgency::Now } else { Urgency::Lazy }
    };
    if let Some(answers) = commit(shared, batch, urgency).await {
        measure(shared, batch, &answers);
        book(shared, all.drain(..count), answers);
    } else {
        drop(all.drain(..count));
    }
}

/// Makes changes durable that somebody waits for, without trying again; false for those that came
/// too late.
pub(crate) async fn settle_now(
    shared: &Arc<Shared>,
    batch: Vec<Verdict>,
) -> Result<Vec<bool>, StoreError> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let settles = batch.iter().map(Verdict::as_settle).collect();
    let answers = shared.store.settle(settles, Urgency::Now).await.inspect_err(|error| {
        shared.look_again(error, batch.iter().map(|verdict| verdict.waiting.endpoint));
    })?;
    let applied = |settled: &Settled| match settled {
        Settled::Applied { .. } => true,
        Settled::Stale => false,
    };
    let all = answers.iter().map(applied).collect();
    measure(shared, &batch, &answers);
    book(shared, batch.into_iter(), answers);
    Ok(all)
}

/// Counts what was settled.
fn measure(shared: &Shared, batch: &[Verdict], answers: &[Settled]) {
    let settled = batch.iter().zip(answers).filter_map(|(verdict, settled)| match settled {
        Settled::Applied { .. } => {
            let change = verdict.as_measured();
            shared.metrics.note_settled(&change, verdict.attempt.as_ref());
            Some(change)
        }
        Settled::Stale => None,
    });
    shared.measures.settled(settled);
}

/// Lets go of what was settled, and tells the world.
fn book(shared: &Arc<Shared>, batch: impl Iterator<Item = Verdict>, answers: Vec<Settled>) {
    let now = shared.clock.now();
    let mut drafts = Vec::with_capacity(answers.len());
    let mut orphans = Vec::new();
    let mut breakers = Vec::new();
    let mut holds = Vec::new();
    // Before any slot is free: who waits for the last one must also wait for what is told of it.
    let expected = shared.operators.expect();
    {
        let mut scheduler = shared.scheduler.lock();
        for (verdict, settled) in batch.zip(answers) {
            let leased = verdict.lease.is_some();
            let promoted = match settled {
                Settled::Applied { promoted } => {
                    drafts.extend(verdict.notice());
                    promoted
                }
                // Whoever held it came too late: this says nothing about anything.
                Settled::Stale if leased => continue,
                // Another node carries it now and decides; or this one again, since it was sent.
                Settled::Stale if verdict.tenure.is_some() => {
                    let (endpoint, delivery) = (verdict.waiting.endpoint, verdict.waiting.id);
                    scheduler.put_back(endpoint, delivery, now);
                    continue;
                }
                // Somebody else, an operator, decided meanwhile, and theirs stands; or this is what was
                // decided, written before without anybody hearing of it. Then nobody heard of the next
                // of its line either.
                Settled::Stale => {
                    if verdict.waiting.in_line {
                        scheduler.note_stored(verdict.waiting.endpoint, None, now);
                    }
                    None
                }
            };
            if verdict.next.state == State::InFlight {
                continue;
            }
            if let Some(change) = scheduler.finish(verdict.as_finish(), now) {
                drafts.push(verdict.breaker_notice(change, now));
                let endpoint = verdict.waiting.endpoint;
                breakers.push((endpoint, scheduler.breaker_note(endpoint)));
            }
            if let Some(until) = verdict.next.hold_endpoint_until.filter(|_| leased) {
                holds.push((verdict.waiting.endpoint, until));
            }
            if let Some(next_in_line) = promoted {
                orphans.extend(hand_on(&mut scheduler, next_in_line, now));
            }
            if let Some(disable) = verdict.disables(shared) {
                scheduler.suspend(verdict.route.id());
                shared.disable_later(disable);
            }
        }
    }
    shared.publish(drafts);
    drop(expected);
    shared.cancel_orphans(orphans);
    shared.note_breakers_later(breakers);
    shared.tell_holds(holds);
    shared.pump();
    shared.settled.notify_waiters();
}

/// Tries until the store takes it: what happened out there cannot be undone, so it has to be
/// written down. None when the store has been closed.
async fn commit(shared: &Shared, batch: &[Verdict], urgency: Urgency) -> Option<Vec<Settled>> {
    let mut pause = FIRST_PAUSE;
    loop {
        let settles = batch.iter().map(Verdict::as_settle).collect();
        match shared.store.settle(settles, urgency).await {
            Ok(answers) => return Some(answers),
            Err(StoreError::Closed) => return None,
            Err(
                error @ (StoreError::Overloaded
                | StoreError::Unavailable(_)
                | StoreError::Refused(_)
                | StoreError::Damaged(_)
                | StoreError::Exists(_)),
            ) => {
                // The store itself says what is wrong, and not too often.
                tracing::debug!(%error, changes = batch.len(), "could not settle, trying again");
                ports::pause(&*shared.clock, pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

impl Verdict {
    fn as_settle(&self) -> Settle {
        Settle {
            id: self.waiting.id,
            endpoint: self.waiting.endpoint,
            fence: self.waiting.fence,
            in_line: self.waiting.in_line,
            from: self.waiting.delivery.state,
            next: self.next,
            at: self.at,
            attempt: self.attempt.clone(),
            lease: self.lease,
            result: self.result.clone(),
            tenure: self.tenure,
        }
    }

    fn as_finish(&self) -> Finish {
        Finish {
            endpoint: self.waiting.endpoint,
            delivery: self.waiting.id,
            health: self.health,
            hold_until: self.next.hold_endpoint_until,
            due: self.next.due,
        }
    }

    fn as_measured(&self) -> measures::Change {
        measures::Change {
            at: self.at,
            tenant: self.route.endpoint.tenant,
            endpoint: self.waiting.endpoint,
            born: self.next.born,
            state: self.next.state,
            failed: self.attempt.as_ref().is_some_and(|attempt| attempt.class.is_some()),
        }
    }

    fn audience(&self) -> Audience {
        Audience::of(&self.waiting.event.kind)
    }

    /// Whether this was the attempt after which its endpoint is of no use.
    fn disables(&self, shared: &Arc<Shared>) -> Option<Disable> {
        let (endpoint, audience) = (&self.route.endpoint, self.audience());
        if self.next.disable_endpoint {
            let (tenant, id) = (endpoint.tenant, endpoint.id);
            return Some(Disable { tenant, id, cause: Cause::Gone, audience });
        }
        let attempt = self.attempt.as_ref()?;
        failing::note(shared, endpoint, attempt.class, audience, self.at)
    }

    /// That it is in somebody's hands, or back from there untried, is no news.
    fn notice(&self) -> Option<Draft> {
        let kind = match self.next.state {
            State::InFlight => return None,
            State::Pending | State::Retrying if self.attempt.is_none() => return None,
            State::Delivered => NoticeKind::Delivered,
            State::Failed => NoticeKind::Failed,
            State::Dead => NoticeKind::Dead,
            State::Cancelled => NoticeKind::Cancelled,
            State::Retrying | State::Pending => NoticeKind::RetryScheduled,
        };
        let error = self.attempt.as_ref().and_then(|attempt| attempt.error.clone());
        Some(Draft {
            at: self.at,
            tenant: self.route.endpoint.tenant,
            kind,
            endpoint: Some(self.waiting.endpoint),
            source: None,
            hub: None,
            delivery: Some(DeliveryNotice {
                delivery_id: self.waiting.id,
                event_id: self.waiting.event.id,
                endpoint_id: self.waiting.endpoint,
                correlation_id: correlation(self.waiting.event.metadata.as_deref()),
                attempts: self.next.attempts,
                reason: self.next.reason,
                last_error: error,
                next_attempt_at: self.next.due,
            }),
            detail: None,
            audience: self.audience(),
        })
    }

    fn breaker_notice(&self, change: Change, now: Timestamp) -> Draft {
        Draft {
            at: now,
            tenant: self.route.endpoint.tenant,
            kind: match change {
                Change::Opened => NoticeKind::BreakerOpened,
                Change::Closed => NoticeKind::BreakerClosed,
            },
            endpoint: Some(self.waiting.endpoint),
            source: None,
            hub: None,
            delivery: None,
            detail: None,
            audience: self.audience(),
        }
    }
}

/// What ties a notice to the producer's own records.
pub(crate) fn correlation(metadata: Option<&str>) -> Option<String> {
    let metadata: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(metadata?).ok()?;
    let value = metadata.get("session_id").or_else(|| metadata.get("correlation_id"))?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// A change that no attempt led to: an operator's, or housekeeping's.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) tenant: TenantId,
    pub(crate) event: EventId,
    pub(crate) correlation_id: Option<String>,
    pub(crate) settle: Settle,
}

/// Makes such changes durable; false where the delivery had changed meanwhile.
pub(crate) async fn apply(
    shared: &Arc<Shared>,
    decisions: Vec<Decision>,
    audit: Option<Audit>,
) -> Result<Vec<bool>, StoreError> {
    if decisions.is_empty() {
        return Ok(Vec::new());
    }
    let settles = decisions.iter().map(|decision| decision.settle.clone()).collect();
    let answers = match audit {
        Some(audit) => shared.store.settle_by(settles, audit).await,
        None => shared.store.settle(settles, Urgency::Now).await,
    };
    let answers = answers.inspect_err(|error| {
        shared.look_again(error, decisions.iter().map(|decision| decision.settle.endpoint));
    })?;
    let settled = decisions.iter().zip(&answers).filter_map(|(decision, settled)| match settled {
        Settled::Applied { .. } => {
            let change = decision.as_measured();
            shared.metrics.note_settled(&change, None);
            Some(change)
        }
        Settled::Stale => None,
    });
    shared.measures.settled(settled);
    let now = shared.clock.now();
    let mut applied = Vec::with_capacity(answers.len());
    let mut drafts = Vec::new();
    let mut orphans = Vec::new();
    for (decision, settled) in decisions.into_iter().zip(answers) {
        match settled {
            Settled::Applied { promoted } => {
                applied.push(true);
                drafts.extend(decision.notice());
                // Read again rather than offered: others settle at the same time, and may have
                // settled this one as well by now.
                if let Some(next) = promoted
                    && !shared.scheduler.lock().note_stored(next.endpoint, None, now)
                {
                    orphans.push(next.endpoint);
                }
            }
            Settled::Stale => applied.push(false),
        }
    }
    operator::leave_out_echoes(shared, &mut drafts).await;
    shared.publish(drafts);
    shared.cancel_orphans(orphans);
    shared.pump();
    Ok(applied)
}

/// Schedules the next delivery of a line. Returns its endpoint if nobody knows that one any more.
fn hand_on(scheduler: &mut Scheduler, waiting: Waiting, now: Timestamp) -> Option<EndpointId> {
    let endpoint = waiting.endpoint;
    let due = waiting.delivery.due;
    let known = if due > now {
        scheduler.note_stored(endpoint, Some(due), now)
    } else {
        scheduler.offer(waiting, now)
    };
    (!known).then_some(endpoint)
}

impl Decision {
    fn as_measured(&self) -> measures::Change {
        measures::Change {
            at: self.settle.at,
            tenant: self.tenant,
            endpoint: self.settle.endpoint,
            born: self.settle.next.born,
            state: self.settle.next.state,
            failed: false,
        }
    }

    /// A reset is no news: the attempt that follows will be.
    fn notice(&self) -> Option<Draft> {
        let kind = match self.settle.next.state {
            State::Dead => NoticeKind::Dead,
            State::Failed => NoticeKind::Failed,
            State::Cancelled => NoticeKind::Cancelled,
            State::Pending | State::Retrying | State::InFlight | State::Delivered => return None,
        };
        Some(Draft {
            at: self.settle.at,
            tenant: self.tenant,
            kind,
            endpoint: Some(self.settle.endpoint),
            source: None,
            hub: None,
            delivery: Some(DeliveryNotice {
                delivery_id: self.settle.id,
                event_id: self.event,
                endpoint_id: self.settle.endpoint,
                correlation_id: self.correlation_id.clone(),
                attempts: self.settle.next.attempts,
                reason: self.settle.next.reason,
                last_error: None,
                next_attempt_at: None,
            }),
            detail: None,
            audience: Audience::Everyone,
        })
    }
}
