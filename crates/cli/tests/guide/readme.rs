//! The README, as a newcomer reads it.

use std::time::{Duration, Instant};

use crate::verifying;
use crate::walk::Walk;

/// What the README promises of a first webhook, once there is a binary.
const PROMISED: Duration = Duration::from_mins(1);

#[test]
fn the_readme_leads_to_a_delivered_signed_webhook_within_its_minute() {
    let mut walk = Walk::of("README.md");
    walk.types("Run it", "-- serve");
    walk.stops("-- serve");
    walk.leaves_out("Run it", "cargo xtask test", "this test is part of it");

    let heading = "A first webhook in 60 seconds";
    let started = Instant::now();
    walk.types(heading, "-- serve");
    walk.types(heading, "serve_forever");
    let said = walk.types(heading, "order.created");
    assert!(said.contains("delivered"), "{said}");
    verifying::printed_webhook_is_genuine(&walk, None);
    let taken = started.elapsed();
    println!("a first webhook: {:.1} s", taken.as_secs_f64());
    assert!(taken < PROMISED, "{taken:?}");

    walk.types("See it", "-- demo");
    walk.finish();
}
