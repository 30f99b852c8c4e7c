//! What configuration needs of a store: endpoints, keys, tenants, jobs.

use async_trait::async_trait;
use postrider_core::{Endpoint, EndpointId, JobId, KeyId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::ledger::{DeliveryFilter, Position};

#[async_trait]
pub trait Registry: Send + Sync + 'static {
    /// All endpoints of all tenants, deleted ones that still have unfinished deliveries included.
    async fn endpoints(&self) -> Result<Vec<Endpoint>, Error>;

    /// Inserts or replaces.
    async fn put_endpoint(&self, endpoint: Endpoint) -> Result<(), Error>;

    /// Removes a deleted endpoint's row once nothing unfinished is left of it.
    async fn forget_endpoint(&self, id: EndpointId) -> Result<(), Error>;

    async fn keys(&self) -> Result<Vec<KeyRecord>, Error>;

    async fn put_key(&self, key: KeyRecord) -> Result<(), Error>;

    async fn tenants(&self) -> Result<Vec<TenantRecord>, Error>;

    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<JobRecord>, Error>;

    /// Jobs of all tenants that have not ended.
    async fn open_jobs(&self) -> Result<Vec<JobRecord>, Error>;

    async fn put_job(&self, job: JobRecord) -> Result<(), Error>;
}

/// An API key: never itself, only its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: KeyId,
    pub name: String,
    pub sha256: [u8; 32],
    pub role: Role,
    pub created_at: Timestamp,
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
