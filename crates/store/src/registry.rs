//! What configuration needs of a store: endpoints, sources, keys, tenants, jobs, and who changed
//! them.

use async_trait::async_trait;
use postrider_core::{
    Endpoint, EndpointId, HubId, JobId, KeyId, Source, SourceId, TenantId, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::audit::{Audit, AuditQuery, AuditRecord};
use crate::error::Error;
use crate::fleet::Tenure;
use crate::ledger::{DeliveryFilter, Position};

/// A change that names its `audit` is stored with that row, in one commit or not at all.
#[async_trait]
pub trait Registry: Send + Sync + 'static {
    /// All endpoints of all tenants, deleted ones that still have unfinished deliveries included.
    async fn endpoints(&self) -> Result<Vec<Endpoint>, Error>;

    /// Inserts or replaces.
    async fn put_endpoint(&self, endpoint: Endpoint, audit: Option<Audit>) -> Result<(), Error>;

    /// Removes a deleted endpoint's row once nothing unfinished is left of it.
    async fn forget_endpoint(&self, id: EndpointId) -> Result<(), Error>;

    /// Endpoints that have failed without a success in between, and since when.
    async fn failing(&self) -> Result<Vec<(EndpointId, Timestamp)>, Error>;

    /// Notes since when endpoints fail; none for one that does not. Those that are gone are passed
    /// over.
    async fn note_failing(&self, since: Vec<(EndpointId, Option<Timestamp>)>) -> Result<(), Error>;

    /// What is known of endpoints that are held or whose breaker is not closed.
    async fn standings(&self) -> Result<Vec<Standing>, Error>;

    /// Notes how breakers stand; none for one that is closed. Those that are gone are passed over.
    async fn note_breakers(&self, breakers: Vec<(EndpointId, Option<String>)>)
    -> Result<(), Error>;

    /// All sources of all tenants.
    async fn sources(&self) -> Result<Vec<Source>, Error>;

    /// Inserts or replaces.
    async fn put_source(&self, source: Source, audit: Audit) -> Result<(), Error>;

    /// What came in by it stays.
    async fn delete_source(&self, id: SourceId, audit: Audit) -> Result<(), Error>;

    /// All hubs of all tenants.
    async fn hubs(&self) -> Result<Vec<HubRecord>, Error>;

    /// Inserts or replaces. Another hub with the same hash makes it [`Error::Exists`].
    async fn put_hub(&self, hub: HubRecord, audit: Audit) -> Result<(), Error>;

    /// Its endpoints stay.
    async fn delete_hub(&self, id: HubId, audit: Audit) -> Result<(), Error>;

    /// Seals every secret anew with the newest key; returns how many rows were rewritten.
    async fn reseal(&self) -> Result<u64, Error>;

    /// Keys that were revoked are among them.
    async fn keys(&self) -> Result<Vec<KeyRecord>, Error>;

    /// Inserts or replaces; one that was revoked stays so. Another key with the same hash makes it
    /// [`Error::Exists`].
    async fn put_key(&self, key: KeyRecord, audit: Option<Audit>) -> Result<(), Error>;

    /// Notes when keys were last used, where that is later than what is known.
    async fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<(), Error>;

    async fn tenants(&self) -> Result<Vec<TenantRecord>, Error>;

    /// Makes a tenant and gives it its number. A name that is taken makes it [`Error::Exists`].
    async fn make_tenant(
        &self,
        name: String,
        created_at: Timestamp,
        audit: Audit,
    ) -> Result<TenantRecord, Error>;

    /// Changes, newest first.
    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditRecord>, Error>;

    /// What tells this store from every other: `candidate`, if it has had no name until now.
    async fn instance(&self, candidate: [u8; 16]) -> Result<[u8; 16], Error>;

    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<JobRecord>, Error>;

    /// Jobs of all tenants that have not ended.
    async fn open_jobs(&self) -> Result<Vec<JobRecord>, Error>;

    /// Inserts or replaces; false, and nothing is changed, if `tenure` has passed to another node.
    async fn put_job(
        &self,
        job: JobRecord,
        audit: Option<Audit>,
        tenure: Option<Tenure>,
    ) -> Result<bool, Error>;
}

/// What holds an endpoint up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub endpoint: EndpointId,
    /// It asked not to be sent to before then. It may have passed.
    pub hold_until: Option<Timestamp>,
    /// As the engine wrote it.
    pub breaker: Option<String>,
}

/// A hub, and the hash of its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubRecord {
    pub id: HubId,
    pub tenant: TenantId,
    pub name: String,
    pub sha256: [u8; 32],
    pub created_at: Timestamp,
}

/// An API key: never itself, only its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: KeyId,
    pub name: String,
    pub sha256: [u8; 32],
    pub role: Role,
    pub created_at: Timestamp,
    /// From then on it opens nothing.
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// Within a minute or so.
    pub last_used_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Admin,
    Tenant(TenantId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRecord {
    pub id: TenantId,
    pub name: String,
    pub created_at: Timestamp,
}

/// A paced replay of dead letters.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRecord {
    pub id: JobId,
    pub tenant: TenantId,
    pub filter: DeliveryFilter,
    pub rate_per_second: Option<f64>,
    pub state: JobState,
    /// How many matched when the job was made.
    pub matched: u64,
    pub replayed: u64,
    /// Matched, but changed meanwhile by somebody else.
    pub skipped: u64,
    /// How far it has come.
    pub position: Option<Position>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Running,
    Finished,
}
