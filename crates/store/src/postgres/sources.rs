//! Sources, and the sealing of every secret that is kept.

use postrider_core::{Source, SourceId, TenantId};

use super::configuration::{from_json, raise_revision};
use super::rows;
use super::session::Session;
use super::text::Text;
use crate::error::Error;
use crate::sealing::{Keyring, key_id_of};
use crate::stored::sealed::{context, seal, unseal};
use crate::stored::words::to_json;

pub(crate) const SOURCE: &str = "source";
pub(crate) const ENDPOINT: &str = "endpoint";
pub(crate) const DECLARATION: &str = "declaration";

pub(crate) async fn sources(session: &Session, keyring: &Keyring) -> Result<Vec<Source>, Error> {
    const SQL: &str = "SELECT id, tenant_id, spec, secrets, created_at, updated_at \
         FROM sources ORDER BY id";
    let found = session.rows(SQL, &[]).await?;
    found
        .iter()
        .map(|row| {
            let id: i64 = rows::get(row, 0)?;
            Ok(Source {
                id: SourceId::from_i64(id),
                tenant: TenantId(rows::get(row, 1)?),
                spec: from_json(row, 2)?,
                secrets: unseal(keyring, SOURCE, id, rows::get(row, 3)?)?,
                created_at: rows::time(row, 4)?,
                updated_at: rows::time(row, 5)?,
            })
        })
        .collect()
}

pub(crate) async fn put_source(
    session: &Session,
    source: &Source,
    keyring: &Keyring,
) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO sources \
         (id, tenant_id, spec, secrets, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (id) DO UPDATE SET spec = excluded.spec, secrets = excluded.secrets, \
         updated_at = excluded.updated_at";
    let id = source.id.as_i64();
    let spec = to_json(&source.spec)?;
    let sealed = seal(keyring, SOURCE, id, &source.secrets)?;
    let (created_at, updated_at) = (source.created_at.as_millis(), source.updated_at.as_millis());
    session
        .execute(SQL, &[&id, &source.tenant.0, &Text(&spec), &sealed, &created_at, &updated_at])
        .await?;
    raise_revision(session).await
}

pub(crate) async fn delete_source(session: &Session, id: SourceId) -> Result<(), Error> {
    match session.execute("DELETE FROM sources WHERE id = $1", &[&id.as_i64()]).await? {
        0 => Ok(()),
        _ => raise_revision(session).await,
    }
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

/// Seals with the newest key what is sealed with another. Returns how many rows that were.
pub(crate) async fn reseal(session: &Session, keyring: &Keyring) -> Result<u64, Error> {
    let newest = keyring.newest_id();
    let mut changed = 0;
    session
        .execute("UPDATE meta SET value = $2 WHERE name = $1", &[&PROOF, &seal_proof(keyring)])
        .await?;
    for Kept { kind, table, id, sealed } in TABLES {
        let select = format!("SELECT {id}, {sealed} FROM {table} FOR UPDATE");
        let update = format!("UPDATE {table} SET {sealed} = $2 WHERE {id} = $1");
        for row in session.rows(&select, &[]).await? {
            let (id, sealed): (i64, &[u8]) = (rows::get(&row, 0)?, rows::get(&row, 1)?);
            let what = || format!("the secrets of {kind} {id}");
            if key_id_of(sealed).map_err(|error| error.of(what()))? == newest {
                continue;
            }
            let context = context(kind, id);
            let plain = keyring.open(&context, sealed).map_err(|error| error.of(what()))?;
            session.execute(&update, &[&id, &keyring.seal_in(&context, &plain)]).await?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// Whether anything in the database needs a key to be read.
pub(crate) async fn has_sealed(session: &Session) -> Result<bool, Error> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM endpoints) OR EXISTS (SELECT 1 FROM sources) \
         OR EXISTS (SELECT 1 FROM declarations) OR EXISTS (SELECT 1 FROM meta WHERE name = $1)";
    match session.row(SQL, &[&PROOF]).await? {
        Some(row) => rows::get(&row, 0),
        None => Ok(false),
    }
}

/// The row of `meta` that only the key of this database opens.
const PROOF: &str = "key";

fn seal_proof(keyring: &Keyring) -> Vec<u8> {
    keyring.seal_in(&context(PROOF, 0), b"the key of this database")
}

/// Refuses a key that is not the one that others use this database with. The first that comes says
/// which it is: two nodes that each made one of their own must not both seal with it.
pub(crate) async fn prove_key(session: &Session, keyring: &Keyring) -> Result<(), Error> {
    const FIRST: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    // What was there before, or was copied, says it too.
    try_key(session, keyring).await?;
    session.execute(FIRST, &[&PROOF, &seal_proof(keyring)]).await?;
    try_key(session, keyring).await
}

/// Whether the keys open what is sealed, as far as one of each kind and the proof tell. Changes nothing.
pub(crate) async fn try_key(session: &Session, keyring: &Keyring) -> Result<(), Error> {
    for Kept { kind, table, id, sealed } in TABLES {
        let any = format!("SELECT {id}, {sealed} FROM {table} ORDER BY {id} LIMIT 1");
        if let Some(row) = session.row(&any, &[]).await? {
            let (id, sealed): (i64, &[u8]) = (rows::get(&row, 0)?, rows::get(&row, 1)?);
            let opened = keyring.open(&context(kind, id), sealed);
            opened.map_err(|error| error.of(format!("the secrets of {kind} {id}")))?;
        }
    }
    let row = session.row("SELECT value FROM meta WHERE name = $1", &[&PROOF]).await?;
    let Some(row) = row else { return Ok(()) };
    let opened = keyring.open(&context(PROOF, 0), rows::get(&row, 0)?);
    opened.map(drop).map_err(|error| error.of("the secrets of this database"))
}
