//! What the dashboard needs of a store: who has signed in. A session is known on every node, and
//! ends on all of them at once.

use async_trait::async_trait;
use postrider_core::{KeyId, TenantId, Timestamp};

use crate::error::Error;

#[async_trait]
pub trait Sessions: Send + Sync + 'static {
    /// Inserts or replaces.
    async fn put_session(&self, session: SessionRecord) -> Result<(), Error>;

    /// The session whose token has this hash.
    async fn session(&self, sha256: [u8; 32]) -> Result<Option<SessionRecord>, Error>;

    /// Notes that it was used, where that is later than what is known. One that has ended stays so.
    async fn touch_session(&self, sha256: [u8; 32], seen_at: Timestamp) -> Result<(), Error>;

    /// Ends it; one that is not there is no error.
    async fn end_session(&self, sha256: [u8; 32]) -> Result<(), Error>;

    /// Ends those that were begun, or last seen, before these; up to `limit`. Returns how many.
    async fn end_old_sessions(
        &self,
        begun_before: Timestamp,
        seen_before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error>;
}

/// Somebody who signed in with a key: never the token itself, only its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    pub sha256: [u8; 32],
    /// The key it was begun with. When that is revoked or expires, the session is worth nothing.
    pub key: KeyId,
    /// The tenant that is looked at.
    pub tenant: TenantId,
    pub begun_at: Timestamp,
    /// Within a minute or so.
    pub seen_at: Timestamp,
}
