//! What the API needs of a store: reading history. Every question names its tenant.

use async_trait::async_trait;
use postrider_core::delivery::{Reason, State};
use postrider_core::outcome::Class;
use postrider_core::{DeliveryId, EndpointId, EventId, SourceId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::audit::Audit;
use crate::error::Error;
use crate::record::{Attempt, DeliveryRecord, Event};

/// The most rows a list looks at before it answers with what it has found and where to go on.
pub const MAX_SCAN: usize = 20_000;

/// Counting stops here.
pub const MAX_COUNT: u64 = 100_000;

/// The most dead letters that are looked at to put them into groups: the newest.
pub const MAX_GROUPED: usize = 10_000;

/// The most attempts shown of one delivery: the newest.
pub const MAX_ATTEMPTS: usize = 1_000;

#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    async fn event(&self, tenant: TenantId, id: EventId) -> Result<Option<Event>, Error>;

    /// Events, newest first. Bodies are left out (empty).
    async fn events(&self, tenant: TenantId, query: EventQuery) -> Result<Listed<Event>, Error>;

    /// All deliveries of an event: those made at acceptance, then replays.
    async fn event_deliveries(
        &self,
        tenant: TenantId,
        id: EventId,
    ) -> Result<Vec<DeliveryRecord>, Error>;

    async fn delivery(
        &self,
        tenant: TenantId,
        id: DeliveryId,
    ) -> Result<Option<DeliveryRecord>, Error>;

    /// The attempts of a delivery, oldest first; of very many, the newest [`MAX_ATTEMPTS`].
    async fn attempts(&self, id: DeliveryId) -> Result<Vec<Attempt>, Error>;

    /// The delivery that a parked one waits for: the first unfinished one of its line.
    async fn ahead_of(&self, id: DeliveryId) -> Result<Option<DeliveryRecord>, Error>;

    /// How many unfinished deliveries of its line go before a parked one, its head among them; at
    /// most `limit`. None go before one that is not parked.
    async fn ahead_count(&self, id: DeliveryId, limit: usize) -> Result<u64, Error>;

    /// Deliveries by id.
    async fn deliveries(
        &self,
        tenant: TenantId,
        query: DeliveryQuery,
    ) -> Result<Listed<DeliveryRecord>, Error>;

    /// How many deliveries match, up to [`MAX_COUNT`]. Only dead letters can be counted.
    async fn count_dead_letters(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
    ) -> Result<u64, Error>;

    /// Dead letters that match, by endpoint, state, class and reason, most first; only the newest
    /// [`MAX_GROUPED`] are looked at, or fewer, if very many others are among them.
    async fn dead_letter_groups(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
    ) -> Result<Groups, Error>;

    /// Removes up to `limit` matching dead letters; returns how many. Each commit of it is audited.
    async fn purge_dead_letters(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        limit: usize,
        audit: Option<Audit>,
    ) -> Result<u64, Error>;

    /// Exact number of deliveries by endpoint and state.
    async fn counts(&self, tenant: TenantId) -> Result<Vec<Count>, Error>;

    /// How many deliveries are in which state, over all tenants, as of the last commits. It reads what
    /// is kept of every endpoint: ask now and then, not for every look.
    async fn totals(&self) -> Result<Vec<(State, u64)>, Error>;

    /// How many events the tenant has.
    async fn event_count(&self, tenant: TenantId) -> Result<u64, Error>;

    /// Whether the store answers.
    async fn ping(&self) -> Result<(), Error>;
}

#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    pub kind: Option<String>,
    pub idempotency_key: Option<String>,
    pub source: Option<SourceId>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Go on below this event.
    pub before: Option<EventId>,
    pub limit: usize,
}

/// `since` is included, `until` is not; both are about when the delivery was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeliveryFilter {
    /// Any of these; empty is any at all.
    pub states: Vec<State>,
    pub ids: Option<Vec<DeliveryId>>,
    pub endpoint: Option<EndpointId>,
    pub event: Option<EventId>,
    /// The type of the event. It is looked up for every row that is otherwise right.
    pub kind: Option<String>,
    pub class: Option<Class>,
    pub reason: Option<Reason>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    #[default]
    NewestFirst,
    OldestFirst,
}

#[derive(Debug, Clone, Default)]
pub struct DeliveryQuery {
    pub filter: DeliveryFilter,
    /// Go on past this position.
    pub after: Option<Position>,
    pub direction: Direction,
    pub limit: usize,
}

/// Where a list stands: rows are in the order of their event, then of themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub event: EventId,
    pub delivery: DeliveryId,
}

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Listed<T> {
    pub rows: Vec<T>,
    /// Where the next page starts; none at the end. A page may be short, or empty, and still have
    /// one: the scan stopped at [`MAX_SCAN`].
    pub next: Option<Position>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub endpoint: EndpointId,
    pub state: State,
    pub deliveries: u64,
}

/// Dead letters put together by where they were to go and why they did not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    pub groups: Vec<Group>,
    pub looked_at: u64,
    /// There are no more than were looked at.
    pub complete: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub endpoint: EndpointId,
    pub state: State,
    pub class: Option<Class>,
    pub reason: Option<Reason>,
    pub deliveries: u64,
    /// When the last of them to end did so.
    pub newest_at: Option<Timestamp>,
    /// What was last said of that one.
    pub last_error: Option<String>,
}
