//! Operator webhooks: what happens in the gateway, told as events of the reserved types
//! `postrider.…` to endpoints that ask for them. They are accepted like every event: stored, retried
//! and signed.
//!
//! What comes of such an event is not told by another one, or a single failure would be told for
//! ever. And they must not hold up what they tell of, so they wait in a queue of their own that may
//! overflow: then the loss is counted and logged. A crash loses what waits there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::pattern::{RESERVED_PREFIX, is_reserved, unreserved};
use postrider_core::{TenantId, Timestamp};
use postrider_store::Error as StoreError;
use tokio::sync::{mpsc, watch};

use crate::accept::{self, Submission};
use crate::error::Error;
use crate::notices::{Audience, Draft, Notice};
use crate::ports;
use crate::route::Routes;
use crate::shared::Shared;

/// The most notices that wait to be stored as events.
const QUEUE: usize = 4_096;
/// The most that are stored in one commit.
const BATCH: usize = 64;
/// How long to wait before what could not be stored is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Losses are logged at most this often.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The way in.
#[derive(Debug)]
pub(crate) struct Operators {
    queue: mpsc::Sender<Arc<Notice>>,
    /// How many are expected, queued or being stored.
    waiting: watch::Sender<usize>,
    lost: AtomicU64,
}

impl Operators {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Arc<Notice>>) {
        let (queue, told) = mpsc::channel(QUEUE);
        (Self { queue, waiting: watch::Sender::new(0), lost: AtomicU64::new(0) }, told)
    }

    /// Queues a notice for the endpoints that ask for its kind.
    pub(crate) fn tell(&self, routes: &Routes, notice: &Arc<Notice>, audience: Audience) {
        match audience {
            Audience::Everyone if routes.tells_of(notice.tenant, notice.kind) => self.queue(notice),
            Audience::Everyone | Audience::StreamOnly => {}
        }
    }

    fn queue(&self, notice: &Arc<Notice>) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        if self.queue.try_send(Arc::clone(notice)).is_err() {
            self.done(1);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn done(&self, count: usize) {
        self.waiting.send_modify(|waiting| *waiting = waiting.saturating_sub(count));
    }

    /// Announces that something is about to be told: until the answer is dropped,
    /// [`Operators::stored`] waits for it.
    pub(crate) fn expect(&self) -> Expected<'_> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        Expected(self)
    }

    /// Ends when nothing waits to be stored.
    pub(crate) async fn stored(&self) {
        // The sending half is our own, so this ends with nothing else.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
    }

    /// How many were given up, ever.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Something that is about to be told.
pub(crate) struct Expected<'a>(&'a Operators);

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.0.done(1);
    }
}

/// Stores what is told until the store is closed.
pub(crate) async fn run(shared: Arc<Shared>, mut told: mpsc::Receiver<Arc<Notice>>) {
    let mut teller = Teller { shared, tenants: HashMap::new(), reported: 0, reported_at: None };
    let clock = Arc::clone(&teller.shared.clock);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            biased;
            count = told.recv_many(&mut batch, BATCH) => if count == 0 { return },
            () = ports::pause(&*clock, REPORT_EVERY), if teller.unreported() > 0 => {}
        }
        teller.report();
        for notices in batch.chunk_by(|one, next| one.tenant == next.tenant) {
            if teller.store(notices).await == Stored::Closed {
                teller.shared.operators.waiting.send_replace(0);
                return;
            }
            teller.shared.operators.done(notices.len());
        }
        batch.clear();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Done,
    /// The store takes nothing any more.
    Closed,
}

struct Teller {
    shared: Arc<Shared>,
    /// The names of tenants, which do not change.
    tenants: HashMap<TenantId, String>,
    /// How many losses have been logged, and when.
    reported: u64,
    reported_at: Option<Timestamp>,
}

impl Teller {
    /// Stores notices of one tenant, however often the store fails meanwhile.
    async fn store(&mut self, notices: &[Arc<Notice>]) -> Stored {
        let Some(tenant) = notices.first().map(|notice| notice.tenant) else { return Stored::Done };
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_store(tenant, notices).await {
                Ok(()) => return Stored::Done,
                Err(Error::Store(StoreError::Closed)) => return Stored::Closed,
                Err(error @ (Error::NotFound | Error::Invalid { .. } | Error::Conflict(_))) => {
                    tracing::warn!(%error, events = notices.len(), "operators cannot be told");
                    return Stored::Done;
                }
                Err(Error::Store(
                    error @ (StoreError::Overloaded
                    | StoreError::Unavailable(_)
                    | StoreError::Refused(_)
                    | StoreError::Damaged(_)
                    | StoreError::Exists(_)),
                )) => {
                    // The store itself says what is wrong, and not too often.
                    tracing::debug!(%error, "could not store what operators are told, trying again");
                    ports::pause(&*self.shared.clock, pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    self.report();
                }
            }
        }
    }

    async fn try_store(&mut self, tenant: TenantId, notices: &[Arc<Notice>]) -> Result<(), Error> {
        if !self.tenants.contains_key(&tenant) {
            let known = self.shared.store.tenants().await?;
            self.tenants = known.into_iter().map(|known| (known.id, known.name)).collect();
        }
        let name = self.tenants.get(&tenant).map_or("", String::as_str);
        let routes = self.shared.routes.load_full();
        let events: Vec<Submission> = notices
            .iter()
            .map(|notice| event(&routes, notice, name))
            // Filters choose as well: what none lets pass is not worth storing.
            .filter(|event| {
                let heard = accept::listening(&routes, tenant, event.facts());
                !heard.routes.is_empty() || !heard.errors.is_empty()
            })
            .collect();
        if !events.is_empty() {
            accept::accept(&self.shared, tenant, events).await?;
        }
        Ok(())
    }

    fn unreported(&self) -> u64 {
        self.shared.operators.lost() - self.reported
    }

    fn report(&mut self) {
        let (lost, now) = (self.unreported(), self.shared.clock.now());
        if lost == 0 || self.reported_at.is_some_and(|at| now >= at && now.since(at) < REPORT_EVERY)
        {
            return;
        }
        tracing::warn!(lost, "more happened than operators could be told of");
        self.reported += lost;
        self.reported_at = Some(now);
    }
}

/// A notice as an event, with the name of the endpoint as it is at this moment.
fn event(routes: &Routes, notice: &Notice, tenant: &str) -> Submission {
    let endpoint = notice.about().and_then(|id| routes.get(id));
    let endpoint_name = endpoint.and_then(|route| route.endpoint.spec.name.as_deref());
    // Every part of it is text or a number; there is nothing that JSON could refuse.
    let body = serde_json::to_vec(&notice.view(tenant, endpoint_name)).unwrap_or_default();
    Submission {
        kind: notice.kind.event_type(),
        content_type: "application/json".into(),
        body: body.into(),
        idempotency_key: None,
        ordering_key: None,
        deliver_at: None,
        metadata: None,
        source: None,
        verified: None,
        headers: Vec::new(),
        trace: None,
    }
}

/// Sees to it that nobody but the gateway tells operators anything. A webhook that a source has
/// verified is not refused for its type: it gets another.
pub(crate) fn keep_out(submissions: &mut [Submission]) -> Result<(), Error> {
    for submission in submissions.iter_mut().filter(|one| is_reserved(&one.kind)) {
        if submission.source.is_none() {
            let message = format!("must not begin with {RESERVED_PREFIX}: that is the gateway's");
            return Err(Error::invalid("type", message));
        }
        submission.kind = unreserved(&submission.kind);
    }
    Ok(())
}

/// Finds out which of these come of an event that told an operator something. It is looked up only
/// where it matters: where somebody is to be told.
pub(crate) async fn leave_out_echoes(shared: &Shared, drafts: &mut [Draft]) {
    let routes = shared.routes.load_full();
    if !routes.tells() {
        return;
    }
    for draft in drafts {
        let Some(delivery) = &draft.delivery else { continue };
        if routes.tells_of(draft.tenant, draft.kind) {
            draft.audience = match shared.store.event(draft.tenant, delivery.event_id).await {
                Ok(Some(event)) => Audience::of(&event.kind),
                // Better not told than told for ever.
                Ok(None) | Err(_) => Audience::StreamOnly,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_core::{SourceId, Timestamp};

    use super::*;
    use crate::notices::NoticeKind;

    fn submission(kind: &str, source: Option<SourceId>) -> Submission {
        Submission {
            kind: kind.into(),
            content_type: "text/plain".into(),
            body: Bytes::new(),
            idempotency_key: None,
            ordering_key: None,
            deliver_at: None,
            metadata: None,
            source,
            verified: None,
            headers: Vec::new(),
            trace: None,
        }
    }

    #[test]
    fn nobody_else_speaks_for_the_gateway() {
        let source = Some(SourceId::from_i64(1));
        let mut events = [
            submission("order.created", None),
            submission("postrider.delivery.dead", source),
            submission("order.created", source),
        ];
        assert!(keep_out(&mut events).is_ok());
        let kinds = events.map(|event| event.kind);
        assert_eq!(kinds, ["order.created", "postrider_delivery.dead", "order.created"]);
        let refused = keep_out(&mut [submission("postrider.delivery.dead", None)]);
        assert!(matches!(refused, Err(Error::Invalid { field, .. }) if field == "type"));
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let (operators, told) = Operators::new();
        let notice = Arc::new(Notice {
            id: 1,
            at: Timestamp::MIN,
            tenant: TenantId::DEFAULT,
            kind: NoticeKind::Dead,
            endpoint: None,
            source: None,
            hub: None,
            delivery: None,
            detail: None,
        });
        for _ in 0..QUEUE + 3 {
            operators.queue(&notice);
        }
        assert_eq!((told.len(), operators.lost()), (QUEUE, 3));
        assert_eq!(*operators.waiting.borrow(), QUEUE, "and nobody waits for what was lost");
        operators.tell(&Routes::default(), &notice, Audience::Everyone);
        assert_eq!(operators.lost(), 3, "nobody asked for it");
    }
}
