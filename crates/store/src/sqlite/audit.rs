//! Who changed what.

use postrider_core::TenantId;
use rusqlite::{Connection, Row, params};

use super::batch::Batch;
use super::rows;
use crate::audit::{Audit, AuditQuery, AuditRecord};
use crate::error::Error;
use crate::journal::MAX_PAGE;
use crate::stored::code;

/// Writes the row of a change that the same transaction makes.
pub(crate) fn note(batch: &mut Batch<'_>, audit: &Audit, subject: &str) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO audit (at, tenant_id, key_id, action, subject, detail) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let key = code::actor(audit.actor);
    batch.conn.prepare_cached(SQL)?.execute(params![
        audit.at.as_millis(),
        audit.tenant.map(|tenant| tenant.0),
        key,
        audit.action,
        subject,
        audit.detail,
    ])?;
    Ok(())
}

pub(crate) fn list(conn: &Connection, query: &AuditQuery) -> Result<Vec<AuditRecord>, Error> {
    const COLUMNS: &str = "SELECT id, at, tenant_id, key_id, action, subject, detail FROM audit";
    const REST: &str = "id < ?1 AND (?2 IS NULL OR action = ?2) AND (?3 IS NULL OR subject = ?3) \
         ORDER BY id DESC LIMIT ?4";
    let before = query.before.unwrap_or(i64::MAX);
    let limit = i64::try_from(query.limit.clamp(1, MAX_PAGE)).unwrap_or(i64::MAX);
    match query.tenant {
        Some(tenant) => conn
            .prepare_cached(&format!(
                "{COLUMNS} INDEXED BY audit_tenant WHERE tenant_id = ?5 AND {REST}"
            ))?
            .query_and_then(params![before, query.action, query.subject, limit, tenant.0], record)?
            .collect(),
        None => conn
            .prepare_cached(&format!("{COLUMNS} WHERE {REST}"))?
            .query_and_then(params![before, query.action, query.subject, limit], record)?
            .collect(),
    }
}

fn record(row: &Row<'_>) -> Result<AuditRecord, Error> {
    Ok(AuditRecord {
        id: row.get(0)?,
        at: rows::time(row, 1)?,
        tenant: row.get::<_, Option<i64>>(2)?.map(TenantId),
        actor: code::decode_actor(row.get(3)?),
        action: row.get(4)?,
        subject: row.get(5)?,
        detail: row.get(6)?,
    })
}
