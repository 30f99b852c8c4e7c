//! What a file has declared, and which node makes something of one.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::TenantId;

use super::session::Session;
use super::sources::DECLARATION;
use super::text::Text;
use super::{Postgres, rows};
use crate::declarations::{Applied, Declaration, Declarations, DeclaredKind, DeclaringTurn};
use crate::error::Error;
use crate::sealing::Keyring;
use crate::stored::sealed::{seal_digest, unseal_digest};

/// Held by the node that makes something of a file.
const LOCK: i64 = i64::from_be_bytes(*b"PostDecl");

#[async_trait]
impl Declarations for Postgres {
    async fn declarations(&self) -> Result<Vec<Declaration>, Error> {
        let reader = self.ledger.session().await?;
        declarations(reader.session()?, &self.keyring).await
    }

    async fn put_declaration(&self, declaration: Declaration) -> Result<(), Error> {
        let keyring = Arc::clone(&self.keyring);
        self.change(move |session| {
            Box::pin(async move { put(session, &declaration, &keyring).await })
        })
        .await
    }

    async fn remove_declaration(
        &self,
        tenant: TenantId,
        kind: DeclaredKind,
        name: String,
    ) -> Result<(), Error> {
        self.change(move |session| {
            Box::pin(async move { remove(session, tenant, kind, &name).await })
        })
        .await
    }

    /// On a connection of its own, which is held for as long as the lock is: what is changed meanwhile
    /// is changed on others, and a process that ends, in whatever way, lets go of it.
    async fn declaring(&self) -> Result<DeclaringTurn, Error> {
        let session = self.changes.connect_apart().await?;
        session.row("SELECT pg_advisory_lock($1)", &[&LOCK]).await?;
        Ok(DeclaringTurn::new(move || session.is_alive()))
    }
}

async fn declarations(session: &Session, keyring: &Keyring) -> Result<Vec<Declaration>, Error> {
    const SQL: &str = "SELECT tenant_id, kind, name, object_id, applied FROM declarations \
         ORDER BY tenant_id, kind, name";
    let found = session.rows(SQL, &[]).await?;
    found
        .iter()
        .map(|row| {
            let object = rows::get(row, 3)?;
            let applied = unseal_digest(keyring, DECLARATION, object, rows::get(row, 4)?)?;
            Ok(Declaration {
                tenant: TenantId(rows::get(row, 0)?),
                kind: DeclaredKind::decode(rows::small(row, 1)?)?,
                name: rows::text(row, 2)?,
                object,
                applied: Applied(applied),
            })
        })
        .collect()
}

async fn put(session: &Session, declaration: &Declaration, keyring: &Keyring) -> Result<(), Error> {
    const RENAMED: &str = "DELETE FROM declarations WHERE object_id = $4 \
         AND (tenant_id, kind, name) <> ($1::bigint, $2::smallint, $3::text)";
    const SQL: &str = "INSERT INTO declarations (tenant_id, kind, name, object_id, applied) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant_id, kind, name) DO UPDATE SET \
         object_id = excluded.object_id, applied = excluded.applied";
    let Declaration { tenant, kind, name, object, applied } = declaration;
    let (kind, name) = (kind.code(), Text(name));
    let sealed = seal_digest(keyring, DECLARATION, *object, &applied.0);
    session.execute(RENAMED, &[&tenant.0, &kind, &name, object]).await?;
    session.execute(SQL, &[&tenant.0, &kind, &name, object, &sealed]).await?;
    Ok(())
}

async fn remove(
    session: &Session,
    tenant: TenantId,
    kind: DeclaredKind,
    name: &str,
) -> Result<(), Error> {
    const SQL: &str = "DELETE FROM declarations WHERE tenant_id = $1 AND kind = $2 AND name = $3";
    session.execute(SQL, &[&tenant.0, &kind.code(), &Text(name)]).await?;
    Ok(())
}
