//! The gateway's API as a Rust client, and the two programs that stand on it: a worker and a hub.
//!
//! Reading order: how a gateway is asked ([`Gateway`], [`Error`]), what workers ask it ([`pull`]), the loop
//! that does so for a handler of yours ([`worker`]), what happens as it happens ([`stream`]), and the
//! agent that forwards deliveries behind NAT ([`hub`]).

mod backoff;
mod ports;

mod error;
mod gateway;

pub mod pull;

pub mod worker;

pub mod stream;

pub mod hub;

pub use error::Error;
pub use gateway::Gateway;
pub use http::Method;
