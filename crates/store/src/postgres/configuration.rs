//! Endpoints, keys, tenants and jobs: few rows, read at start and written rarely.

use postrider_core::endpoint::{Endpoint, StoredSecret, Tls};
use postrider_core::{DeliveryId, EndpointId, EventId, JobId, KeyId, TenantId, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use super::session::Session;
use super::sources::ENDPOINT;
use super::text::Text;
use super::{fault, rows};
use crate::error::Error;
use crate::fleet::Tenure;
use crate::ledger::Position;
use crate::registry::{JobRecord, KeyRecord, Role, TenantRecord};
use crate::sealing::Keyring;
use crate::stored::sealed::{seal, unseal};
use crate::stored::words::{endpoint_state, job_state, job_state_text, stored_count, to_json};

/// What of an endpoint is sealed.
#[derive(Serialize, Deserialize)]
struct Private {
    signing: Vec<StoredSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<Tls>,
}

pub(crate) async fn endpoints(
    session: &Session,
    keyring: &Keyring,
) -> Result<Vec<Endpoint>, Error> {
    const SQL: &str = "SELECT id, tenant_id, state, spec, secrets, created_at, updated_at \
         FROM endpoints ORDER BY id";
    let found = session.rows(SQL, &[]).await?;
    found
        .iter()
        .map(|row| {
            let id: i64 = rows::get(row, 0)?;
            let private: Private = unseal(keyring, ENDPOINT, id, rows::get(row, 4)?)?;
            Ok(Endpoint {
                id: EndpointId::from_i64(id),
                tenant: TenantId(rows::get(row, 1)?),
                state: endpoint_state(rows::get(row, 2)?)?,
                spec: from_json(row, 3)?,
                secrets: private.signing,
                tls: private.tls,
                created_at: rows::time(row, 5)?,
                updated_at: rows::time(row, 6)?,
            })
        })
        .collect()
}

pub(crate) async fn put_endpoint(
    session: &Session,
    endpoint: &Endpoint,
    keyring: &Keyring,
) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO endpoints \
         (id, tenant_id, state, spec, secrets, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE SET \
         tenant_id = excluded.tenant_id, state = excluded.state, spec = excluded.spec, \
         secrets = excluded.secrets, created_at = excluded.created_at, \
         updated_at = excluded.updated_at";
    let private = Private { signing: endpoint.secrets.clone(), tls: endpoint.tls.clone() };
    let id = endpoint.id.as_i64();
    let spec = to_json(&endpoint.spec)?;
    let sealed = seal(keyring, ENDPOINT, id, &private)?;
    let (created_at, updated_at) =
        (endpoint.created_at.as_millis(), endpoint.updated_at.as_millis());
    let (tenant, state) = (endpoint.tenant.0, endpoint.state.as_str());
    session
        .execute(SQL, &[&id, &tenant, &state, &Text(&spec), &sealed, &created_at, &updated_at])
        .await?;
    raise_revision(session).await
}

/// Lets the other nodes know that configuration has changed. It comes after the change itself,
/// because whoever makes another one waits here for the end of this one.
pub(crate) async fn raise_revision(session: &Session) -> Result<(), Error> {
    session.execute("UPDATE revision SET n = n + 1", &[]).await?;
    Ok(())
}

/// Removes an endpoint that is deleted and has nothing unfinished; any other stays.
pub(crate) async fn forget_endpoint(session: &Session, id: EndpointId) -> Result<(), Error> {
    const SQL: &str = "DELETE FROM endpoints WHERE id = $1 AND state = 'deleted' \
         AND NOT EXISTS (SELECT 1 FROM unfinished WHERE endpoint_id = $1 AND place = 1) \
         AND NOT EXISTS (SELECT 1 FROM unfinished WHERE endpoint_id = $1 AND place > 1)";
    match session.execute(SQL, &[&id.as_i64()]).await? {
        0 => Ok(()),
        _ => raise_revision(session).await,
    }
}

pub(crate) async fn failing(session: &Session) -> Result<Vec<(EndpointId, Timestamp)>, Error> {
    const SQL: &str = "SELECT id, failing_since FROM endpoints \
         WHERE failing_since IS NOT NULL ORDER BY id";
    let found = session.rows(SQL, &[]).await?;
    let one = |row: &Row| Ok((EndpointId::from_i64(rows::get(row, 0)?), rows::time(row, 1)?));
    found.iter().map(one).collect()
}

pub(crate) async fn note_failing(
    session: &Session,
    since: &[(EndpointId, Option<Timestamp>)],
) -> Result<(), Error> {
    const SQL: &str = "UPDATE endpoints SET failing_since = f.since \
         FROM unnest($1::int8[], $2::int8[]) f (id, since) WHERE endpoints.id = f.id";
    let ids: Vec<i64> = since.iter().map(|(endpoint, _)| endpoint.as_i64()).collect();
    let times: Vec<Option<i64>> =
        since.iter().map(|(_, since)| since.map(Timestamp::as_millis)).collect();
    session.execute(SQL, &[&ids, &times]).await?;
    Ok(())
}

pub(crate) async fn keys(session: &Session) -> Result<Vec<KeyRecord>, Error> {
    const SQL: &str = "SELECT id, name, sha256, tenant_id, created_at, expires_at, revoked_at, \
         last_used_at FROM keys ORDER BY id";
    let found = session.rows(SQL, &[]).await?;
    found
        .iter()
        .map(|row| {
            Ok(KeyRecord {
                id: KeyId::from_i64(rows::get(row, 0)?),
                name: rows::text(row, 1)?,
                sha256: rows::hash(row, 2)?,
                role: rows::get::<Option<i64>>(row, 3)?
                    .map_or(Role::Admin, |tenant| Role::Tenant(TenantId(tenant))),
                created_at: rows::time(row, 4)?,
                expires_at: rows::optional_time(row, 5)?,
                revoked_at: rows::optional_time(row, 6)?,
                last_used_at: rows::optional_time(row, 7)?,
            })
        })
        .collect()
}

pub(crate) async fn put_key(session: &Session, key: &KeyRecord) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO keys (id, name, sha256, tenant_id, created_at, expires_at, \
         revoked_at, last_used_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, sha256 = excluded.sha256, \
         tenant_id = excluded.tenant_id, created_at = excluded.created_at, \
         expires_at = excluded.expires_at, \
         revoked_at = coalesce(keys.revoked_at, excluded.revoked_at)";
    let tenant = match key.role {
        Role::Admin => None,
        Role::Tenant(tenant) => Some(tenant.0),
    };
    let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
    session
        .execute(
            SQL,
            &[
                &key.id.as_i64(),
                &Text(&key.name),
                &&key.sha256[..],
                &tenant,
                &key.created_at.as_millis(),
                &millis(key.expires_at),
                &millis(key.revoked_at),
                &millis(key.last_used_at),
            ],
        )
        .await
        .map_err(|fault| fault::exists(fault, || "this key".to_owned()))?;
    raise_revision(session).await
}

pub(crate) async fn touch_keys(
    session: &Session,
    used: &[(KeyId, Timestamp)],
) -> Result<(), Error> {
    const SQL: &str = "UPDATE keys SET last_used_at = u.at \
         FROM (SELECT id, max(at) AS at FROM unnest($1::int8[], $2::int8[]) u (id, at) \
             GROUP BY id) u \
         WHERE keys.id = u.id AND coalesce(last_used_at, 0) < u.at";
    let ids: Vec<i64> = used.iter().map(|(key, _)| key.as_i64()).collect();
    let times: Vec<i64> = used.iter().map(|(_, at)| at.as_millis()).collect();
    session.execute(SQL, &[&ids, &times]).await?;
    Ok(())
}

pub(crate) async fn tenants(session: &Session) -> Result<Vec<TenantRecord>, Error> {
    let found = session.rows("SELECT id, name, created_at FROM tenants ORDER BY id", &[]).await?;
    found
        .iter()
        .map(|row| {
            Ok(TenantRecord {
                id: TenantId(rows::get(row, 0)?),
                name: rows::text(row, 1)?,
                created_at: rows::time(row, 2)?,
            })
        })
        .collect()
}

pub(crate) async fn make_tenant(
    session: &Session,
    name: &str,
    created_at: Timestamp,
) -> Result<TenantRecord, Error> {
    const SQL: &str = "INSERT INTO tenants (name, created_at) VALUES ($1, $2) RETURNING id";
    let made = session
        .row(SQL, &[&Text(name), &created_at.as_millis()])
        .await
        .map_err(|fault| fault::exists(fault, || format!("a tenant named {name}")))?;
    let made = made.ok_or_else(|| Error::Damaged("a new tenant has no number".to_owned()))?;
    raise_revision(session).await?;
    Ok(TenantRecord { id: TenantId(rows::get(&made, 0)?), name: name.to_owned(), created_at })
}

pub(crate) async fn instance(session: &Session, candidate: [u8; 16]) -> Result<[u8; 16], Error> {
    session
        .execute(
            "INSERT INTO meta (name, value) VALUES ('instance', $1) ON CONFLICT DO NOTHING",
            &[&&candidate[..]],
        )
        .await?;
    let row = session.row("SELECT value FROM meta WHERE name = 'instance'", &[]).await?;
    let damaged = || Error::Damaged("the store has no name".to_owned());
    let row = row.ok_or_else(damaged)?;
    rows::get::<&[u8]>(&row, 0)?.try_into().map_err(|_| damaged())
}

const JOB: &str = "SELECT id, tenant_id, state, filter, rate_per_second, matched, replayed, \
     skipped, position_event, position_delivery, created_at, updated_at FROM jobs";

pub(crate) async fn job(
    session: &Session,
    tenant: TenantId,
    id: JobId,
) -> Result<Option<JobRecord>, Error> {
    let sql = format!("{JOB} WHERE id = $1 AND tenant_id = $2");
    let row = session.row(&sql, &[&id.as_i64(), &tenant.0]).await?;
    row.map(|row| job_record(&row)).transpose()
}

pub(crate) async fn open_jobs(session: &Session) -> Result<Vec<JobRecord>, Error> {
    let sql = format!("{JOB} WHERE state = 'running' ORDER BY id");
    session.rows(&sql, &[]).await?.iter().map(job_record).collect()
}

/// False, if `tenure` does not hold: then nothing is changed.
pub(crate) async fn put_job(
    session: &Session,
    job: &JobRecord,
    tenure: Option<Tenure>,
) -> Result<bool, Error> {
    const SQL: &str = "INSERT INTO jobs (id, tenant_id, state, filter, rate_per_second, matched, \
         replayed, skipped, position_event, position_delivery, created_at, updated_at) \
         SELECT $1::int8, $2::int8, $3::text, $4::text, $5::float8, $6::int8, $7::int8, $8::int8, \
             $9::int8, $10::int8, $11::int8, $12::int8 WHERE $13::int8 IS NULL \
             OR EXISTS (SELECT 1 FROM tenures WHERE key = $13 AND epoch = $14::int8) \
         ON CONFLICT (id) DO UPDATE SET \
         tenant_id = excluded.tenant_id, state = excluded.state, filter = excluded.filter, \
         rate_per_second = excluded.rate_per_second, matched = excluded.matched, \
         replayed = excluded.replayed, skipped = excluded.skipped, \
         position_event = excluded.position_event, \
         position_delivery = excluded.position_delivery, created_at = excluded.created_at, \
         updated_at = excluded.updated_at";
    let changed = session
        .execute(
            SQL,
            &[
                &job.id.as_i64(),
                &job.tenant.0,
                &job_state_text(job.state),
                &Text(&to_json(&job.filter)?),
                &job.rate_per_second,
                &stored_count(job.matched),
                &stored_count(job.replayed),
                &stored_count(job.skipped),
                &job.position.map(|position| position.event.as_i64()),
                &job.position.map(|position| position.delivery.as_i64()),
                &job.created_at.as_millis(),
                &job.updated_at.as_millis(),
                &tenure.map(|tenure| tenure.charge.key()),
                &tenure.map(|tenure| tenure.epoch),
            ],
        )
        .await?;
    Ok(changed == 1)
}

pub(crate) async fn highest_id(session: &Session) -> Result<i64, Error> {
    const SQL: &str = "SELECT greatest(0, (SELECT max(id) FROM events), \
         (SELECT max(id) FROM unfinished), (SELECT max(id) FROM finished), \
         (SELECT max(id) FROM endpoints), (SELECT max(id) FROM sources), \
         (SELECT max(id) FROM hubs), (SELECT max(id) FROM keys), (SELECT max(id) FROM jobs))";
    match session.row(SQL, &[]).await? {
        Some(row) => rows::get(&row, 0),
        None => Ok(0),
    }
}

fn job_record(row: &Row) -> Result<JobRecord, Error> {
    let position = match (rows::get::<Option<i64>>(row, 8)?, rows::get::<Option<i64>>(row, 9)?) {
        (Some(event), Some(delivery)) => Some(Position {
            event: EventId::from_i64(event),
            delivery: DeliveryId::from_i64(delivery),
        }),
        (None | Some(_), None) | (None, Some(_)) => None,
    };
    Ok(JobRecord {
        id: JobId::from_i64(rows::get(row, 0)?),
        tenant: TenantId(rows::get(row, 1)?),
        state: job_state(rows::get(row, 2)?)?,
        filter: from_json(row, 3)?,
        rate_per_second: rows::get(row, 4)?,
        matched: rows::get::<i64>(row, 5)?.unsigned_abs(),
        replayed: rows::get::<i64>(row, 6)?.unsigned_abs(),
        skipped: rows::get::<i64>(row, 7)?.unsigned_abs(),
        position,
        created_at: rows::time(row, 10)?,
        updated_at: rows::time(row, 11)?,
    })
}

pub(crate) fn from_json<T: DeserializeOwned>(row: &Row, column: usize) -> Result<T, Error> {
    serde_json::from_str(&rows::text(row, column)?)
        .map_err(|error| Error::Damaged(format!("stored configuration cannot be read: {error}")))
}
