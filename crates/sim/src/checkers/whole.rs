//! Invariant 2: an event is there with all its deliveries, or not at all, whatever its producer heard.

use std::collections::BTreeMap;

use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for record in remains.deliveries.iter().filter(|record| !record.replay) {
        *counts.entry(record.event).or_insert(0) += 1;
    }
    let wanted = remains.endpoints.len();
    let part = counts.into_iter().filter(|(_, count)| *count != wanted);
    part.map(|(event, count)| {
        format!("an event is whole: {event} has {count} of {wanted} deliveries")
    })
    .collect()
}
