//! The schema: numbered migrations, applied forward only.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::Error;

/// Marks a file as ours (`PRAGMA application_id`): "Post".
pub(crate) const APPLICATION_ID: u32 = u32::from_be_bytes(*b"Post");

/// The version this program reads and writes.
pub(crate) const VERSION: u32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "start", sql: include_str!("migrations/0001_start.sql") },
    Migration { version: 2, name: "edges", sql: include_str!("migrations/0002_edges.sql") },
    Migration { version: 3, name: "leases", sql: include_str!("migrations/0003_leases.sql") },
    Migration { version: 4, name: "nodes", sql: include_str!("migrations/0004_nodes.sql") },
    Migration { version: 5, name: "dashboard", sql: include_str!("migrations/0005_dashboard.sql") },
    Migration {
        version: 6,
        name: "production",
        sql: include_str!("migrations/0006_production.sql"),
    },
];

/// Brings the database from the version it has to [`VERSION`]; each migration is one transaction.
/// Returns whether there was anything to do.
pub(crate) fn migrate(conn: &Connection) -> Result<bool, Error> {
    let found = version(conn)?;
    let mut changed = false;
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        tracing::debug!(version = migration.version, name = migration.name, "migrating the store");
        let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.execute_batch(migration.sql)?;
        tx.pragma_update(None, "user_version", migration.version)?;
        tx.commit()?;
        changed = true;
    }
    Ok(changed)
}

pub(crate) fn version(conn: &Connection) -> Result<u32, Error> {
    Ok(conn.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_gaps() {
        for (index, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version as usize, index + 1, "{}", migration.name);
        }
    }
}
