//! Single questions about history: one event, one delivery, its attempts, the counts.

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, EndpointId, EventId, TenantId};

use super::rows::{self, Body};
use super::session::Session;
use super::text::Text;
use crate::error::Error;
use crate::ledger::{Count, MAX_ATTEMPTS};
use crate::record::{Attempt, DeliveryRecord, Event, MAX_DELIVERIES_PER_EVENT};
use crate::stored::code;

/// The most deliveries shown of one event: all made when it was accepted, and as many replays.
const MAX_OF_EVENT: usize = 2 * MAX_DELIVERIES_PER_EVENT;

pub(crate) async fn load_event(session: &Session, id: EventId) -> Result<Option<Event>, Error> {
    let sql = format!("SELECT {}, e.body FROM events e WHERE e.id = $1", rows::EVENT);
    let row = session.row(&sql, &[&id.as_i64()]).await?;
    row.map(|row| rows::event_at(&row, 0, Body::Follows)).transpose()
}

pub(crate) async fn event(
    session: &Session,
    tenant: TenantId,
    id: EventId,
) -> Result<Option<Event>, Error> {
    Ok(load_event(session, id).await?.filter(|event| event.tenant == tenant))
}

/// The deliveries of an event: those made when it was accepted, whose ids follow its own, and those
/// made by replays.
pub(crate) fn of_event(columns: &str) -> String {
    let accepted =
        "id > $1 AND id <= $1 + (SELECT e.deliveries FROM events e WHERE e.id = $1) AND NOT replay";
    format!(
        "(SELECT {columns} FROM deliveries WHERE {accepted} UNION ALL \
         SELECT {columns} FROM deliveries WHERE event_id = $1 AND replay)"
    )
}

pub(crate) async fn event_deliveries(
    session: &Session,
    tenant: TenantId,
    id: EventId,
) -> Result<Vec<DeliveryRecord>, Error> {
    let sql = format!(
        "SELECT * FROM {} d WHERE tenant_id = $2 ORDER BY id LIMIT $3",
        of_event(rows::RECORD)
    );
    let found = session.rows(&sql, &[&id.as_i64(), &tenant.0, &code::size(MAX_OF_EVENT)]).await?;
    found.iter().map(rows::record).collect()
}

pub(crate) async fn load_record(
    session: &Session,
    id: DeliveryId,
) -> Result<Option<DeliveryRecord>, Error> {
    let sql = format!("SELECT {} FROM deliveries WHERE id = $1", rows::RECORD);
    let row = session.row(&sql, &[&id.as_i64()]).await?;
    row.map(|row| rows::record(&row)).transpose()
}

pub(crate) async fn delivery(
    session: &Session,
    tenant: TenantId,
    id: DeliveryId,
) -> Result<Option<DeliveryRecord>, Error> {
    Ok(load_record(session, id).await?.filter(|record| record.tenant == tenant))
}

/// The attempt of a delivery that succeeded at the first try stands in its own row.
pub(crate) async fn attempts(session: &Session, id: DeliveryId) -> Result<Vec<Attempt>, Error> {
    let sql = format!(
        "(SELECT {} FROM attempts WHERE delivery_id = $1 ORDER BY number DESC LIMIT $2) \
         UNION ALL SELECT 1, true, last_attempt_at, duration_ms, status, NULL, NULL, response \
         FROM finished WHERE id = $1 AND state = 1 AND tries = 1 AND duration_ms IS NOT NULL",
        rows::ATTEMPT
    );
    let found = session.rows(&sql, &[&id.as_i64(), &code::size(MAX_ATTEMPTS)]).await?;
    let mut attempts: Vec<Attempt> = found.iter().map(rows::attempt).collect::<Result<_, _>>()?;
    attempts.reverse();
    Ok(attempts)
}

pub(crate) async fn ahead_of(
    session: &Session,
    id: DeliveryId,
) -> Result<Option<DeliveryRecord>, Error> {
    let Some(DeliveryRecord { endpoint, line: Some(line), parked: true, .. }) =
        load_record(session, id).await?
    else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT {} FROM deliveries WHERE id = (SELECT id FROM unfinished \
         WHERE endpoint_id = $1 AND line = $2 AND place IN (1, 2, 4) LIMIT 1)",
        rows::RECORD
    );
    let row = session.row(&sql, &[&endpoint.as_i64(), &Text(&line)]).await?;
    row.map(|row| rows::record(&row)).transpose()
}

pub(crate) async fn counts(session: &Session, tenant: TenantId) -> Result<Vec<Count>, Error> {
    const SQL: &str = "SELECT endpoint_id, state, sum(n)::int8 FROM delivery_counts \
         WHERE tenant_id = $1 GROUP BY endpoint_id, state HAVING sum(n) > 0 \
         ORDER BY endpoint_id, state";
    let found = session.rows(SQL, &[&tenant.0]).await?;
    found
        .iter()
        .map(|row| {
            Ok(Count {
                endpoint: EndpointId::from_i64(rows::get(row, 0)?),
                state: rows::state(row, 1)?,
                deliveries: rows::get::<i64>(row, 2)?.unsigned_abs(),
            })
        })
        .collect()
}

pub(crate) async fn totals(session: &Session) -> Result<Vec<(State, u64)>, Error> {
    const SQL: &str = "SELECT state, sum(n)::int8 FROM delivery_counts \
         GROUP BY state HAVING sum(n) > 0 ORDER BY state";
    let found = session.rows(SQL, &[]).await?;
    let total = |row| Ok((rows::state(row, 0)?, rows::get::<i64>(row, 1)?.unsigned_abs()));
    found.iter().map(total).collect()
}

pub(crate) async fn event_count(session: &Session, tenant: TenantId) -> Result<u64, Error> {
    const SQL: &str = "SELECT coalesce(sum(n), 0)::int8 FROM event_counts WHERE tenant_id = $1";
    let count = session.row(SQL, &[&tenant.0]).await?;
    let count: i64 = count.map_or(Ok(0), |row| rows::get(&row, 0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

pub(crate) async fn ping(session: &Session) -> Result<(), Error> {
    session.row("SELECT 1 FROM tenants LIMIT 1", &[]).await?;
    Ok(())
}
