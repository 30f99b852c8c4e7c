//! Endpoints, keys, tenants and jobs: few rows, read at start and written rarely.

use postrider_core::endpoint::{Endpoint, StoredSecret, Tls};
use postrider_core::{DeliveryId, EndpointId, EventId, JobId, KeyId, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::batch::Batch;
use super::sources::ENDPOINT;
use super::{fault, rows, settle};
use crate::error::Error;
use crate::fleet::Tenure;
use crate::ledger::Position;
use crate::registry::{JobRecord, KeyRecord, Role, TenantRecord};
use crate::sealing::Keyring;
use crate::stored::sealed::{seal, unseal};
use crate::stored::words::{endpoint_state, job_state, job_state_text, stored_count, to_json};

/// What of an endpoint is sealed.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Private {
    Whole {
        signing: Vec<StoredSecret>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tls: Option<Tls>,
    },
    /// From before an endpoint had more than these.
    Signing(Vec<StoredSecret>),
}

impl Private {
    fn parts(self) -> (Vec<StoredSecret>, Option<Tls>) {
        match self {
            Self::Whole { signing, tls } => (signing, tls),
            Self::Signing(signing) => (signing, None),
        }
    }
}

pub(crate) fn endpoints(conn: &Connection, keyring: &Keyring) -> Result<Vec<Endpoint>, Error> {
    const SQL: &str = "SELECT id, tenant_id, state, spec, secrets, created_at, updated_at \
         FROM endpoints ORDER BY id";
    conn.prepare_cached(SQL)?
        .query_and_then((), |row| {
            let id: i64 = row.get(0)?;
            let sealed = row.get_ref(4)?.as_blob()?;
            let (secrets, tls) = unseal::<Private>(keyring, ENDPOINT, id, sealed)?.parts();
            Ok(Endpoint {
                id: EndpointId::from_i64(id),
                tenant: TenantId(row.get(1)?),
                state: endpoint_state(row.get_ref(2)?.as_str()?)?,
                spec: from_json(row, 3)?,
                secrets,
                tls,
                created_at: rows::time(row, 5)?,
                updated_at: rows::time(row, 6)?,
            })
        })?
        .collect()
}

pub(crate) fn put_endpoint(
    batch: &mut Batch<'_>,
    endpoint: &Endpoint,
    keyring: &Keyring,
) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO endpoints \
         (id, tenant_id, state, spec, secrets, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE SET \
         tenant_id = excluded.tenant_id, state = excluded.state, spec = excluded.spec, \
         secrets = excluded.secrets, created_at = excluded.created_at, \
         updated_at = excluded.updated_at";
    let private = Private::Whole { signing: endpoint.secrets.clone(), tls: endpoint.tls.clone() };
    batch.conn.prepare_cached(SQL)?.execute(params![
        endpoint.id.as_i64(),
        endpoint.tenant.0,
        endpoint.state.as_str(),
        to_json(&endpoint.spec)?,
        seal(keyring, ENDPOINT, endpoint.id.as_i64(), &private)?,
        endpoint.created_at.as_millis(),
        endpoint.updated_at.as_millis(),
    ])?;
    raise_revision(batch)
}

/// Lets the other nodes know that configuration has changed.
pub(crate) fn raise_revision(batch: &mut Batch<'_>) -> Result<(), Error> {
    batch.conn.prepare_cached("UPDATE revision SET n = n + 1")?.execute(())?;
    Ok(())
}

/// Removes an endpoint that is deleted and has nothing unfinished; any other stays.
pub(crate) fn forget_endpoint(batch: &mut Batch<'_>, id: EndpointId) -> Result<(), Error> {
    const SQL: &str = "DELETE FROM endpoints WHERE id = ?1 AND state = 'deleted' \
         AND NOT EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_ready \
             WHERE endpoint_id = ?1 AND place = 1) \
         AND NOT EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_later \
             WHERE endpoint_id = ?1 AND place > 1)";
    match batch.conn.prepare_cached(SQL)?.execute((id.as_i64(),))? {
        0 => Ok(()),
        _ => raise_revision(batch),
    }
}

pub(crate) fn failing(conn: &Connection) -> Result<Vec<(EndpointId, Timestamp)>, Error> {
    const SQL: &str = "SELECT id, failing_since FROM endpoints \
         WHERE failing_since IS NOT NULL ORDER BY id";
    conn.prepare_cached(SQL)?
        .query_and_then((), |row| Ok((EndpointId::from_i64(row.get(0)?), rows::time(row, 1)?)))?
        .collect()
}

pub(crate) fn note_failing(
    batch: &mut Batch<'_>,
    since: &[(EndpointId, Option<Timestamp>)],
) -> Result<(), Error> {
    let mut update =
        batch.conn.prepare_cached("UPDATE endpoints SET failing_since = ?2 WHERE id = ?1")?;
    for (endpoint, since) in since {
        update.execute((endpoint.as_i64(), since.map(Timestamp::as_millis)))?;
    }
    Ok(())
}

pub(crate) fn keys(conn: &Connection) -> Result<Vec<KeyRecord>, Error> {
    const SQL: &str = "SELECT id, name, sha256, tenant_id, created_at, expires_at, revoked_at, \
         last_used_at FROM keys ORDER BY id";
    conn.prepare_cached(SQL)?
        .query_and_then((), |row| {
            Ok(KeyRecord {
                id: KeyId::from_i64(row.get(0)?),
                name: row.get(1)?,
                sha256: row.get(2)?,
                role: row
                    .get::<_, Option<i64>>(3)?
                    .map_or(Role::Admin, |tenant| Role::Tenant(TenantId(tenant))),
                created_at: rows::time(row, 4)?,
                expires_at: rows::optional_time(row, 5)?,
                revoked_at: rows::optional_time(row, 6)?,
                last_used_at: rows::optional_time(row, 7)?,
            })
        })?
        .collect()
}

pub(crate) fn put_key(batch: &mut Batch<'_>, key: &KeyRecord) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO keys (id, name, sha256, tenant_id, created_at, expires_at, \
         revoked_at, last_used_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, sha256 = excluded.sha256, \
         tenant_id = excluded.tenant_id, created_at = excluded.created_at, \
         expires_at = excluded.expires_at, \
         revoked_at = coalesce(keys.revoked_at, excluded.revoked_at)";
    let tenant = match key.role {
        Role::Admin => None,
        Role::Tenant(tenant) => Some(tenant.0),
    };
    batch
        .conn
        .prepare_cached(SQL)?
        .execute(params![
            key.id.as_i64(),
            key.name,
            &key.sha256[..],
            tenant,
            key.created_at.as_millis(),
            key.expires_at.map(Timestamp::as_millis),
            key.revoked_at.map(Timestamp::as_millis),
            key.last_used_at.map(Timestamp::as_millis),
        ])
        .map_err(|error| fault::exists(error, || "this key".to_owned()))?;
    raise_revision(batch)
}

pub(crate) fn touch_keys(batch: &mut Batch<'_>, used: &[(KeyId, Timestamp)]) -> Result<(), Error> {
    const SQL: &str = "UPDATE keys SET last_used_at = ?2 WHERE id = ?1 \
         AND coalesce(last_used_at, 0) < ?2";
    let mut update = batch.conn.prepare_cached(SQL)?;
    for (key, at) in used {
        update.execute((key.as_i64(), at.as_millis()))?;
    }
    Ok(())
}

pub(crate) fn tenants(conn: &Connection) -> Result<Vec<TenantRecord>, Error> {
    conn.prepare_cached("SELECT id, name, created_at FROM tenants ORDER BY id")?
        .query_and_then((), |row| {
            Ok(TenantRecord {
                id: TenantId(row.get(0)?),
                name: row.get(1)?,
                created_at: rows::time(row, 2)?,
            })
        })?
        .collect()
}

pub(crate) fn make_tenant(
    batch: &mut Batch<'_>,
    name: &str,
    created_at: Timestamp,
) -> Result<TenantRecord, Error> {
    batch
        .conn
        .prepare_cached("INSERT INTO tenants (name, created_at) VALUES (?1, ?2)")?
        .execute((name, created_at.as_millis()))
        .map_err(|error| fault::exists(error, || format!("a tenant named {name}")))?;
    let id = TenantId(batch.conn.last_insert_rowid());
    raise_revision(batch)?;
    Ok(TenantRecord { id, name: name.to_owned(), created_at })
}

pub(crate) fn instance(batch: &mut Batch<'_>, candidate: [u8; 16]) -> Result<[u8; 16], Error> {
    batch
        .conn
        .prepare_cached("INSERT OR IGNORE INTO meta (name, value) VALUES ('instance', ?1)")?
        .execute((&candidate[..],))?;
    Ok(batch
        .conn
        .prepare_cached("SELECT value FROM meta WHERE name = 'instance'")?
        .query_row((), |row| row.get(0))?)
}

const JOB: &str = "SELECT id, tenant_id, state, filter, rate_per_second, matched, replayed, \
     skipped, position_event, position_delivery, created_at, updated_at FROM jobs";

pub(crate) fn job(
    conn: &Connection,
    tenant: TenantId,
    id: JobId,
) -> Result<Option<JobRecord>, Error> {
    conn.prepare_cached(&format!("{JOB} WHERE id = ?1 AND tenant_id = ?2"))?
        .query_row((id.as_i64(), tenant.0), |row| Ok(job_record(row)))
        .optional()?
        .transpose()
}

pub(crate) fn open_jobs(conn: &Connection) -> Result<Vec<JobRecord>, Error> {
    conn.prepare_cached(&format!(
        "{JOB} INDEXED BY jobs_running WHERE state = 'running' ORDER BY id"
    ))?
    .query_and_then((), job_record)?
    .collect()
}

/// False, if `tenure` does not hold: then nothing is changed.
pub(crate) fn put_job(
    batch: &mut Batch<'_>,
    job: &JobRecord,
    tenure: Option<Tenure>,
) -> Result<bool, Error> {
    const SQL: &str = "INSERT OR REPLACE INTO jobs (id, tenant_id, state, filter, \
         rate_per_second, matched, replayed, skipped, position_event, position_delivery, \
         created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    if let Some(tenure) = tenure
        && !settle::holds(batch.conn, tenure)?
    {
        return Ok(false);
    }
    batch.conn.prepare_cached(SQL)?.execute(params![
        job.id.as_i64(),
        job.tenant.0,
        job_state_text(job.state),
        to_json(&job.filter)?,
        job.rate_per_second,
        stored_count(job.matched),
        stored_count(job.replayed),
        stored_count(job.skipped),
        job.position.map(|position| position.event.as_i64()),
        job.position.map(|position| position.delivery.as_i64()),
        job.created_at.as_millis(),
        job.updated_at.as_millis(),
    ])?;
    Ok(true)
}

pub(crate) fn highest_id(conn: &Connection) -> Result<i64, Error> {
    const SQL: &str = "SELECT max(coalesce((SELECT max(id) FROM events), 0), \
         coalesce((SELECT max(id) FROM deliveries), 0), \
         coalesce((SELECT max(id) FROM endpoints), 0), \
         coalesce((SELECT max(id) FROM sources), 0), \
         coalesce((SELECT max(id) FROM hubs), 0), \
         coalesce((SELECT max(id) FROM keys), 0), coalesce((SELECT max(id) FROM jobs), 0))";
    Ok(conn.prepare_cached(SQL)?.query_row((), |row| row.get(0))?)
}

fn job_record(row: &Row<'_>) -> Result<JobRecord, Error> {
    let position = match (row.get::<_, Option<i64>>(8)?, row.get::<_, Option<i64>>(9)?) {
        (Some(event), Some(delivery)) => Some(Position {
            event: EventId::from_i64(event),
            delivery: DeliveryId::from_i64(delivery),
        }),
        (None | Some(_), None) | (None, Some(_)) => None,
    };
    Ok(JobRecord {
        id: JobId::from_i64(row.get(0)?),
        tenant: TenantId(row.get(1)?),
        state: job_state(row.get_ref(2)?.as_str()?)?,
        filter: from_json(row, 3)?,
        rate_per_second: row.get(4)?,
        matched: row.get::<_, i64>(5)?.unsigned_abs(),
        replayed: row.get::<_, i64>(6)?.unsigned_abs(),
        skipped: row.get::<_, i64>(7)?.unsigned_abs(),
        position,
        created_at: rows::time(row, 10)?,
        updated_at: rows::time(row, 11)?,
    })
}

pub(crate) fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T, Error> {
    serde_json::from_str(row.get_ref(column)?.as_str()?)
        .map_err(|error| Error::Damaged(format!("stored configuration cannot be read: {error}")))
}
