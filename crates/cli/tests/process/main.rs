//! The real binary as a process of its own: started, stopped, killed, starved of disk.

mod client;
#[allow(dead_code, reason = "the store's own tests need the rest")]
#[path = "../../../store/tests/postgres/cluster.rs"]
mod cluster;
mod gateway;
#[allow(dead_code, reason = "the engine's own tests need the rest")]
#[path = "../../../engine/src/destination/tests/name_server.rs"]
mod name_server;
mod output;
mod producers;
mod pty;
mod sink;

mod backup;
mod bench_command;
mod config;
mod copy;
mod crash;
mod declared;
mod demo;
mod doctor;
mod export;
mod fleet;
mod listen;
mod logs;
mod mcp;
mod metrics;
mod migrate;
mod nodes;
mod outage;
mod policy;
mod profiles;
mod questions;
mod rebinding;
mod refusal;
mod relay;
mod resources;
mod secrets;
mod start;
mod stop;
mod supervised;
mod tail;
mod top;
mod traces;
mod traffic;
mod work;

use std::time::Duration;

/// How long anything may take before it counts as hanging. No test asserts on speed.
const PATIENCE: Duration = Duration::from_mins(2);

/// Waits for something that has to happen.
async fn within<T>(what: &str, happening: impl Future<Output = T>) -> T {
    let happened = tokio::time::timeout(PATIENCE, happening).await;
    happened.unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}
