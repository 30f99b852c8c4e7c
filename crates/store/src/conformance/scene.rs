//! What the cases share: a store, a clock of their own, and short words for long records.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::delivery::{Next, Reason, State};
use postrider_core::id::Sequence;
use postrider_core::outcome::Class;
use postrider_core::{DeliveryId, EndpointId, EventId, TenantId, Timestamp};

use super::Place;
use crate::Store;
use crate::journal::{Appended, Page, Paged, Urgency};
use crate::ledger::{DeliveryFilter, DeliveryQuery, Direction};
use crate::record::{
    Attempt, DeliveryRecord, Event, NewDelivery, NewEvent, Response, Settle, Settled, Waiting,
};

pub(super) const TENANT: TenantId = TenantId::DEFAULT;
pub(super) const A: EndpointId = EndpointId::from_i64(11);
pub(super) const B: EndpointId = EndpointId::from_i64(12);

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const DAY: Duration = Duration::from_hours(24);

/// 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A store and the time that its callers believe it is.
pub(super) struct Scene {
    pub(super) store: Arc<dyn Store>,
    pub(super) now: Timestamp,
    ids: Sequence,
}

/// What happens to a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Succeed,
    Retry(Duration),
    Fail,
    Exhaust,
    Expire,
    Reset,
    Cancel,
    /// To a worker for so long from now; one that is leased already, for so much longer.
    Lease(Duration),
    /// A worker gives it back untried.
    Release,
}

impl Scene {
    pub(super) async fn new(place: &dyn Place) -> Self {
        let store = place.open().await;
        let highest = store.highest_id().await.expect("known");
        Self { store, now: START, ids: Sequence::after(highest) }
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.now = self.now.plus(span);
    }

    pub(super) fn take_ids(&mut self, count: usize) -> i64 {
        self.ids.take(self.now, u32::try_from(count).expect("few"))
    }

    /// An event for `endpoints`, without order.
    pub(super) fn event(&mut self, endpoints: &[EndpointId]) -> NewEvent {
        let deliveries = endpoints.iter().map(|endpoint| to(*endpoint)).collect();
        self.event_to(deliveries)
    }

    pub(super) fn event_to(&mut self, deliveries: Vec<NewDelivery>) -> NewEvent {
        let id = EventId::from_i64(self.take_ids(1 + deliveries.len()));
        let event = Event {
            id,
            tenant: TENANT,
            kind: "order.created".to_owned(),
            content_type: "application/json".to_owned(),
            body: Bytes::from(format!("{{\"id\":\"{id}\"}}")),
            idempotency_key: None,
            ordering_key: None,
            metadata: None,
            received_at: self.now,
            deliver_at: None,
            source: None,
            verified: None,
            headers: Vec::new(),
            filter_errors: None,
            trace: None,
        };
        NewEvent { event: Arc::new(event), deliveries }
    }

    pub(super) async fn append(&self, events: Vec<NewEvent>) -> Vec<Appended> {
        self.store.append(events).await.expect("stored")
    }

    /// Stores `new`, which is not there yet, and returns the ids of its deliveries.
    pub(super) async fn keep(&self, new: NewEvent) -> Vec<DeliveryId> {
        let ids = (0..new.deliveries.len()).map(|index| new.delivery_id(index)).collect();
        let appended = self.append(vec![new]).await;
        assert!(matches!(appended[..], [Appended::New { .. }]), "{appended:?}");
        ids
    }

    /// Stores an event with one delivery to `endpoint`.
    pub(super) async fn deliver(&mut self, endpoint: EndpointId) -> DeliveryId {
        let new = self.event(&[endpoint]);
        self.keep(new).await[0]
    }

    /// Stores an event with one delivery to `endpoint` in `line`.
    pub(super) async fn deliver_in(&mut self, endpoint: EndpointId, line: &str) -> DeliveryId {
        let new = self.event_to(vec![in_line(endpoint, line)]);
        self.keep(new).await[0]
    }

    pub(super) async fn record(&self, id: DeliveryId) -> DeliveryRecord {
        self.store.delivery(TENANT, id).await.expect("readable").expect("present")
    }

    pub(super) async fn state(&self, id: DeliveryId) -> State {
        self.record(id).await.state
    }

    /// The change that `turn` makes to `record`, now.
    pub(super) fn settle_of(&self, record: &DeliveryRecord, turn: Turn) -> Settle {
        let next = next_of(record, turn, self.now);
        let attempt = match turn {
            Turn::Succeed => Some(self.attempt(record, None)),
            Turn::Retry(_) | Turn::Exhaust => Some(self.attempt(record, Some(Class::Retryable))),
            Turn::Fail => Some(self.attempt(record, Some(Class::Final))),
            Turn::Expire | Turn::Reset | Turn::Cancel | Turn::Lease(_) | Turn::Release => None,
        };
        Settle {
            id: record.id,
            endpoint: record.endpoint,
            fence: record.fence,
            in_line: record.line.is_some(),
            from: record.state,
            next,
            at: self.now,
            attempt,
            lease: None,
            result: None,
            tenure: None,
        }
    }

    fn attempt(&self, record: &DeliveryRecord, class: Option<Class>) -> Attempt {
        let number = record.tries + 1;
        Attempt {
            number,
            counted: true,
            started_at: self.now.minus(Duration::from_millis(40)),
            duration: Duration::from_millis(35),
            status: Some(if class.is_none() { 204 } else { 500 }),
            class,
            error: class.map(|class| format!("{} at try {number}", class.as_str())),
            response: Some(Response {
                headers: vec![("x-try".to_owned(), number.to_string())],
                body: Bytes::from(vec![0xff, 0, b'a']),
                truncated: class.is_some(),
            }),
        }
    }

    pub(super) async fn settle(&self, settles: Vec<Settle>) -> Vec<Settled> {
        self.store.settle(settles, Urgency::Now).await.expect("settled")
    }

    /// Lets `turn` happen to a delivery; returns the one that became ready thereby.
    pub(super) async fn turn(&self, id: DeliveryId, turn: Turn) -> Option<Waiting> {
        let settle = self.settle_of(&self.record(id).await, turn);
        match self.settle(vec![settle]).await.pop() {
            Some(Settled::Applied { promoted }) => promoted,
            Some(Settled::Stale) | None => panic!("{id} did not take {turn:?}"),
        }
    }

    pub(super) fn page_of(&self, endpoint: EndpointId) -> Page {
        Page {
            endpoint,
            now: self.now,
            limit: 100,
            max_bytes: 1 << 20,
            held: Vec::new(),
            event_types: Vec::new(),
        }
    }

    pub(super) async fn page(&self, page: Page) -> Paged {
        self.store.page(page).await.expect("a page")
    }

    /// The ids of what may be tried now, in their order.
    pub(super) async fn ready(&self, endpoint: EndpointId) -> Vec<DeliveryId> {
        ids(&self.page(self.page_of(endpoint)).await.waiting)
    }

    /// All deliveries that match, oldest first, page by page.
    pub(super) async fn all(&self, filter: DeliveryFilter) -> Vec<DeliveryRecord> {
        let mut query =
            DeliveryQuery { filter, after: None, direction: Direction::OldestFirst, limit: 7 };
        let mut rows = Vec::new();
        loop {
            let listed = self.store.deliveries(TENANT, query.clone()).await.expect("a list");
            rows.extend(listed.rows);
            match listed.next {
                Some(next) => query.after = Some(next),
                None => return rows,
            }
        }
    }
}

pub(super) fn ids(waiting: &[Waiting]) -> Vec<DeliveryId> {
    waiting.iter().map(|waiting| waiting.id).collect()
}

pub(super) fn to(endpoint: EndpointId) -> NewDelivery {
    NewDelivery { endpoint, line: None }
}

pub(super) fn in_line(endpoint: EndpointId, line: &str) -> NewDelivery {
    NewDelivery { endpoint, line: Some(line.to_owned()) }
}

/// Changes something about an event that is about to be stored.
pub(super) fn edit(mut new: NewEvent, change: impl FnOnce(&mut Event)) -> NewEvent {
    change(Arc::make_mut(&mut new.event));
    new
}

fn next_of(record: &DeliveryRecord, turn: Turn, now: Timestamp) -> Next {
    let stays = Next {
        state: record.state,
        attempts: record.attempts,
        deferrals: record.deferrals,
        born: record.born,
        due: None,
        reason: None,
        class: None,
        counted: false,
        hold_endpoint_until: None,
        disable_endpoint: false,
    };
    let tried = Next { attempts: record.attempts + 1, counted: true, ..stays };
    match turn {
        Turn::Succeed => Next { state: State::Delivered, ..tried },
        Turn::Retry(after) => Next {
            state: State::Retrying,
            due: Some(now.plus(after)),
            class: Some(Class::Retryable),
            ..tried
        },
        Turn::Fail => Next {
            state: State::Failed,
            reason: Some(Reason::Rejected),
            class: Some(Class::Final),
            ..tried
        },
        Turn::Exhaust => Next {
            state: State::Dead,
            reason: Some(Reason::Exhausted),
            class: Some(Class::Retryable),
            ..tried
        },
        Turn::Expire => Next { state: State::Dead, reason: Some(Reason::Expired), ..stays },
        Turn::Reset => Next {
            state: State::Pending,
            attempts: 0,
            deferrals: 0,
            born: now,
            due: Some(now),
            ..stays
        },
        Turn::Cancel => Next { state: State::Cancelled, ..stays },
        Turn::Release => {
            let untried = record.attempts == 0 && record.deferrals == 0;
            let state = if untried { State::Pending } else { State::Retrying };
            Next { state, due: Some(now), ..stays }
        }
        Turn::Lease(span) => Next { state: State::InFlight, due: Some(now.plus(span)), ..stays },
    }
}
