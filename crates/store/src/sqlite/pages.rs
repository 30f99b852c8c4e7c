//! Finding what waits: what may be tried now, what is due next, and what is unfinished at all.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{DeliveryId, EndpointId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params};

use super::rows;
use crate::error::Error;
use crate::journal::{MAX_PAGE, Paged, Pages, Unfinished};
use crate::record::{Event, MAX_DELIVERIES_PER_EVENT, Waiting};
use crate::stored::code;
use crate::stored::hot::{HOT, Hot};

pub(crate) const READY: &str = "FROM deliveries INDEXED BY deliveries_ready \
     WHERE endpoint_id = ?1 AND place = 1 ORDER BY event_id, id LIMIT ?2";
pub(crate) const DUE: &str = "SELECT id FROM deliveries INDEXED BY deliveries_timed \
     WHERE endpoint_id = ?1 AND place = 2 AND at <= ?2 ORDER BY at LIMIT ?3";
pub(crate) const AFTER_NOW: &str = "SELECT id, at FROM deliveries INDEXED BY deliveries_timed \
     WHERE endpoint_id = ?1 AND place = 2 AND at > ?2 ORDER BY at LIMIT ?3";
pub(crate) const NEXT_DUE: &str = "SELECT min(at) FROM deliveries INDEXED BY deliveries_timed \
     WHERE endpoint_id = ?1 AND place = 2";

/// The answers are in the order of the endpoints.
pub(crate) fn pages(conn: &Connection, wanted: &Pages) -> Result<Vec<Paged>, Error> {
    let held: HashSet<DeliveryId> = wanted.held.iter().copied().collect();
    wanted.endpoints.iter().map(|endpoint| page(conn, wanted, *endpoint, &held)).collect()
}

fn page(
    conn: &Connection,
    wanted: &Pages,
    endpoint: EndpointId,
    held: &HashSet<DeliveryId>,
) -> Result<Paged, Error> {
    let limit = wanted.limit.min(MAX_PAGE);
    // One more than wanted tells whether there is more.
    let fetch = code::size(limit + held.len() + 1);
    let ready = take(conn, READY, (endpoint.as_i64(), fetch), held, limit)?;
    let due = take_due(conn, endpoint, wanted.now, held, limit)?;

    let mut found = ready.found;
    found.extend(due.found);
    found.sort_unstable_by_key(|hot| (hot.event, hot.id));
    let (waiting, cut) = load(conn, found, wanted.max_bytes)?;
    let next_due = next_after(conn, endpoint, wanted.now, held)?;
    Ok(Paged { waiting, more: ready.more || due.more || cut, next_due })
}

pub(crate) fn next_due(
    conn: &Connection,
    endpoint: EndpointId,
) -> Result<Option<Timestamp>, Error> {
    let earliest: Option<i64> =
        conn.prepare_cached(NEXT_DUE)?.query_row((endpoint.as_i64(),), |row| row.get(0))?;
    Ok(earliest.map(Timestamp::from_millis))
}

pub(crate) fn waiting(conn: &Connection, id: DeliveryId) -> Result<Option<Waiting>, Error> {
    let sql = format!("SELECT {HOT} FROM deliveries WHERE id = ?1 AND place IN (1, 2)");
    let found = conn
        .prepare_cached(&sql)?
        .query_row((id.as_i64(),), |row| Ok(rows::hot(row)))
        .optional()?
        .transpose()?;
    let Some(hot) = found else { return Ok(None) };
    let event = rows::load_event_of(conn, &hot)?;
    Ok(Some(hot.with(event)))
}

/// Nothing is born before it is made, so a bound on births is one on ids, up to the steps that a
/// clock may have been set back by.
const CLOCK_SLACK: Duration = Duration::from_hours(1);

/// Deliveries made when their event was accepted have ids close above the event's, so the order of
/// events is nearly theirs; the few made by a replay, and those not ready, have indexes of their own.
pub(crate) const UNFINISHED_READY: &str = "FROM deliveries INDEXED BY deliveries_ready \
     WHERE endpoint_id = ?1 AND place = 1 AND event_id >= ?6 AND replay = 0 \
     AND id > ?2 AND id < ?3 AND born < ?4 ORDER BY event_id, id LIMIT ?5";
pub(crate) const UNFINISHED_REPLAY: &str = "FROM deliveries INDEXED BY deliveries_replay_ready \
     WHERE endpoint_id = ?1 AND place = 1 AND replay = 1 \
     AND id > ?2 AND id < ?3 AND born < ?4 ORDER BY id LIMIT ?5";
pub(crate) const UNFINISHED_LATER: &str = "FROM deliveries INDEXED BY deliveries_later \
     WHERE endpoint_id = ?1 AND place > 1 \
     AND id > ?2 AND id < ?3 AND born < ?4 ORDER BY id LIMIT ?5";

pub(crate) fn unfinished(
    conn: &Connection,
    endpoint: EndpointId,
    after: DeliveryId,
    born_before: Option<Timestamp>,
    limit: usize,
) -> Result<Vec<Unfinished>, Error> {
    let (endpoint, after, limit) = (endpoint.as_i64(), after.as_i64(), limit.min(MAX_PAGE));
    let born = born_before.map_or(i64::MAX, Timestamp::as_millis);
    let end =
        born_before.map_or(i64::MAX, |before| DeliveryId::floor(before.plus(CLOCK_SLACK)).as_i64());
    let first_event = after.saturating_sub(code::size(MAX_DELIVERIES_PER_EVENT));
    let later = (endpoint, after, end, born, code::size(limit));
    let ready = (endpoint, after, end, born, code::size(limit), first_event);
    let none = HashSet::new();
    let mut found = take(conn, UNFINISHED_READY, ready, &none, limit)?.found;
    found.extend(take(conn, UNFINISHED_REPLAY, later, &none, limit)?.found);
    found.extend(take(conn, UNFINISHED_LATER, later, &none, limit)?.found);
    found.sort_unstable_by_key(|hot| hot.id);
    found.truncate(limit);
    Ok(found.iter().map(without_event).collect())
}

fn without_event(hot: &Hot) -> Unfinished {
    Unfinished {
        id: hot.id,
        tenant: hot.tenant,
        event: hot.event,
        delivery: hot.delivery,
        fence: hot.fence,
        in_line: hot.in_line,
    }
}

struct Taken {
    found: Vec<Hot>,
    more: bool,
}

/// Up to `limit` rows that are not held.
fn take(
    conn: &Connection,
    from: &str,
    params: impl Params,
    held: &HashSet<DeliveryId>,
    limit: usize,
) -> Result<Taken, Error> {
    let mut statement = conn.prepare_cached(&format!("SELECT {HOT} {from}"))?;
    let mut taken = Taken { found: Vec::new(), more: false };
    for hot in statement.query_and_then(params, rows::hot)? {
        let hot = hot?;
        if held.contains(&hot.id) {
            continue;
        }
        if taken.found.len() == limit {
            taken.more = true;
            break;
        }
        taken.found.push(hot);
    }
    Ok(taken)
}

/// Of those whose time came first, this many at least are put in the order of their events: what was
/// to be tried again goes by age, as everything does, and not by when its wait was over.
pub(crate) const DUE_SORTED: usize = 1_024;

/// Up to `limit` that are due and not held. Only the index is read of the rest.
fn take_due(
    conn: &Connection,
    endpoint: EndpointId,
    now: Timestamp,
    held: &HashSet<DeliveryId>,
    limit: usize,
) -> Result<Taken, Error> {
    let fetch = (limit + 1).max(DUE_SORTED) + held.len();
    let mut statement = conn.prepare_cached(DUE)?;
    let params = (endpoint.as_i64(), now.as_millis(), code::size(fetch));
    let mut ids = statement
        .query_and_then(params, |row| Ok(DeliveryId::from_i64(row.get(0)?)))?
        .filter(|id| !id.as_ref().is_ok_and(|id| held.contains(id)))
        .collect::<Result<Vec<DeliveryId>, Error>>()?;
    let more = ids.len() > limit;
    ids.sort_unstable();
    ids.truncate(limit);
    let sql = format!("SELECT {HOT} FROM deliveries WHERE id = ?1");
    let mut statement = conn.prepare_cached(&sql)?;
    let found =
        ids.into_iter().map(|id| statement.query_row((id.as_i64(),), |row| Ok(rows::hot(row)))?);
    Ok(Taken { found: found.collect::<Result<_, Error>>()?, more })
}

/// Adds the events, of which neighbours share one, until their bodies exceed `max_bytes`. The
/// second value says that some were left out.
pub(crate) fn load(
    conn: &Connection,
    found: Vec<Hot>,
    max_bytes: usize,
) -> Result<(Vec<Waiting>, bool), Error> {
    let mut waiting: Vec<Waiting> = Vec::with_capacity(found.len());
    let mut bytes = 0_usize;
    let mut last: Option<Arc<Event>> = None;
    for hot in found {
        let event = if let Some(event) = last.take().filter(|event| event.id == hot.event) {
            event
        } else {
            let event = rows::load_event_of(conn, &hot)?;
            bytes = bytes.saturating_add(event.body.len());
            if bytes > max_bytes && !waiting.is_empty() {
                return Ok((waiting, true));
            }
            event
        };
        last = Some(Arc::clone(&event));
        waiting.push(hot.with(event));
    }
    Ok((waiting, false))
}

/// When the first that is neither due nor held becomes due, whatever the type of its event: to look
/// again too early does no harm, and looking for the type would mean a walk.
pub(crate) fn next_after(
    conn: &Connection,
    endpoint: EndpointId,
    now: Timestamp,
    held: &HashSet<DeliveryId>,
) -> Result<Option<Timestamp>, Error> {
    let mut statement = conn.prepare_cached(AFTER_NOW)?;
    let params = (endpoint.as_i64(), now.as_millis(), code::size(held.len() + 1));
    let mut found = statement.query(params)?;
    while let Some(row) = found.next()? {
        if !held.contains(&DeliveryId::from_i64(row.get(0)?)) {
            return rows::time(row, 1).map(Some);
        }
    }
    Ok(None)
}
