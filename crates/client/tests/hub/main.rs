//! The hub agent against a gateway and a service of the test's own, on real sockets.

mod conversation;
mod forwarding;
mod gateway;
mod outages;
mod refusals;
mod running;
mod service;
mod stopping;
mod tls;

use std::time::Duration;

/// Longer than anything here takes: a wait that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, Box::pin(future)).await;
    waited.unwrap_or_else(|_| panic!("waited too long: {what}"))
}
