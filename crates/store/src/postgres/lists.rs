//! Lists of deliveries and events, page by page. A page looks at a bounded number of rows.

use std::sync::LazyLock;

use postrider_core::{DeliveryId, EndpointId, EventId, SourceId, TenantId, Timestamp};
use tokio_postgres::Row;

use super::history;
use super::rows::{self, Body};
use super::session::{Param, Session};
use super::text::Text;
use crate::error::Error;
use crate::ledger::{
    DeliveryFilter, DeliveryQuery, Direction, EventQuery, Listed, MAX_SCAN, Position,
};
use crate::record::{DeliveryRecord, Event};
use crate::stored::code;
use crate::stored::pages::{key_bounds, order, page_limit, page_of, position};

/// Deliveries that match. What is asked for decides how they are found, and thereby their order.
pub(crate) async fn deliveries(
    session: &Session,
    tenant: TenantId,
    query: &DeliveryQuery,
) -> Result<Listed<DeliveryRecord>, Error> {
    let filter = &query.filter;
    if let Some(ids) = &filter.ids {
        return by_ids(session, tenant, query, ids).await;
    }
    if let Some(event) = filter.event {
        return by_event(session, tenant, query, event).await;
    }
    if !filter.states.is_empty() && filter.states.iter().all(|state| state.is_dead_letter()) {
        return by_dead_letters(session, tenant, query).await;
    }
    by_key(session, tenant, query).await
}

/// Events, newest first, without their bodies.
pub(crate) async fn events(
    session: &Session,
    tenant: TenantId,
    query: &EventQuery,
) -> Result<Listed<Event>, Error> {
    let since = query.since.map_or(0, |time| EventId::floor(time).as_i64());
    let until = query.until.map_or(i64::MAX, |time| EventId::floor(time).as_i64());
    let before = query.before.map_or(until, |id| id.as_i64().min(until));
    let kind = query.kind.as_deref().map(Text);
    let source = query.source.map(SourceId::as_i64);
    let key = query.idempotency_key.as_deref().map(Text);
    let limit = page_limit(query.limit);
    let mut params: Vec<Param<'_>> = vec![&since, &before, &tenant.0, &kind, &source];
    // A key can be a producer's, or have been found by any of the tenant's sources.
    let among = if key.is_some() {
        params.push(&key);
        "e.id IN (SELECT i.event_id FROM idempotency i WHERE i.key = $6 AND i.scope IN \
             (SELECT -$3::int8 UNION ALL SELECT s.id FROM sources s WHERE s.tenant_id = $3)) AND"
    } else {
        ""
    };
    let scanned = format!(
        "SELECT {} FROM events e WHERE {among} e.id >= $1 AND e.id < $2 ORDER BY e.id DESC \
         LIMIT {MAX_SCAN}",
        rows::EVENT
    );
    let sql = seen(
        &scanned,
        "tenant_id = $3 AND ($4::text IS NULL OR kind = $4) \
         AND ($5::int8 IS NULL OR source_id = $5)",
        limit,
    );
    let found = session.rows(&sql, &params).await?;
    read(&found, limit, |row| {
        let event = rows::event_at(row, 0, Body::LeftOut)?;
        let delivery = DeliveryId::from_i64(event.id.as_i64());
        Ok((Position { event: event.id, delivery }, event))
    })
}

async fn by_event(
    session: &Session,
    tenant: TenantId,
    query: &DeliveryQuery,
    event: EventId,
) -> Result<Listed<DeliveryRecord>, Error> {
    let (low, high) = key_bounds(query);
    let scanned = format!(
        "SELECT * FROM {} d WHERE id > $2 AND id < $3 ORDER BY id {} LIMIT {MAX_SCAN}",
        history::of_event(rows::RECORD),
        order(query.direction)
    );
    scan(session, tenant, query, &scanned, &[&event.as_i64(), &low, &high]).await
}

async fn by_dead_letters(
    session: &Session,
    tenant: TenantId,
    query: &DeliveryQuery,
) -> Result<Listed<DeliveryRecord>, Error> {
    let (beyond, start) = match query.direction {
        Direction::OldestFirst => (">", i64::MIN),
        Direction::NewestFirst => ("<", i64::MAX),
    };
    let (event, delivery) =
        query.after.map_or((start, start), |at| (at.event.as_i64(), at.delivery.as_i64()));
    let order = order(query.direction);
    // What has ended has no place.
    let record = rows::RECORD.replace(" place,", " NULL::int2 AS place,");
    let scanned = format!(
        "SELECT {record} FROM finished WHERE tenant_id = $1 AND state IN (3, 4) \
         AND (event_id, id) {beyond} ($2, $3) ORDER BY event_id {order}, id {order} \
         LIMIT {MAX_SCAN}"
    );
    scan(session, tenant, query, &scanned, &[&tenant.0, &event, &delivery]).await
}

async fn by_key(
    session: &Session,
    tenant: TenantId,
    query: &DeliveryQuery,
) -> Result<Listed<DeliveryRecord>, Error> {
    let (low, high) = key_bounds(query);
    let scanned = format!(
        "SELECT {} FROM deliveries WHERE id > $1 AND id < $2 AND $3::int8 IS NOT NULL \
         ORDER BY id {} LIMIT {MAX_SCAN}",
        rows::RECORD,
        order(query.direction)
    );
    scan(session, tenant, query, &scanned, &[&low, &high, &tenant.0]).await
}

async fn by_ids(
    session: &Session,
    tenant: TenantId,
    query: &DeliveryQuery,
    ids: &[DeliveryId],
) -> Result<Listed<DeliveryRecord>, Error> {
    let mut ids: Vec<i64> = ids.iter().map(|id| id.as_i64()).collect();
    ids.sort_unstable();
    ids.dedup();
    let sql = format!(
        "SELECT {} FROM unnest($1::int8[]) w (wanted) CROSS JOIN LATERAL \
         (SELECT * FROM deliveries WHERE id = wanted OFFSET 0) d \
         WHERE $2::text IS NULL OR {}",
        rows::RECORD,
        of_kind(2)
    );
    let kind = query.filter.kind.as_deref().map(Text);
    let found = session
        .rows(&sql, &[&ids, &kind])
        .await?
        .iter()
        .map(rows::record)
        .filter(|record| record.as_ref().map_or(true, |record| matches(record, tenant, query)))
        .collect::<Result<Vec<_>, Error>>()?;
    Ok(page_of(found, query))
}

/// Whether a delivery is one that is asked for.
fn matches(record: &DeliveryRecord, tenant: TenantId, query: &DeliveryQuery) -> bool {
    // The type of its event was looked at by the server.
    let DeliveryFilter { states, ids: _, endpoint, event, kind: _, class, reason, since, until } =
        &query.filter;
    record.tenant == tenant
        && event.is_none_or(|event| record.event == event)
        && endpoint.is_none_or(|endpoint| record.endpoint == endpoint)
        && reason.is_none_or(|reason| record.reason == Some(reason))
        && class.is_none_or(|class| record.class == Some(class))
        && (states.is_empty() || states.contains(&record.state))
        && since.is_none_or(|since| record.id >= DeliveryId::floor(since))
        && until.is_none_or(|until| record.id < DeliveryId::floor(until))
}

/// The same, said to the server of rows with the columns of [`rows::RECORD`]. `scanned` has three
/// parameters; these follow them.
static MATCHES: LazyLock<String> =
    LazyLock::new(|| format!("{PLAINLY} AND ($12::text IS NULL OR {})", of_kind(12)));

/// The event of a row is of the type that a parameter says.
fn of_kind(parameter: u8) -> String {
    format!("EXISTS (SELECT 1 FROM events e WHERE e.id = event_id AND e.kind = ${parameter})")
}

/// What a row says itself.
const PLAINLY: &str = "tenant_id = $4 AND ($5::int2[] IS NULL OR state = ANY ($5)) \
     AND ($6::int8 IS NULL OR endpoint_id = $6) AND ($7::int8 IS NULL OR event_id = $7) \
     AND ($8::int2 IS NULL OR class = $8) AND ($9::int2 IS NULL OR reason = $9) \
     AND ($10::int8 IS NULL OR id >= $10) AND ($11::int8 IS NULL OR id < $11)";

async fn scan(
    session: &Session,
    tenant: TenantId,
    query: &DeliveryQuery,
    scanned: &str,
    bounds: &[Param<'_>; 3],
) -> Result<Listed<DeliveryRecord>, Error> {
    let filter = &query.filter;
    let codes = filter.states.iter().map(|state| rows::as_small(code::state(*state)));
    let states: Option<Vec<i16>> = (!filter.states.is_empty()).then(|| codes.collect());
    let endpoint = filter.endpoint.map(EndpointId::as_i64);
    let event = filter.event.map(EventId::as_i64);
    let class = filter.class.map(|class| rows::as_small(code::class(class)));
    let reason = filter.reason.map(|reason| rows::as_small(code::reason(reason)));
    let floor = |time: Timestamp| DeliveryId::floor(time).as_i64();
    let (since, until) = (filter.since.map(floor), filter.until.map(floor));
    let mut params: Vec<Param<'_>> = bounds.to_vec();
    params.extend([&tenant.0 as Param<'_>, &states, &endpoint, &event]);
    params.extend([&class as Param<'_>, &reason, &since, &until]);
    let kind = filter.kind.as_deref().map(Text);
    params.push(&kind);
    let limit = page_limit(query.limit);
    let found = session.rows(&seen(scanned, &MATCHES, limit), &params).await?;
    read(&found, limit, |row| {
        let record = rows::record(row)?;
        Ok((position(&record), record))
    })
}

/// Of the rows of `scanned`, which are [`MAX_SCAN`] at most and in a settled order, those that match,
/// up to one more than are wanted; and the last one, matching or not, if there may be more beyond.
/// The two columns at the end tell which is which.
fn seen(scanned: &str, matches: &str, limit: usize) -> String {
    format!(
        "SELECT * FROM (SELECT *, ({matches}) IS TRUE AS fits, \
             row_number() OVER () = {MAX_SCAN} AS ends FROM ({scanned}) scanned) seen \
         WHERE fits OR ends LIMIT {}",
        limit + 2
    )
}

/// Makes a page of the rows of [`seen`].
fn read<T>(
    found: &[Row],
    limit: usize,
    decode: impl Fn(&Row) -> Result<(Position, T), Error>,
) -> Result<Listed<T>, Error> {
    let mut listed = Listed { rows: Vec::new(), next: None };
    let mut last = None;
    for row in found {
        let columns = row.len();
        let (fits, ends): (bool, bool) =
            (rows::get(row, columns - 2)?, rows::get(row, columns - 1)?);
        let (position, decoded) = decode(row)?;
        if fits && listed.rows.len() == limit {
            // There is another for the next page.
            listed.next = last;
            return Ok(listed);
        }
        if fits {
            listed.rows.push(decoded);
        }
        last = Some(position);
        if ends {
            listed.next = last;
        }
    }
    Ok(listed)
}
