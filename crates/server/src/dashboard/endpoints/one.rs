//! `/endpoints/{id}`: what an endpoint is, how it is doing, and what can be done about it.

use askama::Template;
use axum::extract::{Path, RawQuery};
use postrider_core::{DeliveryId, EventId, State, Timestamp};
use serde::Deserialize;
use url::form_urlencoded;

use super::read_id;
use super::shown::{Endpoint, Standing, Stats};
use crate::dashboard::api::List;
use crate::dashboard::chart::{Bars, History, Span, bars};
use crate::dashboard::chrome::{Chrome, Section};
use crate::dashboard::html::{Shown, show};
use crate::dashboard::policy_editor;
use crate::dashboard::session::Visitor;
use crate::dashboard::words::{self, Moment, moment};
use crate::deliveries::StateCounts;

/// How many deliveries are shown, the newest.
const RECENT: usize = 10;
const MAX_TITLE_CHARS: usize = 200;
const MAX_ERROR_CHARS: usize = 160;
const MAX_FACT_CHARS: usize = 1_000;

#[derive(Template)]
#[template(path = "endpoint.html")]
struct Page {
    chrome: Chrome,
    endpoint: Endpoint,
    title: String,
    facts: Vec<Fact>,
    standing: Standing,
    breaker: Option<&'static str>,
    hold_until: Option<Moment>,
    oldest_waiting: Option<Moment>,
    counts: Vec<Count>,
    span: Span,
    chart: Bars,
    success: Option<String>,
    times: Vec<(&'static str, String)>,
    recent: Vec<Recent>,
    policy: String,
    created: Moment,
    updated: Moment,
}

/// Something that was said of it.
struct Fact {
    name: &'static str,
    value: String,
    /// Where more of it is.
    link: Option<String>,
}

/// How many deliveries are in a state, and where they are listed.
struct Count {
    state: State,
    number: String,
}

struct Recent {
    id: DeliveryId,
    event: EventId,
    state: State,
    attempts: u32,
    /// The last attempt, if there was one.
    last: Option<Moment>,
    next: Option<Moment>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Delivery {
    id: DeliveryId,
    event_id: EventId,
    state: State,
    attempts: u32,
    next_attempt_at: Option<Timestamp>,
    last_attempt_at: Option<Timestamp>,
    last_error: Option<String>,
}

pub(super) async fn page(
    visitor: Visitor,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Shown {
    let id = read_id(&id)?;
    let (api, now) = (&visitor.api, visitor.now);
    let endpoint: Endpoint = api.get(&format!("/v1/endpoints/{id}")).await?;
    let stats: Stats = api.get(&format!("/v1/endpoints/{id}/stats")).await?;
    let span = read_span(&query.unwrap_or_default());
    let history = History::of_endpoint(api, span, id).await?;
    let path = format!("/v1/deliveries?endpoint={id}&limit={RECENT}");
    let deliveries: List<Delivery> = api.get(&path).await?;
    let title = words::line(endpoint.title(), MAX_TITLE_CHARS);
    let total = history.total;
    let times = [("p50", total.p50_ms), ("p95", total.p95_ms), ("p99", total.p99_ms)];
    let in_words = |(name, millis): (&'static str, Option<_>)| {
        millis.map(|millis: f64| {
            (name, words::span(std::time::Duration::from_secs_f64(millis.max(0.0) / 1_000.0)))
        })
    };
    show(&Page {
        chrome: Chrome::new(&visitor, Section::Endpoints),
        facts: facts(&endpoint),
        standing: Standing::of(endpoint.state, stats.health, now),
        breaker: stats.health.breaker.map(super::shown::Breaker::words),
        hold_until: stats.health.hold_until.map(|until| moment(until, now)),
        oldest_waiting: history.oldest_waiting_at.map(|at| moment(at, now)),
        counts: counts(&stats.deliveries),
        span,
        chart: bars(&history.columns(), history.grain(), span, &format!("Deliveries to {title}")),
        success: total.success_rate.map(words::percent),
        times: times.into_iter().filter_map(in_words).collect(),
        recent: deliveries.data.into_iter().map(|delivery| Recent::of(delivery, now)).collect(),
        policy: policy(&endpoint),
        created: moment(endpoint.created_at, now),
        updated: moment(endpoint.updated_at, now),
        endpoint,
        title,
    })
}

impl Recent {
    fn of(delivery: Delivery, now: Timestamp) -> Self {
        Self {
            id: delivery.id,
            event: delivery.event_id,
            state: delivery.state,
            attempts: delivery.attempts,
            last: delivery.last_attempt_at.map(|at| moment(at, now)),
            next: delivery.next_attempt_at.map(|at| moment(at, now)),
            error: delivery.last_error.map(|error| words::line(error, MAX_ERROR_CHARS)),
        }
    }
}

fn read_span(query: &str) -> Span {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let asked = pairs.find(|(name, _)| name == "span");
    asked.map(|(_, text)| Span::read(&text)).unwrap_or_default()
}

fn counts(counts: &StateCounts) -> Vec<Count> {
    let of = |state: State| match state {
        State::Pending => counts.pending,
        State::InFlight => counts.in_flight,
        State::Retrying => counts.retrying,
        State::Delivered => counts.delivered,
        State::Failed => counts.failed,
        State::Dead => counts.dead,
        State::Cancelled => counts.cancelled,
    };
    State::ALL.map(|state| Count { state, number: words::count(of(state)) }).into()
}

/// The policy as the API takes it, for those who want it to the letter.
fn policy(endpoint: &Endpoint) -> String {
    serde_json::to_string_pretty(&endpoint.policy).unwrap_or_default()
}

/// What was said of it, each in a line. Header values and certificates may be secrets: they are named,
/// and shown only where they are changed.
fn facts(endpoint: &Endpoint) -> Vec<Fact> {
    let fact =
        |name, value: String| Fact { name, value: words::line(value, MAX_FACT_CHARS), link: None };
    let to_hub = endpoint.hub.map(|hub| format!("/hubs#{hub}"));
    let mut facts = vec![
        Fact { link: to_hub, ..fact("Goes to", endpoint.place()) },
        fact("Event types", endpoint.event_types.join(", ")),
    ];
    if !endpoint.sources.is_empty() {
        let ids: Vec<String> = endpoint.sources.iter().map(ToString::to_string).collect();
        facts.push(fact("Only from sources", ids.join(", ")));
    }
    if let Some(filter) = &endpoint.filter {
        facts.push(fact("Filter", filter.clone()));
    }
    facts.push(fact("Policy", policy_editor::Typed::of(&endpoint.policy).in_words()));
    facts.push(fact("Ordering", ordering(&endpoint.ordering).into()));
    if let Some(limit) = endpoint.rate_limit {
        let (per_second, burst) = (limit.per_second, limit.burst);
        facts.push(fact("Rate limit", format!("{per_second} a second, bursts of {burst}")));
    }
    if let Some(max) = endpoint.max_in_flight {
        facts.push(fact("In flight at most", max.to_string()));
    }
    if let Some(timeout) = &endpoint.timeout {
        facts.push(fact("Time for an attempt", timeout.clone()));
    }
    if !endpoint.headers.is_empty() {
        let names: Vec<&str> = endpoint.headers.keys().map(String::as_str).collect();
        facts.push(fact("Headers of its own", names.join(", ")));
    }
    let header = endpoint.signing.header.as_deref();
    let signed = header.map_or_else(String::new, |header| format!(" in {header}"));
    facts.push(fact("Signed", format!("{}{signed}", endpoint.signing.scheme)));
    if let Some(tls) = &endpoint.tls {
        let parts = [
            (tls.client_cert.is_some(), "a client certificate"),
            (tls.has_client_key, "its key"),
            (tls.ca.is_some(), "authorities of its own"),
        ];
        let there = parts.iter().filter(|(there, _)| *there).map(|(_, name)| *name);
        facts.push(fact("TLS", there.collect::<Vec<_>>().join(", ")));
    }
    if let Some(format) = &endpoint.format {
        let name = format.as_str().unwrap_or("telegram");
        facts.push(fact("Written as", format!("a message for {name}")));
    }
    if !endpoint.metadata.is_empty() {
        facts.push(fact("Metadata", serde_json::to_string(&endpoint.metadata).unwrap_or_default()));
    }
    facts
}

fn ordering(name: &str) -> &'static str {
    match name {
        "fifo" => "one after the other (fifo)",
        "fifo_by_key" => "one after the other among those with one key (fifo_by_key)",
        _ => "none",
    }
}
