//! The behaviours of the documents that the gateway grew from, end to end over HTTP. Time is
//! virtual: it passes when a test says so.

#[path = "../harness/mod.rs"]
mod harness;

mod dispatch;
mod edge;
mod inbox;
mod router;
mod runs;
mod standard;

mod clock;
mod fairness;
mod operator;
mod ordering;
mod replay;
mod retention;

use std::time::Duration;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn hours(count: u64) -> Duration {
    Duration::from_hours(count)
}

fn days(count: u64) -> Duration {
    Duration::from_hours(24 * count)
}
