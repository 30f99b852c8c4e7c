//! Invariant 6: whoever has lost the right to change a delivery changes nothing.

use std::collections::BTreeMap;

use postrider_core::State;

use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let (mut fences, mut epochs) = (BTreeMap::new(), BTreeMap::new());
        let mut found = Vec::new();
        for change in history.changes.iter().filter(|change| change.applied) {
            let fence = fences.entry(change.delivery).or_insert(0);
            if change.fence != *fence {
                found.push(format!(
                    "a stale write changes nothing: {} was changed by node {} under fence {}, which was {fence}",
                    change.delivery, change.node, change.fence
                ));
            }
            let is_longer_lease = change.from == State::InFlight && change.to == State::InFlight;
            *fence = change.fence + u32::from(!is_longer_lease);
            if let Some(tenure) = change.tenure {
                let newest = epochs.entry(tenure.charge.key()).or_insert(tenure.epoch);
                if tenure.epoch < *newest {
                    found.push(format!(
                        "a stale write changes nothing: {} was changed by node {} in epoch {}, after {newest}",
                        change.delivery, change.node, tenure.epoch
                    ));
                }
                *newest = (*newest).max(tenure.epoch);
            }
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use postrider_core::Lane;
    use postrider_store::fleet::{Charge, Tenure};

    use super::super::made::{self, attempt, minute};
    use super::*;
    use crate::history::Change;

    #[test]
    fn each_change_is_made_upon_the_one_before() {
        let first = || attempt(1, 0, 1, minute(1), State::Retrying);
        let second = || attempt(1, 0, 2, minute(2), State::Delivered);
        let stale = || Change { fence: 0, ..second() };
        let refused = Change { applied: false, ..stale() };
        for (changes, complains) in [
            (vec![first(), second()], false),
            (vec![first(), stale()], true),
            (vec![first(), refused, second()], false),
        ] {
            let shown = format!("{changes:?}");
            let remains = made::remains(|history| history.changes = changes);
            assert_eq!(!check(&remains).is_empty(), complains, "{shown}");
        }
    }

    #[test]
    fn whoever_had_a_lane_before_changes_nothing_of_it() {
        let in_epoch = |number, epoch| Change {
            tenure: Some(Tenure { charge: Charge::Lane(Lane(3)), epoch }),
            ..attempt(number, 0, 1, minute(1), State::Delivered)
        };
        for (epochs, complains) in [([1, 2], false), ([2, 2], false), ([2, 1], true)] {
            let remains = made::remains(|history| {
                history.changes = vec![in_epoch(1, epochs[0]), in_epoch(2, epochs[1])];
            });
            assert_eq!(!check(&remains).is_empty(), complains, "{epochs:?}");
        }
    }
}
