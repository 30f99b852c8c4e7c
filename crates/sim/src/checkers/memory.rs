//! Invariant 15: what a node holds in memory is bounded, however much waits.

use crate::world::Remains;

/// More than this no node holds of what it asks for together.
const MOST: usize = 200_000;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    let held = remains.chronicle.read(|history| history.most_held);
    if held > MOST {
        return vec![format!("memory is bounded: a node held {held} deliveries")];
    }
    Vec::new()
}
