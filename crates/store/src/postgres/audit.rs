//! Who changed what.

use postrider_core::TenantId;
use tokio_postgres::Row;

use super::rows;
use super::session::{Param, Session};
use super::text::Text;
use crate::audit::{Audit, AuditQuery, AuditRecord};
use crate::error::Error;
use crate::journal::MAX_PAGE;
use crate::stored::code;

/// Writes the row of a change that the same transaction makes.
pub(crate) async fn note(session: &Session, audit: &Audit, subject: &str) -> Result<(), Error> {
    note_each(session, audit, &[subject]).await
}

/// Writes a row for each of several changes that somebody asked for at once.
pub(crate) async fn note_each(
    session: &Session,
    audit: &Audit,
    subjects: &[&str],
) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO audit (at, tenant_id, key_id, action, detail, subject) \
         SELECT $1::int8, $2::int8, $3::int8, $4::text, $5::text, subject \
         FROM unnest($6::text[]) s (subject)";
    let key = code::actor(audit.actor);
    let subjects: Vec<Text<'_>> = subjects.iter().map(|subject| Text(subject)).collect();
    let tenant = audit.tenant.map(|tenant| tenant.0);
    let detail = audit.detail.as_deref().map(Text);
    let at = audit.at.as_millis();
    session.execute(SQL, &[&at, &tenant, &key, &Text(audit.action), &detail, &subjects]).await?;
    Ok(())
}

pub(crate) async fn list(session: &Session, query: &AuditQuery) -> Result<Vec<AuditRecord>, Error> {
    const COLUMNS: &str = "SELECT id, at, tenant_id, key_id, action, subject, detail FROM audit";
    const REST: &str = "id < $1 AND ($2::text IS NULL OR action = $2) \
         AND ($3::text IS NULL OR subject = $3) ORDER BY id DESC LIMIT $4";
    let before = query.before.unwrap_or(i64::MAX);
    let limit = i64::try_from(query.limit.clamp(1, MAX_PAGE)).unwrap_or(i64::MAX);
    let action = query.action.as_deref().map(Text);
    let subject = query.subject.as_deref().map(Text);
    let mut params: Vec<Param<'_>> = vec![&before, &action, &subject, &limit];
    let tenant = query.tenant.map(|tenant| tenant.0);
    let sql = if tenant.is_some() {
        params.push(&tenant);
        format!("{COLUMNS} WHERE tenant_id = $5 AND {REST}")
    } else {
        format!("{COLUMNS} WHERE {REST}")
    };
    let found = session.rows(&sql, &params).await?;
    found.iter().map(record).collect()
}

fn record(row: &Row) -> Result<AuditRecord, Error> {
    Ok(AuditRecord {
        id: rows::get(row, 0)?,
        at: rows::time(row, 1)?,
        tenant: rows::get::<Option<i64>>(row, 2)?.map(TenantId),
        actor: code::decode_actor(rows::get(row, 3)?),
        action: rows::text(row, 4)?,
        subject: rows::text(row, 5)?,
        detail: rows::optional_text(row, 6)?,
    })
}
