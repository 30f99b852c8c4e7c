//! Invariant 11: an endpoint that is slow, dead or hostile never delays another by more than a second.
//! Where no node has trouble, what a healthy endpoint gets comes at once, whatever the others do.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::endpoint::Ordering;
use postrider_core::{EndpointId, State, Timestamp};

use super::near;
use crate::history::History;
use crate::network::Manner;
use crate::scenario::{EndpointPlan, Taker};
use crate::world::Remains;

const SOON: Duration = Duration::from_secs(1);
/// For how long an endpoint's own failures may hold it up.
const OWN_TROUBLE: Duration = Duration::from_mins(15);

pub(super) fn check(remains: &Remains) -> Vec<String> {
    let bad = remains.scenario.endpoints.iter().any(|plan| plan.manner != Manner::Healthy);
    if !near::is_steady(remains) || !(bad || remains.scenario.operated) {
        return Vec::new();
    }
    let records: BTreeMap<_, _> =
        remains.deliveries.iter().map(|record| (record.id, record)).collect();
    let plans: BTreeMap<EndpointId, &EndpointPlan> =
        remains.endpoints.iter().copied().zip(&remains.scenario.endpoints).collect();
    remains.chronicle.read(|history| {
        let (ready, resets) = (near::ready(remains, history), near::resets(history));
        let mut failures: BTreeMap<EndpointId, Vec<Timestamp>> = BTreeMap::new();
        for change in history.changes.iter().filter(|change| change.to != State::Delivered) {
            if let (Some(record), Some(_)) = (records.get(&change.delivery), change.attempt) {
                failures.entry(record.endpoint).or_default().push(change.at);
            }
        }
        let late = history.changes.iter().filter_map(|change| {
            let Some((1, started)) = near::attempt(change) else { return None };
            let record = records.get(&change.delivery)?;
            let is_touched = resets.contains_key(&record.id);
            if is_touched || !is_free(history, record.endpoint, plans.get(&record.endpoint)?) {
                return None;
            }
            let ready = *ready.get(&record.id)?;
            // Whatever befell a node, it is no excuse for ever.
            let could = near::quiet_from(history, ready, SOON);
            let by = could.plus(SOON);
            let its_own = failures.get(&record.endpoint).is_some_and(|failures| {
                let felt = |at: &Timestamp| ready.minus(OWN_TROUBLE) <= *at && *at <= by;
                failures.iter().any(felt)
            });
            (started > by && !its_own).then(|| {
                format!(
                    "others delay nobody: {} of a healthy endpoint could go at {could}, began at {started}",
                    record.id
                )
            })
        });
        late.collect()
    })
}

/// Nothing of its own is in the way.
fn is_free(history: &History, endpoint: EndpointId, plan: &EndpointPlan) -> bool {
    !history.operations.is_stopped(endpoint)
        && plan.manner == Manner::Healthy
        && plan.ordering == Ordering::None
        && plan.taker == Taker::Url
        && plan.rate_per_second.is_none()
}

#[cfg(test)]
mod tests {
    use super::super::made::{self, attempt, fault, minute, record, submitted};
    use super::*;
    use crate::history::FaultKind;

    /// The first endpoint is healthy, the second is not. An event for both is there at minute 60.
    fn world(began: Duration, with: impl Fn(&mut History)) -> Vec<String> {
        let mut remains = made::remains(|history| {
            history.submitted = vec![submitted(1, minute(60))];
            let began = minute(60).plus(began);
            history.changes = vec![attempt(1, 0, 1, began, State::Delivered)];
            with(history);
        });
        remains.scenario.endpoints[1].manner = Manner::Hanging;
        remains.deliveries = vec![record(1, 0), record(1, 1), record(2, 0)];
        check(&remains)
    }

    const SOON_ENOUGH: Duration = Duration::from_millis(900);
    const TOO_LATE: Duration = Duration::from_millis(1_100);

    #[test]
    fn a_second_is_the_most_that_others_may_cost() {
        assert_eq!(world(SOON_ENOUGH, |_| {}), [] as [&str; 0]);
        assert_eq!(world(TOO_LATE, |_| {}).len(), 1);
    }

    #[test]
    fn a_node_in_trouble_excuses_it_and_a_lost_request_does_not() {
        let with = |kind| move |history: &mut History| history.faults = vec![fault(kind, 59)];
        assert_eq!(world(TOO_LATE, with(FaultKind::Crash)), [] as [&str; 0]);
        assert_eq!(world(TOO_LATE, with(FaultKind::LostRequest)).len(), 1);
    }

    #[test]
    fn a_node_that_was_in_trouble_does_not_excuse_it_for_ever() {
        let crashed = |history: &mut History| history.faults = vec![fault(FaultKind::Crash, 59)];
        assert_eq!(world(Duration::from_mins(3), crashed), [] as [&str; 0]);
        assert_eq!(world(Duration::from_mins(4), crashed).len(), 1);
    }

    #[test]
    fn trouble_of_its_own_excuses_it() {
        let failed = |history: &mut History| {
            history.changes.push(attempt(2, 0, 1, minute(58), State::Retrying));
        };
        assert_eq!(world(TOO_LATE, failed), [] as [&str; 0]);
    }
}
