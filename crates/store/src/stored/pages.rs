//! Pages of lists: where they stand, and how much of them is shown.

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, Timestamp};

use crate::journal::MAX_PAGE;
use crate::ledger::{DeliveryFilter, DeliveryQuery, Direction, Listed, Position};
use crate::record::DeliveryRecord;

/// A page of deliveries that were all found.
pub(crate) fn page_of(
    mut found: Vec<DeliveryRecord>,
    query: &DeliveryQuery,
) -> Listed<DeliveryRecord> {
    found.sort_unstable_by_key(position);
    if query.direction == Direction::NewestFirst {
        found.reverse();
    }
    if let Some(after) = query.after {
        found.retain(|record| match query.direction {
            Direction::OldestFirst => position(record) > after,
            Direction::NewestFirst => position(record) < after,
        });
    }
    let limit = page_limit(query.limit);
    let next = if found.len() > limit { found.get(limit - 1).map(position) } else { None };
    found.truncate(limit);
    Listed { rows: found, next }
}

/// The query for the dead letters that `filter` selects; none, if it selects only other states.
pub(crate) fn dead_letters(mut filter: DeliveryFilter, limit: usize) -> Option<DeliveryQuery> {
    if filter.states.is_empty() {
        filter.states = vec![State::Failed, State::Dead];
    } else {
        filter.states.retain(|state| state.is_dead_letter());
    }
    if filter.states.is_empty() {
        return None;
    }
    Some(DeliveryQuery { filter, after: None, direction: Direction::OldestFirst, limit })
}

pub(crate) fn position(record: &DeliveryRecord) -> Position {
    Position { event: record.event, delivery: record.id }
}

pub(crate) const fn order(direction: Direction) -> &'static str {
    match direction {
        Direction::OldestFirst => "ASC",
        Direction::NewestFirst => "DESC",
    }
}

/// The ids between which a walk by key has to look, both excluded.
pub(crate) fn key_bounds(query: &DeliveryQuery) -> (i64, i64) {
    let floor = |time: Timestamp| DeliveryId::floor(time).as_i64();
    let low = query.filter.since.map_or(0, |since| floor(since) - 1);
    let high = query.filter.until.map_or(i64::MAX, floor);
    match (query.after, query.direction) {
        (None, Direction::OldestFirst | Direction::NewestFirst) => (low, high),
        (Some(after), Direction::OldestFirst) => (low.max(after.delivery.as_i64()), high),
        (Some(after), Direction::NewestFirst) => (low, high.min(after.delivery.as_i64())),
    }
}

pub(crate) fn page_limit(limit: usize) -> usize {
    limit.clamp(1, MAX_PAGE)
}
