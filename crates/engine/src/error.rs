//! What an operation on the engine can come to, by what the caller does about it.

/// Why an operation was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// There is no such thing, or it belongs to another tenant.
    #[error("not found")]
    NotFound,
    /// The input cannot be used: the field, and a sentence.
    #[error("{field}: {message}")]
    Invalid { field: String, message: String },
    /// The state of things does not allow it.
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    Store(#[from] postrider_store::Error),
}

impl Error {
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }
}
