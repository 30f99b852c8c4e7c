//! An event as a producer sends it: the JSON envelope, or bytes of any other kind with a query
//! string beside them.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use postrider_core::trace::{TRACEPARENT, TRACESTATE};
use postrider_core::{Timestamp, Trace, pattern};
use postrider_engine::Submission;
use postrider_engine::via::{Instance, VIA};
use postrider_store::record::Headers;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::extract::{self, Query};
use crate::problem::Problem;

pub(crate) const MAX_KEY_CHARS: usize = 255;
pub(crate) const MAX_METADATA_BYTES: usize = 16 << 10;
pub(crate) const MAX_CONTENT_TYPE_BYTES: usize = 255;
/// How far ahead a delivery can be asked for.
const MAX_AHEAD: Duration = Duration::from_hours(366 * 24);

pub(crate) const JSON: &str = "application/json";
const JSON_SUFFIX: &[u8] = b"+json";
/// What is sent without saying what it is.
pub(crate) const UNKNOWN_CONTENT: &str = "application/octet-stream";
const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// The envelope. It borrows from the body; the payload's text stays as it was sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
    idempotency_key: Option<String>,
    ordering_key: Option<String>,
    deliver_at: Option<Timestamp>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl Envelope<'_> {
    pub(crate) fn submit(self, now: Timestamp) -> Result<Submission, Problem> {
        check_new_kind(&self.kind)?;
        Ok(Submission {
            kind: self.kind.into_owned(),
            content_type: JSON.to_owned(),
            // Copied, so that a small payload does not keep the connection's read buffer alive.
            body: Bytes::copy_from_slice(self.payload.get().as_bytes()),
            idempotency_key: check_key("idempotency_key", self.idempotency_key)?,
            ordering_key: check_key("ordering_key", self.ordering_key)?,
            deliver_at: check_ahead(self.deliver_at, now)?,
            metadata: self.metadata.map(check_metadata).transpose()?,
            source: None,
            verified: None,
            headers: Vec::new(),
            trace: None,
        })
    }
}

pub(crate) fn is_envelope(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| essence(value.as_bytes()).eq_ignore_ascii_case(JSON.as_bytes()))
}

/// Whether a content type promises JSON, by its own name or by its suffix (RFC 6839).
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = essence(content_type.as_bytes());
    let suffix = essence.len().checked_sub(JSON_SUFFIX.len()).map(|at| &essence[at..]);
    essence.eq_ignore_ascii_case(JSON.as_bytes())
        || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(JSON_SUFFIX))
}

/// A content type without its parameters.
fn essence(content_type: &[u8]) -> &[u8] {
    content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

/// The idempotency key can stand in the envelope, or in a header of that name.
pub(crate) fn add_header_key(
    submission: &mut Submission,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_HEADER) else { return Ok(()) };
    let key = value
        .to_str()
        .map_err(|_| Problem::invalid(IDEMPOTENCY_HEADER, "must be visible ASCII characters"))?;
    match &submission.idempotency_key {
        Some(said) if said != key => {
            Err(Problem::invalid(IDEMPOTENCY_HEADER, "differs from the event's idempotency_key"))
        }
        Some(_) => Ok(()),
        None => {
            submission.idempotency_key = check_key(IDEMPOTENCY_HEADER, Some(key.to_owned()))?;
            Ok(())
        }
    }
}

/// The trace that whoever sends is part of. What cannot be read is none.
pub(crate) fn trace(headers: &HeaderMap) -> Option<Trace> {
    let values = |name| headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
    Trace::from_headers(values(TRACEPARENT), values(TRACESTATE))
}

/// Refuses what this gateway has sent itself, and keeps where an event has been.
pub(crate) fn add_way(
    headers: &HeaderMap,
    instance: &Instance,
    kept: &mut Headers,
) -> Result<(), Problem> {
    let mut way = headers.get_all(VIA).iter().peekable();
    if way.peek().is_none() {
        return Ok(());
    }
    let values = headers.get_all(VIA).iter();
    instance.check(values.map(HeaderValue::as_bytes)).map_err(Problem::loops)?;
    kept.extend(
        way.map(|value| (VIA.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes()))),
    );
    Ok(())
}

/// Bytes that are no envelope: all that is known of them stands in the query string.
pub(crate) fn from_bytes(
    headers: &HeaderMap,
    mut query: Query,
    body: &Bytes,
    now: Timestamp,
) -> Result<Submission, Problem> {
    let content_type = match headers.get(CONTENT_TYPE) {
        None => UNKNOWN_CONTENT.to_owned(),
        Some(value) => value
            .to_str()
            .ok()
            .filter(|text| (1..=MAX_CONTENT_TYPE_BYTES).contains(&text.len()))
            .ok_or_else(|| Problem::invalid("content-type", "is not a content type"))?
            .to_owned(),
    };
    let kind = query.text("type").ok_or_else(|| {
        Problem::invalid(
            "type",
            "is missing: send content-type application/json with {\"type\",\"payload\"}, \
             or any other bytes to /v1/events?type=…",
        )
    })?;
    check_new_kind(&kind)?;
    let submission = Submission {
        kind,
        content_type,
        body: Bytes::copy_from_slice(body),
        idempotency_key: check_key("idempotency_key", query.text("idempotency_key"))?,
        ordering_key: check_key("ordering_key", query.text("ordering_key"))?,
        deliver_at: check_ahead(query.value("deliver_at")?, now)?,
        metadata: None,
        source: None,
        verified: None,
        headers: Vec::new(),
        trace: None,
    };
    query.finish()?;
    Ok(submission)
}

pub(crate) fn check_kind(kind: &str) -> Result<(), Problem> {
    pattern::check_type(kind).map_err(|error| Problem::invalid("type", error.to_string()))
}

/// What a producer may call an event: anything that the gateway does not call its own.
fn check_new_kind(kind: &str) -> Result<(), Problem> {
    check_kind(kind)?;
    if pattern::is_reserved(kind) {
        let prefix = pattern::RESERVED_PREFIX;
        let message = format!("must not begin with {prefix}: such events come from the gateway");
        return Err(Problem::invalid("type", message));
    }
    Ok(())
}

fn check_key(field: &str, key: Option<String>) -> Result<Option<String>, Problem> {
    match key {
        Some(key) if key.chars().any(|c| c.is_control() || c.is_whitespace()) => {
            Err(Problem::invalid(field, "must be visible characters, without spaces"))
        }
        Some(key) if !(1..=MAX_KEY_CHARS).contains(&key.chars().count()) => {
            Err(Problem::invalid(field, format!("must have 1 to {MAX_KEY_CHARS} characters")))
        }
        key => Ok(key),
    }
}

fn check_ahead(at: Option<Timestamp>, now: Timestamp) -> Result<Option<Timestamp>, Problem> {
    match at {
        Some(at) if at > now.plus(MAX_AHEAD) => {
            Err(Problem::invalid("deliver_at", "is more than a year ahead"))
        }
        at => Ok(at),
    }
}

pub(crate) fn check_metadata(metadata: &RawValue) -> Result<String, Problem> {
    let text = metadata.get();
    if text.len() > MAX_METADATA_BYTES {
        return Err(Problem::invalid(
            "metadata",
            format!("must have at most {MAX_METADATA_BYTES} bytes"),
        ));
    }
    // Read once, so that nobody who reads it later finds it too deep or no object.
    extract::parse::<serde_json::Map<String, serde_json::Value>>(text.as_bytes())
        .map_err(|_| Problem::invalid("metadata", "must be a JSON object of reasonable depth"))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    fn submit(json: &str) -> Result<Submission, Problem> {
        extract::parse::<Envelope<'_>>(json.as_bytes())?.submit(NOW)
    }

    #[test]
    fn the_payload_is_stored_as_it_was_sent() {
        let event = submit(
            r#"{"type":"order.created","payload":{"b" : 1.0e2},"ordering_key":"k","metadata":{"a":1}}"#,
        )
        .expect("valid");
        assert_eq!(&event.body[..], br#"{"b" : 1.0e2}"#);
        assert_eq!(event.kind, "order.created");
        assert_eq!(event.content_type, "application/json");
        assert_eq!(event.ordering_key.as_deref(), Some("k"));
        assert_eq!(event.metadata.as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(&submit(r#"{"type":"a","payload":null}"#).expect("valid").body[..], b"null");
    }

    #[test]
    fn every_field_is_bounded() {
        let key = "k".repeat(MAX_KEY_CHARS + 1);
        let metadata = "m".repeat(MAX_METADATA_BYTES);
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(500), "]".repeat(500));
        for (rest, field) in [
            (r#""type":"a b","payload":1"#.to_owned(), "type"),
            (r#""type":"","payload":1"#.to_owned(), "type"),
            (r#""type":"postrider.delivery.dead","payload":1"#.to_owned(), "type"),
            (format!(r#""type":"{}","payload":1"#, "t".repeat(300)), "type"),
            (format!(r#""type":"a","payload":1,"idempotency_key":"{key}""#), "idempotency_key"),
            (r#""type":"a","payload":1,"idempotency_key":"""#.to_owned(), "idempotency_key"),
            (r#""type":"a","payload":1,"idempotency_key":"a b""#.to_owned(), "idempotency_key"),
            (r#""type":"a","payload":1,"ordering_key":"\u0000""#.to_owned(), "ordering_key"),
            (r#""type":"a","payload":1,"deliver_at":"tomorrow""#.to_owned(), "deliver_at"),
            (
                r#""type":"a","payload":1,"deliver_at":"2199-01-01T00:00:00Z""#.to_owned(),
                "deliver_at",
            ),
            (r#""type":"a","payload":1,"metadata":[]"#.to_owned(), "metadata"),
            (format!(r#""type":"a","payload":1,"metadata":{{"m":"{metadata}"}}"#), "metadata"),
            (format!(r#""type":"a","payload":1,"metadata":{deep}"#), "metadata"),
        ] {
            let problem = submit(&format!("{{{rest}}}")).expect_err(&rest);
            assert_eq!(problem.fields(), [field], "{rest}");
        }
        assert!(
            submit(&format!(r#"{{"type":"a","payload":1,"ordering_key":"{}"}}"#, &key[1..]))
                .is_ok()
        );
    }

    #[test]
    fn only_json_is_an_envelope() {
        for (value, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/cloudevents+json", false),
            ("text/plain", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]);
            assert_eq!(is_envelope(&headers), expected, "{value}");
        }
        assert!(!is_envelope(&HeaderMap::new()));
    }
}
