//! What a file has declared.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::TenantId;
use rusqlite::{Connection, params};

use super::Sqlite;
use super::batch::Batch;
use super::sources::DECLARATION;
use crate::declarations::{Applied, Declaration, Declarations, DeclaredKind, DeclaringTurn};
use crate::error::Error;
use crate::sealing::Keyring;
use crate::stored::sealed::{seal_digest, unseal_digest};

#[async_trait]
impl Declarations for Sqlite {
    async fn declarations(&self) -> Result<Vec<Declaration>, Error> {
        let keyring = Arc::clone(&self.keyring);
        self.ledger.ask(move |conn| declarations(conn, &keyring)).await
    }

    async fn put_declaration(&self, declaration: Declaration) -> Result<(), Error> {
        let keyring = Arc::clone(&self.keyring);
        self.configure(move |batch| put(batch, &declaration, &keyring)).await
    }

    async fn remove_declaration(
        &self,
        tenant: TenantId,
        kind: DeclaredKind,
        name: String,
    ) -> Result<(), Error> {
        self.configure(move |batch| remove(batch, tenant, kind, &name)).await
    }

    /// The file is this process's own, so that nobody else is there to wait for.
    async fn declaring(&self) -> Result<DeclaringTurn, Error> {
        let held = Arc::clone(&self.declaring).lock_owned().await;
        Ok(DeclaringTurn::new(move || {
            let () = *held;
            true
        }))
    }
}

fn declarations(conn: &Connection, keyring: &Keyring) -> Result<Vec<Declaration>, Error> {
    const SQL: &str = "SELECT tenant_id, kind, name, object_id, applied FROM declarations \
         ORDER BY tenant_id, kind, name";
    conn.prepare_cached(SQL)?
        .query_and_then((), |row| {
            let object = row.get(3)?;
            let applied = unseal_digest(keyring, DECLARATION, object, row.get_ref(4)?.as_blob()?)?;
            Ok(Declaration {
                tenant: TenantId(row.get(0)?),
                kind: DeclaredKind::decode(row.get(1)?)?,
                name: row.get(2)?,
                object,
                applied: Applied(applied),
            })
        })?
        .collect()
}

fn put(batch: &mut Batch<'_>, declaration: &Declaration, keyring: &Keyring) -> Result<(), Error> {
    // Replaces by either key: the name, or the object.
    const SQL: &str = "INSERT OR REPLACE INTO declarations \
         (tenant_id, kind, name, object_id, applied) VALUES (?1, ?2, ?3, ?4, ?5)";
    let Declaration { tenant, kind, name, object, applied } = declaration;
    batch.conn.prepare_cached(SQL)?.execute(params![
        tenant.0,
        kind.code(),
        name,
        object,
        seal_digest(keyring, DECLARATION, *object, &applied.0),
    ])?;
    Ok(())
}

fn remove(
    batch: &mut Batch<'_>,
    tenant: TenantId,
    kind: DeclaredKind,
    name: &str,
) -> Result<(), Error> {
    const SQL: &str = "DELETE FROM declarations WHERE tenant_id = ?1 AND kind = ?2 AND name = ?3";
    batch.conn.prepare_cached(SQL)?.execute((tenant.0, kind.code(), name))?;
    Ok(())
}
