//! Invariant 13: clock jumps, restarts and lanes that move to other nodes fire nothing twice and lose
//! nothing. What befalls one node, or its clock, is no reason to send again what was taken from another,
//! and none to forget that it was taken.

use std::collections::BTreeMap;

use postrider_core::DeliveryId;

use super::duplicates::{self, Again};
use super::near;
use crate::history::{Arrival, History};
use crate::world::Remains;

pub(super) fn check(remains: &Remains) -> Vec<String> {
    remains.chronicle.read(|history| {
        let again = duplicates::unexplained(remains, history);
        let around = again.iter().filter(|again| again.is_disturbed(history));
        let twice = around.map(|again| {
            let Again { first, second } = again;
            format!(
                "jumps, restarts and moves repeat nothing: {} was taken from node {} at {}, and from node {} at {}",
                first.delivery, first.node, first.at, second.node, second.at
            )
        });
        let lost = forgotten(remains, history).into_iter().map(|taken| {
            format!(
                "jumps, restarts and moves lose nothing: {} was taken from node {} at {}, and is a dead letter",
                taken.delivery, taken.node, taken.at
            )
        });
        twice.chain(lost).collect()
    })
}

/// What was taken, with nothing to keep its sender from knowing, and counts as failed.
fn forgotten<'a>(remains: &Remains, history: &'a History) -> Vec<&'a Arrival> {
    if remains.scenario.nodes > 1 && !near::is_steady(remains) {
        return Vec::new();
    }
    let resets = near::resets(history);
    let taken = history.arrivals.iter().filter(|arrival| duplicates::is_taken(arrival));
    let taken: BTreeMap<DeliveryId, &Arrival> =
        taken.map(|arrival| (arrival.delivery, arrival)).collect();
    let dead = remains.deliveries.iter().filter(|record| record.state.is_dead_letter());
    dead.filter(|record| !resets.contains_key(&record.id))
        .filter_map(|record| taken.get(&record.id).copied())
        .filter(|taken| {
            let until = taken.at.plus(near::AFTERMATH);
            !duplicates::is_explained(remains, history, taken, until)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use postrider_core::State;

    use super::super::made::{self, arrival, fault, in_state, minute, record};
    use super::*;
    use crate::history::{Fault, FaultKind};

    #[test]
    fn a_jump_of_the_clock_or_trouble_of_another_node_is_no_excuse() {
        let jumped = fault(FaultKind::ClockJump, 61);
        let crashed = fault(FaultKind::Crash, 61);
        let elsewhere = Fault { node: 1, ..crashed };
        let cases = [(None, false), (Some(jumped), true), (Some(elsewhere), true)];
        for (fault, complains) in cases.into_iter().chain([(Some(crashed), false)]) {
            let mut remains = made::remains(|history| {
                history.arrivals = vec![arrival(1, 0, minute(60)), arrival(1, 0, minute(62))];
                history.faults = fault.into_iter().collect();
            });
            remains.scenario.nodes = 2;
            assert_eq!(!check(&remains).is_empty(), complains, "{fault:?}");
        }
    }
    #[test]
    fn what_was_taken_is_no_dead_letter() {
        for (kind, complains) in [(FaultKind::ClockJump, true), (FaultKind::LostAnswer, false)] {
            let mut remains = made::remains(|history| {
                history.arrivals = vec![arrival(1, 0, minute(60))];
                history.faults = vec![fault(kind, 61)];
            });
            remains.deliveries = vec![in_state(record(1, 0), State::Dead)];
            assert_eq!(!check(&remains).is_empty(), complains, "{kind:?}");
        }
    }
}
