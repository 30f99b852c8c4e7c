//! What the README and the guide tell people to type, typed: every command of the README, of the quick
//! start and of the recipes, in an empty folder, with the real binary; and what they promise, looked at.

mod script;
mod terminal;
mod walk;
mod world;

mod operating;
mod quick_start;
mod readme;
mod recipes;
#[allow(unreachable_pub, reason = "it is written for a program of one's own")]
#[path = "../../../../docs/guide/verify/verify.rs"]
mod verify;
mod verifying;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long anything may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK_AGAIN: Duration = Duration::from_millis(30);

/// The key that the commands choose.
const KEY: &str = "pr_0123456789abcdef0123456789abcdef";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Looks until there is something to see.
#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        std::thread::sleep(LOOK_AGAIN);
    }
}
