//! What end-to-end tests share: a gateway in this process, a sink that follows a script, and a
//! small HTTP client.

pub(crate) mod client;
pub(crate) mod gateway;
pub(crate) mod sink;

use std::time::Duration;

/// How long anything that has to happen may take. Nothing takes nearly as long; a test that waits
/// this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
