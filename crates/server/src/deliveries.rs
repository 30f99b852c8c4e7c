//! `/v1/deliveries`: what is on its way, why it waits, what was tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract;
use http::StatusCode;
use postrider_core::id::AttemptId;
use postrider_core::{Class, DeliveryId, EndpointId, EventId, Reason, State, Timestamp};
use postrider_engine::{WaitReason, WaitingOn};
use postrider_store::ledger::{DeliveryFilter, DeliveryQuery, Direction, Position};
use postrider_store::record::{Attempt, DeliveryRecord};
use serde::{Deserialize, Serialize};

use crate::App;
use crate::answer::{self, Answer, json};
use crate::auth::Caller;
use crate::elsewhere::Elsewhere;
use crate::extract::{Id, NoBody, Page, Query};
use crate::problem::{OrMissing as _, Problem};

/// How often a list asks the store for more when what is in flight does not show what was asked
/// for. A list that stops here is short, and goes on with its cursor.
const MAX_STORE_PAGES: usize = 8;
/// The same where the event of every row has to be looked up, which takes so much longer.
const MAX_TYPED_PAGES: usize = 1;

pub(crate) async fn list(
    extract::State(app): extract::State<Arc<App>>,
    caller: Caller,
    mut query: Query,
) -> Answer {
    let page = query.page::<Position>()?;
    let filter = read_filter(&mut query)?;
    query.finish()?;
    answer_list(&app, caller, filter, page).await
}

pub(crate) async fn show(
    extract::State(app): extract::State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DeliveryId>,
) -> Answer {
    let record = app.engine.store().delivery(caller.tenant, id).await?.or_missing("delivery")?;
    answer_one(&app, &record).await
}

pub(crate) async fn retry(
    extract::State(app): extract::State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DeliveryId>,
    _: NoBody,
) -> Answer {
    let record = app.engine.retry(caller.acting(), id).await.or_missing("delivery")?;
    answer_one(&app, &record).await
}

pub(crate) async fn cancel(
    extract::State(app): extract::State<Arc<App>>,
    caller: Caller,
    Id(id): Id<DeliveryId>,
    _: NoBody,
) -> Answer {
    let record = app.engine.cancel(caller.acting(), id).await.or_missing("delivery")?;
    answer_one(&app, &record).await
}

/// The filters that lists of deliveries and of dead letters share.
pub(crate) fn read_filter(query: &mut Query) -> Result<DeliveryFilter, Problem> {
    Ok(DeliveryFilter {
        states: query.words("state")?,
        ids: None,
        endpoint: query.value("endpoint")?,
        event: query.value("event")?,
        kind: query.text("type"),
        class: query.word("error_class")?,
        reason: query.word("reason")?,
        since: query.value("since")?,
        until: query.value("until")?,
    })
}

/// Answers with a page of the deliveries that show one of the filter's states.
pub(crate) async fn answer_list(
    app: &App,
    caller: Caller,
    filter: DeliveryFilter,
    page: Page<Position>,
) -> Answer {
    let shown = filter.states.clone();
    let stored = DeliveryFilter { states: stored_states(&shown), ..filter };
    let elsewhere = if stored.states.iter().all(|state| state.is_terminal()) && !shown.is_empty() {
        // What has ended is nowhere in flight.
        Elsewhere::default()
    } else {
        Elsewhere::find(&app.engine).await?
    };
    let mut rows: Vec<(State, DeliveryRecord)> = Vec::new();
    let mut next = page.after;
    let most = if stored.kind.is_some() { MAX_TYPED_PAGES } else { MAX_STORE_PAGES };
    for _ in 0..most {
        let query = DeliveryQuery {
            filter: stored.clone(),
            after: next,
            direction: Direction::NewestFirst,
            limit: page.limit - rows.len(),
        };
        let listed = app.engine.store().deliveries(caller.tenant, query).await?;
        for record in listed.rows {
            let state = listed_state(app, &elsewhere, &record).await;
            if shown.is_empty() || shown.contains(&state) {
                rows.push((state, record));
            }
        }
        next = listed.next;
        if next.is_none() || rows.len() == page.limit {
            break;
        }
    }
    let mut data = Vec::with_capacity(rows.len());
    for (state, record) in &rows {
        let waiting_on = if elsewhere.has(&app.engine, record.tenant, record.endpoint) {
            None
        } else {
            waiting_on(app, record).await?
        };
        data.push(View::of(record, *state, waiting_on));
    }
    answer::list(&data, next.as_ref())
}

async fn answer_one(app: &App, record: &DeliveryRecord) -> Answer {
    let attempts = app.engine.store().attempts(record.id).await?;
    let log = attempts.iter().map(|attempt| AttemptView::of(Some(record.id), attempt)).collect();
    let planned = app.engine.plan(record);
    let plan = planned
        .iter()
        .map(|planned| PlannedView { number: planned.number, at: planned.at })
        .collect();
    let state = shown_state(app, record).await;
    let mut view = View::of(record, state, waiting_on(app, record).await?);
    if let Some(waiting) = &mut view.waiting_on
        && waiting.reason == WaitReason::Behind.as_str()
    {
        waiting.position = app.engine.place_in_line(record).await?;
    }
    json(StatusCode::OK, &View { plan: Some(plan), attempt_log: Some(log), ..view })
}

/// What a delivery's state is called: one that a carrier has is stored as waiting, while one that a
/// worker has is stored as in flight.
async fn shown_state(app: &App, record: &DeliveryRecord) -> State {
    if !record.state.is_terminal() && app.engine.is_in_flight(record.endpoint, record.id).await {
        State::InFlight
    } else {
        record.state
    }
}

/// The same for one of many.
pub(crate) async fn listed_state(
    app: &App,
    elsewhere: &Elsewhere,
    record: &DeliveryRecord,
) -> State {
    if elsewhere.has(&app.engine, record.tenant, record.endpoint) {
        record.state
    } else {
        shown_state(app, record).await
    }
}

async fn waiting_on(app: &App, record: &DeliveryRecord) -> Result<Option<WaitingView>, Problem> {
    if record.state.is_terminal() {
        return Ok(None);
    }
    Ok(app.engine.waiting_on(record).await?.map(WaitingView::of))
}

/// The stored states that can show as one of `shown`.
fn stored_states(shown: &[State]) -> Vec<State> {
    let waiting = [State::Pending, State::InFlight, State::Retrying];
    let wanted = |state: &State| {
        shown.contains(state) || (shown.contains(&State::InFlight) && waiting.contains(state))
    };
    State::ALL.into_iter().filter(wanted).collect()
}

/// How many deliveries are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct StateCounts {
    pub(crate) pending: u64,
    pub(crate) in_flight: u64,
    pub(crate) retrying: u64,
    pub(crate) delivered: u64,
    pub(crate) failed: u64,
    pub(crate) dead: u64,
    pub(crate) cancelled: u64,
}

impl StateCounts {
    pub(crate) fn of(&self, state: State) -> u64 {
        match state {
            State::Pending => self.pending,
            State::InFlight => self.in_flight,
            State::Retrying => self.retrying,
            State::Delivered => self.delivered,
            State::Failed => self.failed,
            State::Dead => self.dead,
            State::Cancelled => self.cancelled,
        }
    }

    pub(crate) fn all(&self) -> u64 {
        State::ALL.into_iter().map(|state| self.of(state)).sum()
    }

    /// What has not ended.
    pub(crate) fn backlog(&self) -> u64 {
        self.pending + self.in_flight + self.retrying
    }

    pub(crate) fn dead_letters(&self) -> u64 {
        self.failed + self.dead
    }

    pub(crate) fn add(&mut self, state: State, count: u64) {
        let counter = match state {
            State::Pending => &mut self.pending,
            State::InFlight => &mut self.in_flight,
            State::Retrying => &mut self.retrying,
            State::Delivered => &mut self.delivered,
            State::Failed => &mut self.failed,
            State::Dead => &mut self.dead,
            State::Cancelled => &mut self.cancelled,
        };
        *counter += count;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let Self { pending, in_flight, retrying, delivered, failed, dead, cancelled } = other;
        self.pending += pending;
        self.in_flight += in_flight;
        self.retrying += retrying;
        self.delivered += delivered;
        self.failed += failed;
        self.dead += dead;
        self.cancelled += cancelled;
    }
}

/// A delivery as the API shows it.
#[derive(Serialize)]
struct View<'a> {
    id: DeliveryId,
    event_id: EventId,
    endpoint_id: EndpointId,
    state: State,
    attempts: u32,
    deferrals: u32,
    next_attempt_at: Option<Timestamp>,
    last_attempt_at: Option<Timestamp>,
    delivered_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    error_class: Option<Class>,
    last_error: Option<&'a str>,
    reason: Option<Reason>,
    waiting_on: Option<WaitingView>,
    replay: bool,
    /// What the worker that took it called its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a str>,
    /// Not in lists, like the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Vec<PlannedView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt_log: Option<Vec<AttemptView<'a>>>,
}

impl<'a> View<'a> {
    fn of(record: &'a DeliveryRecord, state: State, waiting_on: Option<WaitingView>) -> Self {
        let next_attempt_at = match state {
            State::Pending | State::Retrying => Some(record.due.unwrap_or(record.born)),
            State::InFlight | State::Delivered | State::Failed | State::Dead | State::Cancelled => {
                None
            }
        };
        Self {
            id: record.id,
            event_id: record.event,
            endpoint_id: record.endpoint,
            state,
            attempts: record.attempts,
            deferrals: record.deferrals,
            next_attempt_at,
            last_attempt_at: record.last_attempt_at,
            delivered_at: record.ended_at.filter(|_| state == State::Delivered),
            ended_at: record.ended_at,
            error_class: record.class,
            last_error: record.last_error.as_deref(),
            reason: record.reason,
            waiting_on,
            replay: record.replay,
            result: record.result.as_deref(),
            plan: None,
            attempt_log: None,
        }
    }
}

#[derive(Serialize)]
struct WaitingView {
    reason: &'static str,
    until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_id: Option<DeliveryId>,
    /// Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
}

impl WaitingView {
    fn of(waiting: WaitingOn) -> Self {
        let WaitingOn { reason, until, behind } = waiting;
        Self { reason: reason.as_str(), until, delivery_id: behind, position: None }
    }
}

#[derive(Serialize)]
struct PlannedView {
    number: u32,
    at: Timestamp,
}

/// An attempt as the API shows it. One that tests an endpoint has no delivery, and so no id.
#[derive(Serialize)]
pub(crate) struct AttemptView<'a> {
    id: Option<String>,
    number: u32,
    counted: bool,
    started_at: Timestamp,
    duration_ms: u64,
    status_code: Option<u16>,
    outcome: &'static str,
    error: Option<&'a str>,
    response_body: Option<String>,
    response_headers: Option<BTreeMap<&'a str, String>>,
    response_truncated: bool,
}

impl<'a> AttemptView<'a> {
    pub(crate) fn of(delivery: Option<DeliveryId>, attempt: &'a Attempt) -> Self {
        let number = attempt.number;
        let response = attempt.response.as_ref();
        Self {
            id: delivery.map(|delivery| AttemptId { delivery, number }.to_string()),
            number,
            counted: attempt.counted,
            started_at: attempt.started_at,
            duration_ms: u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX),
            status_code: attempt.status,
            outcome: attempt.class.map_or("delivered", Class::as_str),
            error: attempt.error.as_deref(),
            response_body: response
                .map(|response| String::from_utf8_lossy(&response.body).into_owned()),
            response_headers: response.map(|response| join_headers(&response.headers)),
            response_truncated: response.is_some_and(|response| response.truncated),
        }
    }
}

fn join_headers(headers: &[(String, String)]) -> BTreeMap<&str, String> {
    let mut joined: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in headers {
        joined
            .entry(name)
            .and_modify(|known| {
                known.push_str(", ");
                known.push_str(value);
            })
            .or_insert_with(|| value.clone());
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_came_twice_is_joined() {
        let headers = [("via", "a"), ("age", "1"), ("via", "b")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let joined = join_headers(&headers);
        assert_eq!(joined["via"], "a, b");
        assert_eq!(joined["age"], "1");
    }

    #[test]
    fn what_is_in_flight_may_be_stored_as_waiting() {
        use State::{Dead, InFlight, Pending, Retrying};
        assert_eq!(stored_states(&[]), []);
        assert_eq!(stored_states(&[Dead]), [Dead]);
        assert_eq!(stored_states(&[Pending, InFlight]), [Pending, InFlight, Retrying]);
    }
}
