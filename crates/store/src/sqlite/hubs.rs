//! Hubs: their names, and the hashes that their tokens are known by.

use postrider_core::{HubId, TenantId};
use rusqlite::{Connection, params};

use super::batch::Batch;
use super::configuration::raise_revision;
use super::{fault, rows};
use crate::error::Error;
use crate::registry::HubRecord;

pub(crate) fn hubs(conn: &Connection) -> Result<Vec<HubRecord>, Error> {
    conn.prepare_cached("SELECT id, tenant_id, name, sha256, created_at FROM hubs ORDER BY id")?
        .query_and_then((), |row| {
            Ok(HubRecord {
                id: HubId::from_i64(row.get(0)?),
                tenant: TenantId(row.get(1)?),
                name: row.get(2)?,
                sha256: row.get(3)?,
                created_at: rows::time(row, 4)?,
            })
        })?
        .collect()
}

pub(crate) fn put_hub(batch: &mut Batch<'_>, hub: &HubRecord) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO hubs (id, tenant_id, name, sha256, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO UPDATE SET \
         tenant_id = excluded.tenant_id, name = excluded.name, sha256 = excluded.sha256, \
         created_at = excluded.created_at";
    batch
        .conn
        .prepare_cached(SQL)?
        .execute(params![
            hub.id.as_i64(),
            hub.tenant.0,
            hub.name,
            &hub.sha256[..],
            hub.created_at.as_millis(),
        ])
        .map_err(|error| fault::exists(error, || "a hub with this token".to_owned()))?;
    raise_revision(batch)
}

pub(crate) fn delete_hub(batch: &mut Batch<'_>, id: HubId) -> Result<(), Error> {
    const SQL: &str = "DELETE FROM hubs WHERE id = ?1";
    match batch.conn.prepare_cached(SQL)?.execute((id.as_i64(),))? {
        0 => Ok(()),
        _ => raise_revision(batch),
    }
}
