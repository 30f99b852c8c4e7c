//! What can go wrong in a store, by what the caller does about it.

/// A store's failure. A stale write is not one: it is an answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// More work is waiting than the store can take on: come back later.
    #[error("the store is overloaded")]
    Overloaded,
    /// The disk is full, the database locked or out of reach: nothing was written, unless the word
    /// that it was got lost; try again.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The file is not ours to open: not a database, or of a newer version.
    #[error("{0}")]
    Refused(String),
    /// What was read makes no sense: the database was damaged or changed by hand.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// A name that has to be unique is taken.
    #[error("{0} exists already")]
    Exists(String),
    /// The store is closing.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// Whether what was to be written may be there all the same.
    pub fn leaves_doubt(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Overloaded
            | Self::Refused(_)
            | Self::Damaged(_)
            | Self::Exists(_)
            | Self::Closed => false,
        }
    }
}
