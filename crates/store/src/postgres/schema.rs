//! The server and the schema: whether they will do, and numbered migrations, applied forward only.

use std::time::Duration;

use super::OpenError;
use super::config::{OLDEST_SERVER, SCHEMA};
use super::presence::{self, Claim};
use super::session::Session;
use crate::error::Error;

/// The version this program reads and writes.
pub(crate) const VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Held while migrations are applied.
const LOCK: i64 = i64::from_be_bytes(*b"PostMigr");

struct Migration {
    version: i32,
    /// The oldest version that a program may know and still use the database afterwards. Nodes can be
    /// replaced one by one by such that apply it, if that is not newer than the version before.
    oldest: i32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        oldest: 1,
        name: "start",
        sql: include_str!("migrations/0001_start.sql"),
    },
    Migration {
        version: 2,
        oldest: 2,
        name: "nodes",
        sql: include_str!("migrations/0002_nodes.sql"),
    },
    Migration {
        version: 3,
        oldest: 2,
        name: "dashboard",
        sql: include_str!("migrations/0003_dashboard.sql"),
    },
    Migration {
        version: 4,
        oldest: 2,
        name: "production",
        sql: include_str!("migrations/0004_production.sql"),
    },
];

/// What was done to a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The version that it had; 0, if there was none.
    pub from: i32,
    pub to: i32,
    /// The names of what was applied, in order.
    pub applied: Vec<&'static str>,
}

/// What is to be done to a schema before this program can use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The version that it has; 0, if there is none.
    pub version: i32,
    /// The version that it is to have.
    pub wanted: i32,
    /// The names of what has not been applied, in order.
    pub names: Vec<&'static str>,
    /// Nodes that use the database as it is have to be stopped before.
    pub needs_stop: bool,
}

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

/// Brings the schema from the version it has to [`VERSION`]; each migration is one transaction. One
/// that is too new is refused and left as it is. What running nodes could not bear waits for them to
/// go, for as long as `patience`.
pub(crate) async fn migrate(session: &Session, patience: Duration) -> Result<Migrated, OpenError> {
    let Pending { version, names, .. } = pending(session).await?;
    if names.is_empty() {
        return Ok(Migrated { from: version, to: version, applied: names });
    }
    session
        .script(&format!(
            "SELECT pg_advisory_lock({LOCK}); CREATE SCHEMA IF NOT EXISTS {SCHEMA}; \
             CREATE TABLE IF NOT EXISTS {SCHEMA}.migrations (version integer PRIMARY KEY, \
             name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()); \
             ALTER TABLE {SCHEMA}.migrations ADD COLUMN IF NOT EXISTS oldest integer"
        ))
        .await?;
    // Somebody else may have applied them meanwhile.
    let Pending { version: from, names, needs_stop, .. } = pending(session).await?;
    if needs_stop {
        presence::lock(session, Claim::Alone, patience).await?;
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > from) {
        apply(session, migration).await?;
    }
    if needs_stop {
        presence::unlock(session, Claim::Alone).await?;
    }
    session.script(&format!("SELECT pg_advisory_unlock({LOCK})")).await?;
    Ok(Migrated { from, to: from.max(VERSION), applied: names })
}

async fn apply(session: &Session, migration: &Migration) -> Result<(), OpenError> {
    let Migration { version, oldest, name, sql } = migration;
    tracing::debug!(version, name, "migrating the store");
    let script = format!(
        "BEGIN; {sql}; INSERT INTO migrations (version, name, oldest) \
         VALUES ({version}, '{name}', {oldest}); COMMIT"
    );
    session.script(&script).await.map_err(|fault| {
        OpenError::Refused(format!(
            "the migration {version} ({name}) cannot be applied: {}",
            Error::from(fault)
        ))
    })
}

/// What has not been applied.
pub(crate) async fn pending(session: &Session) -> Result<Pending, OpenError> {
    let Found { version, .. } = find(session).await?;
    let missing = || MIGRATIONS.iter().filter(|migration| migration.version > version);
    Ok(Pending {
        version,
        wanted: version.max(VERSION),
        names: missing().map(|migration| migration.name).collect(),
        // Nobody can use what is not there.
        needs_stop: version > 0 && missing().any(|migration| migration.oldest > version),
    })
}

/// How the schema stands.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// 0, if there is none.
    version: i32,
    /// What a program has to know at least to use it.
    oldest: i32,
}

/// Refuses a schema that this program must not use.
async fn find(session: &Session) -> Result<Found, OpenError> {
    // The first version kept no account of which programs may still use it: its own.
    const SQL: &str = "SELECT coalesce(max(version), 0), \
         coalesce(max(coalesce((to_jsonb(m) ->> 'oldest')::integer, version)), 0) \
         FROM migrations m";
    let exists = session
        .row("SELECT to_regclass($1) IS NOT NULL", &[&format!("{SCHEMA}.migrations")])
        .await?;
    if !exists.and_then(|row| row.try_get(0).ok()).unwrap_or(false) {
        return Ok(Found { version: 0, oldest: 0 });
    }
    let row = session.row(SQL, &[]).await?.ok_or_else(no_answer)?;
    let number = |column: usize| row.try_get::<_, i32>(column).map_err(|_| no_answer());
    let found = Found { version: number(0)?, oldest: number(1)? };
    if found.oldest > VERSION {
        return Err(OpenError::Refused(format!(
            "the database was written by a newer postrider (schema version {}, this one knows \
             {VERSION}): use that version or a later one",
            found.version
        )));
    }
    Ok(found)
}

/// Fails when somebody has brought the schema to a version that this program cannot use.
pub(crate) async fn check_usable(session: &Session) -> Result<(), OpenError> {
    match find(session).await?.version {
        VERSION.. => Ok(()),
        older => Err(OpenError::Refused(format!(
            "the schema of the database has become version {older}; this postrider needs {VERSION}"
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
            assert!((1..=expected).contains(&migration.oldest), "{}", migration.name);
        }
    }
}
