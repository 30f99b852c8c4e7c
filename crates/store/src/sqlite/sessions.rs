//! Who has signed in, by the hashes of their tokens.

use async_trait::async_trait;
use postrider_core::{KeyId, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::batch::Batch;
use super::writer::Cost;
use super::{ONE_ROW, Sqlite};
use crate::error::Error;
use crate::journal::Urgency;
use crate::sessions::{SessionRecord, Sessions};
use crate::stored::code;

#[async_trait]
impl Sessions for Sqlite {
    async fn put_session(&self, session: SessionRecord) -> Result<(), Error> {
        self.configure(move |batch| put(batch, &session)).await
    }

    async fn session(&self, sha256: [u8; 32]) -> Result<Option<SessionRecord>, Error> {
        self.ledger.ask(move |conn| find(conn, sha256)).await
    }

    async fn touch_session(&self, sha256: [u8; 32], seen_at: Timestamp) -> Result<(), Error> {
        self.writer.submit(ONE_ROW, Urgency::Lazy, move |batch| touch(batch, sha256, seen_at)).await
    }

    async fn end_session(&self, sha256: [u8; 32]) -> Result<(), Error> {
        self.configure(move |batch| end(batch, sha256)).await
    }

    async fn end_old_sessions(
        &self,
        begun_before: Timestamp,
        seen_before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        let cost = Cost { rows: limit, bytes: 0 };
        self.writer
            .submit(cost, Urgency::Lazy, move |batch| {
                end_old(batch, begun_before, seen_before, limit)
            })
            .await
    }
}

fn put(batch: &mut Batch<'_>, session: &SessionRecord) -> Result<(), Error> {
    const SQL: &str = "INSERT OR REPLACE INTO sessions \
         (sha256, key_id, tenant_id, begun_at, seen_at) VALUES (?1, ?2, ?3, ?4, ?5)";
    batch.conn.prepare_cached(SQL)?.execute(params![
        &session.sha256[..],
        session.key.as_i64(),
        session.tenant.0,
        session.begun_at.as_millis(),
        session.seen_at.as_millis(),
    ])?;
    Ok(())
}

fn find(conn: &Connection, sha256: [u8; 32]) -> Result<Option<SessionRecord>, Error> {
    const SQL: &str = "SELECT key_id, tenant_id, begun_at, seen_at FROM sessions WHERE sha256 = ?1";
    let found = conn
        .prepare_cached(SQL)?
        .query_row((&sha256[..],), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    Ok(found.optional()?.map(|(key, tenant, begun_at, seen_at)| SessionRecord {
        sha256,
        key: KeyId::from_i64(key),
        tenant: TenantId(tenant),
        begun_at: Timestamp::from_millis(begun_at),
        seen_at: Timestamp::from_millis(seen_at),
    }))
}

fn touch(batch: &mut Batch<'_>, sha256: [u8; 32], seen_at: Timestamp) -> Result<(), Error> {
    const SQL: &str = "UPDATE sessions SET seen_at = ?2 WHERE sha256 = ?1 AND seen_at < ?2";
    batch.conn.prepare_cached(SQL)?.execute((&sha256[..], seen_at.as_millis()))?;
    Ok(())
}

fn end(batch: &mut Batch<'_>, sha256: [u8; 32]) -> Result<(), Error> {
    const SQL: &str = "DELETE FROM sessions WHERE sha256 = ?1";
    batch.conn.prepare_cached(SQL)?.execute((&sha256[..],))?;
    Ok(())
}

fn end_old(
    batch: &mut Batch<'_>,
    begun_before: Timestamp,
    seen_before: Timestamp,
    limit: usize,
) -> Result<u64, Error> {
    const SQL: &str = "DELETE FROM sessions WHERE sha256 IN \
         (SELECT sha256 FROM sessions WHERE begun_at < ?1 OR seen_at < ?2 LIMIT ?3)";
    let ended = batch.conn.prepare_cached(SQL)?.execute((
        begun_before.as_millis(),
        seen_before.as_millis(),
        code::size(limit),
    ))?;
    Ok(ended as u64)
}
