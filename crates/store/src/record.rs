//! What is kept: events, deliveries, attempts.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::delivery::{Next, Reason, State};
use postrider_core::outcome::Class;
use postrider_core::{
    Delivery, DeliveryId, EndpointId, EventId, SourceId, TenantId, Timestamp, Trace,
};

use crate::fleet::Tenure;

/// One immutable message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    pub tenant: TenantId,
    pub kind: String,
    pub content_type: String,
    pub body: Bytes,
    pub idempotency_key: Option<String>,
    pub ordering_key: Option<String>,
    /// A JSON object, as text.
    pub metadata: Option<String>,
    pub received_at: Timestamp,
    /// Not to be tried before then.
    pub deliver_at: Option<Timestamp>,
    /// Where it came in, if not by the API.
    pub source: Option<SourceId>,
    /// Whether its source could verify it. None where there was nothing to verify.
    pub verified: Option<bool>,
    /// Kept as they came: names in lower case, repeats in their order.
    pub headers: Headers,
    /// Endpoints whose filter could not be evaluated, and why: a JSON object, as text.
    pub filter_errors: Option<String>,
    /// The trace that its deliveries are part of, if there is one.
    pub trace: Option<Trace>,
}

/// Names and values of headers, in order; a name may come more than once.
pub type Headers = Vec<(String, Bytes)>;

impl Event {
    /// When the age of its deliveries begins.
    pub fn born(&self) -> Timestamp {
        self.deliver_at.map_or(self.received_at, |at| at.max(self.received_at))
    }
}

/// An event about to be stored, with a delivery for each endpoint that matched. The deliveries get
/// the ids that follow the event's: `event.id + 1 + index`. That makes "the deliveries of this
/// event" a range of keys, which needs no index.
#[derive(Debug, Clone)]
pub struct NewEvent {
    pub event: Arc<Event>,
    pub deliveries: Vec<NewDelivery>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    pub endpoint: EndpointId,
    /// The line it stands in, if it is delivered in order.
    pub line: Option<String>,
}

impl NewEvent {
    pub fn delivery_id(&self, index: usize) -> DeliveryId {
        delivery_id(self.event.id, index)
    }
}

/// The id of the `index`-th delivery made when `event` was accepted.
pub fn delivery_id(event: EventId, index: usize) -> DeliveryId {
    let offset = i64::try_from(index).unwrap_or(i64::MAX - event.as_i64() - 1);
    DeliveryId::from_i64(event.as_i64() + 1 + offset)
}

/// The fence of a delivery that nobody has changed yet.
pub const FIRST_FENCE: u32 = 0;

/// The most deliveries one event may have: a bound on the ids an event takes.
pub const MAX_DELIVERIES_PER_EVENT: usize = 10_000;

/// A delivery that waits for an attempt, with all that an attempt needs.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub id: DeliveryId,
    pub endpoint: EndpointId,
    pub event: Arc<Event>,
    /// Its state, counters, due time and age, as `step` wants them.
    pub delivery: Delivery,
    /// All tries ever made, counted or not, over all its lives.
    pub tries: u32,
    /// Grows with every change, from 0, except when a lease is made longer; a write that names an
    /// older one changes nothing.
    pub fence: u32,
    /// It stands in a line: when it ends, the next one of the line becomes ready.
    pub in_line: bool,
}

/// A change decided by `step`, to be made if nobody changed the delivery meanwhile. With it goes
/// `next.hold_endpoint_until`, which is kept with the endpoint unless it is held for longer already.
#[derive(Debug, Clone)]
pub struct Settle {
    pub id: DeliveryId,
    pub endpoint: EndpointId,
    pub fence: u32,
    pub in_line: bool,
    /// The state that was stored (`InFlight` only for a leased delivery). From `InFlight` to
    /// `InFlight` a lease is made longer; that alone leaves the fence as it is.
    pub from: State,
    /// To `InFlight` is to lease it until `next.due`.
    pub next: Next,
    /// The moment of the change.
    pub at: Timestamp,
    /// The try that led to it, if one did.
    pub attempt: Option<Attempt>,
    /// What has to be so of its lease at `at`, or it is [`Settled::Stale`].
    pub lease: Option<LeaseIs>,
    /// What the worker called its result; none leaves what is there.
    pub result: Option<String>,
    /// By what right its endpoint is carried. If somebody else carries it by now, the change is
    /// [`Settled::Stale`]. None is a change that anybody may make: an operator's, a worker's.
    pub tenure: Option<Tenure>,
}

/// How a lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseIs {
    /// It ends later.
    Live,
    /// It has ended.
    Lapsed,
}

/// A delivery in the hands of a worker.
#[derive(Debug, Clone)]
pub struct Leased {
    /// `event` is without its body. `delivery.due` is when the lease ends.
    pub waiting: Waiting,
    pub leased_at: Timestamp,
}

/// What became of a [`Settle`].
#[derive(Debug, Clone)]
pub enum Settled {
    Applied {
        /// The next delivery of the same line, now ready.
        promoted: Option<Waiting>,
    },
    /// The fence or the tenure had moved, or the delivery is gone: nothing was changed.
    Stale,
}

/// One try, as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// 1, 2, … without gaps over the whole history of the delivery.
    pub number: u32,
    pub counted: bool,
    pub started_at: Timestamp,
    pub duration: Duration,
    pub status: Option<u16>,
    /// None for a success.
    pub class: Option<Class>,
    pub error: Option<String>,
    pub response: Option<Response>,
}

/// What is kept of a receiver's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Response {
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub truncated: bool,
}

/// A delivery as history shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryRecord {
    pub id: DeliveryId,
    pub tenant: TenantId,
    pub event: EventId,
    pub endpoint: EndpointId,
    pub state: State,
    pub attempts: u32,
    pub deferrals: u32,
    pub tries: u32,
    pub fence: u32,
    pub born: Timestamp,
    /// Present while it waits; while it is leased, when the lease ends.
    pub due: Option<Timestamp>,
    /// While it is leased, when the lease began.
    pub last_attempt_at: Option<Timestamp>,
    /// When it became terminal.
    pub ended_at: Option<Timestamp>,
    pub reason: Option<Reason>,
    pub class: Option<Class>,
    pub last_error: Option<String>,
    pub line: Option<String>,
    /// It waits behind another delivery of its line.
    pub parked: bool,
    /// It was made by a replay, not when the event was accepted.
    pub replay: bool,
    /// What the worker who took it called its result. A reset forgets it.
    pub result: Option<String>,
}

impl DeliveryRecord {
    /// The view of it that `step` takes.
    pub fn for_step(&self) -> Delivery {
        Delivery {
            state: self.state,
            attempts: self.attempts,
            deferrals: self.deferrals,
            due: self.due.unwrap_or(self.born),
            born: self.born,
        }
    }
}
