//! What has to be known of a history to judge it fairly: whether a fault is near, and whether an operator
//! had a hand in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_core::{DeliveryId, EventId, State, Timestamp};

use crate::history::{Change, FaultKind, History};
use crate::network::Mishaps;
use crate::scenario::Scenario;
use crate::world::Remains;

/// How long a fault is felt: it lasts, a process is started again, leases run out, lanes move.
pub(super) const AFTERMATH: Duration = Duration::from_mins(4);

/// From when on, `from` or later, nothing that befell a node was felt for at least so long. Faults come in
/// the order of their times.
pub(super) fn quiet_from(history: &History, from: Timestamp, for_long: Duration) -> Timestamp {
    let mut quiet = from;
    for fault in history.faults.iter().filter(|fault| is_of_node(fault.kind)) {
        let felt_until = fault.at.plus(AFTERMATH);
        if fault.at <= quiet.plus(for_long) && felt_until > quiet {
            quiet = felt_until;
        }
    }
    quiet
}

/// Whether there is nothing of what can befall any operation of the store, or any word between nodes, and
/// of which nobody writes down when it did.
pub(super) fn is_steady(remains: &Remains) -> bool {
    let Scenario { nodes, frailty, mishaps, .. } = &remains.scenario;
    let unheard_of = *nodes > 1 && *mishaps != Mishaps::default();
    frailty.refused == 0 && frailty.slow == 0 && !unheard_of
}

/// Whether anything befell a node between two moments.
pub(super) fn is_disturbed(history: &History, from: Timestamp, until: Timestamp) -> bool {
    let between = |at: Timestamp| from <= at && at <= until;
    history.faults.iter().any(|fault| is_of_node(fault.kind) && between(fault.at))
}

/// Whether a fault concerns a whole node, and not one request alone.
pub(super) fn is_of_node(kind: FaultKind) -> bool {
    match kind {
        FaultKind::Crash
        | FaultKind::Restart
        | FaultKind::Pause
        | FaultKind::ClockJump
        | FaultKind::Unheard
        | FaultKind::DiskFull
        | FaultKind::CutOff
        | FaultKind::Partition => true,
        FaultKind::LostRequest
        | FaultKind::LostAnswer
        | FaultKind::LateAnswer
        | FaultKind::Duplicated
        | FaultKind::LostLine => false,
    }
}

/// The number of the attempt that led to a change, and when it began at the latest: a node whose clock was
/// ahead believes that it began later than it did.
pub(super) fn attempt(change: &Change) -> Option<(u32, Timestamp)> {
    change.attempt.map(|(number, started)| (number, started.min(change.at)))
}

/// The deliveries that an operator, or a replay, gave another life, and how often.
pub(super) fn resets(history: &History) -> BTreeMap<DeliveryId, usize> {
    let mut resets = BTreeMap::new();
    for change in history.changes.iter().filter(|change| change.applied && is_reset(change)) {
        *resets.entry(change.delivery).or_insert(0) += 1;
    }
    resets
}

/// Whether a change gave a delivery another life.
pub(super) fn is_reset(change: &Change) -> bool {
    // What a worker or a hub gives back untried comes from being in flight.
    let untried = change.attempt.is_none() && change.from != State::InFlight;
    untried && change.to == State::Pending
}

/// The deliveries that an operator has cancelled.
pub(super) fn cancelled(history: &History) -> BTreeSet<DeliveryId> {
    let changes = history.changes.iter().filter(|change| change.applied);
    changes.filter(|change| change.to == State::Cancelled).map(|change| change.delivery).collect()
}

/// When the deliveries of events that were acknowledged could first go. Whoever stored an event with a
/// clock that was ahead made it for later.
pub(super) fn ready(remains: &Remains, history: &History) -> BTreeMap<DeliveryId, Timestamp> {
    let told = history.submitted.iter().filter_map(|submitted| {
        let (event, at) = submitted.acknowledged?;
        Some((event, submitted.deliver_at.map_or(at, |later| later.max(at))))
    });
    let told: BTreeMap<EventId, Timestamp> = told.collect();
    let records = remains.deliveries.iter();
    records
        .filter_map(|record| {
            let at = *told.get(&record.event)?;
            Some((record.id, at.max(record.born)))
        })
        .collect()
}
