//! Spans in the words of OpenTelemetry: the request of OTLP over HTTP, as JSON.
//!
//! <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: names in lower camel case, ids
//! in hexadecimal, 64-bit numbers as text, enumerations as numbers.

use std::borrow::Cow;
use std::time::Duration;

use postrider_core::{SpanId, Timestamp, TraceId};
use postrider_engine::spans::{Acceptance, Span, Try, Work};
use serde::Serialize;

const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const FAILED: u8 = 2;
/// Bits above those of `traceparent`: whether it is known where the parent is, and that it is elsewhere.
const PARENT_KNOWN: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x200;

/// Who sends the spans.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Resource {
    attributes: Vec<Attribute<'static>>,
}

impl Resource {
    pub(super) fn new(service: &str, node: &str) -> Self {
        let attributes = [
            ("service.name", service),
            ("service.instance.id", node),
            ("service.version", env!("CARGO_PKG_VERSION")),
        ];
        Self { attributes: attributes.map(|(key, value)| made(key, &value)).into() }
    }
}

/// The body of a request.
pub(super) fn request(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let spans = spans.iter().map(SpanView::of).collect();
    let scope = Scope { name: "postrider", version: env!("CARGO_PKG_VERSION") };
    let resource_spans = [ResourceSpans { resource, scope_spans: [ScopeSpans { scope, spans }] }];
    // Text and numbers only: there is nothing that JSON could refuse.
    serde_json::to_vec(&Request { resource_spans }).unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: &'a Resource,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<SpanView<'a>>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanView<'a> {
    trace_id: TraceId,
    span_id: SpanId,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<SpanId>,
    flags: u32,
    name: &'static str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
struct Status<'a> {
    code: u8,
    message: &'a str,
}

#[derive(Debug, Clone, Serialize)]
struct Attribute<'a> {
    key: &'static str,
    value: Value<'a>,
}

#[derive(Debug, Clone, Serialize)]
enum Value<'a> {
    #[serde(rename = "stringValue")]
    Text(Cow<'a, str>),
    #[serde(rename = "intValue")]
    Whole(String),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

impl<'a> SpanView<'a> {
    fn of(span: &'a Span) -> Self {
        let (name, kind, parent, attributes) = match &span.work {
            Work::Accept(acceptance) => {
                ("accept", SERVER, PARENT_KNOWN | PARENT_REMOTE, accepted(acceptance))
            }
            Work::Deliver(attempt) => ("deliver", CLIENT, PARENT_KNOWN, tried(attempt)),
        };
        let parent = if span.parent.is_some() { parent } else { 0 };
        Self {
            trace_id: span.trace.id(),
            span_id: span.trace.span(),
            trace_state: span.trace.state(),
            parent_span_id: span.parent,
            flags: u32::from(span.trace.flags()) | parent,
            name,
            kind,
            start_time_unix_nano: nanoseconds(span.began_at, Duration::ZERO),
            end_time_unix_nano: nanoseconds(span.began_at, span.took),
            attributes,
            status: span.error.as_deref().map(|message| Status { code: FAILED, message }),
        }
    }
}

fn nanoseconds(from: Timestamp, after: Duration) -> String {
    let from = u128::try_from(from.as_millis()).unwrap_or(0) * 1_000_000;
    (from + after.as_nanos()).to_string()
}

fn accepted(acceptance: &Acceptance) -> Vec<Attribute<'_>> {
    let Acceptance { tenant, events, event, kind, source, deliveries, duplicate } = acceptance;
    let mut attributes = vec![
        whole("postrider.tenant.id", &tenant.0),
        text("postrider.event.type", kind),
        whole("postrider.events", events),
        whole("postrider.deliveries", deliveries),
        flag("postrider.duplicate", *duplicate),
    ];
    attributes.extend(event.map(|id| made("postrider.event.id", &id)));
    attributes.extend(source.map(|id| made("postrider.source.id", &id)));
    attributes
}

fn tried(attempt: &Try) -> Vec<Attribute<'_>> {
    let mut attributes = vec![
        whole("postrider.tenant.id", &attempt.tenant.0),
        made("postrider.event.id", &attempt.event),
        text("postrider.event.type", &attempt.kind),
        made("postrider.delivery.id", &attempt.delivery),
        made("postrider.endpoint.id", &attempt.endpoint),
        text("postrider.carrier", attempt.carrier),
        whole("postrider.attempt", &attempt.attempt),
        flag("postrider.retry", attempt.attempt > 1),
        text("postrider.state", attempt.state.as_str()),
    ];
    attributes
        .extend(attempt.endpoint_name.as_deref().map(|name| text("postrider.endpoint.name", name)));
    attributes.extend(attempt.status.map(|status| whole("http.response.status_code", &status)));
    if let Some(class) = attempt.class {
        attributes.push(text("postrider.error_class", class.as_str()));
        let status = attempt.status.map(|status| made("error.type", &status));
        attributes.push(status.unwrap_or(text("error.type", class.as_str())));
    }
    let delay =
        attempt.delay.map(|delay| whole("postrider.next_attempt_delay_ms", &delay.as_millis()));
    attributes.extend(delay);
    attributes
}

fn text<'a>(key: &'static str, text: &'a str) -> Attribute<'a> {
    Attribute { key, value: Value::Text(text.into()) }
}

fn made<'a>(key: &'static str, value: &impl ToString) -> Attribute<'a> {
    Attribute { key, value: Value::Text(value.to_string().into()) }
}

fn whole<'a>(key: &'static str, number: &impl ToString) -> Attribute<'a> {
    Attribute { key, value: Value::Whole(number.to_string()) }
}

fn flag<'a>(key: &'static str, flag: bool) -> Attribute<'a> {
    Attribute { key, value: Value::Flag(flag) }
}

#[cfg(test)]
mod tests {
    use postrider_core::{
        Class, DeliveryId, EndpointId, EventId, State, TenantId, Trace, TraceId as Id,
    };
    use serde_json::json;

    use super::*;

    fn span(work: Work, parent: Option<u64>, error: Option<&str>) -> Span {
        let trace = Trace::begin(Id::new([0xab; 16]).expect("an id"), id(7));
        Span {
            trace,
            parent: parent.map(id),
            began_at: Timestamp::from_millis(1_767_225_600_050),
            took: Duration::from_micros(1_500),
            work,
            error: error.map(str::to_owned),
        }
    }

    fn id(number: u64) -> SpanId {
        SpanId::new(number).expect("not zero")
    }

    fn written(span: Span) -> serde_json::Value {
        let body = request(&Resource::new("hooks", "office"), &[span]);
        serde_json::from_slice(&body).expect("JSON")
    }

    #[test]
    fn an_acceptance_is_written_as_the_protocol_says() {
        let acceptance = Acceptance {
            tenant: TenantId(1),
            events: 1,
            event: Some(EventId::from_i64(5)),
            kind: "order.created".into(),
            source: None,
            deliveries: 2,
            duplicate: false,
        };
        let version = env!("CARGO_PKG_VERSION");
        let said = |key: &str, value| json!({ "key": key, "value": value });
        let expected = json!({ "resourceSpans": [{
            "resource": { "attributes": [
                said("service.name", json!({ "stringValue": "hooks" })),
                said("service.instance.id", json!({ "stringValue": "office" })),
                said("service.version", json!({ "stringValue": version })),
            ] },
            "scopeSpans": [{
                "scope": { "name": "postrider", "version": version },
                "spans": [{
                    "traceId": "abababababababababababababababab",
                    "spanId": "0000000000000007",
                    "flags": 1,
                    "name": "accept",
                    "kind": 2,
                    "startTimeUnixNano": "1767225600050000000",
                    "endTimeUnixNano": "1767225600051500000",
                    "attributes": [
                        said("postrider.tenant.id", json!({ "intValue": "1" })),
                        said("postrider.event.type", json!({ "stringValue": "order.created" })),
                        said("postrider.events", json!({ "intValue": "1" })),
                        said("postrider.deliveries", json!({ "intValue": "2" })),
                        said("postrider.duplicate", json!({ "boolValue": false })),
                        said("postrider.event.id", json!({ "stringValue": EventId::from_i64(5) })),
                    ],
                }],
            }],
        }] });
        assert_eq!(written(span(Work::Accept(acceptance), None, None)), expected);
    }

    #[test]
    fn a_failed_attempt_says_what_came_of_it() {
        let attempt = Try {
            tenant: TenantId(1),
            event: EventId::from_i64(5),
            kind: "order.created".into(),
            delivery: DeliveryId::from_i64(6),
            endpoint: EndpointId::from_i64(4),
            endpoint_name: Some("billing".into()),
            carrier: "http",
            attempt: 2,
            status: Some(503),
            class: Some(Class::Retryable),
            state: State::Retrying,
            delay: Some(Duration::from_secs(30)),
        };
        let written = written(span(Work::Deliver(attempt), Some(9), Some("HTTP 503")));
        let span = &written["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!((&span["name"], &span["kind"]), (&json!("deliver"), &json!(3)));
        assert_eq!(span["parentSpanId"], "0000000000000009");
        assert_eq!(span["flags"], 0x101);
        assert_eq!(span["status"], json!({ "code": 2, "message": "HTTP 503" }));
        let attributes = span["attributes"].as_array().expect("a list");
        for (key, value) in [
            ("postrider.attempt", json!({ "intValue": "2" })),
            ("postrider.retry", json!({ "boolValue": true })),
            ("postrider.state", json!({ "stringValue": "retrying" })),
            ("postrider.endpoint.name", json!({ "stringValue": "billing" })),
            ("http.response.status_code", json!({ "intValue": "503" })),
            ("postrider.error_class", json!({ "stringValue": "retryable" })),
            ("error.type", json!({ "stringValue": "503" })),
            ("postrider.next_attempt_delay_ms", json!({ "intValue": "30000" })),
        ] {
            let found = attributes.iter().find(|attribute| attribute["key"] == key);
            assert_eq!(found.map(|found| &found["value"]), Some(&value), "{key}");
        }
    }
}
