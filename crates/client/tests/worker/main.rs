//! The client and its worker against a gateway of the test's own, which can be made to misbehave.

mod fake;

mod requests;
mod stopping;
mod trouble;
mod working;

use std::time::Duration;

/// How long anything may take before it counts as hanging. No test asserts on speed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for something that has to happen.
async fn within<T>(what: &str, happening: impl Future<Output = T>) -> T {
    let happened = tokio::time::timeout(PATIENCE, happening).await;
    happened.unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}
