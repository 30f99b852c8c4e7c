//! Invariant 12: old retries and new work compete by age. Within an endpoint the oldest event goes first,
//! so that neither starves the other.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::endpoint::Ordering;
use postrider_core::{DeliveryId, EndpointId, EventId, State, Timestamp};

use super::near;
use crate::history::{Deed, History};
use crate::scenario::Taker;
use crate::world::Remains;

/// What has been ready for so long has been read from the store.
const SEEN_AFTER: Duration = Duration::from_secs(10);

/// One wait of a delivery, from when it could go until its next attempt began.
#[derive(Debug, Clone, Copy)]
struct Wait {
    event: EventId,
    delivery: DeliveryId,
    ready: Timestamp,
    started: Timestamp,
}

pub(super) fn check(remains: &Remains) -> Vec<String> {
    if !near::is_steady(remains) {
        return Vec::new();
    }
    remains.chronicle.read(|history| {
        let mut found = Vec::new();
        for (endpoint, mut waits) in waits(remains, history) {
            waits.sort_unstable_by_key(|wait| wait.started);
            for (index, younger) in waits.iter().enumerate() {
                let since = quiet_since(history, endpoint, younger.started);
                // All that began later; among them, who should have begun before.
                let overtaken = waits[index + 1..].iter().find(|older| {
                    older.event < younger.event
                        && older.started > younger.started
                        && older.ready.max(since).plus(SEEN_AFTER) <= younger.started
                        // It may have begun before and been lost with its node, which wrote nothing.
                        && !near::is_disturbed(history, younger.started, older.started)
                });
                if let Some(older) = overtaken {
                    found.push(format!(
                        "the oldest goes first: {} began at {}, while {} of an older event had been ready since {}",
                        younger.delivery, younger.started, older.delivery, older.ready
                    ));
                }
            }
        }
        found
    })
}

/// Since when, at a certain time, no node had trouble and no operator stopped or started the endpoint.
fn quiet_since(history: &History, endpoint: EndpointId, at: Timestamp) -> Timestamp {
    let faults = history.faults.iter().filter(|fault| near::is_of_node(fault.kind));
    let concerns = |deed| deed == Deed::Pause(endpoint) || deed == Deed::Resume(endpoint);
    let asked = history.operations.asked.iter().filter(|one| concerns(one.deed));
    // An answer may take its time, and what was asked for be done until then.
    let asked = asked.map(|one| (one.at, one.heard.unwrap_or(one.at)));
    let all = faults.map(|fault| (fault.at, fault.at)).chain(asked);
    let felt = all.filter(|(from, _)| *from <= at).map(|(_, until)| until.plus(near::AFTERMATH));
    felt.max().unwrap_or(Timestamp::MIN)
}

/// Every wait that ended in an attempt, of endpoints that are sent to in no order.
fn waits(remains: &Remains, history: &History) -> BTreeMap<EndpointId, Vec<Wait>> {
    let (mut open, resets) = (near::ready(remains, history), near::resets(history));
    let cancelled = near::cancelled(history);
    let records: BTreeMap<_, _> =
        remains.deliveries.iter().map(|record| (record.id, record)).collect();
    let mut waits: BTreeMap<EndpointId, Vec<Wait>> = BTreeMap::new();
    for change in history.changes.iter().filter(|change| change.applied) {
        let delivery = change.delivery;
        let Some(record) = records.get(&delivery) else { continue };
        // An operator takes a delivery out of its queue for a moment.
        let touched = resets.contains_key(&delivery) || cancelled.contains(&delivery);
        if touched || !is_sent_to(remains, history, record.endpoint) {
            continue;
        }
        if let (Some(ready), Some((_, started))) = (open.remove(&delivery), near::attempt(change)) {
            let wait = Wait { event: record.event, delivery, ready, started };
            waits.entry(record.endpoint).or_default().push(wait);
        }
        if let (State::Pending | State::Retrying, Some(due)) = (change.to, change.due) {
            open.insert(delivery, due.max(change.at));
        }
    }
    waits
}

fn is_sent_to(remains: &Remains, history: &History, endpoint: EndpointId) -> bool {
    let index = remains.endpoints.iter().position(|known| *known == endpoint);
    match index.and_then(|index| remains.scenario.endpoints.get(index)) {
        Some(plan) => plan.taker == Taker::Url && plan.ordering == Ordering::None,
        None => history.operations.neighbour(endpoint).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{self, attempt, fault, minute, record, submitted};
    use super::*;
    use crate::history::FaultKind;

    /// Two events for the first endpoint, ready at minute 60; their attempts begin at these seconds.
    fn world(older: u64, younger: u64, with: impl Fn(&mut History)) -> Vec<String> {
        let mut remains = made::remains(|history| {
            history.submitted = vec![submitted(1, minute(60)), submitted(2, minute(60))];
            let begun = |seconds| minute(60).plus(Duration::from_secs(seconds));
            history.changes = vec![
                attempt(1, 0, 1, begun(older), State::Delivered),
                attempt(2, 0, 1, begun(younger), State::Delivered),
            ];
            with(history);
        });
        remains.deliveries = vec![record(1, 0), record(2, 0)];
        check(&remains)
    }

    #[test]
    fn who_has_waited_and_is_older_is_not_overtaken() {
        assert_eq!(world(10, 20, |_| {}), [] as [&str; 0]);
        assert_eq!(world(40, 20, |_| {}).len(), 1);
        // Before it can have been read from the store it may be.
        assert_eq!(world(9, 8, |_| {}), [] as [&str; 0]);
    }

    #[test]
    fn a_retry_counts_by_its_event_too() {
        let retried = |history: &mut History| {
            let failed = attempt(1, 0, 1, minute(60), State::Retrying);
            history.changes.insert(0, made::due(failed, minute(60).plus(Duration::from_secs(5))));
            history.changes[1].attempt = Some((2, minute(60).plus(Duration::from_secs(90))));
        };
        assert_eq!(world(90, 30, retried).len(), 1);
        assert_eq!(world(90, 8, retried), [] as [&str; 0]);
    }

    /// As in worlds 547 and 783, where a node crashed between the two.
    #[test]
    fn so_does_one_that_dies_before_the_older_has_ended() {
        let crashed = |history: &mut History| history.faults = vec![fault(FaultKind::Crash, 61)];
        assert_eq!(world(90, 20, crashed), [] as [&str; 0]);
        assert_eq!(world(40, 20, crashed).len(), 1);
    }

    #[test]
    fn a_node_in_trouble_excuses_it() {
        let crashed = |history: &mut History| history.faults = vec![fault(FaultKind::Crash, 59)];
        assert_eq!(world(40, 20, crashed), [] as [&str; 0]);
    }
}
