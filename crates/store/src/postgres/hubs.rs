//! Hubs: their names, and the hashes that their tokens are known by.

use postrider_core::{HubId, TenantId};

use super::configuration::raise_revision;
use super::session::Session;
use super::text::Text;
use super::{fault, rows};
use crate::error::Error;
use crate::registry::HubRecord;

pub(crate) async fn hubs(session: &Session) -> Result<Vec<HubRecord>, Error> {
    const SQL: &str = "SELECT id, tenant_id, name, sha256, created_at FROM hubs ORDER BY id";
    let found = session.rows(SQL, &[]).await?;
    found
        .iter()
        .map(|row| {
            Ok(HubRecord {
                id: HubId::from_i64(rows::get(row, 0)?),
                tenant: TenantId(rows::get(row, 1)?),
                name: rows::text(row, 2)?,
                sha256: rows::hash(row, 3)?,
                created_at: rows::time(row, 4)?,
            })
        })
        .collect()
}

pub(crate) async fn put_hub(session: &Session, hub: &HubRecord) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO hubs (id, tenant_id, name, sha256, created_at) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO UPDATE SET \
         tenant_id = excluded.tenant_id, name = excluded.name, sha256 = excluded.sha256, \
         created_at = excluded.created_at";
    let (id, created_at) = (hub.id.as_i64(), hub.created_at.as_millis());
    session
        .execute(SQL, &[&id, &hub.tenant.0, &Text(&hub.name), &&hub.sha256[..], &created_at])
        .await
        .map_err(|fault| fault::exists(fault, || "a hub with this token".to_owned()))?;
    raise_revision(session).await
}

pub(crate) async fn delete_hub(session: &Session, id: HubId) -> Result<(), Error> {
    match session.execute("DELETE FROM hubs WHERE id = $1", &[&id.as_i64()]).await? {
        0 => Ok(()),
        _ => raise_revision(session).await,
    }
}
