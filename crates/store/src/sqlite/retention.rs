//! Removing what is past its time, a bounded piece at a time.

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, EndpointId, EventId, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use super::batch::Batch;
use super::rows;
use crate::error::Error;
use crate::journal::{Cutoffs, RetentionStep};
use crate::stored::code;

/// A step removes no further events once their bodies come to this: large ones take many pages,
/// and the writer has others to serve.
const MAX_BYTES_PER_STEP: i64 = 16 << 20;

pub(crate) fn sweep(
    batch: &mut Batch<'_>,
    cutoffs: &Cutoffs,
    after: EventId,
    limit: usize,
) -> Result<RetentionStep, Error> {
    let limit = limit.max(1);
    let deliveries = walk_deliveries(batch.conn, cutoffs, after, limit)?;
    for expired in &deliveries.expired {
        remove(batch, expired)?;
    }
    let events = walk_events(batch, cutoffs, after, &deliveries, limit)?;
    if !deliveries.expired.is_empty() {
        batch.conn.prepare_cached("DELETE FROM delivery_counts WHERE n = 0")?.execute(())?;
    }
    Ok(RetentionStep {
        deliveries_removed: deliveries.expired.len() as u64,
        events_removed: events.removed,
        next: events.stopped_at.or(deliveries.stopped_at),
    })
}

/// A delivery that goes.
pub(crate) struct Expired {
    pub(crate) id: DeliveryId,
    pub(crate) event: EventId,
    pub(crate) endpoint: EndpointId,
    pub(crate) state: State,
    pub(crate) replay: bool,
}

/// Removes a delivery that has ended, and its attempts.
pub(crate) fn remove(batch: &mut Batch<'_>, expired: &Expired) -> Result<(), Error> {
    let id = expired.id.as_i64();
    batch.conn.prepare_cached("DELETE FROM attempts WHERE delivery_id = ?1")?.execute((id,))?;
    batch.conn.prepare_cached("DELETE FROM deliveries WHERE id = ?1")?.execute((id,))?;
    batch.count(expired.endpoint, expired.state, -1, expired.id);
    Ok(())
}

struct WalkedDeliveries {
    expired: Vec<Expired>,
    /// The last id that was looked at, or could have been.
    end: i64,
    stopped_at: Option<EventId>,
}

fn walk_deliveries(
    conn: &Connection,
    cutoffs: &Cutoffs,
    after: EventId,
    limit: usize,
) -> Result<WalkedDeliveries, Error> {
    const SQL: &str = "SELECT id, event_id, endpoint_id, state, replay, at, last_attempt_at \
         FROM deliveries WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3";
    // Nothing ends before it is made: what is younger than every cutoff cannot be past any.
    let newest = cutoffs.delivered.max(cutoffs.failed).max(cutoffs.dead).max(cutoffs.events);
    let bound = DeliveryId::floor(newest).as_i64();
    let mut statement = conn.prepare_cached(SQL)?;
    let mut found = statement.query((after.as_i64(), bound, code::size(limit)))?;
    let mut walked = WalkedDeliveries { expired: Vec::new(), end: bound - 1, stopped_at: None };
    let mut seen = 0;
    while let Some(row) = found.next()? {
        if let Some(expired) = examine(conn, row, cutoffs)? {
            walked.expired.push(expired);
        }
        seen += 1;
        if seen == limit {
            walked.end = row.get(0)?;
            walked.stopped_at = Some(EventId::from_i64(walked.end));
        }
    }
    Ok(walked)
}

fn examine(conn: &Connection, row: &Row<'_>, cutoffs: &Cutoffs) -> Result<Option<Expired>, Error> {
    let event = EventId::from_i64(row.get(1)?);
    let state = code::decode_state(row.get(3)?)?;
    let at = rows::time(row, 5)?;
    let gone = match state {
        State::Pending | State::InFlight | State::Retrying => false,
        State::Delivered | State::Cancelled => at < cutoffs.delivered,
        State::Failed => rows::optional_time(row, 6)?.unwrap_or(at) < cutoffs.failed,
        State::Dead => received_at(conn, event)?.is_none_or(|at| at < cutoffs.dead),
    };
    if !gone {
        return Ok(None);
    }
    Ok(Some(Expired {
        id: DeliveryId::from_i64(row.get(0)?),
        event,
        endpoint: EndpointId::from_i64(row.get(2)?),
        state,
        replay: row.get(4)?,
    }))
}

fn received_at(conn: &Connection, event: EventId) -> Result<Option<Timestamp>, Error> {
    let at = conn
        .prepare_cached("SELECT received_at FROM events WHERE id = ?1")?
        .query_row((event.as_i64(),), |row| row.get(0))
        .optional()?;
    Ok(at.map(Timestamp::from_millis))
}

#[derive(Default)]
struct WalkedEvents {
    removed: u64,
    bytes: i64,
    stopped_at: Option<EventId>,
}

/// Removes events of the walked range that no delivery is left of: those in the range, the one
/// whose deliveries the range began with, and those whose replays went.
fn walk_events(
    batch: &mut Batch<'_>,
    cutoffs: &Cutoffs,
    after: EventId,
    deliveries: &WalkedDeliveries,
    limit: usize,
) -> Result<WalkedEvents, Error> {
    const BEFORE: &str = "SELECT max(id) FROM events WHERE id <= ?1";
    const IN_RANGE: &str = "SELECT id FROM events WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3";
    let mut walked = WalkedEvents::default();
    let straddling: Option<i64> =
        batch.conn.prepare_cached(BEFORE)?.query_row((after.as_i64(),), |row| row.get(0))?;
    let replayed = deliveries.expired.iter().filter(|expired| expired.replay);
    for id in straddling.into_iter().chain(replayed.map(|expired| expired.event.as_i64())) {
        remove_event(batch, cutoffs, EventId::from_i64(id), &mut walked)?;
    }
    let in_range: Vec<i64> = batch
        .conn
        .prepare_cached(IN_RANGE)?
        .query_map((after.as_i64(), deliveries.end, code::size(limit)), |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let full = in_range.len() == limit;
    let last = in_range.last().copied();
    for id in in_range {
        remove_event(batch, cutoffs, EventId::from_i64(id), &mut walked)?;
        if walked.bytes > MAX_BYTES_PER_STEP || (full && Some(id) == last) {
            walked.stopped_at = Some(EventId::from_i64(id));
            break;
        }
    }
    Ok(walked)
}

/// Removes an event if it is old enough and nothing refers to it.
fn remove_event(
    batch: &mut Batch<'_>,
    cutoffs: &Cutoffs,
    id: EventId,
    walked: &mut WalkedEvents,
) -> Result<(), Error> {
    const EVENT: &str =
        "SELECT tenant_id, deliveries, length(body) FROM events WHERE id = ?1 AND received_at < ?2";
    const ACCEPTED: &str = "SELECT 1 FROM deliveries WHERE id > ?1 AND id <= ?1 + ?2 LIMIT 1";
    const REPLAYED: &str = "SELECT 1 FROM deliveries INDEXED BY deliveries_replay \
         WHERE event_id = ?1 AND replay = 1 LIMIT 1";
    let found: Option<(i64, i64, i64)> = batch
        .conn
        .prepare_cached(EVENT)?
        .query_row((id.as_i64(), cutoffs.events.as_millis()), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((tenant, deliveries, bytes)) = found else { return Ok(()) };
    let kept = batch.conn.prepare_cached(ACCEPTED)?.exists((id.as_i64(), deliveries))?
        || batch.conn.prepare_cached(REPLAYED)?.exists((id.as_i64(),))?;
    if !kept {
        batch.conn.prepare_cached("DELETE FROM events WHERE id = ?1")?.execute((id.as_i64(),))?;
        batch.count_events(TenantId(tenant), -1);
        walked.removed += 1;
        walked.bytes += bytes;
    }
    Ok(())
}
