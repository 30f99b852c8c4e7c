//! Who has signed in, by the hashes of their tokens. (Connections are in `session.rs`.)

use async_trait::async_trait;
use postrider_core::{KeyId, TenantId, Timestamp};

use super::session::Session;
use super::{Postgres, rows};
use crate::error::Error;
use crate::sessions::{SessionRecord, Sessions};
use crate::stored::code;

#[async_trait]
impl Sessions for Postgres {
    async fn put_session(&self, session: SessionRecord) -> Result<(), Error> {
        self.change(move |link| Box::pin(async move { put(link, &session).await })).await
    }

    async fn session(&self, sha256: [u8; 32]) -> Result<Option<SessionRecord>, Error> {
        let reader = self.ledger.session().await?;
        find(reader.session()?, sha256).await
    }

    async fn touch_session(&self, sha256: [u8; 32], seen_at: Timestamp) -> Result<(), Error> {
        self.change(move |link| Box::pin(touch(link, sha256, seen_at))).await
    }

    async fn end_session(&self, sha256: [u8; 32]) -> Result<(), Error> {
        self.change(move |link| Box::pin(end(link, sha256))).await
    }

    async fn end_old_sessions(
        &self,
        begun_before: Timestamp,
        seen_before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        self.change(move |link| Box::pin(end_old(link, begun_before, seen_before, limit))).await
    }
}

async fn put(link: &Session, session: &SessionRecord) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO sessions (sha256, key_id, tenant_id, begun_at, seen_at) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT (sha256) DO UPDATE SET \
         key_id = excluded.key_id, tenant_id = excluded.tenant_id, \
         begun_at = excluded.begun_at, seen_at = excluded.seen_at";
    let (key, tenant) = (session.key.as_i64(), session.tenant.0);
    let (begun_at, seen_at) = (session.begun_at.as_millis(), session.seen_at.as_millis());
    link.execute(SQL, &[&&session.sha256[..], &key, &tenant, &begun_at, &seen_at]).await?;
    Ok(())
}

async fn find(link: &Session, sha256: [u8; 32]) -> Result<Option<SessionRecord>, Error> {
    const SQL: &str = "SELECT key_id, tenant_id, begun_at, seen_at FROM sessions WHERE sha256 = $1";
    let Some(row) = link.row(SQL, &[&&sha256[..]]).await? else { return Ok(None) };
    Ok(Some(SessionRecord {
        sha256,
        key: KeyId::from_i64(rows::get(&row, 0)?),
        tenant: TenantId(rows::get(&row, 1)?),
        begun_at: rows::time(&row, 2)?,
        seen_at: rows::time(&row, 3)?,
    }))
}

async fn touch(link: &Session, sha256: [u8; 32], seen_at: Timestamp) -> Result<(), Error> {
    const SQL: &str = "UPDATE sessions SET seen_at = $2 WHERE sha256 = $1 AND seen_at < $2";
    link.execute(SQL, &[&&sha256[..], &seen_at.as_millis()]).await?;
    Ok(())
}

async fn end(link: &Session, sha256: [u8; 32]) -> Result<(), Error> {
    link.execute("DELETE FROM sessions WHERE sha256 = $1", &[&&sha256[..]]).await?;
    Ok(())
}

/// What another node is just ending, or has just seen, is left to the next time.
async fn end_old(
    link: &Session,
    begun_before: Timestamp,
    seen_before: Timestamp,
    limit: usize,
) -> Result<u64, Error> {
    const SQL: &str = "DELETE FROM sessions s USING (SELECT sha256 FROM sessions \
             WHERE begun_at < $1 OR seen_at < $2 LIMIT $3 FOR UPDATE SKIP LOCKED) old \
         WHERE s.sha256 = old.sha256";
    let (begun, seen) = (begun_before.as_millis(), seen_before.as_millis());
    Ok(link.execute(SQL, &[&begun, &seen, &code::size(limit)]).await?)
}
