//! Invariant 3: one delivery for each event and endpoint that matched.

use std::collections::BTreeMap;

use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for record in remains.deliveries.iter().filter(|record| !record.replay) {
        *counts.entry((record.event, record.endpoint)).or_insert(0) += 1;
    }
    let many = counts.into_iter().filter(|(_, count)| *count != 1);
    many.map(|((event, endpoint), count)| {
        format!("one delivery each: {event} has {count} to {endpoint}")
    })
    .collect()
}
