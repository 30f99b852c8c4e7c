//! Pushes a delivery to a URL: signs it, sends it, and reports what came back.

use std::fmt::Write as _;

use futures_util::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use postrider_core::outcome::Sighting;
use postrider_core::retry_after;
use postrider_store::record::Response;

use crate::carrier::{Carrier, Parcel, Report};
use crate::http_client::{Answer, Client, Failure, FailureKind, Post};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const EVENT_TYPE: HeaderName = HeaderName::from_static("postrider-event-type");
const ATTEMPT: HeaderName = HeaderName::from_static("postrider-attempt");
const DELIVERY_ID: HeaderName = HeaderName::from_static("postrider-delivery-id");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// How much of an answer's body stands in a delivery's `last_error`.
const ERROR_EXCERPT_CHARS: usize = 300;
/// How many of an answer's headers are kept, and how much of each.
const HEADERS_KEPT: usize = 64;
const HEADER_VALUE_KEPT_BYTES: usize = 1_024;

#[derive(Debug)]
pub(crate) struct HttpCarrier {
    client: Client,
    user_agent: HeaderValue,
}

impl HttpCarrier {
    pub(crate) fn new(client: Client, user_agent: HeaderValue) -> Self {
        Self { client, user_agent }
    }
}

impl Carrier for HttpCarrier {
    fn carry(&self, parcel: Parcel) -> BoxFuture<'static, Report> {
        let client = self.client.clone();
        let post = Post {
            destination: parcel.route.destination.clone(),
            headers: self.headers(&parcel),
            body: parcel.event.body.clone(),
            deadline: parcel.route.timeout,
        };
        let now_unix_ms = parcel.started_at.as_millis();
        Box::pin(async move {
            match client.post(post).await {
                Ok(answer) => answered(answer, now_unix_ms),
                Err(failure) => failed(failure),
            }
        })
    }
}

impl HttpCarrier {
    fn headers(&self, parcel: &Parcel) -> HeaderMap {
        let event = &parcel.event;
        let id = event.id.to_string();
        let seconds = parcel.started_at.as_seconds();
        let mut headers = parcel.route.headers.clone();
        headers.reserve(8);
        if let Some(signature) = parcel.route.signer.sign(&id, seconds, &event.body)
            && let Ok(name) = HeaderName::try_from(signature.name)
            && let Ok(value) = HeaderValue::try_from(signature.value)
        {
            headers.insert(name, value);
        }
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(ATTEMPT, HeaderValue::from(parcel.number));
        headers.insert(USER_AGENT, self.user_agent.clone());
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        let texts = [
            (WEBHOOK_ID, id),
            (DELIVERY_ID, parcel.delivery.to_string()),
            (EVENT_TYPE, event.kind.clone()),
            (CONTENT_TYPE, event.content_type.clone()),
        ];
        for (name, text) in texts {
            // All were checked when the event was accepted.
            if let Ok(value) = HeaderValue::try_from(text) {
                headers.insert(name, value);
            }
        }
        headers
    }
}

fn answered(answer: Answer, now_unix_ms: i64) -> Report {
    let success = (200..300).contains(&answer.status);
    let error = (!success).then(|| describe(&answer));
    let retry_after = answer
        .retry_after
        .as_ref()
        .filter(|_| !success)
        .and_then(|value| retry_after::parse(value.as_bytes(), now_unix_ms));
    let headers = kept_headers(&answer.headers);
    let response = (!headers.is_empty() || !answer.body.is_empty() || answer.truncated)
        .then(|| Response { headers, body: answer.body, truncated: answer.truncated });
    Report { sighting: Sighting::Status(answer.status), retry_after, error, response }
}

fn failed(failure: Failure) -> Report {
    let sighting = match failure.kind {
        FailureKind::Timeout => Sighting::Timeout,
        FailureKind::Refused
        | FailureKind::Dns
        | FailureKind::Connect
        | FailureKind::Tls
        | FailureKind::Protocol
        | FailureKind::Closed => Sighting::Network,
    };
    Report { sighting, retry_after: None, error: Some(failure.message), response: None }
}

/// The status, its usual words, and the beginning of what the receiver said.
fn describe(answer: &Answer) -> String {
    let mut text = format!("HTTP {}", answer.status);
    let words =
        http::StatusCode::from_u16(answer.status).ok().and_then(|code| code.canonical_reason());
    if let Some(words) = words {
        let _infallible = write!(text, " {words}");
    }
    let body = String::from_utf8_lossy(&answer.body);
    let excerpt: String = body
        .trim()
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(ERROR_EXCERPT_CHARS)
        .collect();
    if !excerpt.is_empty() {
        let _infallible = write!(text, ": {excerpt}");
    }
    text
}

/// Headers that say nothing about this answer in particular are not kept: they would cost more room
/// than the delivery itself.
fn kept_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .filter(|(name, _)| {
            !matches!(
                **name,
                header::DATE
                    | header::CONTENT_LENGTH
                    | header::CONNECTION
                    | header::TRANSFER_ENCODING
            ) && name.as_str() != "keep-alive"
        })
        .take(HEADERS_KEPT)
        .map(|(name, value)| {
            let value = &value.as_bytes()[..value.len().min(HEADER_VALUE_KEPT_BYTES)];
            (name.as_str().to_owned(), String::from_utf8_lossy(value).into_owned())
        })
        .collect()
}
