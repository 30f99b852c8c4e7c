//! Where events and deliveries are kept.
//!
//! The traits are cut by who uses them: [`Journal`] for the engine, which writes; [`Ledger`] for
//! the API, which reads; [`Registry`] for configuration. A backend implements the three and passes
//! the one suite in [`mod@conformance`]. Nothing here decides what becomes of a delivery: that is
//! `postrider_core::step`; a store persists it, and refuses it when it is stale.

pub mod error;
pub mod record;

pub mod audit;

pub mod journal;
pub mod ledger;
pub mod registry;
pub mod sealing;

pub mod conformance;
pub mod postgres;
pub mod sqlite;

pub use error::Error;
pub use journal::Journal;
pub use ledger::Ledger;
pub use registry::Registry;

/// All that a backend offers.
pub trait Store: Journal + Ledger + Registry {}

impl<T: Journal + Ledger + Registry> Store for T {}
