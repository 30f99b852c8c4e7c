//! The dashboard in a real browser: a headless Chromium that looks at the real binary.
//!
//! Controls are found by what a person calls them, never by their place in the page.

#[allow(dead_code, reason = "the tests of the process need the rest")]
#[path = "../process/client.rs"]
mod client;
#[allow(dead_code, reason = "the tests of the process need the rest")]
#[path = "../process/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "the tests of the process need the rest")]
#[path = "../process/output.rs"]
mod output;
mod page;
mod scene;
#[allow(dead_code, reason = "the tests of the process need the rest")]
#[path = "../process/sink.rs"]
mod sink;
#[allow(dead_code, reason = "screenshots need the rest")]
mod webdriver;

mod crawl;
mod deliveries;
mod endpoints;
mod first_run;
mod harness;
mod hostile;
mod lists;
mod policies;
mod sign_in;

use std::time::Duration;

/// How long anything may take before it counts as hanging. No test asserts on speed.
const PATIENCE: Duration = Duration::from_mins(2);

/// Waits for something that has to happen.
async fn within<T>(what: &str, happening: impl Future<Output = T>) -> T {
    let happened = tokio::time::timeout(PATIENCE, happening).await;
    happened.unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}
