//! `/v1/jobs`: how far a long piece of work has come.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use postrider_core::{Class, DeliveryId, EndpointId, EventId, JobId, Reason, Timestamp};
use postrider_store::ledger::DeliveryFilter;
use postrider_store::registry::{JobRecord, JobState};
use serde::Serialize;

use crate::App;
use crate::answer::{Answer, json};
use crate::auth::Caller;
use crate::extract::Id;
use crate::problem::OrMissing as _;

pub(crate) async fn show(State(app): State<Arc<App>>, caller: Caller, Id(id): Id<JobId>) -> Answer {
    let job = app.engine.store().job(caller.tenant, id).await?.or_missing("job")?;
    json(StatusCode::OK, &View::of(&job))
}

#[derive(Serialize)]
struct View<'a> {
    id: JobId,
    kind: &'static str,
    state: JobState,
    matched: u64,
    replayed: u64,
    skipped: u64,
    rate_per_second: Option<f64>,
    filter: FilterView<'a>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl<'a> View<'a> {
    fn of(job: &'a JobRecord) -> Self {
        Self {
            id: job.id,
            kind: "dead_letters.replay",
            state: job.state,
            matched: job.matched,
            replayed: job.replayed,
            skipped: job.skipped,
            rate_per_second: job.rate_per_second,
            filter: FilterView::of(&job.filter),
            created_at: job.created_at,
            updated_at: job.updated_at,
        }
    }
}

#[derive(Serialize)]
struct FilterView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<&'a [DeliveryId]>,
    states: &'a [postrider_core::State],
    endpoint: Option<EndpointId>,
    event: Option<EventId>,
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    error_class: Option<Class>,
    reason: Option<Reason>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl<'a> FilterView<'a> {
    fn of(filter: &'a DeliveryFilter) -> Self {
        Self {
            ids: filter.ids.as_deref(),
            states: &filter.states,
            endpoint: filter.endpoint,
            event: filter.event,
            kind: filter.kind.as_deref(),
            error_class: filter.class,
            reason: filter.reason,
            since: filter.since,
            until: filter.until,
        }
    }
}
