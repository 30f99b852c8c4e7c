//! Invariant 5, second half: with capacity free, an attempt starts within a second of its time. Where
//! nothing goes wrong, a healthy endpoint gets everything so soon.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::endpoint::Ordering;

use crate::network::Manner;
use crate::scenario::Taker;
use crate::world::Remains;

const SOON: Duration = Duration::from_secs(1);

pub(super) fn check(remains: &Remains) -> Vec<String> {
    if !remains.scenario.is_calm() {
        return Vec::new();
    }
    let events: BTreeMap<_, _> =
        remains.deliveries.iter().map(|record| (record.id, record.event)).collect();
    remains.chronicle.read(|history| {
        let mut ready = BTreeMap::new();
        for submitted in &history.submitted {
            if let Some((event, at)) = submitted.acknowledged {
                ready.insert(event, submitted.deliver_at.map_or(at, |later| later.max(at)));
            }
        }
        let late = history.arrivals.iter().filter_map(|arrival| {
            let plan = remains.scenario.endpoints.get(arrival.endpoint)?;
            let free = plan.manner == Manner::Healthy
                && plan.ordering == Ordering::None
                && plan.taker == Taker::Url
                && plan.rate_per_second.is_none();
            let ready = *ready.get(events.get(&arrival.delivery)?)?;
            (free && arrival.at > ready.plus(SOON)).then(|| {
                format!(
                    "what is due starts within a second: {} was ready at {ready}, came at {}",
                    arrival.delivery, arrival.at
                )
            })
        });
        late.collect()
    })
}
