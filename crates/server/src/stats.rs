//! `/v1/stats` and the stats of one endpoint: how many deliveries are in which state.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use postrider_core::endpoint::EndpointState;
use postrider_core::{Endpoint, EndpointId, Timestamp};
use postrider_engine::EndpointHealth;
use postrider_store::ledger::Count;
use serde::Serialize;

use crate::App;
use crate::answer::{Answer, json};
use crate::auth::Caller;
use crate::deliveries::StateCounts;
use crate::elsewhere::Elsewhere;
use crate::extract::Id;
use crate::problem::{OrMissing as _, Problem};

/// How many endpoints the list of all has; each has its own stats anyway.
const MAX_LISTED_ENDPOINTS: usize = 1_000;

pub(crate) async fn of_tenant(State(app): State<Arc<App>>, caller: Caller) -> Answer {
    let store = app.engine.store();
    let mut counts = by_endpoint(&store.counts(caller.tenant).await?);
    let events = store.event_count(caller.tenant).await?;
    let endpoints = app.engine.endpoints(caller.tenant);
    let elsewhere = Elsewhere::find(&app.engine).await?;
    let mut deliveries = StateCounts::default();
    let mut listed = Vec::new();
    for endpoint in &endpoints {
        let counts = counts.remove(&endpoint.id).unwrap_or_default();
        let health = if elsewhere.has(&app.engine, caller.tenant, endpoint.id) {
            None
        } else {
            app.engine.endpoint_health(endpoint.id).await
        };
        let view = EndpointView::of(endpoint, counts, health);
        deliveries.merge(&view.deliveries);
        if listed.len() < MAX_LISTED_ENDPOINTS {
            listed.push(view);
        }
    }
    // What is left is of endpoints that have been deleted.
    for counts in counts.values() {
        deliveries.merge(counts);
    }
    json(StatusCode::OK, &TenantView { events, deliveries, endpoints: listed })
}

pub(crate) async fn of_endpoint(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
) -> Answer {
    let endpoint = app.engine.endpoint(caller.tenant, id).or_missing("endpoint")?;
    let counts = endpoint_counts(&app, caller, id).await?;
    let health = app.engine.endpoint_health(id).await;
    json(StatusCode::OK, &EndpointView::of(&endpoint, counts, health))
}

async fn endpoint_counts(
    app: &App,
    caller: Caller,
    id: EndpointId,
) -> Result<StateCounts, Problem> {
    let counts = app.engine.store().counts(caller.tenant).await?;
    Ok(by_endpoint(&counts).get(&id).copied().unwrap_or_default())
}

fn by_endpoint(rows: &[Count]) -> BTreeMap<EndpointId, StateCounts> {
    let mut counts: BTreeMap<EndpointId, StateCounts> = BTreeMap::new();
    for row in rows {
        counts.entry(row.endpoint).or_default().add(row.state, row.deliveries);
    }
    counts
}

#[derive(Serialize)]
struct TenantView {
    events: u64,
    deliveries: StateCounts,
    endpoints: Vec<EndpointView>,
}

#[derive(Serialize)]
struct EndpointView {
    endpoint_id: EndpointId,
    state: EndpointState,
    deliveries: StateCounts,
    health: HealthView,
}

#[derive(Serialize)]
struct HealthView {
    /// Whether it was sent or fetched.
    in_flight: u64,
    /// Deliveries held in memory, ready to go.
    window: usize,
    breaker: Option<&'static str>,
    hold_until: Option<Timestamp>,
}

impl EndpointView {
    fn of(
        endpoint: &Endpoint,
        mut deliveries: StateCounts,
        health: Option<EndpointHealth>,
    ) -> Self {
        let mut health = match health {
            Some(health) => {
                // In flight to a place is stored as waiting: it counts under one state, not under
                // two. What a worker has is stored as in flight, and comes on top.
                let retries = health.in_flight_retries as u64;
                let firsts = health.in_flight as u64 - retries;
                deliveries.pending = deliveries.pending.saturating_sub(firsts);
                deliveries.retrying = deliveries.retrying.saturating_sub(retries);
                HealthView {
                    in_flight: health.in_flight as u64,
                    window: health.window,
                    breaker: Some(health.breaker.as_str()),
                    hold_until: health.hold_until,
                }
            }
            None => HealthView { in_flight: 0, window: 0, breaker: None, hold_until: None },
        };
        deliveries.in_flight += health.in_flight;
        health.in_flight = deliveries.in_flight;
        Self { endpoint_id: endpoint.id, state: endpoint.state, deliveries, health }
    }
}
