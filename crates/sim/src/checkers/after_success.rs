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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::made::{self, arrival, attempt, minute};
    use super::*;

    #[test]
    fn nothing_follows_a_success_but_what_was_on_its_way() {
        for (seconds, complains) in [(10, false), (31, true)] {
            let remains = made::remains(|history| {
                history.changes = vec![attempt(1, 0, 1, minute(1), State::Delivered)];
                let second = minute(1).plus(Duration::from_secs(seconds));
                history.arrivals = vec![arrival(1, 0, minute(1)), arrival(1, 0, second)];
            });
            assert_eq!(!check(&remains).is_empty(), complains, "{seconds}");
        }
    }

    #[test]
    fn a_success_that_was_not_recorded_is_none() {
        let remains = made::remains(|history| {
            history.changes = vec![attempt(1, 0, 1, minute(1), State::Delivered)];
            history.changes[0].applied = false;
            history.arrivals = vec![arrival(1, 0, minute(1)), arrival(1, 0, minute(9))];
        });
        assert_eq!(check(&remains), [] as [&str; 0]);
    }
}
