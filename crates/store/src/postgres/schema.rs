//! The server and the schema: whether they will do, and numbered migrations, applied forward only.

use super::OpenError;
use super::config::{OLDEST_SERVER, SCHEMA};
use super::session::Session;
use crate::error::Error;

/// The version this program reads and writes.
pub(crate) const VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Held while migrations are applied.
const LOCK: i64 = i64::from_be_bytes(*b"PostMigr");

struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "start", sql: include_str!("migrations/0001_start.sql") }];

/// Looks whether the server can keep what is asked of it.
pub(crate) async fn check_server(session: &Session) -> Result<(), OpenError> {
    const SQL: &str = "SELECT current_setting('server_version_num')::int, \
         current_setting('server_version'), current_setting('server_encoding'), \
         current_setting('synchronous_commit'), current_setting('fsync'), \
         current_setting('full_page_writes'), pg_is_in_recovery()";
    let row = session.row(SQL, &[]).await?.ok_or_else(no_answer)?;
    let text = |column: usize| row.try_get::<_, String>(column).map_err(|_| no_answer());
    let number: i32 = row.try_get(0).map_err(|_| no_answer())?;
    if number < OLDEST_SERVER {
        return Err(OpenError::Refused(format!(
            "the server is PostgreSQL {}: postrider needs 14 or later",
            text(1)?
        )));
    }
    if text(2)? != "UTF8" {
        return Err(OpenError::Refused(format!(
            "the database has the encoding {}: make one with ENCODING 'UTF8'",
            text(2)?
        )));
    }
    if row.try_get(6).map_err(|_| no_answer())? {
        return Err(OpenError::Unreachable(
            "the server is a replica and cannot be written to: name the primary".to_owned(),
        ));
    }
    // Each session asks for it; somebody in between may have other ideas.
    if !["on", "remote_apply"].contains(&text(3)?.as_str()) {
        return Err(OpenError::Refused(format!(
            "synchronous_commit is {} and cannot be changed: what is acknowledged would not be on \
             disk",
            text(3)?
        )));
    }
    if text(4)? != "on" || text(5)? != "on" {
        tracing::warn!(
            "the server runs with fsync or full_page_writes off: a crash of its machine can lose \
             what was acknowledged"
        );
    }
    Ok(())
}

/// Brings the schema from the version it has to [`VERSION`]; each migration is one transaction.
/// A newer one is refused and left as it is.
pub(crate) async fn migrate(session: &Session) -> Result<(), OpenError> {
    if version(session).await? == VERSION {
        return Ok(());
    }
    session
        .script(&format!(
            "SELECT pg_advisory_lock({LOCK}); CREATE SCHEMA IF NOT EXISTS {SCHEMA}; \
             CREATE TABLE IF NOT EXISTS {SCHEMA}.migrations (version integer PRIMARY KEY, \
             name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        ))
        .await?;
    let found = version(session).await?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        let Migration { version, name, sql } = migration;
        tracing::debug!(version, name, "migrating the store");
        session
            .script(&format!(
                "BEGIN; {sql}; INSERT INTO migrations (version, name) VALUES ({version}, '{name}'); \
                 COMMIT"
            ))
            .await
            .map_err(|fault| {
                OpenError::Refused(format!(
                    "the migration {version} ({name}) cannot be applied: {}",
                    Error::from(fault)
                ))
            })?;
    }
    Ok(session.script(&format!("SELECT pg_advisory_unlock({LOCK})")).await?)
}

/// The version that the schema has; 0, if there is none.
async fn version(session: &Session) -> Result<i32, OpenError> {
    let exists = session
        .row("SELECT to_regclass($1) IS NOT NULL", &[&format!("{SCHEMA}.migrations")])
        .await?;
    if !exists.and_then(|row| row.try_get(0).ok()).unwrap_or(false) {
        return Ok(0);
    }
    let row = session.row("SELECT coalesce(max(version), 0) FROM migrations", &[]).await?;
    let found = row.and_then(|row| row.try_get(0).ok()).ok_or_else(no_answer)?;
    if found > VERSION {
        return Err(OpenError::Refused(format!(
            "the database was written by a newer postrider (schema version {found}, this one \
             knows {VERSION}): use that version or a later one"
        )));
    }
    Ok(found)
}

/// Fails when somebody has brought the schema to another version meanwhile.
pub(crate) async fn check_unchanged(session: &Session) -> Result<(), OpenError> {
    match version(session).await? {
        VERSION => Ok(()),
        other => Err(OpenError::Refused(format!(
            "the schema of the database has become version {other}; this postrider knows {VERSION}"
        ))),
    }
}

fn no_answer() -> OpenError {
    OpenError::Refused("the server does not answer as PostgreSQL does".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_gaps() {
        for (expected, migration) in (1..).zip(MIGRATIONS) {
            assert_eq!(migration.version, expected, "{}", migration.name);
        }
    }
}
