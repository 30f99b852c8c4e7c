//! `/v1/audit`: who changed what, newest first. A tenant's key sees the rows of its tenant, an admin
//! key all, or those of the tenant it names.

use std::sync::Arc;

use axum::extract::State;
use postrider_core::{KeyId, Timestamp};
use postrider_store::audit::{Actor, AuditQuery, AuditRecord};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::App;
use crate::access::After;
use crate::answer::{self, Answer};
use crate::auth::Caller;
use crate::extract::Query;

pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, mut query: Query) -> Answer {
    let page = query.page::<After<u64>>()?;
    let wanted = AuditQuery {
        tenant: caller.reach,
        action: query.text("action"),
        subject: query.text("subject"),
        before: page.after.map(|After(id)| i64::try_from(id).unwrap_or(i64::MAX)),
        // One more, to know whether there is one.
        limit: page.limit + 1,
    };
    query.finish()?;
    let mut rows = app.engine.store().audit(wanted).await?;
    let more = rows.len() > page.limit;
    rows.truncate(page.limit);
    let data: Vec<View<'_>> = rows.iter().map(|row| View::of(&app, row)).collect();
    let next = rows.last().filter(|_| more).map(|last| After(last.id.unsigned_abs()));
    answer::list(&data, next.as_ref())
}

/// A change as the API shows it.
#[derive(Serialize)]
struct View<'a> {
    id: String,
    at: Timestamp,
    tenant: Option<String>,
    actor: ActorView,
    action: &'a str,
    subject: &'a str,
    detail: Option<&'a RawValue>,
}

/// The key that did it, or the gateway, or its configuration file.
enum ActorView {
    Key(KeyId),
    Gateway,
    File,
}

impl Serialize for ActorView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Key(id) => id.serialize(serializer),
            Self::Gateway => serializer.serialize_str("gateway"),
            Self::File => serializer.serialize_str("file"),
        }
    }
}

impl<'a> View<'a> {
    fn of(app: &App, row: &'a AuditRecord) -> Self {
        let detail = row.detail.as_deref();
        Self {
            id: row.id.to_string(),
            at: row.at,
            tenant: row.tenant.and_then(|tenant| app.keys.tenant_name(tenant)),
            actor: match row.actor {
                Actor::Key(id) => ActorView::Key(id),
                Actor::Gateway => ActorView::Gateway,
                Actor::File => ActorView::File,
            },
            action: &row.action,
            subject: &row.subject,
            // It was written as JSON.
            detail: detail.and_then(|detail| serde_json::from_str(detail).ok()),
        }
    }
}
