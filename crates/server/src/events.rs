//! `/v1/events`: taking events in, showing them, sending them again.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use postrider_core::{EndpointId, EventId, SourceId, TenantId, Timestamp, Trace, TraceId};
use postrider_engine::{Accepted, Submission};
use postrider_store::ledger::{DeliveryFilter, EventQuery, Position};
use postrider_store::record::{DeliveryRecord, Event, Headers};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::App;
use crate::answer::{self, Answer, json, json_text};
use crate::auth::Caller;
use crate::deliveries::{self, StateCounts};
use crate::elsewhere::Elsewhere;
use crate::extract::{self, Id, OptionalJson, Query};
use crate::new_event::{self, Envelope};
use crate::problem::{OrMissing as _, Problem};

const MAX_BATCH: usize = 1_000;
/// How many endpoints a replay can name.
const MAX_REPLAY_ENDPOINTS: usize = 1_000;
/// Room for the answer to one event, so that writing it allocates once.
const RECEIPT_BYTES: usize = 192;

pub(crate) async fn accept(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    take_in(app, caller.tenant, parts, body).await
}

#[expect(clippy::manual_async_fn, reason = "an async fn has room for each argument twice")]
pub(crate) fn take_in(
    app: Arc<App>,
    tenant: TenantId,
    parts: Parts,
    body: Body,
) -> impl Future<Output = Answer> + Send {
    async move {
        let body = extract::read_body(&parts.headers, body, app.options.event_limit_bytes).await?;
        let (kind, submission) = read_event(&app, parts, &body)?;
        drop(body);
        let accepted = app.engine.accept(tenant, submission).await?;
        let accepted = accepted.into_iter().next().ok_or_else(Problem::internal)?;
        let mut receipt = String::with_capacity(RECEIPT_BYTES);
        let status = write_receipt(&mut receipt, &kind, &accepted)?;
        Ok(json_text(status, receipt))
    }
}

/// The event of a request, and its type.
fn read_event(app: &App, parts: Parts, body: &Bytes) -> Result<(String, Vec<Submission>), Problem> {
    let Parts { uri, headers, .. } = parts;
    let now = app.engine.clock().now();
    let mut submission = if new_event::is_envelope(&headers) {
        if let Some(query) = uri.query() {
            Query::parse(query)?.finish()?;
        }
        extract::parse::<Envelope<'_>>(body)?.submit(now)?
    } else {
        let query = Query::parse(uri.query().unwrap_or_default())?;
        new_event::from_bytes(&headers, query, body, now)?
    };
    new_event::add_header_key(&mut submission, &headers)?;
    submission.trace = new_event::trace(&headers);
    new_event::add_way(&headers, app.engine.instance(), &mut submission.headers)?;
    Ok((submission.kind.clone(), vec![submission]))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch<'a> {
    #[serde(borrow)]
    pub(crate) events: Vec<&'a RawValue>,
}

/// Those that are valid are stored in one commit; each of the others gets its error.
pub(crate) async fn accept_batch(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let mut way = Headers::new();
    new_event::add_way(&parts.headers, app.engine.instance(), &mut way)?;
    let body = extract::read_body(&parts.headers, body, app.options.batch_limit_bytes).await?;
    let batch: Batch<'_> = extract::parse(&body)?;
    if batch.events.len() > MAX_BATCH {
        return Err(Problem::invalid("events", format!("must have at most {MAX_BATCH} entries")));
    }
    let now = app.engine.clock().now();
    let limit = app.options.event_limit_bytes;
    let trace = new_event::trace(&parts.headers);
    let mut submissions = Vec::with_capacity(batch.events.len());
    let mut refused = Vec::new();
    for (index, text) in batch.events.iter().enumerate() {
        match read_entry(text, limit, now) {
            Ok(submission) => {
                let (headers, trace) = (way.clone(), trace.clone());
                submissions.push(Submission { headers, trace, ..submission });
            }
            Err(problem) => refused.push((index, problem)),
        }
    }
    let kinds: Vec<String> = submissions.iter().map(|event| event.kind.clone()).collect();
    let accepted = if submissions.is_empty() {
        Vec::new()
    } else {
        app.engine.accept(caller.tenant, submissions).await?
    };
    let mut stored = kinds.iter().zip(&accepted);
    let mut refused = refused.into_iter().peekable();
    let mut results = String::with_capacity(16 + batch.events.len() * RECEIPT_BYTES);
    results.push_str(r#"{"results":["#);
    for index in 0..batch.events.len() {
        if index > 0 {
            results.push(',');
        }
        let receipt = if let Some((_, problem)) = refused.next_if(|(at, _)| *at == index) {
            Err(problem)
        } else {
            let (kind, accepted) = stored.next().ok_or_else(Problem::internal)?;
            write_receipt(&mut results, kind, accepted)
        };
        if let Err(problem) = receipt {
            let error = serde_json::to_string(&problem).map_err(|_| Problem::internal())?;
            // Writing to a String cannot fail.
            let _ = write!(results, r#"{{"error":{error}}}"#);
        }
    }
    results.push_str("]}");
    Ok(json_text(StatusCode::ACCEPTED, results))
}

pub(crate) fn read_entry(
    text: &RawValue,
    limit: usize,
    now: Timestamp,
) -> Result<Submission, Problem> {
    let text = text.get().as_bytes();
    if text.len() > limit {
        return Err(Problem::too_large(limit));
    }
    extract::parse::<Envelope<'_>>(text)?.submit(now)
}

/// Writes what a producer is told of its event. A type has no character that JSON would escape.
fn write_receipt(
    to: &mut String,
    sent_kind: &str,
    accepted: &Accepted,
) -> Result<StatusCode, Problem> {
    let (status, id, kind, received_at, deliveries, duplicate) = match accepted {
        Accepted::New { id, received_at, deliveries } => {
            (StatusCode::ACCEPTED, id, sent_kind, received_at, deliveries, false)
        }
        Accepted::Duplicate { id, kind, received_at, deliveries } => {
            (StatusCode::OK, id, kind.as_str(), received_at, deliveries, true)
        }
        Accepted::Conflict { id } => {
            return Err(Problem::conflict(format!(
                "the idempotency key belongs to {id}, which has a different body"
            )));
        }
    };
    // Writing to a String cannot fail.
    let _ = write!(
        to,
        r#"{{"id":"{id}","type":"{kind}","received_at":"{received_at}","deliveries":{deliveries},"duplicate":{duplicate}}}"#
    );
    Ok(status)
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EventId>,
) -> Answer {
    let event = find(&app, caller, id).await?;
    let records = app.engine.store().event_deliveries(caller.tenant, id).await?;
    let size = event.body.len();
    let headers = event.headers.iter().map(HeaderView::of).collect();
    let elsewhere = Elsewhere::find(&app.engine).await?;
    let view = View::new(&app, &elsewhere, &event, &records).await;
    json(StatusCode::OK, &View { payload_size: Some(size), headers: Some(headers), ..view })
}

pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, mut query: Query) -> Answer {
    let page = query.page::<EventId>()?;
    let wanted = EventQuery {
        kind: query.text("type"),
        idempotency_key: query.text("idempotency_key"),
        source: query.value("source")?,
        since: query.value("since")?,
        until: query.value("until")?,
        before: page.after,
        limit: page.limit,
    };
    query.finish()?;
    if let Some(kind) = &wanted.kind {
        postrider_core::pattern::check_type(kind)
            .map_err(|error| Problem::invalid("type", error.to_string()))?;
    }
    let store = app.engine.store();
    let listed = store.events(caller.tenant, wanted).await?;
    let mut deliveries = Vec::with_capacity(listed.rows.len());
    for event in &listed.rows {
        deliveries.push(store.event_deliveries(caller.tenant, event.id).await?);
    }
    let elsewhere = Elsewhere::find(&app.engine).await?;
    let mut data = Vec::with_capacity(listed.rows.len());
    for (event, records) in listed.rows.iter().zip(&deliveries) {
        data.push(View::new(&app, &elsewhere, event, records).await);
    }
    answer::list(&data, listed.next.map(|next| next.event).as_ref())
}

/// The bytes as they came, and nothing that would make a browser run them.
pub(crate) async fn payload(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EventId>,
) -> Answer {
    let event = find(&app, caller, id).await?;
    let content_type = HeaderValue::from_str(&event.content_type)
        .unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let headers = [
        (CONTENT_TYPE, content_type),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'")),
    ];
    Ok((headers, event.body).into_response())
}

pub(crate) async fn deliveries(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EventId>,
    mut query: Query,
) -> Answer {
    let page = query.page::<Position>()?;
    query.finish()?;
    find(&app, caller, id).await?;
    let filter = DeliveryFilter { event: Some(id), ..DeliveryFilter::default() };
    deliveries::answer_list(&app, caller, filter, page).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replay {
    endpoints: Option<Vec<EndpointId>>,
}

pub(crate) async fn replay(
    State(app): State<Arc<App>>,
    caller: Caller,
    Id(id): Id<EventId>,
    OptionalJson(replay): OptionalJson<Replay>,
) -> Answer {
    let endpoints = replay.and_then(|replay| replay.endpoints);
    if let Some(endpoints) = &endpoints {
        if !(1..=MAX_REPLAY_ENDPOINTS).contains(&endpoints.len()) {
            let message = format!("must have 1 to {MAX_REPLAY_ENDPOINTS} entries");
            return Err(Problem::invalid("endpoints", message));
        }
        // An event that is not there is not found, whatever is said of endpoints.
        find(&app, caller, id).await?;
        for (index, id) in endpoints.iter().enumerate() {
            if app.engine.endpoint(caller.tenant, *id).is_none() {
                return Err(Problem::invalid(format!("endpoints[{index}]"), "is no endpoint"));
            }
        }
    }
    let made = app.engine.replay_event(caller.acting(), id, endpoints).await.or_missing("event")?;
    json(StatusCode::ACCEPTED, &serde_json::json!({ "id": id, "deliveries": made }))
}

async fn find(app: &App, caller: Caller, id: EventId) -> Result<Event, Problem> {
    app.engine.store().event(caller.tenant, id).await?.or_missing("event")
}

/// An event as the API shows it.
#[derive(Serialize)]
pub(crate) struct View<'a> {
    id: EventId,
    r#type: &'a str,
    content_type: &'a str,
    received_at: Timestamp,
    deliver_at: Option<Timestamp>,
    idempotency_key: Option<&'a str>,
    ordering_key: Option<&'a str>,
    metadata: Option<&'a RawValue>,
    source: Option<SourceId>,
    verified: Option<bool>,
    trace_id: Option<TraceId>,
    /// Endpoints that did not get it because their filter could not be evaluated, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    filter_errors: Option<&'a RawValue>,
    /// As received, repeats in their order. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<HeaderView<'a>>>,
    /// Not in lists, which do not read bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_size: Option<usize>,
    /// Not for a worker: what became of the event elsewhere would have to be looked up.
    #[serde(flatten)]
    became: Option<Became>,
    /// For a worker, like the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// What has become of an event so far.
#[derive(Serialize)]
struct Became {
    status: &'static str,
    deliveries: usize,
    counts: StateCounts,
}

impl<'a> View<'a> {
    async fn new(
        app: &App,
        elsewhere: &Elsewhere,
        event: &'a Event,
        records: &[DeliveryRecord],
    ) -> Self {
        let mut counts = StateCounts::default();
        for record in records {
            counts.add(deliveries::listed_state(app, elsewhere, record).await, 1);
        }
        let status = summarize(&counts);
        let became = Became { status, deliveries: records.len(), counts };
        Self { became: Some(became), ..Self::of(event) }
    }

    /// The event with its headers and its bytes: as they are, where they are JSON, so that whoever
    /// takes the text of `payload` as it stands has them unchanged.
    pub(crate) fn leased(event: &'a Event) -> Self {
        let text = new_event::is_json(&event.content_type).then(|| exact_json(&event.body));
        let payload = text.flatten();
        Self {
            headers: Some(event.headers.iter().map(HeaderView::of).collect()),
            payload_size: Some(event.body.len()),
            payload,
            payload_base64: payload.is_none().then(|| STANDARD.encode(&event.body)),
            ..Self::of(event)
        }
    }

    fn of(event: &'a Event) -> Self {
        Self {
            id: event.id,
            r#type: &event.kind,
            content_type: &event.content_type,
            received_at: event.received_at,
            deliver_at: event.deliver_at,
            idempotency_key: event.idempotency_key.as_deref(),
            ordering_key: event.ordering_key.as_deref(),
            metadata: event.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok()),
            source: event.source,
            verified: event.verified,
            trace_id: event.trace.as_ref().map(Trace::id),
            filter_errors: event
                .filter_errors
                .as_deref()
                .and_then(|text| serde_json::from_str(text).ok()),
            headers: None,
            payload_size: None,
            became: None,
            payload: None,
            payload_base64: None,
        }
    }
}

/// The body as one JSON value, if that is what it is to the byte: spaces around it would be lost.
fn exact_json(body: &[u8]) -> Option<&RawValue> {
    serde_json::from_slice::<&RawValue>(body).ok().filter(|value| value.get().len() == body.len())
}

/// A header as it came: not every value is text.
#[derive(Serialize)]
struct HeaderView<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

impl<'a> HeaderView<'a> {
    fn of((name, value): &'a (String, Bytes)) -> Self {
        let text = std::str::from_utf8(value).ok();
        let encoded = text.is_none().then(|| STANDARD.encode(value));
        Self { name, value: text, value_base64: encoded }
    }
}

/// What became of an event: the summary of its deliveries.
fn summarize(counts: &StateCounts) -> &'static str {
    let StateCounts { pending, in_flight, retrying, delivered, failed, dead, cancelled } = *counts;
    let untouched = in_flight + retrying + delivered + failed + dead + cancelled == 0;
    if pending > 0 && untouched {
        "pending"
    } else if pending + in_flight + retrying > 0 {
        "processing"
    } else if failed + dead > 0 {
        "failed"
    } else {
        "completed"
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use postrider_core::State;

    use super::*;

    /// There is one for every producer that waits for its answer.
    #[test]
    fn what_takes_an_event_in_is_small() {
        fn size<F: Future>(_: impl Fn(Arc<App>, TenantId, Parts, Body) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size(take_in);
        assert!(bytes <= 768, "{bytes} bytes");
    }

    #[test]
    fn the_status_of_an_event_sums_up_its_deliveries() {
        use postrider_core::State::{
            Cancelled, Dead, Delivered, Failed, InFlight, Pending, Retrying,
        };
        let cases: &[(&[State], &str)] = &[
            (&[], "completed"),
            (&[Pending, Pending], "pending"),
            (&[InFlight], "processing"),
            (&[Retrying], "processing"),
            (&[Pending, Delivered], "processing"),
            (&[Retrying, Dead], "processing"),
            (&[Delivered, Cancelled], "completed"),
            (&[Delivered, Dead], "failed"),
            (&[Failed], "failed"),
        ];
        for (states, expected) in cases {
            let mut counts = StateCounts::default();
            for state in *states {
                counts.add(*state, 1);
            }
            assert_eq!(summarize(&counts), *expected, "{states:?}");
        }
    }

    #[test]
    fn a_worker_gets_every_body_back_to_the_byte() {
        for (content_type, body, exact) in [
            ("application/json", &br#"{"a": 1.0, "a":"\u00e9"}"#[..], true),
            ("application/json; charset=utf-8", b"null", true),
            ("application/cloudevents+json", b"[1,\n2]", true),
            ("application/json", b" {}", false),
            ("application/json", b"{}\n", false),
            ("application/json", b"{", false),
            ("application/json", b"", false),
            ("application/json", b"\"\xff\"", false),
            ("text/plain", b"7", false),
            ("application/jsonp", b"7", false),
            ("application/octet-stream", b"\0\xff", false),
        ] {
            let event = Event {
                id: EventId::from_i64(7),
                tenant: TenantId::DEFAULT,
                kind: "a.b".into(),
                content_type: content_type.into(),
                body: Bytes::from_static(body),
                idempotency_key: None,
                ordering_key: None,
                metadata: None,
                received_at: Timestamp::MIN,
                deliver_at: None,
                source: None,
                verified: None,
                headers: Vec::new(),
                filter_errors: None,
                trace: None,
            };
            let text = serde_json::to_string(&View::leased(&event)).expect("JSON");
            let shown: BTreeMap<&str, &RawValue> = serde_json::from_str(&text).expect("JSON");
            assert_eq!(shown.contains_key("payload"), exact, "{text}");
            let got = shown.get("payload").map_or_else(
                || {
                    let encoded = shown["payload_base64"].get().trim_matches('"');
                    STANDARD.decode(encoded).expect("base64")
                },
                |payload| payload.get().as_bytes().to_vec(),
            );
            assert_eq!(got, body, "{text}");
            assert_eq!(shown["payload_size"].get(), body.len().to_string());
        }
    }

    #[test]
    fn a_receipt_is_the_json_it_looks_like() {
        let received_at = Timestamp::from_millis(1_767_225_600_050);
        let id = EventId::from_i64(7);
        let new = Accepted::New { id, received_at, deliveries: 3 };
        let mut text = String::new();
        assert_eq!(write_receipt(&mut text, "order.created", &new), Ok(StatusCode::ACCEPTED));
        let expected = serde_json::json!({
            "id": id,
            "type": "order.created",
            "received_at": "2026-01-01T00:00:00.050Z",
            "deliveries": 3,
            "duplicate": false,
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), expected);
        assert!(text.len() <= RECEIPT_BYTES);
    }
}
