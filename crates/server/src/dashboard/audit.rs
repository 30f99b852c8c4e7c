//! The page of changes: who did what to what, and when, newest first.

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use postrider_core::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Dashboard;
use super::api::List;
use super::chrome::{Chrome, Section};
use super::html::{Shown, show};
use super::session::Visitor;
use super::sources::{parameter, with_query};
use super::words::{self, Inert, Moment, inert, moment};

/// The actions that there are, to choose from. Any other can be typed.
const ACTIONS: [&str; 24] = [
    "dead_letters.purge",
    "dead_letters.replay",
    "delivery.cancel",
    "delivery.retry",
    "endpoint.create",
    "endpoint.delete",
    "endpoint.disable",
    "endpoint.enable",
    "endpoint.pause",
    "endpoint.resume",
    "endpoint.rotate_secret",
    "endpoint.update",
    "event.replay",
    "hub.create",
    "hub.delete",
    "hub.rotate_token",
    "key.create",
    "key.revoke",
    "key.update",
    "source.create",
    "source.delete",
    "source.rotate_token",
    "source.update",
    "tenant.create",
];

/// What is said of an admin's look that ends at the tenant it is in.
const ONE_TENANT: &str = "tenant";

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new().route("/audit", get(list))
}

/// A change as the API shows it.
#[derive(Debug, Deserialize)]
struct Change {
    at: Timestamp,
    tenant: Option<String>,
    actor: String,
    action: String,
    subject: String,
    detail: Option<Box<RawValue>>,
}

struct Row {
    at: Moment,
    tenant: Option<String>,
    actor: String,
    /// Where the key is shown that did it.
    actor_page: Option<String>,
    action: String,
    subject: String,
    /// Where it is shown what was changed.
    subject_page: Option<String>,
    detail: Option<Inert>,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Page {
    chrome: Chrome,
    actions: [&'static str; ACTIONS.len()],
    action: String,
    subject: String,
    /// An admin looks at one tenant only.
    is_one_tenant: bool,
    rows: Vec<Row>,
    next: Option<String>,
}

async fn list(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    let said = |name: &str| parameter(query.as_deref(), name);
    let (action, subject) = (said("action"), said("subject"));
    let is_one_tenant = said("scope").is_some_and(|scope| scope == ONE_TENANT);
    let (by_action, by_subject) = (("action", action.as_ref()), ("subject", subject.as_ref()));
    let cursor = said("cursor");
    let path = with_query("/v1/audit", [by_action, by_subject, ("cursor", cursor.as_ref())]);
    let api = if is_one_tenant { visitor.api.clone() } else { visitor.everywhere() };
    let listed: List<Change> = api.get(&path).await?;
    let scope = is_one_tenant.then(|| ONE_TENANT.to_owned());
    let scope = ("scope", scope.as_ref());
    let next = listed.next_cursor.map(|cursor| {
        with_query("/audit", [by_action, by_subject, scope, ("cursor", Some(&cursor))])
    });
    let rows = listed.data.into_iter().map(|change| row(change, &visitor)).collect();
    show(&Page {
        chrome: Chrome::new(&visitor, Section::Audit),
        actions: ACTIONS,
        action: action.unwrap_or_default(),
        subject: subject.unwrap_or_default(),
        is_one_tenant,
        rows,
        next,
    })
}

fn row(change: Change, visitor: &Visitor) -> Row {
    // A tenant's changes may have been made with an admin key, which its own keys cannot look at.
    let actor_page = visitor.is_admin().then(|| page_of(&change.actor)).flatten();
    Row {
        at: moment(change.at, visitor.now),
        tenant: change.tenant,
        actor_page,
        actor: change.actor,
        action: change.action,
        subject_page: page_of(&change.subject),
        subject: change.subject,
        detail: change.detail.map(|detail| inert(detail.get())),
    }
}

/// The page of what an id stands for.
fn page_of(id: &str) -> Option<String> {
    let pages = [
        ("ep_", "endpoints"),
        ("src_", "sources"),
        ("key_", "keys"),
        ("evt_", "events"),
        ("dlv_", "deliveries"),
        ("job_", "jobs"),
    ];
    let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let found = pages.iter().find(|(prefix, _)| id.starts_with(prefix) && plain);
    found.map(|(_, page)| format!("/{page}/{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_leads_to_a_page() {
        for (id, page) in [
            ("ep_06dq", Some("/endpoints/ep_06dq")),
            ("key_06dq", Some("/keys/key_06dq")),
            ("hub_06dq", None),
            ("gateway", None),
            ("acme", None),
            ("ep_/../../v1", None),
        ] {
            assert_eq!(page_of(id).as_deref(), page, "{id}");
        }
    }
}
