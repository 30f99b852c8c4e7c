//! `/v1/endpoints`: where events go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use postrider_core::endpoint::{
    Destination, EndpointState, Format, Ordering, RateLimit, Spec, Tls,
};
use postrider_core::pattern::Pattern;
use postrider_core::policy::{self, Preset};
use postrider_core::signing::{Scheme, Secret};
use postrider_core::{Endpoint, EndpointId, HubId, SourceId, Timestamp, span};
use postrider_engine::{EndpointAction, Private};
use serde::{Deserialize, Serialize};

use crate::App;
use crate::answer::{self, Answer, json};
use crate::auth::Caller;
use crate::deliveries::AttemptView;
use crate::endpoint_fields::{Fields, Span};
use crate::extract::{Id, Json, NoBody, OptionalJson, Query};
use crate::problem::{OrMissing as _, Problem};

/// How long an old secret goes on signing where nothing else is said.
const DEFAULT_OVERLAP: Duration = Duration::from_hours(24);

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(mut fields): Json<Fields>,
) -> Answer {
    let private = Private { secret: fields.secret.take(), tls: fields.tls(None) };
    let spec = fields.into_spec()?;
    let endpoint = app.engine.create_endpoint(caller.acting(), spec, private).await?;
    let secret = newest_secret(&endpoint);
    json(StatusCode::CREATED, &View { secret, ..View::of(&endpoint) })
}

pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, mut query: Query) -> Answer {
    let page = query.page::<EndpointId>()?;
    query.finish()?;
    let endpoints = app.engine.endpoints(caller.tenant);
    let below = |endpoint: &&Arc<Endpoint>| page.after.is_none_or(|after| endpoint.id < after);
    let mut rows = endpoints.iter().filter(below);
    let data: Vec<View<'_>> =
        rows.by_ref().take(page.limit).map(|endpoint| View::of(endpoint)).collect();
    let next = rows.next().and_then(|_| data.last()).map(|last| &last.id);
    answer::list(&data, next)
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
) -> Answer {
    json(StatusCode::OK, &View::of(&*find(&app, caller, id)?))
}

pub(crate) async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
    Json(fields): Json<Fields>,
) -> Answer {
    // One at a time, or two changes of different fields could undo each other.
    let _turn = app.changing.lock().await;
    let (spec, tls) = changed(&app, caller, id, fields)?;
    let changed = app.engine.update_endpoint(caller.acting(), id, spec, tls).await;
    let endpoint = changed.or_missing("endpoint")?;
    json(StatusCode::OK, &View::of(&endpoint))
}

/// Says what making it would say, and makes nothing.
pub(crate) async fn preview(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(mut fields): Json<Fields>,
) -> Answer {
    let private = Private { secret: fields.secret.take(), tls: fields.tls(None) };
    app.engine.try_new_endpoint(caller.tenant, fields.into_spec()?, private)?;
    json(StatusCode::OK, &Previewed { ok: true })
}

/// Says what changing it would say, and changes nothing.
pub(crate) async fn preview_change(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
    Json(fields): Json<Fields>,
) -> Answer {
    let (spec, tls) = changed(&app, caller, id, fields)?;
    app.engine.try_endpoint_change(caller.tenant, id, spec, tls).or_missing("endpoint")?;
    json(StatusCode::OK, &Previewed { ok: true })
}

/// What is to hold of an endpoint after a change.
fn changed(
    app: &App,
    caller: Caller,
    id: EndpointId,
    mut fields: Fields,
) -> Result<(Spec, Option<Tls>), Problem> {
    if fields.secret.is_some() {
        return Err(Problem::invalid("secret", "is changed by POST …/rotate-secret"));
    }
    let current = find(app, caller, id)?;
    let tls = fields.tls(current.tls.clone());
    Ok((fields.merge_into(current.spec.clone())?, tls))
}

#[derive(Serialize)]
struct Previewed {
    ok: bool,
}

pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
) -> Result<StatusCode, Problem> {
    app.engine.delete_endpoint(caller.acting(), id).await.or_missing("endpoint")?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
    _: NoBody,
) -> Answer {
    act(&app, caller, id, EndpointAction::Pause).await
}

pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
    _: NoBody,
) -> Answer {
    act(&app, caller, id, EndpointAction::Resume).await
}

pub(crate) async fn enable(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
    _: NoBody,
) -> Answer {
    act(&app, caller, id, EndpointAction::Enable).await
}

async fn act(app: &App, caller: Caller, id: EndpointId, action: EndpointAction) -> Answer {
    let changed = app.engine.set_endpoint_state(caller.acting(), id, action).await;
    json(StatusCode::OK, &View::of(&*changed.or_missing("endpoint")?))
}

/// Sends a sample event and answers with the attempt, whatever came of it.
pub(crate) async fn test(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
    _: NoBody,
) -> Answer {
    let attempt = app.engine.test_endpoint(caller.tenant, id).await.or_missing("endpoint")?;
    json(StatusCode::OK, &AttemptView::of(None, &attempt))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rotation {
    overlap: Option<Span>,
    secret: Option<String>,
}

pub(crate) async fn rotate_secret(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
    OptionalJson(rotation): OptionalJson<Rotation>,
) -> Answer {
    let Rotation { overlap, secret } = rotation.unwrap_or_default();
    let overlap = overlap.map_or(DEFAULT_OVERLAP, |Span(overlap)| overlap);
    let rotated = app.engine.rotate_secret(caller.acting(), id, overlap, secret).await;
    json(StatusCode::OK, &SecretsView::of(&*rotated.or_missing("endpoint")?))
}

pub(crate) async fn secret(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
) -> Answer {
    json(StatusCode::OK, &SecretsView::of(&*find(&app, caller, id)?))
}

fn find(app: &App, caller: Caller, id: EndpointId) -> Result<Arc<Endpoint>, Problem> {
    app.engine.endpoint(caller.tenant, id).or_missing("endpoint")
}

fn newest_secret(endpoint: &Endpoint) -> Option<&str> {
    endpoint.secrets.first().map(|secret| secret.text.as_str())
}

/// An endpoint as the API shows it.
#[derive(Serialize)]
struct View<'a> {
    id: EndpointId,
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hub: Option<HubId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pull: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<&'a str>,
    event_types: &'a [Pattern],
    sources: &'a [SourceId],
    filter: Option<&'a str>,
    policy: PolicyView<'a>,
    ordering: Ordering,
    rate_limit: Option<RateLimit>,
    max_in_flight: Option<u32>,
    #[serde(with = "span::serde_option")]
    timeout: Option<Duration>,
    headers: &'a BTreeMap<String, String>,
    signing: &'a Scheme,
    format: Option<&'a Format>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsView<'a>>,
    metadata: &'a serde_json::Map<String, serde_json::Value>,
    state: EndpointState,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Only in the answer that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

/// Certificates are no secret; the key is, and only its being there is shown.
#[derive(Serialize)]
struct TlsView<'a> {
    client_cert: Option<&'a str>,
    has_client_key: bool,
    ca: Option<&'a str>,
}

/// A policy that is just a preset is shown by its name.
#[derive(Serialize)]
#[serde(untagged)]
enum PolicyView<'a> {
    Named(Preset),
    Spelled(&'a policy::Spec),
}

impl<'a> View<'a> {
    fn of(endpoint: &'a Endpoint) -> Self {
        let spec = &endpoint.spec;
        let (mut url, mut command, mut hub, mut pull, mut handler) = (None, None, None, None, None);
        match &spec.destination {
            Destination::Url(to) => url = Some(to.as_str()),
            Destination::Command(words) => command = Some(words.as_slice()),
            Destination::Hub(id) => hub = Some(*id),
            Destination::Pull => pull = Some(true),
            Destination::Handler(name) => handler = Some(name.as_str()),
        }
        let preset = spec.policy.preset.unwrap_or_default();
        let just_a_preset =
            policy::Spec { preset: Some(preset), ..spec.policy.clone() } == preset.into();
        Self {
            id: endpoint.id,
            name: spec.name.as_deref(),
            url,
            command,
            hub,
            pull,
            handler,
            event_types: &spec.event_types,
            sources: &spec.sources,
            filter: spec.filter.as_deref(),
            policy: if just_a_preset {
                PolicyView::Named(preset)
            } else {
                PolicyView::Spelled(&spec.policy)
            },
            ordering: spec.ordering,
            rate_limit: spec.rate_limit,
            max_in_flight: spec.max_in_flight,
            timeout: spec.timeout,
            headers: &spec.headers,
            signing: &spec.signing,
            format: spec.format.as_ref(),
            tls: endpoint.tls.as_ref().map(|tls| TlsView {
                client_cert: tls.client_cert.as_deref(),
                has_client_key: tls.client_key.is_some(),
                ca: tls.ca.as_deref(),
            }),
            metadata: &spec.metadata,
            state: endpoint.state,
            created_at: endpoint.created_at,
            updated_at: endpoint.updated_at,
            secret: None,
        }
    }
}

#[derive(Serialize)]
struct SecretsView<'a> {
    /// The newest one.
    secret: Option<&'a str>,
    /// What a receiver verifies asymmetric signatures with.
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    secrets: Vec<SecretView<'a>>,
}

#[derive(Serialize)]
struct SecretView<'a> {
    secret: &'a str,
    expires_at: Option<Timestamp>,
}

impl<'a> SecretsView<'a> {
    fn of(endpoint: &'a Endpoint) -> Self {
        let secret = newest_secret(endpoint);
        let parsed = secret.and_then(|text| Secret::parse(text, &endpoint.spec.signing).ok());
        let secrets = endpoint
            .secrets
            .iter()
            .map(|secret| SecretView { secret: &secret.text, expires_at: secret.expires_at });
        Self {
            secret,
            public_key: parsed.and_then(|secret| secret.public_key()),
            secrets: secrets.collect(),
        }
    }
}
