//! Invariant 5, second half: with capacity free, an attempt starts within a second of its time. Where
//! nothing goes wrong, a healthy endpoint gets everything so soon.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::endpoint::Ordering;

use super::near;
use crate::network::Manner;
use crate::scenario::Taker;
use crate::world::Remains;

const SOON: Duration = Duration::from_secs(1);

pub(super) fn check(remains: &Remains) -> Vec<String> {
    if !remains.scenario.is_calm() {
        return Vec::new();
    }
    let records: BTreeMap<_, _> =
        remains.deliveries.iter().map(|record| (record.id, record)).collect();
    remains.chronicle.read(|history| {
        let (ready, resets) = (near::ready(remains, history), near::resets(history));
        let late = history.arrivals.iter().filter_map(|arrival| {
            let plan = remains.scenario.endpoints.get(arrival.endpoint)?;
            let free = plan.manner == Manner::Healthy
                && plan.ordering == Ordering::None
                && plan.taker == Taker::Url
                && plan.rate_per_second.is_none();
            let record = records.get(&arrival.delivery)?;
            let touched =
                resets.contains_key(&record.id) || history.operations.is_stopped(record.endpoint);
            let ready = *ready.get(&record.id)?;
            // Even in a calm world every process is started again in the end.
            let by = near::quiet_from(history, ready, SOON).plus(SOON);
            (free && !touched && arrival.at > by).then(|| {
                format!(
                    "what is due starts within a second: {} was ready at {ready}, came at {}",
                    arrival.delivery, arrival.at
                )
            })
        });
        late.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::{self, arrival, minute, record, submitted};
    use super::*;
    use crate::history::{Deed, History};

    fn world(came: Duration, with: impl Fn(&mut History)) -> Vec<String> {
        let mut remains = made::remains(|history| {
            history.submitted = vec![submitted(1, minute(60))];
            history.arrivals = vec![arrival(1, 0, minute(60).plus(came))];
            with(history);
        });
        remains.deliveries = vec![record(1, 0)];
        check(&remains)
    }

    #[test]
    fn what_can_go_goes_within_a_second() {
        assert_eq!(world(Duration::from_millis(999), |_| {}), [] as [&str; 0]);
        assert_eq!(world(Duration::from_millis(1_001), |_| {}).len(), 1);
    }

    #[test]
    fn what_is_meant_to_go_later_does() {
        let later = |history: &mut History| history.submitted[0].deliver_at = Some(minute(70));
        assert_eq!(world(Duration::from_mins(10), later), [] as [&str; 0]);
        assert_eq!(world(Duration::from_mins(11), later).len(), 1);
    }

    #[test]
    fn what_an_operator_stops_waits() {
        let stopped =
            |history: &mut History| made::ask(history, Deed::Pause(record(1, 0).endpoint));
        assert_eq!(world(Duration::from_mins(10), stopped), [] as [&str; 0]);
    }
}
