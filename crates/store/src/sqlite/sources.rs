//! Sources, and the sealing of every secret that is kept.

use postrider_core::{Source, SourceId, TenantId};
use rusqlite::{Connection, params};

use super::batch::Batch;
use super::configuration::{from_json, raise_revision};
use super::rows;
use crate::error::Error;
use crate::sealing::{Keyring, key_id_of};
use crate::stored::sealed::{context, seal, unseal};
use crate::stored::words::to_json;

pub(crate) fn sources(conn: &Connection, keyring: &Keyring) -> Result<Vec<Source>, Error> {
    const SQL: &str = "SELECT id, tenant_id, spec, secrets, created_at, updated_at \
         FROM sources ORDER BY id";
    conn.prepare_cached(SQL)?
        .query_and_then((), |row| {
            let id: i64 = row.get(0)?;
            Ok(Source {
                id: SourceId::from_i64(id),
                tenant: TenantId(row.get(1)?),
                spec: from_json(row, 2)?,
                secrets: unseal(keyring, SOURCE, id, row.get_ref(3)?.as_blob()?)?,
                created_at: rows::time(row, 4)?,
                updated_at: rows::time(row, 5)?,
            })
        })?
        .collect()
}

pub(crate) const SOURCE: &str = "source";
pub(crate) const ENDPOINT: &str = "endpoint";
pub(crate) const DECLARATION: &str = "declaration";

pub(crate) fn put_source(
    batch: &mut Batch<'_>,
    source: &Source,
    keyring: &Keyring,
) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO sources \
         (id, tenant_id, spec, secrets, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT (id) DO UPDATE SET spec = excluded.spec, secrets = excluded.secrets, \
         updated_at = excluded.updated_at";
    let id = source.id.as_i64();
    batch.conn.prepare_cached(SQL)?.execute(params![
        id,
        source.tenant.0,
        to_json(&source.spec)?,
        seal(keyring, SOURCE, id, &source.secrets)?,
        source.created_at.as_millis(),
        source.updated_at.as_millis(),
    ])?;
    raise_revision(batch)
}

pub(crate) fn delete_source(batch: &mut Batch<'_>, id: SourceId) -> Result<(), Error> {
    const SQL: &str = "DELETE FROM sources WHERE id = ?1";
    match batch.conn.prepare_cached(SQL)?.execute((id.as_i64(),))? {
        0 => Ok(()),
        _ => raise_revision(batch),
    }
}

/// Seals with the newest key what is sealed with another. Returns how many rows that were.
pub(crate) fn reseal(conn: &Connection, keyring: &Keyring) -> Result<u64, Error> {
    let newest = keyring.newest_id();
    rewrite(conn, |kind, id, sealed| {
        let what = || format!("the secrets of {kind} {id}");
        if key_id_of(sealed).map_err(|error| error.of(what()))? == newest {
            return Ok(None);
        }
        let context = context(kind, id);
        let plain = keyring.open(&context, sealed).map_err(|error| error.of(what()))?;
        Ok(Some(keyring.seal_in(&context, &plain)))
    })
}

/// Seals what was stored before there were keys: JSON, which no sealed value looks like.
pub(crate) fn seal_plain(conn: &Connection, keyring: &Keyring) -> Result<u64, Error> {
    rewrite(conn, |kind, id, stored| {
        Ok(is_plain(stored).then(|| keyring.seal_in(&context(kind, id), stored)))
    })
}

/// Whether anything in the database needs a key to be read.
pub(crate) fn has_sealed(conn: &Connection) -> Result<bool, Error> {
    for Kept { table, sealed, .. } in TABLES {
        let mut select = conn.prepare(&format!("SELECT {sealed} FROM {table}"))?;
        let mut stored = select.query(())?;
        while let Some(row) = stored.next()? {
            if !is_plain(row.get_ref(0)?.as_blob()?) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Where sealed values are kept.
struct Kept {
    kind: &'static str,
    table: &'static str,
    id: &'static str,
    sealed: &'static str,
}

const TABLES: [Kept; 3] = [
    Kept { kind: ENDPOINT, table: "endpoints", id: "id", sealed: "secrets" },
    Kept { kind: SOURCE, table: "sources", id: "id", sealed: "secrets" },
    Kept { kind: DECLARATION, table: "declarations", id: "object_id", sealed: "applied" },
];

fn is_plain(stored: &[u8]) -> bool {
    matches!(stored.first(), Some(b'[' | b'{'))
}

/// Replaces the secrets for which `change` has others; configuration is few rows.
fn rewrite(
    conn: &Connection,
    mut change: impl FnMut(&str, i64, &[u8]) -> Result<Option<Vec<u8>>, Error>,
) -> Result<u64, Error> {
    let mut changed = 0;
    for Kept { kind, table, id, sealed } in TABLES {
        let mut select = conn.prepare(&format!("SELECT {id}, {sealed} FROM {table}"))?;
        let mut update =
            conn.prepare(&format!("UPDATE {table} SET {sealed} = ?2 WHERE {id} = ?1"))?;
        let stored: Vec<(i64, Vec<u8>)> = select
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        for (id, sealed) in stored {
            if let Some(anew) = change(kind, id, &sealed)? {
                update.execute(params![id, anew])?;
                changed += 1;
            }
        }
    }
    Ok(changed)
}
