//! `/v1/keys`: who may get in, and until when.
//!
//! A tenant's key manages the keys of its tenant, an admin key those of all, or of one where it
//! names a tenant. What is out of reach is not found. A key that was revoked stays in the list.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use postrider_core::{KeyId, TenantId, Timestamp};
use postrider_engine::Acting;
use postrider_store::audit::Audit;
use postrider_store::registry::{KeyRecord, Role};
use serde::{Deserialize, Deserializer, Serialize};

use crate::App;
use crate::answer::{self, Answer, json};
use crate::auth::Caller;
use crate::cursor::Cursor;
use crate::extract::{Id, Json, Query};
use crate::keys;
use crate::problem::{OrMissing as _, Problem};

const MAX_NAME_CHARS: usize = 200;
/// How many keys a tenant has, and how many admin keys there are, revoked ones included.
const MAX_KEYS: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RoleName {
    Admin,
    #[default]
    Tenant,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKey {
    name: String,
    #[serde(default)]
    role: RoleName,
    tenant: Option<String>,
    expires_at: Option<Timestamp>,
}

/// Makes a key. The answer is the only place where it can be read.
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(new): Json<NewKey>,
) -> Answer {
    let role = role_of_new(&app, &caller, &new)?;
    let name = check_name(new.name)?;
    let (turn, now) = caller.turn(&app).await?;
    if let Some(expiry) = new.expires_at {
        check_expiry(expiry, now)?;
    }
    if app.keys.count(role) >= MAX_KEYS {
        return Err(Problem::conflict(format!(
            "there are {MAX_KEYS} such keys already, revoked ones included, and no more are kept"
        )));
    }
    let key = keys::new_key(app.engine.entropy().secret_bytes());
    let record = KeyRecord {
        id: KeyId::from_i64(app.engine.take_ids(1)),
        name,
        sha256: keys::hash(&key),
        role,
        created_at: now,
        expires_at: new.expires_at,
        revoked_at: None,
        last_used_at: None,
    };
    let view = View::of(&app, &record);
    let detail = serde_json::json!({
        "name": view.name,
        "role": view.role,
        "tenant": view.tenant,
        "expires_at": view.expires_at,
    });
    let audit = audit(&caller, &record, now, "key.create", Some(&detail));
    app.keys.put(turn, &app.engine, record, audit).await?;
    json(StatusCode::CREATED, &View { key: Some(&key), ..view })
}

pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, mut query: Query) -> Answer {
    let page = query.page::<After<KeyId>>()?;
    query.finish()?;
    let below = page.after.map(|After(id)| id);
    let mut rows = app.keys.records(below, page.limit + 1, |role| reaches(&caller, role));
    let more = rows.len() > page.limit;
    rows.truncate(page.limit);
    let data: Vec<View<'_>> = rows.iter().map(|record| View::of(&app, record)).collect();
    let next = rows.last().filter(|_| more).map(|last| After(last.id));
    answer::list(&data, next.as_ref())
}

pub(crate) async fn show(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<KeyId>) -> Answer {
    json(StatusCode::OK, &View::of(&app, &find(&app, &caller, id)?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    name: Option<String>,
    #[serde(default)]
    expires_at: NewExpiry,
}

/// A field that can be left out; `null` is never.
#[derive(Debug, Default)]
enum NewExpiry {
    #[default]
    AsBefore,
    At(Timestamp),
    Never,
}

impl NewExpiry {
    fn over(self, before: Option<Timestamp>) -> Option<Timestamp> {
        match self {
            Self::AsBefore => before,
            Self::At(time) => Some(time),
            Self::Never => None,
        }
    }
}

impl<'de> Deserialize<'de> for NewExpiry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Never, Self::At))
    }
}

/// Changes what a key is called and when it expires. One that has expired lives again if it is
/// given more time; one that was revoked does not.
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<KeyId>,
    Json(change): Json<Change>,
) -> Answer {
    let (turn, now) = caller.turn(&app).await?;
    let before = find(&app, &caller, id)?;
    if before.revoked_at.is_some() {
        return Err(Problem::conflict("this key has been revoked; make another one"));
    }
    let mut record = before.clone();
    let mut changed = serde_json::Map::new();
    if let Some(name) = change.name {
        record.name = check_name(name)?;
        if record.name != before.name {
            changed.insert("name".to_owned(), record.name.clone().into());
        }
    }
    record.expires_at = change.expires_at.over(before.expires_at);
    if record.expires_at != before.expires_at {
        if let Some(expiry) = record.expires_at {
            check_expiry(expiry, now)?;
            keep_an_admin(&app, id, now)?;
        }
        let text = record.expires_at.map(|expiry| expiry.to_string());
        changed.insert("expires_at".to_owned(), text.into());
    }
    if !changed.is_empty() {
        let audit = audit(&caller, &record, now, "key.update", Some(&changed.into()));
        app.keys.put(turn, &app.engine, record.clone(), audit).await?;
    }
    json(StatusCode::OK, &View::of(&app, &record))
}

/// Revokes a key: it opens nothing from now on. It may be the one that asks.
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<KeyId>,
) -> Result<StatusCode, Problem> {
    let (turn, now) = caller.turn(&app).await?;
    let record = find(&app, &caller, id)?;
    if record.revoked_at.is_none() {
        keep_an_admin(&app, id, now)?;
        let audit = audit(&caller, &record, now, "key.revoke", None);
        let revoked = KeyRecord { revoked_at: Some(now), ..record };
        app.keys.put(turn, &app.engine, revoked, audit).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A place in a list whose rows have a text that says which one they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct After<T>(pub(crate) T);

impl<T: Display + FromStr> Cursor for After<T> {
    fn to_text(&self) -> String {
        self.0.to_string()
    }

    fn from_bytes(_: u8, _: &[i64]) -> Option<Self> {
        // It is not written as numbers.
        None
    }

    fn parse(text: &str) -> Result<Self, Problem> {
        let read = text.parse().ok().map(Self);
        // What reads numbers also takes `+7` and `007`, which no list writes.
        read.filter(|after| after.to_text() == text)
            .ok_or_else(|| Problem::invalid("cursor", "is not one that this list has given out"))
    }
}

/// Of what role a new key is, if its maker may make such a one.
fn role_of_new(app: &App, caller: &Caller, new: &NewKey) -> Result<Role, Problem> {
    let named = new.tenant.as_deref();
    match (caller.role, new.role) {
        (Role::Tenant(_), RoleName::Admin) => {
            Err(Problem::forbidden("only an admin key makes admin keys"))
        }
        (Role::Tenant(own), RoleName::Tenant) => {
            if named.is_none_or(|name| app.keys.tenant_named(name) == Some(own)) {
                Ok(Role::Tenant(own))
            } else {
                Err(Problem::forbidden("the key of a tenant makes keys of its own tenant only"))
            }
        }
        (Role::Admin, RoleName::Admin) => {
            if named.is_some() {
                return Err(Problem::invalid("tenant", "an admin key belongs to no tenant"));
            }
            if caller.reach.is_some() {
                let message = "an admin key belongs to no tenant: leave out Postrider-Tenant";
                return Err(Problem::invalid("role", message));
            }
            Ok(Role::Admin)
        }
        (Role::Admin, RoleName::Tenant) => {
            let Some(name) = named else { return Ok(Role::Tenant(caller.tenant)) };
            let tenant = app.keys.tenant_named(name);
            let tenant =
                tenant.ok_or_else(|| Problem::invalid("tenant", "there is no such tenant"))?;
            if caller.reach.is_some_and(|reach| reach != tenant) {
                let message = "is not the one that Postrider-Tenant names";
                return Err(Problem::invalid("tenant", message));
            }
            Ok(Role::Tenant(tenant))
        }
    }
}

fn reaches(caller: &Caller, role: Role) -> bool {
    match (caller.reach, role) {
        (None, Role::Admin | Role::Tenant(_)) => true,
        (Some(tenant), Role::Tenant(of)) => tenant == of,
        (Some(_), Role::Admin) => false,
    }
}

fn find(app: &App, caller: &Caller, id: KeyId) -> Result<KeyRecord, Problem> {
    app.keys.record(id).filter(|record| reaches(caller, record.role)).or_missing("key")
}

/// Refuses to take away the last way in.
fn keep_an_admin(app: &App, id: KeyId, now: Timestamp) -> Result<(), Problem> {
    if app.keys.is_last_admin(id, now) {
        Err(Problem::conflict(
            "this is the last admin key that stays: without it nobody could get in; \
             make another admin key that does not expire first",
        ))
    } else {
        Ok(())
    }
}

pub(crate) fn check_name(name: String) -> Result<String, Problem> {
    let length = name.chars().count();
    if !name.trim().is_empty() && length <= MAX_NAME_CHARS && !name.chars().any(char::is_control) {
        Ok(name)
    } else {
        let message = format!("must have 1 to {MAX_NAME_CHARS} characters, none for control");
        Err(Problem::invalid("name", message))
    }
}

fn check_expiry(expiry: Timestamp, now: Timestamp) -> Result<(), Problem> {
    if expiry > now {
        Ok(())
    } else {
        Err(Problem::invalid("expires_at", "has passed; to end a key at once, delete it"))
    }
}

/// The row of a change to a key: its tenant's, or nobody's alone if it is an admin key.
fn audit(
    caller: &Caller,
    record: &KeyRecord,
    now: Timestamp,
    action: &'static str,
    detail: Option<&serde_json::Value>,
) -> Audit {
    let tenant = tenant_of(record);
    let acting = Acting { tenant: tenant.unwrap_or(caller.tenant), by: caller.actor };
    Audit { tenant, ..acting.audit(now, action, record.id, detail) }
}

const fn tenant_of(record: &KeyRecord) -> Option<TenantId> {
    match record.role {
        Role::Admin => None,
        Role::Tenant(tenant) => Some(tenant),
    }
}

/// A key as the API shows it.
#[derive(Serialize)]
struct View<'a> {
    id: KeyId,
    name: String,
    role: RoleName,
    tenant: Option<String>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    /// Only in the answer that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

impl View<'_> {
    fn of(app: &App, record: &KeyRecord) -> Self {
        let tenant = tenant_of(record);
        Self {
            id: record.id,
            name: record.name.clone(),
            role: if tenant.is_some() { RoleName::Tenant } else { RoleName::Admin },
            tenant: tenant.and_then(|tenant| app.keys.tenant_name(tenant)),
            created_at: record.created_at,
            expires_at: record.expires_at,
            revoked_at: record.revoked_at,
            last_used_at: record.last_used_at,
            key: None,
        }
    }
}
