//! What the server's and the driver's failures mean to the caller.

use tokio_postgres::error::SqlState;

use crate::error::Error;

/// A failed statement, by what is to be done about it.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The connection is of no use any more. What it was told last may have been done or not.
    Lost(String),
    /// The server undid the transaction for the sake of another: it can be tried again.
    Undone(String),
    /// The server cannot do it now.
    Busy(String),
    /// A uniqueness was violated.
    Taken,
    /// Nothing that our own statements can run into: somebody changed the tables.
    Damaged(String),
}

impl Fault {
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        let Some(refusal) = error.as_db_error() else { return Self::Lost(explain(error)) };
        let text = format!("{} ({})", refusal.message(), refusal.code().code());
        let code = refusal.code();
        if *code == SqlState::UNIQUE_VIOLATION {
            return Self::Taken;
        }
        if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) {
            return Self::Undone(text);
        }
        let timed_out = [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE].contains(code);
        match code.code().get(..2) {
            _ if timed_out => Self::Busy(text),
            // Connection exceptions, shutdowns; a primary that has become a replica; a password that
            // was changed.
            Some("08" | "57" | "28") => Self::Lost(text),
            _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Self::Lost(text),
            // Out of disk, memory or connections; failures of the machine below.
            Some("53" | "58") => Self::Busy(text),
            Some(_) | None => Self::Damaged(text),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Lost(text) | Fault::Undone(text) | Fault::Busy(text) => Self::Unavailable(text),
            Fault::Taken => Self::Exists("this".to_owned()),
            Fault::Damaged(text) => Self::Damaged(text),
        }
    }
}

/// Turns a violated uniqueness into [`Error::Exists`] with the name of what is there.
pub(crate) fn exists(fault: Fault, name: impl FnOnce() -> String) -> Error {
    match fault {
        Fault::Taken => Error::Exists(name()),
        other @ (Fault::Lost(_) | Fault::Undone(_) | Fault::Busy(_) | Fault::Damaged(_)) => {
            other.into()
        }
    }
}

/// The driver's words, with those of what caused it. A server's detail and hint are left out: they
/// repeat values.
pub(crate) fn explain(error: &tokio_postgres::Error) -> String {
    if let Some(refusal) = error.as_db_error() {
        return format!("{} ({})", refusal.message(), refusal.code().code());
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
