//! The pages of keys: who may get in, until when, and when each was last used. An admin sees the keys
//! of all tenants, others those of their own. Tenants are in [`tenants`].

mod tenants;

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::routing::get;
use http::{HeaderMap, Method, StatusCode, Uri};
use postrider_core::{KeyId, Timestamp};
use postrider_store::audit::Actor;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Dashboard;
use super::api::{FieldError, List, Refused};
use super::chrome::{Chrome, Section};
use super::fields::Form;
use super::html::{Shown, Sorry, go_to, show, show_with};
use super::session::Visitor;
use super::sources::confirm::{Confirm, ShownOnce};
use super::sources::{Errors, address, known, next_page, parameter, with_query};
use super::words::{self, Moment, moment};

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/keys", get(list).post(create))
        .route("/keys/{id}", get(page).post(change))
        .route("/keys/{id}/revoke", get(ask_revoke).post(revoke))
        .merge(tenants::routes())
}

/// A key as the API shows it.
#[derive(Debug, Clone, Deserialize)]
struct Key {
    id: KeyId,
    name: String,
    role: String,
    tenant: Option<String>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
}

/// What a key is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Live,
    Expired,
    Revoked,
}

impl Key {
    fn standing(&self, now: Timestamp) -> Standing {
        if self.revoked_at.is_some() {
            Standing::Revoked
        } else if self.expires_at.is_some_and(|expiry| expiry <= now) {
            Standing::Expired
        } else {
            Standing::Live
        }
    }
}

impl Standing {
    /// The name of the badge, and what it says.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Live => ("active", "live"),
            Self::Expired => ("retrying", "expired"),
            Self::Revoked => ("revoked", "revoked"),
        }
    }
}

struct Row {
    key: Key,
    standing: Standing,
    /// It is the one that was signed in with.
    is_own: bool,
    created: Moment,
    expires: Option<Moment>,
    used: Option<Moment>,
    revoked: Option<Moment>,
}

impl Row {
    fn of(key: Key, visitor: &Visitor) -> Self {
        let shown = |at: Timestamp| moment(at, visitor.now);
        Self {
            standing: key.standing(visitor.now),
            is_own: is_own(visitor, key.id),
            created: shown(key.created_at),
            expires: key.expires_at.map(shown),
            used: key.last_used_at.map(shown),
            revoked: key.revoked_at.map(shown),
            key,
        }
    }
}

fn is_own(visitor: &Visitor, id: KeyId) -> bool {
    match visitor.caller.actor {
        Actor::Key(own) => own == id,
        Actor::Gateway | Actor::File => false,
    }
}

#[derive(Template)]
#[template(path = "keys.html")]
struct ListPage {
    chrome: Chrome,
    rows: Vec<Row>,
    next: Option<String>,
    draft: Draft,
    errors: Errors,
}

/// What was typed for a new key, or for one that is changed.
#[derive(Debug, Clone, Default)]
struct Draft {
    name: String,
    role: String,
    tenant: String,
    expires: String,
}

impl Draft {
    fn read(form: &Form) -> Self {
        let text = |name: &str| form.text(name).unwrap_or_default().to_owned();
        Self {
            name: form.raw("name").trim().to_owned(),
            role: text("role"),
            tenant: text("tenant"),
            expires: text("expires_at"),
        }
    }

    /// When it is to expire; none is never.
    fn expiry(&self) -> Result<Option<Timestamp>, Refused> {
        if self.expires.is_empty() {
            return Ok(None);
        }
        // A browser's field for a day and a time has no zone, and perhaps no seconds.
        let whole = [format!("{}Z", self.expires), format!("{}:00Z", self.expires)];
        let found = whole.iter().chain([&self.expires]).find_map(|text| text.parse().ok());
        found.map(Some).ok_or_else(|| {
            let message = "must be a day and a time such as 2026-12-31T18:00, in UTC";
            Refused {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                detail: format!("expires_at: {message}"),
                errors: vec![FieldError { field: "expires_at".into(), message: message.into() }],
            }
        })
    }
}

impl ListPage {
    async fn find(visitor: &Visitor, query: Option<&str>) -> Result<Self, Refused> {
        let cursor = parameter(query, "cursor");
        let path = with_query("/v1/keys", [("cursor", cursor.as_ref())]);
        let listed: List<Key> = visitor.everywhere().get(&path).await?;
        let draft = Draft { tenant: visitor.tenant_name.clone(), ..Draft::default() };
        Ok(Self {
            chrome: Chrome::new(visitor, Section::Keys),
            rows: listed.data.into_iter().map(|key| Row::of(key, visitor)).collect(),
            next: listed.next_cursor.map(|next| next_page("/keys", &next)),
            draft,
            errors: Errors::default(),
        })
    }
}

async fn list(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    show(&ListPage::find(&visitor, query.as_deref()).await?)
}

/// The key is in the answer and nowhere else, so the answer is the page.
async fn create(headers: HeaderMap, uri: Uri, form: Form) -> Shown {
    #[derive(Deserialize)]
    struct Made {
        name: String,
        key: String,
    }

    let visitor = &form.visitor;
    let draft = Draft::read(&form);
    let made = async {
        let mut request = Map::new();
        request.insert("name".into(), draft.name.as_str().into());
        if draft.role == "admin" {
            request.insert("role".into(), "admin".into());
        } else if !draft.tenant.is_empty() {
            request.insert("tenant".into(), draft.tenant.as_str().into());
        }
        if let Some(expiry) = draft.expiry()? {
            request.insert("expires_at".into(), expiry.to_string().into());
        }
        let api = visitor.everywhere();
        api.send::<Made>(Method::POST, "/v1/keys", &Value::from(request)).await
    };
    let Made { name, key } = match made.await {
        Ok(made) => made,
        Err(refused) => {
            let page = ListPage::find(visitor, None).await?;
            let (status, errors) = (refused.status, Errors(Some(refused)));
            return show_with(status, &ListPage { draft, errors, ..page });
        }
    };
    let gateway = address(visitor, &headers, &uri);
    show(&ShownOnce {
        chrome: Chrome::new(visitor, Section::Keys),
        title: format!("The key {name} was made"),
        what: "The key".to_owned(),
        command: Some(format!(
            "curl -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\\n  \
             -d '{{\"type\":\"order.created\",\"payload\":{{\"id\":1}}}}' '{gateway}/v1/events'"
        )),
        secret: key,
        then: "A first event sent with it:".to_owned(),
        back: "/keys".to_owned(),
    })
}

#[derive(Template)]
#[template(path = "key.html")]
struct KeyPage {
    chrome: Chrome,
    row: Row,
    draft: Draft,
    errors: Errors,
}

impl KeyPage {}

async fn key(visitor: &Visitor, id: &str) -> Result<Key, Sorry> {
    let id: KeyId = known(id)?;
    Ok(visitor.everywhere().get(&format!("/v1/keys/{id}")).await?)
}

async fn page(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let key = key(&visitor, &id).await?;
    // As a browser's field for a day and a time has it: without a zone.
    let expires = key.expires_at.map(|at| at.to_string().trim_end_matches('Z').to_owned());
    let draft =
        Draft { name: key.name.clone(), expires: expires.unwrap_or_default(), ..Draft::default() };
    let chrome = Chrome::new(&visitor, Section::Keys);
    show(&KeyPage { chrome, row: Row::of(key, &visitor), draft, errors: Errors::default() })
}

async fn change(Path(id): Path<String>, form: Form) -> Shown {
    let visitor = &form.visitor;
    let key = key(visitor, &id).await?;
    let draft = Draft::read(&form);
    let changed = async {
        let expiry = draft.expiry()?;
        let mut request = Map::new();
        request.insert("name".into(), draft.name.as_str().into());
        request.insert("expires_at".into(), expiry.map(|at| at.to_string()).into());
        let path = format!("/v1/keys/{}", key.id);
        let api = visitor.everywhere();
        api.send::<Key>(Method::PATCH, &path, &Value::from(request)).await
    };
    match changed.await {
        Ok(_) => Ok(go_to(visitor, "/keys", "The key was changed.")),
        Err(refused) => {
            let (chrome, row) = (Chrome::new(visitor, Section::Keys), Row::of(key, visitor));
            let (status, errors) = (refused.status, Errors(Some(refused)));
            show_with(status, &KeyPage { chrome, row, draft, errors })
        }
    }
}

async fn ask_revoke(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let key = key(&visitor, &id).await?;
    let own = if is_own(&visitor, key.id) {
        " You are signed in with this key: you will have to sign in with another one."
    } else {
        ""
    };
    show(&Confirm {
        chrome: Chrome::new(&visitor, Section::Keys),
        title: format!("Revoke the key {}?", key.name),
        warning: format!(
            "Whoever uses it is refused from then on, and it cannot be made good again.{own}"
        ),
        action: format!("/keys/{}/revoke", key.id),
        button: "Revoke the key".to_owned(),
        back: "/keys".to_owned(),
    })
}

async fn revoke(Path(id): Path<String>, form: Form) -> Shown {
    let id: KeyId = known(&id)?;
    form.visitor.everywhere().call(Method::DELETE, &format!("/v1/keys/{id}")).await?;
    Ok(go_to(&form.visitor, "/keys", "The key was revoked."))
}
