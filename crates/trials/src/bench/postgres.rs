//! What is measured on `PostgreSQL`. Each measure has a server of its own: a new cluster beside the
//! binaries, with the durability it comes with, reached by a socket.
//!
//! Reading order: the server ([`cluster`], [`session`]), the store on it ([`carrier`]), those it takes
//! turns with ([`contest`], [`by_hand`], [`claims`]), what the server does ([`work`]), and the other
//! measures.

mod by_hand;
mod carrier;
mod cluster;
mod contest;
mod session;
mod work;

pub(crate) mod bloat;
pub(crate) mod claims;
pub(crate) mod due_scan;
pub(crate) mod end_to_end;
pub(crate) mod nodes;
pub(crate) mod store_cycle;

pub(crate) use cluster::{Cluster, SETTINGS, Watch};
pub(crate) use session::Session;
