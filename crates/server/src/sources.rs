//! `/v1/sources`: the URLs that third parties post to.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use postrider_core::source::{KeepHeaders, OnInvalid, Place, Secrets, TypeFrom};
use postrider_core::verification::Scheme;
use postrider_core::{Source, SourceId, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::App;
use crate::answer::{self, Answer, json};
use crate::auth::Caller;
use crate::extract::{Id, Json, NoBody, Query};
use crate::inbound::Entry;
use crate::problem::{OrMissing as _, Problem};
use crate::source_fields::{Draft, Fields};

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(fields): Json<Fields>,
) -> Answer {
    let Draft { spec, signing, verifier } = fields.into_draft()?;
    let turn = app.inbound.turn(&**app.engine.store()).await?;
    turn.check_room(caller.tenant)?;
    let now = app.engine.clock().now();
    let source = Source {
        id: SourceId::from_i64(app.engine.take_ids(1)),
        tenant: caller.tenant,
        spec,
        secrets: Secrets { token: new_token(&app), signing },
        created_at: now,
        updated_at: now,
    };
    let detail = json!({ "scheme": source.spec.verify.as_str() });
    let audit = caller.acting().audit(now, "source.create", source.id, Some(&detail));
    let made = turn.put(&app.engine, source, verifier, audit).await?;
    json(StatusCode::CREATED, &View::whole(&made.source))
}

/// Without the URLs: whoever has one can post there.
pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, mut query: Query) -> Answer {
    let page = query.page::<SourceId>()?;
    query.finish()?;
    // One more than is shown, to know whether there is another page.
    let found = app.inbound.list(caller.tenant, page.after, page.limit + 1);
    let data: Vec<View<'_>> =
        found.iter().take(page.limit).map(|entry| View::of(&entry.source)).collect();
    let next = found.get(page.limit).and_then(|_| data.last()).map(|last| &last.id);
    answer::list(&data, next)
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<SourceId>,
) -> Answer {
    json(StatusCode::OK, &View::whole(&find(&app, caller, id)?.source))
}

pub(crate) async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<SourceId>,
    Json(fields): Json<Fields>,
) -> Answer {
    let turn = app.inbound.turn(&**app.engine.store()).await?;
    let current = find(&app, caller, id)?;
    let Draft { spec, signing, verifier } = fields.merge_into(&current.source)?;
    let now = app.engine.clock().now();
    let mut source = Source { spec, updated_at: now, ..current.source.clone() };
    source.secrets.signing = signing;
    let detail = changed_fields(&current.source, &source);
    let audit = caller.acting().audit(now, "source.update", id, Some(&detail));
    let changed = turn.put(&app.engine, source, verifier, audit).await?;
    json(StatusCode::OK, &View::whole(&changed.source))
}

/// What came in by it stays.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<SourceId>,
) -> Result<StatusCode, Problem> {
    let turn = app.inbound.turn(&**app.engine.store()).await?;
    find(&app, caller, id)?;
    let audit = caller.acting().audit(app.engine.clock().now(), "source.delete", id, None);
    turn.delete(&app.engine, id, audit).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A new URL; the old one is dead at once.
pub(crate) async fn rotate_token(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<SourceId>,
    _: NoBody,
) -> Answer {
    let turn = app.inbound.turn(&**app.engine.store()).await?;
    let current = find(&app, caller, id)?;
    let verifier = current.verifier()?.clone();
    let now = app.engine.clock().now();
    let mut source = Source { updated_at: now, ..current.source.clone() };
    source.secrets.token = new_token(&app);
    let audit = caller.acting().audit(now, "source.rotate_token", id, None);
    let changed = turn.put(&app.engine, source, verifier, audit).await?;
    json(StatusCode::OK, &View::whole(&changed.source))
}

fn find(app: &App, caller: Caller, id: SourceId) -> Result<Arc<Entry>, Problem> {
    app.inbound.get(caller.tenant, id).or_missing("source")
}

fn new_token(app: &App) -> String {
    URL_SAFE_NO_PAD.encode(app.engine.entropy().secret_bytes())
}

/// The names of what is not as it was.
fn changed_fields(before: &Source, after: &Source) -> Value {
    let fields = |source: &Source| match serde_json::to_value(&source.spec) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    let (old, new) = (fields(before), fields(after));
    let names = old.keys().chain(new.keys());
    let mut changed: BTreeSet<&str> =
        names.filter(|name| old.get(*name) != new.get(*name)).map(String::as_str).collect();
    if before.secrets.signing != after.secrets.signing {
        changed.insert("verify.secrets");
    }
    json!({ "changed": changed })
}

/// A source as the API shows it.
#[derive(Serialize)]
struct View<'a> {
    id: SourceId,
    name: &'a str,
    verify: VerifyView<'a>,
    on_invalid: OnInvalid,
    type_from: &'a TypeFrom,
    dedup_from: Option<&'a Place>,
    #[serde(serialize_with = "keep_headers")]
    keep_headers: &'a KeepHeaders,
    /// Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Serialize)]
struct VerifyView<'a> {
    #[serde(flatten)]
    scheme: &'a Scheme,
    /// How many are live.
    secrets: usize,
}

impl<'a> View<'a> {
    fn of(source: &'a Source) -> Self {
        let spec = &source.spec;
        let secrets = source.secrets.signing.len();
        Self {
            id: source.id,
            name: &spec.name,
            verify: VerifyView { scheme: &spec.verify, secrets },
            on_invalid: spec.on_invalid,
            type_from: &spec.type_from,
            dedup_from: spec.dedup_from.as_ref(),
            keep_headers: &spec.keep_headers,
            url: None,
            created_at: source.created_at,
            updated_at: source.updated_at,
        }
    }

    fn whole(source: &'a Source) -> Self {
        Self { url: Some(format!("/in/{}", source.secrets.token)), ..Self::of(source) }
    }
}

/// As it is said: `"all"`, or a list.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference to the field")]
fn keep_headers<S: Serializer>(keep: &&KeepHeaders, to: S) -> Result<S::Ok, S::Error> {
    match keep {
        KeepHeaders::All => to.serialize_str("all"),
        KeepHeaders::Named(names) => names.serialize(to),
    }
}
