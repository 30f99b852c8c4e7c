//! What `SQLite`'s failures mean to the caller.

use rusqlite::ErrorCode;
use rusqlite::types::FromSqlError;

use crate::error::Error;

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::OutOfMemory
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OperationInterrupted,
            ) => Self::Unavailable(error.to_string()),
            // Corruption, and values or constraints that our own statements cannot run into.
            Some(_) | None => Self::Damaged(error.to_string()),
        }
    }
}

impl From<FromSqlError> for Error {
    fn from(error: FromSqlError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// Turns a violated uniqueness into [`Error::Exists`] with the name of what is there.
pub(crate) fn exists(error: rusqlite::Error, name: impl FnOnce() -> String) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => Error::Exists(name()),
        Some(_) | None => error.into(),
    }
}
