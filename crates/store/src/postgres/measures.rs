//! How much happened, by time, tenant and endpoint.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use async_trait::async_trait;
use postrider_core::{EndpointId, TenantId, Timestamp};
use tokio_postgres::Row;

use super::session::Session;
use super::{Postgres, rows};
use crate::error::Error;
use crate::measures::{Grain, Measure, Measures, Of, Tallies};
use crate::stored::words::stored_count;
use crate::stored::{code, measures};

#[async_trait]
impl Measures for Postgres {
    async fn add_measures(&self, measures: Vec<Measure>) -> Result<(), Error> {
        let columns = Columns::of(&measures);
        self.change(move |session| Box::pin(async move { add(session, &columns).await })).await
    }

    async fn measures(
        &self,
        tenant: TenantId,
        of: Of,
        grain: Grain,
        since: Timestamp,
    ) -> Result<Vec<Measure>, Error> {
        let reader = self.ledger.session().await?;
        list(reader.session()?, tenant, of, grain, since).await
    }

    async fn forget_measures(
        &self,
        grain: Grain,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        self.change(move |session| Box::pin(forget(session, grain, before, limit))).await
    }
}

/// What is to be added, column by column.
#[derive(Default)]
struct Columns {
    tenant: Vec<i64>,
    grain: Vec<i16>,
    endpoint: Vec<i64>,
    start: Vec<i64>,
    received: Vec<i64>,
    delivered: Vec<i64>,
    failures: Vec<i64>,
    dead: Vec<i64>,
    latency: Vec<String>,
}

impl Columns {
    /// A statement changes no row twice, so what is of the same stretch is added up before; and all
    /// nodes take the rows in one order, so that none waits for another that waits for it.
    fn of(added: &[Measure]) -> Self {
        let mut sums: BTreeMap<(i64, i16, i64, i64), Tallies> = BTreeMap::new();
        for measure in added {
            let (tenant, grain) = (measure.tenant.0, measures::grain(measure.grain));
            let (endpoint, start) =
                (measures::endpoint(measure.endpoint), measure.start.as_millis());
            sums.entry((tenant, grain, endpoint, start)).or_default().add(&measure.tallies);
        }
        let mut columns = Self::default();
        for ((tenant, grain, endpoint, start), sum) in sums {
            columns.tenant.push(tenant);
            columns.grain.push(grain);
            columns.endpoint.push(endpoint);
            columns.start.push(start);
            columns.received.push(stored_count(sum.received));
            columns.delivered.push(stored_count(sum.delivered));
            columns.failures.push(stored_count(sum.failures));
            columns.dead.push(stored_count(sum.dead));
            columns.latency.push(literal(&measures::counts(&sum.latency)));
        }
        columns
    }
}

/// A list as the server writes it: lists of different lengths cannot be a column of a parameter.
fn literal(counts: &[i64]) -> String {
    let mut text = String::from("{");
    for (index, count) in counts.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a text does not fail.
        let _ = write!(text, "{comma}{count}");
    }
    text.push('}');
    text
}

async fn add(session: &Session, columns: &Columns) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO measures AS m (tenant_id, grain, endpoint_id, start, received, \
             delivered, failures, dead, latency) \
         SELECT tenant_id, grain, endpoint_id, start, received, delivered, failures, dead, \
             latency::int8[] \
         FROM unnest($1::int8[], $2::int2[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], \
             $7::int8[], $8::int8[], $9::text[]) a (tenant_id, grain, endpoint_id, start, \
             received, delivered, failures, dead, latency) \
         ON CONFLICT (tenant_id, grain, endpoint_id, start) DO UPDATE SET \
             received = m.received + excluded.received, \
             delivered = m.delivered + excluded.delivered, \
             failures = m.failures + excluded.failures, \
             dead = m.dead + excluded.dead, \
             latency = add_counts(m.latency, excluded.latency)";
    let Columns { tenant, grain, endpoint, start, received, delivered, failures, dead, latency } =
        columns;
    session
        .execute(
            SQL,
            &[tenant, grain, endpoint, start, received, delivered, failures, dead, latency],
        )
        .await?;
    Ok(())
}

async fn list(
    session: &Session,
    tenant: TenantId,
    of: Of,
    grain: Grain,
    since: Timestamp,
) -> Result<Vec<Measure>, Error> {
    const OF_ONE: &str = "SELECT endpoint_id, start, received, delivered, failures, dead, latency \
         FROM measures WHERE tenant_id = $1 AND grain = $2 AND endpoint_id = $3 AND start >= $4";
    // Reads what is too old as well, which is about as much: no more is kept.
    const OF_EACH: &str = "SELECT endpoint_id, start, received, delivered, failures, dead, latency \
         FROM measures WHERE tenant_id = $1 AND grain = $2 AND endpoint_id > $3 AND start >= $4";
    let (sql, endpoint) = match of {
        Of::Tenant => (OF_ONE, measures::WHOLE),
        Of::Endpoint(endpoint) => (OF_ONE, EndpointId::as_i64(endpoint)),
        Of::EachEndpoint => (OF_EACH, measures::WHOLE),
    };
    let code = measures::grain(grain);
    let found = session.rows(sql, &[&tenant.0, &code, &endpoint, &since.as_millis()]).await?;
    let mut found = found
        .iter()
        .map(|row| {
            Ok(Measure {
                grain,
                start: rows::time(row, 1)?,
                tenant,
                endpoint: measures::decode_endpoint(rows::get(row, 0)?),
                tallies: tallies(row)?,
            })
        })
        .collect::<Result<Vec<_>, Error>>()?;
    found.sort_by_key(|measure| (measure.start, measure.endpoint));
    Ok(found)
}

fn tallies(row: &Row) -> Result<Tallies, Error> {
    let count = |column: usize| Ok::<_, Error>(rows::get::<i64>(row, column)?.unsigned_abs());
    Ok(Tallies {
        received: count(2)?,
        delivered: count(3)?,
        failures: count(4)?,
        dead: count(5)?,
        latency: measures::latency(&rows::get::<Vec<i64>>(row, 6)?)?,
    })
}

/// What another node is just forgetting is left to it.
async fn forget(
    session: &Session,
    grain: Grain,
    before: Timestamp,
    limit: usize,
) -> Result<u64, Error> {
    const SQL: &str = "DELETE FROM measures m USING (SELECT tenant_id, grain, endpoint_id, start \
             FROM measures WHERE grain = $1 AND start < $2 LIMIT $3 FOR UPDATE SKIP LOCKED) old \
         WHERE m.tenant_id = old.tenant_id AND m.grain = old.grain \
             AND m.endpoint_id = old.endpoint_id AND m.start = old.start";
    let (grain, before) = (measures::grain(grain), before.as_millis());
    Ok(session.execute(SQL, &[&grain, &before, &code::size(limit)]).await?)
}
