//! What the engine needs of a store: appending, settling, finding what waits, and tidying up.

use std::pin::Pin;

use async_trait::async_trait;
use postrider_core::pattern::Pattern;
use postrider_core::{Delivery, DeliveryId, EndpointId, EventId, TenantId, Timestamp};

use crate::audit::Audit;
use crate::error::Error;
use crate::record::{Leased, NewDelivery, NewEvent, Settle, Settled, Waiting};

/// At most this many deliveries come in one page.
pub const MAX_PAGE: usize = 2_048;

#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Stores events with their deliveries, all in one commit that is on disk when the future ends.
    /// The answers are in the order of `events`. Their place among all others is taken when this is
    /// called, not when the future is polled: lines are formed in the order of the calls.
    fn append(&self, events: Vec<NewEvent>) -> Appending;

    /// Makes more deliveries of an event that is already stored, with ids from `first` on, due at
    /// once. Returns those that may be tried: not the ones that stand behind another of their
    /// line, and none if the event is gone.
    async fn append_deliveries(
        &self,
        event: EventId,
        first: DeliveryId,
        deliveries: Vec<NewDelivery>,
        now: Timestamp,
        audit: Option<Audit>,
    ) -> Result<Vec<Waiting>, Error>;

    /// Makes each change whose fence still holds, all in one commit. The answers are in order.
    /// A write that is [`Urgency::Lazy`] may wait a few milliseconds for company.
    async fn settle(&self, settles: Vec<Settle>, urgency: Urgency) -> Result<Vec<Settled>, Error>;

    /// The same, asked for by somebody: what is applied is audited in the same commit, one row for
    /// each, `subject` being the delivery.
    async fn settle_by(&self, settles: Vec<Settle>, audit: Audit) -> Result<Vec<Settled>, Error>;

    /// Deliveries of `endpoint` that may be tried now: up to `limit` that have been ready since they
    /// were made, and up to `limit` whose time came by `now`, both oldest event first. Where very many
    /// times came, those that came first are preferred.
    /// Stops early after `max_bytes` of bodies, but never at nothing. Event types are looked for one
    /// delivery after the other: that takes as long as the endpoint's backlog is deep, but holds
    /// nobody else up.
    async fn page(&self, page: Page) -> Result<Paged, Error>;

    /// The same for several endpoints at once, whatever the types of their events; the answers are in
    /// the order of the endpoints.
    async fn pages(&self, pages: Pages) -> Result<Vec<Paged>, Error>;

    /// When the earliest of the endpoint's timed deliveries is due.
    async fn next_due(&self, endpoint: EndpointId) -> Result<Option<Timestamp>, Error>;

    /// One waiting delivery, or none if it is not waiting, or waits behind another of its line.
    async fn waiting(&self, id: DeliveryId) -> Result<Option<Waiting>, Error>;

    /// Those of `ids` that are leased, lapsed or not, whatever tenant they belong to; in no order.
    async fn leased(&self, ids: Vec<DeliveryId>) -> Result<Vec<Leased>, Error>;

    /// Up to `limit` deliveries whose lease has ended by `now`, and when the next one ends.
    async fn lapsed(&self, now: Timestamp, limit: usize) -> Result<Lapsed, Error>;

    /// Unfinished deliveries of an endpoint with an id above `after`, in id order: whatever they
    /// wait for. With `born_before`, only those whose age began before it.
    async fn unfinished(
        &self,
        endpoint: EndpointId,
        after: DeliveryId,
        born_before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Unfinished>, Error>;

    /// Removes up to `limit` deliveries past their time, walking ids upwards from `after`, and
    /// events that no delivery is left of. Returns where to go on, or none at the end.
    async fn sweep_retention(
        &self,
        cutoffs: Cutoffs,
        after: EventId,
        limit: usize,
    ) -> Result<RetentionStep, Error>;

    /// The highest id in use, of any kind.
    async fn highest_id(&self) -> Result<i64, Error>;

    /// Waits until everything accepted is on disk, and closes.
    async fn close(&self);
}

/// An append under way.
pub type Appending = Pin<Box<dyn Future<Output = Result<Vec<Appended>, Error>> + Send>>;

/// What became of an event that was to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// Stored. `parked` are the indexes of deliveries that stand behind another of their line.
    New { parked: Vec<usize> },
    /// An event with this idempotency key and the same content is there already.
    Duplicate { id: EventId, kind: String, received_at: Timestamp, deliveries: u32 },
    /// An event with this idempotency key and other content is there already.
    Conflict { id: EventId },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody waits for it.
    Now,
    /// May share the next commit.
    Lazy,
}

#[derive(Debug, Clone)]
pub struct Page {
    pub endpoint: EndpointId,
    pub now: Timestamp,
    pub limit: usize,
    pub max_bytes: usize,
    /// Deliveries the caller already holds: they are passed over.
    pub held: Vec<DeliveryId>,
    /// Only events of these types; empty is any.
    pub event_types: Vec<Pattern>,
}

/// What is wanted for each of several endpoints: see [`Page`].
#[derive(Debug, Clone)]
pub struct Pages {
    pub endpoints: Vec<EndpointId>,
    pub now: Timestamp,
    pub limit: usize,
    pub max_bytes: usize,
    /// Of all these endpoints together.
    pub held: Vec<DeliveryId>,
}

impl From<Page> for Pages {
    fn from(page: Page) -> Self {
        let Page { endpoint, now, limit, max_bytes, held, event_types: _ } = page;
        Self { endpoints: vec![endpoint], now, limit, max_bytes, held }
    }
}

/// Leases that have ended.
#[derive(Debug, Clone, Default)]
pub struct Lapsed {
    pub leased: Vec<Leased>,
    /// When the first ends that is not among them.
    pub next: Option<Timestamp>,
}

#[derive(Debug, Clone, Default)]
pub struct Paged {
    /// By event, oldest first.
    pub waiting: Vec<Waiting>,
    /// There may be more that is ready.
    pub more: bool,
    /// When the endpoint's next timed delivery that is not in this page is due, whatever the type
    /// of its event.
    pub next_due: Option<Timestamp>,
}

/// An unfinished delivery without its event.
#[derive(Debug, Clone)]
pub struct Unfinished {
    pub id: DeliveryId,
    pub tenant: TenantId,
    pub event: EventId,
    pub delivery: Delivery,
    pub fence: u32,
    pub in_line: bool,
}

/// Rows that ended before these moments are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cutoffs {
    /// `delivered` and `cancelled`, by when they ended.
    pub delivered: Timestamp,
    /// `failed`, by the last attempt.
    pub failed: Timestamp,
    /// `dead`, by the event's receipt.
    pub dead: Timestamp,
    /// Events without deliveries, by receipt.
    pub events: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionStep {
    pub deliveries_removed: u64,
    pub events_removed: u64,
    /// Where the walk goes on; none when it is through.
    pub next: Option<EventId>,
}
