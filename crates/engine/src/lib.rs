//! The engine: takes events in, decides what goes where and when, has it carried, and keeps the
//! books. The rules are `postrider_core`'s, the books are `postrider_store`'s.
//!
//! Reading order follows an event: [`engine`] starts everything; `accept` finds who listens to an
//! event; `intake` stores it and hands its deliveries over; `scheduler` chooses what goes next;
//! `courier` carries one attempt through; `settler` makes the result durable and publishes
//! [`notices`].

pub mod engine;
mod error;
pub mod ports;

mod accept;
mod acting;
mod intake;

pub mod spans;

mod route;

pub mod embedded;
pub mod filter;

mod scheduler;

mod breaker;
mod bucket;

mod shared;

mod carrier;
mod carriers;
mod courier;
mod message;

pub mod destination;
pub mod http_client;

mod sampled;
mod settler;

pub mod via;

pub mod notices;
mod operator;

mod operate;

mod endpoints;
mod failing;
mod fleet;
mod housekeeping;
mod hubs;
mod jobs;
mod leases;
mod measures;
pub mod metrics;

pub use accept::{Accepted, Submission};
pub use acting::Acting;
pub use breaker::{BreakerOptions, BreakerState};
pub use endpoints::{EndpointAction, Private};
pub use engine::{Drained, Engine, Options, Retention, StartError};
pub use error::Error;
pub use fleet::{Listening, NodeOptions, Nodes};
pub use hubs::{Ending, HubConnection, HubView, Link, OutOfTurn};
pub use leases::{Lease, LeaseToken, LeaseWish, MAX_LEASES, Nack, NoLease};
pub use operate::facts;
pub use operate::{MAX_PLACE, PlannedAttempt, WaitReason, WaitingOn};
pub use scheduler::EndpointHealth;
