//! Where events and deliveries are kept.
//!
//! The traits are cut by who uses them: [`Journal`] for the engine, which writes; [`Ledger`] for
//! the API, which reads; [`Registry`] for configuration; [`Declarations`] for configuration as code;
//! [`Sessions`] and [`Measures`] for the dashboard; [`Fleet`] for several nodes on one store, where a backend can be shared. A backend
//! implements them and passes the one suite in [`mod@conformance`]. Nothing here decides what becomes
//! of a delivery: that is `postrider_core::step`; a store persists it, and refuses it when it is stale.

pub mod error;
pub mod record;

pub mod audit;
pub mod declarations;

pub mod fleet;
pub mod journal;
pub mod ledger;
pub mod measures;
pub mod registry;
pub mod sealing;
pub mod sessions;

pub mod meter;
pub mod vitals;

pub mod conformance;
pub mod copy;
pub mod postgres;
pub mod sqlite;

mod stored;

#[doc(hidden)]
pub mod fuzzing;

pub use declarations::Declarations;
pub use error::Error;
pub use fleet::Fleet;
pub use journal::Journal;
pub use ledger::Ledger;
pub use measures::Measures;
pub use registry::Registry;
pub use sessions::Sessions;
pub use vitals::Vitals;

/// All that a backend offers.
pub trait Store: Journal + Ledger + Registry + Declarations + Sessions + Measures {
    /// How several nodes share it; none if it has one node at a time, which carries everything.
    fn fleet(&self) -> Option<&dyn Fleet> {
        None
    }

    /// What it has counted of its own work.
    fn vitals(&self) -> &Vitals;
}
