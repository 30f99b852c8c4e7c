//! `/v1/dead-letters`: finding what ended badly, sending it again, throwing it away.

use std::sync::Arc;

use axum::extract;
use http::StatusCode;
use postrider_core::{Class, DeliveryId, EndpointId, EventId, Reason, State, Timestamp};
use postrider_store::ledger::{DeliveryFilter, Group, Position};
use serde::{Deserialize, Serialize};

use crate::App;
use crate::answer::{Answer, json};
use crate::auth::Caller;
use crate::deliveries;
use crate::extract::{Json, Object, OptionalJson, Query};
use crate::problem::Problem;

/// How many dead letters can be named one by one.
const MAX_IDS: usize = 1_000;
const MAX_RATE_PER_SECOND: f64 = 10_000.0;
/// The slowest pace is one in a bit less than three hours.
const MIN_RATE_PER_SECOND: f64 = 0.0001;

const DEAD_LETTERS: [State; 2] = [State::Failed, State::Dead];

pub(crate) async fn list(
    extract::State(app): extract::State<Arc<App>>,
    caller: Caller,
    mut query: Query,
) -> Answer {
    let page = query.page::<Position>()?;
    let filter = among_dead_letters(deliveries::read_filter(&mut query)?, "state")?;
    query.finish()?;
    deliveries::answer_list(&app, caller, filter, page).await
}

/// Dead letters put together by where they were to go and why they did not.
pub(crate) async fn groups(
    extract::State(app): extract::State<Arc<App>>,
    caller: Caller,
    mut query: Query,
) -> Answer {
    let filter = among_dead_letters(deliveries::read_filter(&mut query)?, "state")?;
    query.finish()?;
    let found = app.engine.store().dead_letter_groups(caller.tenant, filter).await?;
    let data = found.groups.into_iter().map(GroupView::of).collect();
    let (looked_at, complete) = (found.looked_at, found.complete);
    json(StatusCode::OK, &GroupsView { data, looked_at, complete })
}

#[derive(Serialize)]
struct GroupsView {
    data: Vec<GroupView>,
    looked_at: u64,
    complete: bool,
}

#[derive(Serialize)]
struct GroupView {
    endpoint_id: EndpointId,
    state: State,
    error_class: Option<Class>,
    reason: Option<Reason>,
    deliveries: u64,
    newest_at: Option<Timestamp>,
    last_error: Option<String>,
}

impl GroupView {
    fn of(group: Group) -> Self {
        let Group { endpoint, state, class, reason, deliveries, newest_at, last_error } = group;
        Self {
            endpoint_id: endpoint,
            state,
            error_class: class,
            reason,
            deliveries,
            newest_at,
            last_error,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replay {
    ids: Option<Vec<DeliveryId>>,
    filter: Option<Object<Filter>>,
    #[serde(default)]
    dry_run: bool,
    rate_per_second: Option<f64>,
}

impl Replay {
    /// Which dead letters, and how many of them a second.
    pub(crate) fn read(self) -> Result<(DeliveryFilter, Option<f64>), Problem> {
        let rate = check_rate(self.rate_per_second)?;
        let filter = match (self.ids, self.filter) {
            (Some(ids), None) => by_ids(ids)?,
            (None, Some(Object(filter))) => among_dead_letters(filter.into(), "filter.state")?,
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("ids", "cannot be combined with filter"));
            }
            (None, None) => {
                return Err(Problem::invalid("filter", "is missing: say ids or filter; {} is all"));
            }
        };
        Ok((filter, rate))
    }
}

pub(crate) async fn replay(
    extract::State(app): extract::State<Arc<App>>,
    caller: Caller,
    Json(replay): Json<Replay>,
) -> Answer {
    let dry_run = replay.dry_run;
    let (filter, rate) = replay.read()?;
    if dry_run {
        #[derive(Serialize)]
        struct Matched {
            matched: u64,
        }

        let matched = app.engine.store().count_dead_letters(caller.tenant, filter).await?;
        return json(StatusCode::OK, &Matched { matched });
    }
    let job = app.engine.replay_dead_letters(caller.acting(), filter, rate).await?;
    json(StatusCode::ACCEPTED, &serde_json::json!({ "job": job.id, "matched": job.matched }))
}

/// What to throw away, as a body. It can stand in the query string instead.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Purge {
    ids: Option<Vec<DeliveryId>>,
    filter: Option<Object<Filter>>,
    all: bool,
}

pub(crate) async fn purge(
    extract::State(app): extract::State<Arc<App>>,
    caller: Caller,
    mut query: Query,
    OptionalJson(body): OptionalJson<Purge>,
) -> Answer {
    let (filter, all, state_field) = match body {
        Some(_) if !query.is_empty() => {
            return Err(Problem::invalid("body", "cannot be combined with a query string"));
        }
        Some(Purge { ids: Some(ids), filter: None, all: false }) => (by_ids(ids)?, false, "ids"),
        Some(Purge { ids: Some(_), .. }) => {
            return Err(Problem::invalid("ids", "cannot be combined with filter or all"));
        }
        Some(Purge { ids: None, filter, all }) => {
            let filter = filter.map_or_else(Filter::default, |Object(filter)| filter);
            (filter.into(), all, "filter.state")
        }
        None => {
            let all = query.value("all")?.unwrap_or(false);
            let filter = deliveries::read_filter(&mut query)?;
            query.finish()?;
            (filter, all, "state")
        }
    };
    // An empty filter is more often a slip than a wish.
    if filter == DeliveryFilter::default() && !all {
        return Err(Problem::invalid(
            "filter",
            "is empty: name what to throw away, or say all=true",
        ));
    }
    let filter = among_dead_letters(filter, state_field)?;
    let deleted = app.engine.purge_dead_letters(caller.acting(), filter).await?;
    json(StatusCode::OK, &serde_json::json!({ "deleted": deleted }))
}

/// The filter of a list, as JSON.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Filter {
    state: Option<State>,
    endpoint: Option<EndpointId>,
    event: Option<EventId>,
    #[serde(rename = "type")]
    kind: Option<String>,
    error_class: Option<Class>,
    reason: Option<Reason>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl From<Filter> for DeliveryFilter {
    fn from(filter: Filter) -> Self {
        let Filter { state, endpoint, event, kind, error_class, reason, since, until } = filter;
        Self {
            states: state.into_iter().collect(),
            ids: None,
            endpoint,
            event,
            kind,
            class: error_class,
            reason,
            since,
            until,
        }
    }
}

/// The filter, narrowed to what is a dead letter.
fn among_dead_letters(
    mut filter: DeliveryFilter,
    state_field: &str,
) -> Result<DeliveryFilter, Problem> {
    if filter.states.is_empty() {
        filter.states = DEAD_LETTERS.to_vec();
    } else if !filter.states.iter().all(|state| state.is_dead_letter()) {
        return Err(Problem::invalid(state_field, "a dead letter is failed or dead"));
    }
    Ok(filter)
}

fn by_ids(ids: Vec<DeliveryId>) -> Result<DeliveryFilter, Problem> {
    if !(1..=MAX_IDS).contains(&ids.len()) {
        return Err(Problem::invalid("ids", format!("must have 1 to {MAX_IDS} entries")));
    }
    let states = DEAD_LETTERS.to_vec();
    Ok(DeliveryFilter { ids: Some(ids), states, ..DeliveryFilter::default() })
}

fn check_rate(rate: Option<f64>) -> Result<Option<f64>, Problem> {
    match rate {
        Some(rate) if !(MIN_RATE_PER_SECOND..=MAX_RATE_PER_SECOND).contains(&rate) => {
            Err(Problem::invalid(
                "rate_per_second",
                format!("must be between {MIN_RATE_PER_SECOND} and {MAX_RATE_PER_SECOND}"),
            ))
        }
        rate => Ok(rate),
    }
}
