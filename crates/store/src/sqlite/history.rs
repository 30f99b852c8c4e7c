//! Single questions about history: one event, one delivery, its attempts, the counts.

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, EndpointId, EventId, TenantId};
use rusqlite::{Connection, OptionalExtension};

use super::batch::Batch;
use super::lists::{OF_EVENT, REPLAYS_OF_EVENT};
use super::retention::{self, Expired};
use super::rows;
use crate::error::Error;
use crate::ledger::{Count, MAX_ATTEMPTS};
use crate::record::{Attempt, DeliveryRecord, Event, MAX_DELIVERIES_PER_EVENT};
use crate::stored::code;

/// The most deliveries shown of one event: all made when it was accepted, and as many replays.
const MAX_OF_EVENT: usize = 2 * MAX_DELIVERIES_PER_EVENT;

pub(crate) fn event(
    conn: &Connection,
    tenant: TenantId,
    id: EventId,
) -> Result<Option<Event>, Error> {
    Ok(rows::load_event(conn, id)?.filter(|event| event.tenant == tenant))
}

pub(crate) fn event_deliveries(
    conn: &Connection,
    tenant: TenantId,
    id: EventId,
) -> Result<Vec<DeliveryRecord>, Error> {
    let sql = format!(
        "SELECT {record} FROM (SELECT * {OF_EVENT} UNION ALL SELECT * {REPLAYS_OF_EVENT}) \
         WHERE tenant_id = ?2 ORDER BY id LIMIT ?3",
        record = rows::RECORD
    );
    conn.prepare_cached(&sql)?
        .query_and_then((id.as_i64(), tenant.0, code::size(MAX_OF_EVENT)), rows::record)?
        .collect()
}

pub(crate) fn delivery(
    conn: &Connection,
    tenant: TenantId,
    id: DeliveryId,
) -> Result<Option<DeliveryRecord>, Error> {
    Ok(rows::load_record(conn, id)?.filter(|record| record.tenant == tenant))
}

pub(crate) fn attempts(conn: &Connection, id: DeliveryId) -> Result<Vec<Attempt>, Error> {
    let sql = format!(
        "SELECT {} FROM attempts WHERE delivery_id = ?1 ORDER BY number DESC LIMIT ?2",
        rows::ATTEMPT
    );
    let mut attempts: Vec<Attempt> = conn
        .prepare_cached(&sql)?
        .query_and_then((id.as_i64(), code::size(MAX_ATTEMPTS)), rows::attempt)?
        .collect::<Result<_, _>>()?;
    attempts.reverse();
    if attempts.is_empty() {
        attempts.extend(only_attempt(conn, id)?);
    }
    Ok(attempts)
}

/// The attempt of a delivery that succeeded at the first try, which stands in its own row.
fn only_attempt(conn: &Connection, id: DeliveryId) -> Result<Option<Attempt>, Error> {
    const SQL: &str = "SELECT 1, 1, last_attempt_at, duration_ms, status, NULL, NULL, response \
         FROM deliveries WHERE id = ?1 AND state = ?2 AND tries = 1";
    conn.prepare_cached(SQL)?
        .query_row((id.as_i64(), code::state(State::Delivered)), |row| Ok(rows::attempt(row)))
        .optional()?
        .transpose()
}

pub(crate) const HEAD: &str = "FROM deliveries INDEXED BY deliveries_line \
     WHERE endpoint_id = ?1 AND line = ?2 AND place IN (1, 2, 4) LIMIT 1";

pub(crate) fn ahead_of(conn: &Connection, id: DeliveryId) -> Result<Option<DeliveryRecord>, Error> {
    let Some(DeliveryRecord { endpoint, line: Some(line), parked: true, .. }) =
        rows::load_record(conn, id)?
    else {
        return Ok(None);
    };
    conn.prepare_cached(&format!("SELECT {} {HEAD}", rows::RECORD))?
        .query_row((endpoint.as_i64(), line), |row| Ok(rows::record(row)))
        .optional()?
        .transpose()
}

pub(crate) fn counts(conn: &Connection, tenant: TenantId) -> Result<Vec<Count>, Error> {
    const SQL: &str = "SELECT endpoint_id, state, n FROM delivery_counts \
         WHERE tenant_id = ?1 AND n > 0 ORDER BY endpoint_id, state";
    conn.prepare_cached(SQL)?
        .query_and_then((tenant.0,), |row| {
            Ok(Count {
                endpoint: EndpointId::from_i64(row.get(0)?),
                state: code::decode_state(row.get(1)?)?,
                deliveries: row.get::<_, i64>(2)?.unsigned_abs(),
            })
        })?
        .collect()
}

pub(crate) fn totals(conn: &Connection) -> Result<Vec<(State, u64)>, Error> {
    const SQL: &str =
        "SELECT state, sum(n) FROM delivery_counts GROUP BY state HAVING sum(n) > 0 ORDER BY state";
    conn.prepare_cached(SQL)?
        .query_and_then((), |row| {
            Ok((code::decode_state(row.get(0)?)?, row.get::<_, i64>(1)?.unsigned_abs()))
        })?
        .collect()
}

pub(crate) fn event_count(conn: &Connection, tenant: TenantId) -> Result<u64, Error> {
    let count: Option<i64> = conn
        .prepare_cached("SELECT n FROM event_counts WHERE tenant_id = ?1")?
        .query_row((tenant.0,), |row| row.get(0))
        .optional()?;
    Ok(count.unwrap_or(0).unsigned_abs())
}

pub(crate) fn ping(conn: &Connection) -> Result<(), Error> {
    Ok(conn.prepare_cached("SELECT 1 FROM tenants LIMIT 1")?.query_row((), |_| Ok(()))?)
}

/// Removes those of `found` that nobody changed since they were found.
pub(crate) fn purge(batch: &mut Batch<'_>, found: &[DeliveryRecord]) -> Result<u64, Error> {
    const SAME: &str = "SELECT 1 FROM deliveries WHERE id = ?1 AND fence = ?2";
    let mut removed = 0;
    for record in found {
        if batch.conn.prepare_cached(SAME)?.exists((record.id.as_i64(), record.fence))? {
            let expired = Expired {
                id: record.id,
                event: record.event,
                endpoint: record.endpoint,
                state: record.state,
                replay: record.replay,
            };
            retention::remove(batch, &expired)?;
            removed += 1;
        }
    }
    Ok(removed)
}
