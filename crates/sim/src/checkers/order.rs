//! Invariant 10: where order is kept, the next one starts when the one before it has ended.

use std::collections::BTreeMap;

use postrider_core::endpoint::Ordering;
use postrider_core::{DeliveryId, State, Timestamp};

use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let mut ended: BTreeMap<DeliveryId, Timestamp> = BTreeMap::new();
        for change in history.changes.iter().filter(|change| change.applied) {
            match change.to {
                State::Delivered | State::Failed | State::Dead | State::Cancelled => {
                    ended.entry(change.delivery).or_insert(change.at);
                }
                State::Pending | State::Retrying | State::InFlight => {}
            }
        }
        let mut first_arrival: BTreeMap<DeliveryId, Timestamp> = BTreeMap::new();
        for arrival in &history.arrivals {
            first_arrival.entry(arrival.delivery).or_insert(arrival.at);
        }
        let mut found = Vec::new();
        for (index, endpoint) in remains.endpoints.iter().enumerate() {
            let ordering = remains.scenario.endpoints.get(index).map(|plan| plan.ordering);
            if matches!(ordering, None | Some(Ordering::None)) {
                continue;
            }
            let mut lines: BTreeMap<&str, Vec<DeliveryId>> = BTreeMap::new();
            for record in remains.deliveries.iter().filter(|one| one.endpoint == *endpoint) {
                if let Some(line) = &record.line {
                    lines.entry(line).or_default().push(record.id);
                }
            }
            for ids in lines.values_mut() {
                // The line is in the order in which the store took them in, which among several
                // nodes need not be that of the ids; but one ends before another begins.
                if remains.scenario.nodes == 1 {
                    ids.sort_unstable();
                } else {
                    ids.sort_unstable_by_key(|id| first_arrival.get(id).copied());
                }
                ids.retain(|id| first_arrival.contains_key(id));
                for pair in ids.windows(2) {
                    let (before, after) = (pair[0], pair[1]);
                    let Some(began) = first_arrival.get(&after) else { continue };
                    if ended.get(&before).is_none_or(|ended| ended > began) {
                        found.push(format!(
                            "order is kept: {after} came at {began}, {before} ended at {:?}",
                            ended.get(&before)
                        ));
                    }
                }
            }
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::{self, arrival, attempt, minute, record};
    use super::*;

    /// Two events of one line; the first comes at minute 1 and ends at minute 5.
    fn world(ordering: Ordering, lines: [&str; 2], second_came: u64) -> Vec<String> {
        let mut remains = made::remains(|history| {
            history.arrivals = vec![arrival(1, 0, minute(1)), arrival(2, 0, minute(second_came))];
            history.changes = vec![
                attempt(1, 0, 1, minute(5), State::Dead),
                attempt(2, 0, 1, minute(9), State::Delivered),
            ];
        });
        remains.scenario.endpoints[0].ordering = ordering;
        remains.deliveries = vec![record(1, 0), record(2, 0)];
        for (record, line) in remains.deliveries.iter_mut().zip(lines) {
            record.line = Some(line.to_owned());
        }
        check(&remains)
    }

    #[test]
    fn the_next_one_waits_until_the_one_before_has_ended() {
        let nothing = [] as [&str; 0];
        assert_eq!(world(Ordering::Fifo, ["", ""], 6), nothing);
        assert_eq!(world(Ordering::Fifo, ["", ""], 4).len(), 1);
        assert_eq!(world(Ordering::FifoByKey, ["a", "a"], 4).len(), 1);
        assert_eq!(world(Ordering::FifoByKey, ["a", "b"], 4), nothing);
        assert_eq!(world(Ordering::None, ["", ""], 4), nothing);
    }
}
