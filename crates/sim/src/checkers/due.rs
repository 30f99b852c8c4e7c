//! Invariant 5: no attempt starts before its time, by the clock of whoever starts it.

use std::collections::BTreeMap;

use postrider_core::State;

use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let mut due = BTreeMap::new();
        let mut found = Vec::new();
        for change in history.changes.iter().filter(|change| change.applied) {
            if let (Some((number, started)), Some(due)) =
                (change.attempt, due.get(&change.delivery))
                && started < *due
            {
                found.push(format!(
                    "no attempt before its time: attempt {number} of {} began at {started}, due {due}",
                    change.delivery
                ));
            }
            // While it is leased, it is the end of the lease that has a time.
            match change.due.filter(|_| change.to != State::InFlight) {
                Some(at) => due.insert(change.delivery, at),
                None => due.remove(&change.delivery),
            };
        }
        found
    })
}
