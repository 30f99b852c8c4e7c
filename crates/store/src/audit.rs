//! Who changed what: rows written in the same commit as the change itself.

use postrider_core::{KeyId, TenantId, Timestamp};

/// The longest subject and detail kept of a change.
pub const MAX_DETAIL_BYTES: usize = 4 << 10;

/// Who did it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    Key(KeyId),
    /// Nobody asked: a rule of the gateway's own.
    Gateway,
    /// A configuration file declares it.
    File,
}

/// A change about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    pub at: Timestamp,
    /// None where it concerns no tenant alone.
    pub tenant: Option<TenantId>,
    pub actor: Actor,
    /// `endpoint.create`, `delivery.retry`: what it was done to, and what was done.
    pub action: &'static str,
    /// The id or name of what was changed.
    pub subject: String,
    /// A JSON object that says more; never a secret.
    pub detail: Option<String>,
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Grows with every row.
    pub id: i64,
    pub at: Timestamp,
    pub tenant: Option<TenantId>,
    pub actor: Actor,
    pub action: String,
    pub subject: String,
    pub detail: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only of this tenant; none is all, those of no tenant included.
    pub tenant: Option<TenantId>,
    /// Exactly this action.
    pub action: Option<String>,
    pub subject: Option<String>,
    /// Go on below this row.
    pub before: Option<i64>,
    pub limit: usize,
}
