//! What workers ask of a gateway: leases of deliveries, and their end.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use postrider_core::pattern::Pattern;
use postrider_core::{Class, DeliveryId, EndpointId, EventId, SourceId, Timestamp, Trace, span};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::error::Error;
use crate::gateway::{DEADLINE, Gateway};

/// The most leases that one request takes or ends.
pub const MAX_LEASES: usize = 100;
/// The longest that the gateway waits for work to come.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
pub const MIN_LEASE: Duration = Duration::from_secs(1);
pub const MAX_LEASE: Duration = Duration::from_hours(12);
pub const MAX_RESULT_CHARS: usize = 200;
pub const MAX_ERROR_CHARS: usize = 2_000;
/// The longest that the bytes of leased events may be on their way. A longer lease than this does
/// not make a broken connection hold a worker up for longer.
const MAX_TRANSFER: Duration = Duration::from_mins(5);

/// The right to deal with one delivery for a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(String);

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a worker is ready to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    pub endpoint: EndpointId,
    /// 1 to [`MAX_LEASES`].
    pub max: usize,
    /// How long to wait where there is nothing, up to [`MAX_WAIT`].
    pub wait: Duration,
    /// From [`MIN_LEASE`] to [`MAX_LEASE`].
    pub lease: Duration,
    /// Only events of these types; all of the endpoint's where it is empty.
    pub event_types: Vec<Pattern>,
}

/// A delivery in the hands of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub token: LeaseToken,
    pub delivery: DeliveryId,
    /// When it ends, by the gateway's clock.
    pub expires_at: Timestamp,
    /// The number of this try, from 1.
    pub attempt: u32,
    pub event: Event,
    /// The trace that what is done with it is part of.
    pub trace: Option<Trace>,
}

/// An event as it was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    /// Its type.
    pub kind: String,
    pub content_type: String,
    pub received_at: Timestamp,
    pub idempotency_key: Option<String>,
    pub ordering_key: Option<String>,
    /// A JSON object.
    pub metadata: Option<String>,
    pub source: Option<SourceId>,
    /// Whether its sender's signature held, where it came through a source.
    pub verified: Option<bool>,
    /// The headers that were kept of it, names in lower case, repeats in their order.
    pub headers: Vec<(String, Bytes)>,
    /// To the byte as it came.
    pub body: Bytes,
}

/// A failure, as a worker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nack {
    pub class: Class,
    /// 1 to [`MAX_ERROR_CHARS`] characters.
    pub error: String,
    /// How long to wait before the next try; it holds the whole endpoint where the class is
    /// [`Class::RateLimited`].
    pub retry_after: Option<Duration>,
}

impl Gateway {
    /// Takes up to `max` deliveries, oldest event first. There may be none after `wait`.
    pub async fn lease(&self, request: &LeaseRequest) -> Result<Vec<Lease>, Error> {
        self.lease_at(request).await.map(|(_, leases)| leases)
    }

    /// The same, with the time at which the answer came: the leases began shortly before.
    pub(crate) async fn lease_at(
        &self,
        request: &LeaseRequest,
    ) -> Result<(Instant, Vec<Lease>), Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            max: usize,
            wait: String,
            lease: String,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            event_types: &'a [Pattern],
        }
        #[derive(Deserialize)]
        struct Taken<'a> {
            #[serde(borrow)]
            leases: Vec<LeaseView<'a>>,
        }

        let body = Body {
            max: request.max,
            wait: span::format(request.wait),
            lease: span::format(request.lease),
            event_types: &request.event_types,
        };
        let path = format!("/v1/endpoints/{}/lease", request.endpoint);
        // After the lease has ended its answer is worth nothing.
        let transfer = request.lease.clamp(DEADLINE, MAX_TRANSFER);
        let deadline = request.wait.saturating_add(transfer);
        let answer = self.send(Method::POST, &path, Some(text(&body)?), deadline).await?;
        let taken: Taken<'_> = self.read(&answer.body)?;
        if taken.leases.len() > request.max {
            return Err(self.bad_answer("it leases more than it was asked for"));
        }
        let leases: Result<Vec<Lease>, _> = taken.leases.into_iter().map(LeaseView::own).collect();
        Ok((answer.at, leases.map_err(|reason| self.bad_answer(reason))?))
    }

    /// Says that these deliveries are done, with a label for how they ended. False for each whose
    /// lease has lapsed: nothing has changed for it.
    pub async fn ack(
        &self,
        leases: &[LeaseToken],
        result: Option<&str>,
    ) -> Result<Vec<bool>, Error> {
        self.ack_within(leases, result, DEADLINE).await
    }

    pub(crate) async fn ack_within(
        &self,
        leases: &[LeaseToken],
        result: Option<&str>,
        deadline: Duration,
    ) -> Result<Vec<bool>, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            leases: &'a [LeaseToken],
            #[serde(skip_serializing_if = "Option::is_none")]
            result: Option<&'a str>,
        }
        let ended = self.end("ack", leases, &Body { leases, result }, deadline).await?;
        Ok(ended.iter().map(|ended| ended.ok).collect())
    }

    /// Says that these deliveries failed. False for each whose lease has lapsed.
    pub async fn nack(&self, leases: &[LeaseToken], nack: &Nack) -> Result<Vec<bool>, Error> {
        self.nack_within(leases, nack, DEADLINE).await
    }

    pub(crate) async fn nack_within(
        &self,
        leases: &[LeaseToken],
        nack: &Nack,
        deadline: Duration,
    ) -> Result<Vec<bool>, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            leases: &'a [LeaseToken],
            class: Class,
            error: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            retry_after: Option<String>,
        }
        let retry_after = nack.retry_after.map(span::format);
        let body = Body { leases, class: nack.class, error: &nack.error, retry_after };
        let ended = self.end("nack", leases, &body, deadline).await?;
        Ok(ended.iter().map(|ended| ended.ok).collect())
    }

    /// Gives these deliveries back untried: another worker may have them at once, and it is no
    /// attempt. False for each whose lease has lapsed.
    pub async fn release(&self, leases: &[LeaseToken]) -> Result<Vec<bool>, Error> {
        self.release_within(leases, DEADLINE).await
    }

    pub(crate) async fn release_within(
        &self,
        leases: &[LeaseToken],
        deadline: Duration,
    ) -> Result<Vec<bool>, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            leases: &'a [LeaseToken],
        }
        let ended = self.end("release", leases, &Body { leases }, deadline).await?;
        Ok(ended.iter().map(|ended| ended.ok).collect())
    }

    /// Lets these leases end `lease` from now. None for each that has lapsed.
    pub async fn extend(
        &self,
        leases: &[LeaseToken],
        lease: Duration,
    ) -> Result<Vec<Option<Timestamp>>, Error> {
        self.extend_within(leases, lease, DEADLINE).await
    }

    pub(crate) async fn extend_within(
        &self,
        leases: &[LeaseToken],
        lease: Duration,
        deadline: Duration,
    ) -> Result<Vec<Option<Timestamp>>, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            leases: &'a [LeaseToken],
            lease: String,
        }
        let body = Body { leases, lease: span::format(lease) };
        let ended = self.end("extend", leases, &body, deadline).await?;
        Ok(ended.iter().map(|ended| ended.expires_at.filter(|_| ended.ok)).collect())
    }

    /// One batch: what became of each lease, in their order.
    async fn end(
        &self,
        how: &str,
        leases: &[LeaseToken],
        body: &impl Serialize,
        deadline: Duration,
    ) -> Result<Vec<Ended>, Error> {
        #[derive(Deserialize)]
        struct Results {
            results: Vec<Ended>,
        }
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        if leases.len() > MAX_LEASES {
            return Err(Error::Invalid(format!("at most {MAX_LEASES} leases go into one request")));
        }
        let path = format!("/v1/leases/{how}");
        let answer = self.send(Method::POST, &path, Some(text(body)?), deadline).await?;
        let Results { results } = self.read(&answer.body)?;
        if results.iter().map(|ended| &ended.lease).ne(leases) {
            return Err(self.bad_answer("it answers for other leases than it was asked about"));
        }
        Ok(results)
    }
}

#[derive(Deserialize)]
struct Ended {
    lease: LeaseToken,
    ok: bool,
    expires_at: Option<Timestamp>,
}

/// A lease as the gateway writes it. Payloads stay text: parsing them would change their bytes.
#[derive(Deserialize)]
struct LeaseView<'a> {
    lease: LeaseToken,
    delivery_id: DeliveryId,
    expires_at: Timestamp,
    attempt: u32,
    #[serde(borrow)]
    event: EventView<'a>,
    trace: Option<TraceView>,
}

#[derive(Deserialize)]
struct TraceView {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceView {
    /// None if it is none that this version understands.
    fn read(&self) -> Option<Trace> {
        let state = self.tracestate.as_ref().map(String::as_bytes);
        Trace::from_headers(std::iter::once(self.traceparent.as_bytes()), state.into_iter())
    }
}

#[derive(Deserialize)]
struct EventView<'a> {
    id: EventId,
    r#type: String,
    content_type: String,
    received_at: Timestamp,
    idempotency_key: Option<String>,
    ordering_key: Option<String>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    source: Option<SourceId>,
    verified: Option<bool>,
    #[serde(default)]
    headers: Vec<HeaderView>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    payload: Option<&'a RawValue>,
    payload_base64: Option<String>,
}

#[derive(Deserialize)]
struct HeaderView {
    name: String,
    value: Option<String>,
    value_base64: Option<String>,
}

impl LeaseView<'_> {
    fn own(self) -> Result<Lease, &'static str> {
        let Self { lease, delivery_id, expires_at, attempt, event, trace } = self;
        Ok(Lease {
            token: lease,
            delivery: delivery_id,
            expires_at,
            attempt,
            event: event.own()?,
            trace: trace.and_then(|trace| trace.read()),
        })
    }
}

impl EventView<'_> {
    fn own(self) -> Result<Event, &'static str> {
        let text = |raw: &RawValue| Bytes::copy_from_slice(raw.get().as_bytes());
        let body = bytes_of(self.payload.map(text), self.payload_base64)
            .ok_or("an event has neither a payload nor a readable payload_base64")?;
        let headers: Option<Vec<(String, Bytes)>> = self
            .headers
            .into_iter()
            .map(|header| {
                let value = bytes_of(header.value.map(Bytes::from), header.value_base64)?;
                Some((header.name, value))
            })
            .collect();
        Ok(Event {
            id: self.id,
            kind: self.r#type,
            content_type: self.content_type,
            received_at: self.received_at,
            idempotency_key: self.idempotency_key,
            ordering_key: self.ordering_key,
            metadata: self.metadata.map(|raw| raw.get().to_owned()),
            source: self.source,
            verified: self.verified,
            headers: headers.ok_or("a header has neither a value nor a readable value_base64")?,
            body,
        })
    }
}

/// What is not text comes as base64 instead.
fn bytes_of(plain: Option<Bytes>, encoded: Option<String>) -> Option<Bytes> {
    match encoded {
        Some(encoded) => STANDARD.decode(encoded).ok().map(Bytes::from),
        None => plain,
    }
}

/// A payload may be `null`, which is not the same as having none.
fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn text(body: &impl Serialize) -> Result<Bytes, Error> {
    let text = serde_json::to_vec(body);
    text.map(Bytes::from).map_err(|error| Error::Invalid(format!("not to be sent: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = r#""id":"evt_0000000000001","type":"a.b","content_type":"text/plain",
        "received_at":"2026-01-01T00:00:00.000Z","colour":"unknown to this version""#;

    fn event(fields: &str) -> Result<Event, String> {
        let json = format!("{{{REST},{fields}}}");
        let view: EventView<'_> = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        view.own().map_err(str::to_owned)
    }

    #[test]
    fn a_body_is_the_bytes_that_came_in() {
        for (fields, body) in [
            (
                r#""payload":{"b" : 1.0e2,"a":[ ],"b":"\u0041é"}"#,
                r#"{"b" : 1.0e2,"a":[ ],"b":"\u0041é"}"#.as_bytes(),
            ),
            (r#""payload":null"#, b"null"),
            (r#""payload":12345678901234567890.10"#, b"12345678901234567890.10"),
            (r#""payload_base64":"AP8KAA==""#, b"\0\xff\n\0"),
            (r#""payload_base64":"""#, b""),
            (r#""payload":null,"payload_base64":"IA==""#, b" "),
        ] {
            assert_eq!(event(fields).expect(fields).body, body, "{fields}");
        }
        for fields in [r#""metadata":null"#, r#""payload_base64":"%""#, r#""payload_base64":"AP8""#]
        {
            assert!(event(fields).expect_err(fields).contains("payload"), "{fields}");
        }
    }

    #[test]
    fn the_rest_of_an_event_is_read() {
        let event = event(
            r#""payload":1,"metadata":{"n" : 1},"ordering_key":"o","idempotency_key":"i",
               "headers":[{"name":"x-a","value":"1"},{"name":"x-a","value_base64":"/w=="}]"#,
        )
        .expect("valid");
        assert_eq!(event.metadata.as_deref(), Some(r#"{"n" : 1}"#));
        assert_eq!(event.ordering_key.as_deref(), Some("o"));
        assert_eq!(event.idempotency_key.as_deref(), Some("i"));
        let expected =
            [(String::from("x-a"), Bytes::from("1")), ("x-a".into(), Bytes::from_static(b"\xff"))];
        assert_eq!(event.headers, expected);
        assert_eq!((event.source, event.verified), (None, None));
    }
}
