//! Invariant 7, first half: an endpoint gets something twice only where a fault made that unavoidable:
//! whoever sent it the first time died, lost its right or its memory, or did not hear the answer.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::{DeliveryId, State, Timestamp};

use super::near;
use crate::history::{Arrival, FaultKind, History};
use crate::network::{LATEST_MS, Manner};
use crate::world::Remains;

/// What a message takes beyond its delay, and more.
const IN_PASSING: Duration = Duration::from_secs(1);

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let again = unexplained(remains, history);
        let without = again.iter().filter(|again| !again.is_disturbed(history));
        without
            .map(|again| {
                let Again { first, second } = again;
                format!(
                    "nothing comes twice without a fault: {} was taken at {} and at {}",
                    first.delivery, first.at, second.at
                )
            })
            .collect()
    })
}

/// Two times that a delivery was taken.
pub(super) struct Again<'a> {
    pub(super) first: &'a Arrival,
    pub(super) second: &'a Arrival,
}

impl Again<'_> {
    /// Whether anything at all befell any node shortly before or in between.
    pub(super) fn is_disturbed(&self, history: &History) -> bool {
        near::is_disturbed(history, self.first.at.minus(near::AFTERMATH), self.second.at)
    }
}

/// What was taken twice and for which no fault of the first sender is to blame.
pub(super) fn unexplained<'a>(remains: &Remains, history: &'a History) -> Vec<Again<'a>> {
    if remains.scenario.nodes > 1 && !near::is_steady(remains) {
        // A node that cannot reach the store for long enough loses its right, and nobody writes down
        // when.
        return Vec::new();
    }
    let resets = near::resets(history);
    let mut last: BTreeMap<DeliveryId, &Arrival> = BTreeMap::new();
    let mut found = Vec::new();
    for arrival in history.arrivals.iter().filter(|arrival| is_taken(arrival)) {
        let Some(first) = last.insert(arrival.delivery, arrival) else { continue };
        let again = Again { first, second: arrival };
        // What an operator gives another life may have been taken in its last one.
        let explained = is_explained(remains, history, first, arrival.at);
        if !explained && !resets.contains_key(&arrival.delivery) {
            found.push(again);
        }
    }
    found
}

/// Not what the network alone made of another one.
pub(super) fn is_taken(arrival: &Arrival) -> bool {
    !arrival.copied && arrival.status.is_some_and(|status| (200..300).contains(&status))
}

/// Whether whoever sent what was taken may not have known that it was, by a certain time.
pub(super) fn is_explained(
    remains: &Remains,
    history: &History,
    first: &Arrival,
    until: Timestamp,
) -> bool {
    let felt_from = first.at.minus(near::AFTERMATH);
    // What it sent before may arrive after its end. Once that is over, an end that is past is no excuse.
    let alive_from = first.at.minus(Duration::from_millis(LATEST_MS)).minus(IN_PASSING);
    let to_blame = history.faults.iter().any(|fault| {
        fault.node == first.node
            && match fault.kind {
                FaultKind::Crash | FaultKind::Restart => {
                    alive_from <= fault.at && fault.at <= until
                }
                FaultKind::Pause | FaultKind::Unheard | FaultKind::DiskFull | FaultKind::CutOff => {
                    felt_from <= fault.at && fault.at <= until
                }
                FaultKind::LostAnswer | FaultKind::LateAnswer | FaultKind::LostLine => {
                    first.at <= fault.at && fault.at <= until
                }
                FaultKind::ClockJump
                | FaultKind::LostRequest
                | FaultKind::Duplicated
                | FaultKind::Partition => false,
            }
    });
    to_blame || is_too_late(remains, history, first)
}

/// Whether a slow endpoint's answer came when nobody waited for it any more: its sender counted the
/// attempt as failed.
fn is_too_late(remains: &Remains, history: &History, first: &Arrival) -> bool {
    let plan = remains.scenario.endpoints.get(first.endpoint);
    let slow = plan.is_some_and(|plan| plan.manner == Manner::Slow);
    slow && history.changes.iter().any(|change| {
        change.delivery == first.delivery
            && change.attempt.is_some_and(|(number, _)| number == first.attempt)
            && change.to != State::Delivered
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::{self, arrival, fault, minute};
    use super::*;

    #[test]
    fn what_comes_twice_needs_a_fault_of_its_sender() {
        let cases: [(&[FaultKind], bool); 4] = [
            (&[], true),
            (&[FaultKind::Crash], false),
            (&[FaultKind::LostAnswer], false),
            (&[FaultKind::LostRequest], true),
        ];
        for (kinds, complains) in cases {
            let remains = made::remains(|history| {
                history.arrivals = vec![arrival(1, 0, minute(60)), arrival(1, 0, minute(62))];
                history.faults = kinds.iter().map(|kind| fault(*kind, 61)).collect();
            });
            assert_eq!(!check(&remains).is_empty(), complains, "{kinds:?}");
        }
    }

    #[test]
    fn what_was_refused_may_come_again() {
        let remains = made::remains(|history| {
            let refused = Arrival { status: Some(503), ..arrival(1, 0, minute(60)) };
            history.arrivals = vec![refused, arrival(1, 0, minute(62))];
        });
        assert_eq!(check(&remains), [] as [&str; 0]);
    }

    #[test]
    fn what_the_network_doubles_was_sent_once() {
        let remains = made::remains(|history| {
            let copy = Arrival { copied: true, ..arrival(1, 0, minute(62)) };
            history.arrivals = vec![arrival(1, 0, minute(60)), copy];
        });
        assert_eq!(check(&remains), [] as [&str; 0]);
    }

    #[test]
    fn who_asks_for_it_gets_it_again() {
        let remains = made::remains(|history| {
            history.arrivals = vec![arrival(1, 0, minute(60)), arrival(1, 0, minute(62))];
            history.changes = vec![made::reset(1, 0, minute(61))];
        });
        assert_eq!(check(&remains), [] as [&str; 0]);
    }
}
