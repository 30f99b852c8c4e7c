//! The dashboard as a browser meets it, without the browser: pages, forms, cookies, over HTTP on
//! loopback. Time is virtual.

mod browser;
mod gateway;

// Shared with other tests, each of which uses a part of it.
#[allow(dead_code, reason = "shared")]
#[path = "../harness/client.rs"]
mod client;
#[allow(dead_code, reason = "shared")]
#[path = "../harness/sink.rs"]
mod sink;

mod audit;
mod dead_letters;
mod deliveries;
mod endpoints;
mod events;
mod first_run;
mod hostile;
mod hubs;
mod keys;
mod live;
mod nodes;
mod overview;
mod policies;
mod search;
mod security;
mod settings;
mod sign_in;
mod sources;

use std::time::Duration;

/// How long anything that has to happen may take. Nothing takes nearly as long; a test that waits
/// this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
