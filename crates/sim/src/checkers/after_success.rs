//! Invariant 8: after a recorded success there is no further attempt.

use std::collections::BTreeMap;

use postrider_core::State;

use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let mut delivered = BTreeMap::new();
        for change in &history.changes {
            if change.applied && change.to == State::Delivered {
                delivered.entry(change.delivery).or_insert(change.at);
            }
        }
        // What was on its way when the success was recorded could not be called back.
        let on_its_way = std::time::Duration::from_secs(30);
        let late = history.arrivals.iter().filter(|arrival| {
            let at = delivered.get(&arrival.delivery);
            at.is_some_and(|at| arrival.at > at.plus(on_its_way))
        });
        late.map(|arrival| {
            format!(
                "nothing is sent after a success: attempt {} of {} came at {}",
                arrival.attempt, arrival.delivery, arrival.at
            )
        })
        .collect()
    })
}
