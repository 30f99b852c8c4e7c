//! What one attempt came to, in the three classes that decide whether there is another.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a failed attempt failed, as far as trying again is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Trying again cannot help.
    Final,
    /// Trying again may help.
    Retryable,
    /// The receiver asked for a slower pace.
    RateLimited,
}

impl Class {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Retryable => "retryable",
            Self::RateLimited => "rate_limited",
        }
    }
}

/// What an attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Delivered,
    Failed {
        class: Class,
        /// How long the receiver asked us to wait.
        retry_after: Option<Duration>,
        /// The receiver is gone for good: nothing more should be sent to this endpoint.
        disable: bool,
    },
}

/// What a carrier saw, before a policy has said what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sighting {
    /// An HTTP answer arrived.
    Status(u16),
    /// A program ended with this code.
    Exit(i32),
    /// No connection, or it broke.
    Network,
    /// Nothing conclusive within the deadline.
    Timeout,
    /// Whoever took it says that it is done.
    Done,
    /// Whoever took it says that it failed, and what that means. No policy says otherwise.
    Told(Class),
}
