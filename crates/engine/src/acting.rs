//! In whose name something is changed: every such change leaves a row that says so.

use postrider_core::{TenantId, Timestamp};
use postrider_store::audit::{Actor, Audit};

/// Who asks for a change, and in which tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acting {
    pub tenant: TenantId,
    pub by: Actor,
}

impl Acting {
    /// The gateway itself, following a rule of its own.
    pub const fn gateway(tenant: TenantId) -> Self {
        Self { tenant, by: Actor::Gateway }
    }

    /// The row of a change to `subject`. `detail` says more; it never holds a secret.
    #[expect(clippy::needless_pass_by_value, reason = "an id or a short name, read once")]
    pub fn audit(
        self,
        at: Timestamp,
        action: &'static str,
        subject: impl ToString,
        detail: Option<&serde_json::Value>,
    ) -> Audit {
        Audit {
            at,
            tenant: Some(self.tenant),
            actor: self.by,
            action,
            subject: subject.to_string(),
            detail: detail.map(serde_json::Value::to_string),
        }
    }
}
