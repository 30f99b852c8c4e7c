//! How much happened, by time, tenant and endpoint.

use async_trait::async_trait;
use postrider_core::{EndpointId, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::batch::Batch;
use super::writer::Cost;
use super::{Sqlite, rows};
use crate::error::Error;
use crate::journal::Urgency;
use crate::measures::{Grain, Measure, Measures, Of, Tallies};
use crate::stored::words::stored_count;
use crate::stored::{code, measures};

#[async_trait]
impl Measures for Sqlite {
    async fn add_measures(&self, measures: Vec<Measure>) -> Result<(), Error> {
        let cost = Cost { rows: measures.len(), bytes: 0 };
        self.writer.submit(cost, Urgency::Lazy, move |batch| add(batch, &measures)).await
    }

    async fn measures(
        &self,
        tenant: TenantId,
        of: Of,
        grain: Grain,
        since: Timestamp,
    ) -> Result<Vec<Measure>, Error> {
        self.ledger.ask(move |conn| list(conn, tenant, of, grain, since)).await
    }

    async fn forget_measures(
        &self,
        grain: Grain,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        let cost = Cost { rows: limit, bytes: 0 };
        self.writer
            .submit(cost, Urgency::Lazy, move |batch| forget(batch, grain, before, limit))
            .await
    }
}

/// The columns that [`tallies`] reads, in its order.
const TALLIES: &str = "received, delivered, failures, dead, latency";

fn tallies(row: &Row<'_>) -> Result<Tallies, Error> {
    let count =
        |column: usize| -> Result<u64, Error> { Ok(row.get::<_, i64>(column)?.unsigned_abs()) };
    Ok(Tallies {
        received: count(0)?,
        delivered: count(1)?,
        failures: count(2)?,
        dead: count(3)?,
        latency: measures::latency(&measures::decode_text(row.get_ref(4)?.as_str()?)?)?,
    })
}

/// Nobody else writes, so what is read stays what it is until it is written again.
fn add(batch: &mut Batch<'_>, added: &[Measure]) -> Result<(), Error> {
    let known = format!(
        "SELECT {TALLIES} FROM measures \
         WHERE tenant_id = ?1 AND grain = ?2 AND endpoint_id = ?3 AND start = ?4"
    );
    let put = format!(
        "INSERT OR REPLACE INTO measures (tenant_id, grain, endpoint_id, start, {TALLIES}) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
    );
    let mut known = batch.conn.prepare_cached(&known)?;
    let mut put = batch.conn.prepare_cached(&put)?;
    for measure in added {
        let (tenant, grain) = (measure.tenant.0, measures::grain(measure.grain));
        let (endpoint, start) = (measures::endpoint(measure.endpoint), measure.start.as_millis());
        let before = known
            .query_row((tenant, grain, endpoint, start), |row| Ok(tallies(row)))
            .optional()?
            .transpose()?;
        let mut sum = before.unwrap_or_default();
        sum.add(&measure.tallies);
        put.execute(params![
            tenant,
            grain,
            endpoint,
            start,
            stored_count(sum.received),
            stored_count(sum.delivered),
            stored_count(sum.failures),
            stored_count(sum.dead),
            measures::text(&measures::counts(&sum.latency))?,
        ])?;
    }
    Ok(())
}

pub(crate) const OF_ONE: &str =
    "tenant_id = ?1 AND grain = ?2 AND endpoint_id = ?3 AND start >= ?4";

/// Reads what is too old as well, which is about as much: no more is kept.
pub(crate) const OF_EACH: &str =
    "tenant_id = ?1 AND grain = ?2 AND endpoint_id > ?3 AND start >= ?4";

pub(crate) fn select(of: &str) -> String {
    format!("SELECT {TALLIES}, endpoint_id, start FROM measures WHERE {of}")
}

fn list(
    conn: &Connection,
    tenant: TenantId,
    of: Of,
    grain: Grain,
    since: Timestamp,
) -> Result<Vec<Measure>, Error> {
    let (sql, endpoint) = match of {
        Of::Tenant => (select(OF_ONE), measures::WHOLE),
        Of::Endpoint(endpoint) => (select(OF_ONE), EndpointId::as_i64(endpoint)),
        Of::EachEndpoint => (select(OF_EACH), measures::WHOLE),
    };
    let mut found = conn
        .prepare_cached(&sql)?
        .query_and_then((tenant.0, measures::grain(grain), endpoint, since.as_millis()), |row| {
            Ok(Measure {
                grain,
                start: rows::time(row, 6)?,
                tenant,
                endpoint: measures::decode_endpoint(row.get(5)?),
                tallies: tallies(row)?,
            })
        })?
        .collect::<Result<Vec<_>, Error>>()?;
    found.sort_by_key(|measure| (measure.start, measure.endpoint));
    Ok(found)
}

pub(crate) const FORGET: &str = "DELETE FROM measures WHERE (tenant_id, grain, endpoint_id, start) IN \
     (SELECT tenant_id, grain, endpoint_id, start FROM measures INDEXED BY measures_start \
         WHERE grain = ?1 AND start < ?2 LIMIT ?3)";

fn forget(
    batch: &mut Batch<'_>,
    grain: Grain,
    before: Timestamp,
    limit: usize,
) -> Result<u64, Error> {
    let forgotten = batch.conn.prepare_cached(FORGET)?.execute((
        measures::grain(grain),
        before.as_millis(),
        code::size(limit),
    ))?;
    Ok(forgotten as u64)
}
