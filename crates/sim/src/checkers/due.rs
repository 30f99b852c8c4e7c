//! Invariant 5: no attempt starts before its time, by the clock of whoever starts it.

use std::collections::BTreeMap;

use postrider_core::State;

use super::near;
use crate::history::Change;
use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let mut dues: BTreeMap<_, (_, &Change)> = BTreeMap::new();
        let mut found = Vec::new();
        for change in history.changes.iter().filter(|change| change.applied) {
            if let (Some((number, started)), Some((due, since))) =
                (change.attempt, dues.get(&change.delivery))
                && started < *due
            {
                found.push(format!(
                    "no attempt before its time: attempt {number} of {} began at {started} by its clock (settled at {}), due {due} ({:?} to {:?} at {})",
                    change.delivery, change.at, since.from, since.to, since.at
                ));
            }
            // While it is leased, it is the end of the lease that has a time. And what was given another
            // life is due at once: it stays so when the clock is set back to before that.
            let waits = change.to != State::InFlight && !near::is_reset(change);
            match change.due.filter(|_| waits) {
                Some(at) => dues.insert(change.delivery, (at, change)),
                None => dues.remove(&change.delivery),
            };
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::{self, attempt, minute};
    use super::*;

    #[test]
    fn a_retry_waits_for_its_time() {
        for (began, complains) in [(9, true), (10, false), (11, false)] {
            let remains = made::remains(|history| {
                let failed = attempt(1, 0, 1, minute(1), State::Retrying);
                history.changes = vec![
                    made::due(failed, minute(10)),
                    attempt(1, 0, 2, minute(began), State::Delivered),
                ];
            });
            assert_eq!(!check(&remains).is_empty(), complains, "{began}");
        }
    }

    /// Worlds 376 and 949 as they were drawn: a clock that was set back by hours while a delivery waited
    /// that an operator had given another life.
    #[test]
    fn what_is_due_at_once_stays_so_when_the_clock_is_set_back() {
        let remains = made::remains(|history| {
            history.changes = vec![
                made::due(made::reset(1, 0, minute(100)), minute(100)),
                attempt(1, 0, 2, minute(10), State::Delivered),
            ];
        });
        assert_eq!(check(&remains), [] as [&str; 0]);
    }
}
