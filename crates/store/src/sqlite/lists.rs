//! Lists of deliveries and events, page by page. A page looks at a bounded number of rows.

use postrider_core::{DeliveryId, EndpointId, EventId, TenantId};
use rusqlite::{Connection, Row, ToSql};

use super::rows;
use crate::error::Error;
use crate::ledger::{
    DeliveryFilter, DeliveryQuery, Direction, EventQuery, Listed, MAX_SCAN, Position,
};
use crate::record::{DeliveryRecord, Event};
use crate::stored::code;
use crate::stored::pages::{key_bounds, order, page_limit, page_of};

/// Deliveries that match. What is asked for decides how they are found, and thereby their order.
pub(crate) fn deliveries(
    conn: &Connection,
    tenant: TenantId,
    query: &DeliveryQuery,
) -> Result<Listed<DeliveryRecord>, Error> {
    let filter = &query.filter;
    if let Some(ids) = &filter.ids {
        return by_ids(conn, tenant, query, ids);
    }
    if let Some(event) = filter.event {
        return by_event(conn, tenant, query, event);
    }
    if !filter.states.is_empty() && filter.states.iter().all(|state| state.is_dead_letter()) {
        return by_dead_letters(conn, tenant, query);
    }
    by_key(conn, tenant, query)
}

/// Events, newest first, without their bodies.
pub(crate) fn events(
    conn: &Connection,
    tenant: TenantId,
    query: &EventQuery,
) -> Result<Listed<Event>, Error> {
    let since = query.since.map_or(0, |time| EventId::floor(time).as_i64());
    let until = query.until.map_or(i64::MAX, |time| EventId::floor(time).as_i64());
    let before = query.before.map_or(until, |id| id.as_i64().min(until));
    let scan = Scan::new(query.limit);
    let take = |row: &Row<'_>, scan: &mut Scan<Event>| {
        let id = EventId::from_i64(row.get(0)?);
        let position = Position { event: id, delivery: DeliveryId::from_i64(id.as_i64()) };
        let matches = row.get::<_, i64>(1)? == tenant.0
            && match &query.kind {
                Some(kind) => row.get_ref(4)?.as_str_or_null()? == Some(kind),
                None => true,
            }
            && match query.source {
                Some(source) => row.get::<_, Option<i64>>(9)? == Some(source.as_i64()),
                None => true,
            };
        scan.see(position, matches, || rows::event(row, bytes::Bytes::new()))
    };
    if let Some(key) = &query.idempotency_key {
        return by_idempotency_key(conn, scan, tenant, key, (since, before), take);
    }
    let sql =
        format!("SELECT {} FROM events WHERE id >= ?1 AND id < ?2 ORDER BY id DESC", rows::EVENT);
    scan.run(conn, &sql, &[&since, &before], take)
}

/// A key can be a producer's, or have been found by any of the tenant's sources.
fn by_idempotency_key(
    conn: &Connection,
    scan: Scan<Event>,
    tenant: TenantId,
    key: &str,
    (since, before): (i64, i64),
    take: impl FnMut(&Row<'_>, &mut Scan<Event>) -> Result<Step, Error>,
) -> Result<Listed<Event>, Error> {
    let sql = format!(
        "SELECT {event} FROM (\
             SELECT * FROM events INDEXED BY events_key \
                 WHERE tenant_id = ?1 AND idempotency_key = ?2 AND source_id IS NULL \
             UNION ALL \
             SELECT * FROM events INDEXED BY events_source_key \
                 WHERE source_id IN (SELECT id FROM sources WHERE tenant_id = ?1) \
                     AND idempotency_key = ?2 AND source_id IS NOT NULL) \
         WHERE id >= ?3 AND id < ?4 ORDER BY id DESC",
        event = rows::EVENT
    );
    scan.run(conn, &sql, &[&tenant.0, &key, &since, &before], take)
}

/// The deliveries of an event: those made when it was accepted, whose ids follow its own, then
/// those made by replays.
pub(crate) const OF_EVENT: &str = "FROM deliveries WHERE id > ?1 AND id <= ?1 + \
     (SELECT deliveries FROM events WHERE id = ?1)";
pub(crate) const REPLAYS_OF_EVENT: &str =
    "FROM deliveries INDEXED BY deliveries_replay WHERE event_id = ?1 AND replay = 1";

fn by_event(
    conn: &Connection,
    tenant: TenantId,
    query: &DeliveryQuery,
    event: EventId,
) -> Result<Listed<DeliveryRecord>, Error> {
    let order = order(query.direction);
    let sql = format!(
        "SELECT {record} FROM (SELECT * {OF_EVENT} UNION ALL SELECT * {REPLAYS_OF_EVENT}) \
         WHERE id > ?2 AND id < ?3 ORDER BY id {order}",
        record = rows::RECORD
    );
    let (low, high) = key_bounds(query);
    let scan = Scan::new(query.limit);
    scan.run(conn, &sql, &[&event.as_i64(), &low, &high], |row, scan| {
        see_delivery(conn, row, tenant, &query.filter, scan)
    })
}

pub(crate) fn dead_letters_sql(direction: Direction) -> String {
    let (beyond, order) = match direction {
        Direction::OldestFirst => (">", "ASC"),
        Direction::NewestFirst => ("<", "DESC"),
    };
    format!(
        "SELECT {record} FROM deliveries INDEXED BY deliveries_dead \
         WHERE tenant_id = ?1 AND state IN (3, 4) AND (event_id, id) {beyond} (?2, ?3) \
         ORDER BY event_id {order}, id {order}",
        record = rows::RECORD
    )
}

fn by_dead_letters(
    conn: &Connection,
    tenant: TenantId,
    query: &DeliveryQuery,
) -> Result<Listed<DeliveryRecord>, Error> {
    let start = match query.direction {
        Direction::OldestFirst => i64::MIN,
        Direction::NewestFirst => i64::MAX,
    };
    let (event, delivery) =
        query.after.map_or((start, start), |at| (at.event.as_i64(), at.delivery.as_i64()));
    let sql = dead_letters_sql(query.direction);
    let scan = Scan::new(query.limit);
    scan.run(conn, &sql, &[&tenant.0, &event, &delivery], |row, scan| {
        see_delivery(conn, row, tenant, &query.filter, scan)
    })
}

fn by_key(
    conn: &Connection,
    tenant: TenantId,
    query: &DeliveryQuery,
) -> Result<Listed<DeliveryRecord>, Error> {
    let sql = format!(
        "SELECT {} FROM deliveries WHERE id > ?1 AND id < ?2 ORDER BY id {}",
        rows::RECORD,
        order(query.direction)
    );
    let (low, high) = key_bounds(query);
    let scan = Scan::new(query.limit);
    scan.run(conn, &sql, &[&low, &high], |row, scan| {
        see_delivery(conn, row, tenant, &query.filter, scan)
    })
}

fn by_ids(
    conn: &Connection,
    tenant: TenantId,
    query: &DeliveryQuery,
    ids: &[DeliveryId],
) -> Result<Listed<DeliveryRecord>, Error> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let mut found = Vec::new();
    let sql = format!("SELECT {} FROM deliveries WHERE id = ?1", rows::RECORD);
    let mut statement = conn.prepare_cached(&sql)?;
    for id in ids {
        let mut rows = statement.query((id.as_i64(),))?;
        if let Some(row) = rows.next()?
            && matches(conn, row, tenant, &query.filter)?
        {
            found.push(rows::record(row)?);
        }
    }
    Ok(page_of(found, query))
}

fn see_delivery(
    conn: &Connection,
    row: &Row<'_>,
    tenant: TenantId,
    filter: &DeliveryFilter,
    scan: &mut Scan<DeliveryRecord>,
) -> Result<Step, Error> {
    let position = Position {
        event: EventId::from_i64(row.get(2)?),
        delivery: DeliveryId::from_i64(row.get(0)?),
    };
    let matches = matches(conn, row, tenant, filter)?;
    scan.see(position, matches, || rows::record(row))
}

const KIND_OF_EVENT: &str = "SELECT kind FROM events WHERE id = ?1";

/// Whether a row with the columns of [`rows::RECORD`] is one that is asked for.
fn matches(
    conn: &Connection,
    row: &Row<'_>,
    tenant: TenantId,
    filter: &DeliveryFilter,
) -> Result<bool, Error> {
    let is = |column: usize, wanted: Option<i64>| -> Result<bool, Error> {
        Ok(wanted.is_none() || row.get::<_, Option<i64>>(column)? == wanted)
    };
    let id: i64 = row.get(0)?;
    let state = code::decode_state(row.get(4)?)?;
    Ok(is(1, Some(tenant.0))?
        && is(2, filter.event.map(EventId::as_i64))?
        && is(3, filter.endpoint.map(EndpointId::as_i64))?
        && is(13, filter.reason.map(code::reason))?
        && is(14, filter.class.map(code::class))?
        && (filter.states.is_empty() || filter.states.contains(&state))
        && filter.since.is_none_or(|since| id >= DeliveryId::floor(since).as_i64())
        && filter.until.is_none_or(|until| id < DeliveryId::floor(until).as_i64())
        && match &filter.kind {
            Some(kind) => is_of_kind(conn, row.get(2)?, kind)?,
            None => true,
        })
}

fn is_of_kind(conn: &Connection, event: i64, kind: &str) -> Result<bool, Error> {
    let mut statement = conn.prepare_cached(KIND_OF_EVENT)?;
    let mut found = statement.query((event,))?;
    match found.next()? {
        Some(row) => Ok(row.get_ref(0)?.as_str_or_null()? == Some(kind)),
        None => Ok(false),
    }
}

/// A walk over rows in a settled order that stops when a page is full or enough has been seen.
struct Scan<T> {
    limit: usize,
    seen: usize,
    rows: Vec<T>,
    /// Of the last row that was taken or passed over.
    last: Option<Position>,
}

enum Step {
    On,
    /// The page is full, and there is another row for the next one.
    Full,
}

impl<T> Scan<T> {
    fn new(limit: usize) -> Self {
        Self { limit: page_limit(limit), seen: 0, rows: Vec::new(), last: None }
    }

    fn see(
        &mut self,
        position: Position,
        matches: bool,
        decode: impl FnOnce() -> Result<T, Error>,
    ) -> Result<Step, Error> {
        if matches && self.rows.len() == self.limit {
            return Ok(Step::Full);
        }
        self.seen += 1;
        self.last = Some(position);
        if matches {
            self.rows.push(decode()?);
        }
        Ok(Step::On)
    }

    fn run(
        mut self,
        conn: &Connection,
        sql: &str,
        params: &[&dyn ToSql],
        mut take: impl FnMut(&Row<'_>, &mut Self) -> Result<Step, Error>,
    ) -> Result<Listed<T>, Error> {
        let mut statement = conn.prepare_cached(sql)?;
        let mut found = statement.query(params)?;
        while let Some(row) = found.next()? {
            match take(row, &mut self)? {
                Step::Full => return Ok(Listed { rows: self.rows, next: self.last }),
                Step::On if self.seen == MAX_SCAN => {
                    return Ok(Listed { rows: self.rows, next: self.last });
                }
                Step::On => {}
            }
        }
        Ok(Listed { rows: self.rows, next: None })
    }
}
