//! `POST /v1/endpoints/{id}/lease` and `/v1/leases`: workers that come and take.
//!
//! A lease is known by its token, which only the worker that got it has. One that has lapsed, one
//! of another tenant and one that never was are the same here: nothing is changed, and nothing is
//! told of it.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use postrider_core::pattern::Pattern;
use postrider_core::{
    Class, DeliveryId, EndpointId, State as DeliveryState, Timestamp, Trace, span,
};
use postrider_engine::{Lease, LeaseToken, LeaseWish, MAX_LEASES, Nack};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::App;
use crate::answer::{Answer, json};
use crate::auth::Caller;
use crate::endpoint_fields::{Span, check_event_types};
use crate::events;
use crate::extract::{Id, Json, OptionalJson};
use crate::problem::{OrMissing as _, Problem};
use crate::stopping::Stopping;

/// How the path of a lease ends.
pub(crate) const SUFFIX: &str = "/lease";

const MAX_WAIT: Duration = Duration::from_secs(30);
const LEASE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(12);
/// For how long, where nothing is said.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const MAX_RESULT_CHARS: usize = 200;
const MAX_ERROR_CHARS: usize = 2_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wish {
    max: Option<usize>,
    wait: Option<Span>,
    lease: Option<Span>,
    event_types: Option<Vec<Pattern>>,
}

impl Wish {
    pub(crate) fn of(self, endpoint: EndpointId) -> Result<LeaseWish, Problem> {
        let max = self.max.unwrap_or(1);
        if !(1..=MAX_LEASES).contains(&max) {
            return Err(Problem::invalid("max", format!("must be 1 to {MAX_LEASES}")));
        }
        let wait = self.wait.map_or(Duration::ZERO, |Span(wait)| wait);
        if wait > MAX_WAIT {
            let message = format!("must be at most {}", span::format(MAX_WAIT));
            return Err(Problem::invalid("wait", message));
        }
        let lease = check_lease(self.lease)?;
        let event_types = self.event_types.map(check_event_types).transpose()?.unwrap_or_default();
        Ok(LeaseWish { endpoint, max, wait, lease, event_types })
    }
}

/// Hands out what is due, or waits for it. Whoever stops listening is not waited for.
pub(crate) async fn lease(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EndpointId>,
    mut stopping: Stopping,
    OptionalJson(wish): OptionalJson<Wish>,
) -> Answer {
    let wish = wish.unwrap_or_default().of(id)?;
    let taken = tokio::select! {
        // What has been leased is handed over, whatever else happens.
        biased;
        taken = app.engine.lease(caller.tenant, wish) => taken.or_missing("endpoint")?,
        () = stopping.wait() => Vec::new(),
    };
    json(StatusCode::OK, &LeasesView { leases: taken.iter().map(LeaseView::of).collect() })
}

/// What can be said of a lease that is given back well.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Ack {
    result: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AckBatch {
    leases: Vec<Token>,
    result: Option<String>,
}

pub(crate) async fn ack(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(lease): Id<LeaseToken>,
    OptionalJson(ack): OptionalJson<Ack>,
) -> Answer {
    let result = check_result(ack.unwrap_or_default().result)?;
    let done = app.engine.ack(caller.tenant, vec![lease], result).await?;
    alone(done.into_iter().map(Outcome::from))?;
    json(StatusCode::OK, &SettledView::of(lease, DeliveryState::Delivered))
}

pub(crate) async fn ack_batch(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(batch): Json<AckBatch>,
) -> Answer {
    let leases = check_leases(batch.leases)?;
    let result = check_result(batch.result)?;
    let done = app.engine.ack(caller.tenant, leases.clone(), result).await?;
    answer_all(leases, done.into_iter().map(Outcome::from))
}

/// What can be said of a lease that is given back because it came to nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NackFields {
    class: Option<Class>,
    error: String,
    retry_after: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NackBatch {
    leases: Vec<Token>,
    class: Option<Class>,
    error: String,
    retry_after: Option<Span>,
}

pub(crate) async fn nack(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(lease): Id<LeaseToken>,
    Json(fields): Json<NackFields>,
) -> Answer {
    let nack = check_nack(fields)?;
    let done = app.engine.nack(caller.tenant, vec![lease], nack).await?;
    alone(done.into_iter().map(Outcome::from))?;
    // What it made of the delivery is the policy's affair.
    settled(&app, caller, lease).await
}

pub(crate) async fn nack_batch(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(batch): Json<NackBatch>,
) -> Answer {
    let NackBatch { leases, class, error, retry_after } = batch;
    let leases = check_leases(leases)?;
    let nack = check_nack(NackFields { class, error, retry_after })?;
    let done = app.engine.nack(caller.tenant, leases.clone(), nack).await?;
    answer_all(leases, done.into_iter().map(Outcome::from))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseBatch {
    leases: Vec<Token>,
}

/// Takes back what a worker has not tried.
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(lease): Id<LeaseToken>,
) -> Answer {
    let done = app.engine.release(caller.tenant, vec![lease]).await?;
    alone(done.into_iter().map(Outcome::from))?;
    settled(&app, caller, lease).await
}

pub(crate) async fn release_batch(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(batch): Json<ReleaseBatch>,
) -> Answer {
    let leases = check_leases(batch.leases)?;
    let done = app.engine.release(caller.tenant, leases.clone()).await?;
    answer_all(leases, done.into_iter().map(Outcome::from))
}

/// How a delivery stands after what was said of its lease.
async fn settled(app: &App, caller: Caller, lease: LeaseToken) -> Answer {
    let delivery = app.engine.store().delivery(caller.tenant, lease.delivery()).await?;
    let delivery = delivery.or_missing("delivery")?;
    // Workers' deliveries are in flight where that is stored, and nowhere else.
    let view = SettledView::of(lease, delivery.state);
    json(StatusCode::OK, &SettledView { next_attempt_at: delivery.due, ..view })
}

/// For how long a lease is to go on from now.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Extension {
    lease: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtensionBatch {
    leases: Vec<Token>,
    lease: Option<Span>,
}

pub(crate) async fn extend(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(lease): Id<LeaseToken>,
    OptionalJson(extension): OptionalJson<Extension>,
) -> Answer {
    let span = check_lease(extension.unwrap_or_default().lease)?;
    let extended = app.engine.extend(caller.tenant, vec![lease], span).await?;
    let expires_at = alone(extended.into_iter().map(Outcome::from))?;
    let view = SettledView::of(lease, DeliveryState::InFlight);
    json(StatusCode::OK, &SettledView { expires_at, ..view })
}

pub(crate) async fn extend_batch(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(batch): Json<ExtensionBatch>,
) -> Answer {
    let leases = check_leases(batch.leases)?;
    let span = check_lease(batch.lease)?;
    let extended = app.engine.extend(caller.tenant, leases.clone(), span).await?;
    answer_all(leases, extended.into_iter().map(Outcome::from))
}

/// A token in a body.
#[derive(Debug)]
struct Token(LeaseToken);

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

fn check_lease(said: Option<Span>) -> Result<Duration, Problem> {
    let lease = said.map_or(DEFAULT_LEASE, |Span(lease)| lease);
    if LEASE.contains(&lease) {
        Ok(lease)
    } else {
        let (min, max) = (span::format(*LEASE.start()), span::format(*LEASE.end()));
        Err(Problem::invalid("lease", format!("must be between {min} and {max}")))
    }
}

fn check_leases(leases: Vec<Token>) -> Result<Vec<LeaseToken>, Problem> {
    if (1..=MAX_LEASES).contains(&leases.len()) {
        Ok(leases.into_iter().map(|Token(lease)| lease).collect())
    } else {
        Err(Problem::invalid("leases", format!("must have 1 to {MAX_LEASES} entries")))
    }
}

fn check_result(result: Option<String>) -> Result<Option<String>, Problem> {
    match &result {
        Some(text)
            if !(1..=MAX_RESULT_CHARS).contains(&text.chars().count())
                || text.chars().any(char::is_control) =>
        {
            let message = format!("must have 1 to {MAX_RESULT_CHARS} characters, none for control");
            Err(Problem::invalid("result", message))
        }
        Some(_) | None => Ok(result),
    }
}

pub(crate) fn check_nack(
    NackFields { class, error, retry_after }: NackFields,
) -> Result<Nack, Problem> {
    if !(1..=MAX_ERROR_CHARS).contains(&error.chars().count()) {
        let message = format!("must have 1 to {MAX_ERROR_CHARS} characters");
        return Err(Problem::invalid("error", message));
    }
    Ok(Nack {
        class: class.unwrap_or(Class::Retryable),
        error,
        retry_after: retry_after.map(|Span(wait)| wait),
    })
}

/// What came of what was asked of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Extended(Timestamp),
    Lapsed,
}

impl From<bool> for Outcome {
    fn from(done: bool) -> Self {
        if done { Self::Done } else { Self::Lapsed }
    }
}

impl From<Option<Timestamp>> for Outcome {
    fn from(until: Option<Timestamp>) -> Self {
        until.map_or(Self::Lapsed, Self::Extended)
    }
}

/// What came of the only one: when it ends, if it goes on. One that has lapsed is refused.
fn alone(mut outcomes: impl Iterator<Item = Outcome>) -> Result<Option<Timestamp>, Problem> {
    match outcomes.next() {
        Some(Outcome::Done) => Ok(None),
        Some(Outcome::Extended(until)) => Ok(Some(until)),
        Some(Outcome::Lapsed) | None => Err(Problem::lease_lapsed()),
    }
}

fn answer_all(leases: Vec<LeaseToken>, outcomes: impl Iterator<Item = Outcome>) -> Answer {
    let results = leases.into_iter().zip(outcomes);
    let results = results.map(|(lease, outcome)| ResultView::of(lease, outcome)).collect();
    json(StatusCode::OK, &ResultsView { results })
}

#[derive(Serialize)]
struct LeasesView<'a> {
    leases: Vec<LeaseView<'a>>,
}

#[derive(Serialize)]
struct LeaseView<'a> {
    lease: LeaseToken,
    delivery_id: DeliveryId,
    expires_at: Timestamp,
    attempt: u32,
    event: events::View<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<TraceView<'a>>,
}

/// The trace that what a worker does is part of, as W3C trace context writes it.
#[derive(Serialize)]
struct TraceView<'a> {
    traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<&'a str>,
}

impl<'a> TraceView<'a> {
    fn of(trace: &'a Trace) -> Self {
        Self { traceparent: trace.parent(), tracestate: trace.state() }
    }
}

impl<'a> LeaseView<'a> {
    fn of(lease: &'a Lease) -> Self {
        Self {
            lease: lease.token,
            delivery_id: lease.delivery,
            expires_at: lease.expires_at,
            attempt: lease.attempt,
            event: events::View::leased(&lease.event),
            trace: lease.trace.as_ref().map(TraceView::of),
        }
    }
}

/// What became of a lease that was named alone.
#[derive(Serialize)]
struct SettledView {
    lease: LeaseToken,
    delivery_id: DeliveryId,
    state: DeliveryState,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Timestamp>,
}

impl SettledView {
    const fn of(lease: LeaseToken, state: DeliveryState) -> Self {
        let delivery_id = lease.delivery();
        Self { lease, delivery_id, state, expires_at: None, next_attempt_at: None }
    }
}

#[derive(Serialize)]
struct ResultsView {
    results: Vec<ResultView>,
}

/// What became of one of several.
#[derive(Serialize)]
struct ResultView {
    lease: LeaseToken,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

impl ResultView {
    fn of(lease: LeaseToken, outcome: Outcome) -> Self {
        let (ok, expires_at) = match outcome {
            Outcome::Done => (true, None),
            Outcome::Extended(until) => (true, Some(until)),
            Outcome::Lapsed => (false, None),
        };
        Self { lease, ok, expires_at }
    }
}
