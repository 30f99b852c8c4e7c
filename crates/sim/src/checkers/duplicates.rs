//! Invariant 7, first half: an endpoint gets something twice only where a fault made that unavoidable.

use std::collections::BTreeMap;

use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let mut taken = BTreeMap::new();
        for arrival in &history.arrivals {
            if arrival.status.is_some_and(|status| (200..300).contains(&status)) {
                *taken.entry(arrival.delivery).or_insert(0_usize) += 1;
            }
        }
        let again: usize = taken.values().map(|count| count.saturating_sub(1)).sum();
        // Every fault repeats at most what one node had in flight.
        if again > 0 && history.faults.is_empty() {
            let which = taken.iter().find(|(_, count)| **count > 1);
            return vec![format!("nothing comes twice without a fault: {which:?}, {again} in all")];
        }
        Vec::new()
    })
}
