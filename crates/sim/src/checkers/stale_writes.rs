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
