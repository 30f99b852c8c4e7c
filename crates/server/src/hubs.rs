//! `/v1/hubs`: agents behind NAT that dial out to the gateway, and how they are doing.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use postrider_core::{HubId, Timestamp};
use postrider_engine::HubView;
use postrider_store::registry::HubRecord;
use serde::{Deserialize, Serialize};

use crate::App;
use crate::access::check_name;
use crate::answer::{self, Answer, json};
use crate::auth::Caller;
use crate::extract::{Id, Json, OptionalJson, Query};
use crate::problem::{OrMissing as _, Problem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewHub {
    name: String,
    token: Option<String>,
}

/// Makes a hub, with a token of its own unless one was chosen. The answer is the only place where the
/// token can be read.
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(NewHub { name, token }): Json<NewHub>,
) -> Answer {
    let name = check_name(name)?;
    let (hub, token) = app.engine.create_hub_with(caller.acting(), name, token).await?;
    json(StatusCode::CREATED, &MadeView::of(&hub, &token))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rotation {
    token: Option<String>,
}

/// Another token; the old one is dead at once, and so is a connection that was made with it.
pub(crate) async fn rotate_token(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<HubId>,
    OptionalJson(rotation): OptionalJson<Rotation>,
) -> Answer {
    let token = rotation.unwrap_or_default().token;
    let rotated = app.engine.rotate_hub_token(caller.acting(), id, token).await;
    let (hub, token) = rotated.or_missing("hub")?;
    json(StatusCode::OK, &MadeView::of(&hub, &token))
}

pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, mut query: Query) -> Answer {
    let page = query.page::<HubId>()?;
    query.finish()?;
    let hubs = app.engine.hubs(caller.tenant).await?;
    let now = app.engine.clock().now();
    let below = |hub: &&HubView| page.after.is_none_or(|after| hub.record.id < after);
    let mut rows = hubs.iter().filter(below);
    let data: Vec<View<'_>> =
        rows.by_ref().take(page.limit).map(|hub| View::of(hub, now)).collect();
    let next = rows.next().and_then(|_| data.last()).map(|last| &last.id);
    answer::list(&data, next)
}

pub(crate) async fn show(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<HubId>) -> Answer {
    let hub = app.engine.hub(caller.tenant, id).await.or_missing("hub")?;
    json(StatusCode::OK, &View::of(&hub, app.engine.clock().now()))
}

/// Its connection ends at once. Its endpoints stay, and what goes to them waits.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<HubId>,
) -> Result<StatusCode, Problem> {
    app.engine.delete_hub(caller.acting(), id).await.or_missing("hub")?;
    Ok(StatusCode::NO_CONTENT)
}

/// A hub as its maker sees it, once.
#[derive(Serialize)]
struct MadeView<'a> {
    id: HubId,
    name: &'a str,
    created_at: Timestamp,
    token: &'a str,
}

impl<'a> MadeView<'a> {
    fn of(hub: &'a HubRecord, token: &'a str) -> Self {
        Self { id: hub.id, name: &hub.name, created_at: hub.created_at, token }
    }
}

/// A hub as the API shows it.
#[derive(Serialize)]
struct View<'a> {
    id: HubId,
    name: &'a str,
    created_at: Timestamp,
    connected: bool,
    /// While it is connected, like the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<u32>,
    in_flight: usize,
    waiting: u64,
    /// While something waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_seconds: Option<f64>,
}

impl<'a> View<'a> {
    fn of(hub: &'a HubView, now: Timestamp) -> Self {
        let HubView { record, connection, in_flight, waiting, oldest_waiting_at } = hub;
        let connection = connection.as_ref();
        Self {
            id: record.id,
            name: &record.name,
            created_at: record.created_at,
            connected: connection.is_some(),
            since: connection.map(|connection| connection.since),
            agent: connection.map(|connection| connection.agent.as_str()),
            capacity: connection.map(|connection| connection.capacity),
            in_flight: *in_flight,
            waiting: *waiting,
            lag_seconds: oldest_waiting_at.map(|oldest| now.since(oldest).as_secs_f64()),
        }
    }
}
