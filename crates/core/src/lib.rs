//! The rules of Postrider: pure, synchronous, without clock, randomness or I/O.
//!
//! Reading order: what things are called ([`id`], [`time`], [`span`]), when to try again
//! ([`policy`]), what became of a try ([`outcome`], [`retry_after`]), what that does to a delivery
//! ([`delivery`]), where events come from and go ([`source`], [`endpoint`], [`pattern`]) and who
//! carries them ([`lane`]), how they are verified
//! ([`verification`]) and how they are signed ([`signing`]), what a hub and its gateway say to each
//! other ([`hub`]), and which trace they belong to ([`trace`]).

pub mod id;
pub mod time;

pub mod span;

pub mod policy;

pub mod outcome;

pub mod retry_after;

pub mod delivery;

pub mod endpoint;
pub mod hub;
pub mod lane;
pub mod pattern;
pub mod source;

pub mod signing;

pub mod verification;

pub mod trace;

pub use delivery::{Delivery, Happening, Reason, State, step};
pub use endpoint::Endpoint;
pub use id::{DeliveryId, EndpointId, EventId, HubId, JobId, KeyId, SourceId, TenantId};
pub use lane::Lane;
pub use outcome::{Class, Outcome};
pub use policy::{Jitter, Policy};
pub use source::Source;
pub use time::Timestamp;
pub use trace::{SpanId, Trace, TraceId};
