//! Pushes a delivery to a URL: signs it, sends it, and reports what came back.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use percent_encoding::percent_decode_str;
use postrider_core::outcome::Sighting;
use postrider_core::retry_after;
use postrider_store::record::{Headers, Response};

use crate::carrier::{Parcel, Report};
use crate::destination::Destination;
use crate::http_client::{Answer, Client, Failure, FailureKind, Post};
use crate::message;
use crate::via::{Instance, VIA};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const EVENT_TYPE: HeaderName = HeaderName::from_static("postrider-event-type");
const ATTEMPT: HeaderName = HeaderName::from_static("postrider-attempt");
const DELIVERY_ID: HeaderName = HeaderName::from_static("postrider-delivery-id");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// What begins like this is said by the gateway alone.
const OWN_PREFIXES: [&str; 2] = ["webhook-", "postrider-"];

/// How much of an answer's body stands in a delivery's `last_error`.
const ERROR_EXCERPT_CHARS: usize = 300;
/// Parts of a chat's URL as long as this are taken for secrets.
const SECRET_CHARS: usize = 16;
const CONCEALED: &str = "[concealed]";
/// How many of an answer's headers are kept, and how much of each.
const HEADERS_KEPT: usize = 64;
const HEADER_VALUE_KEPT_BYTES: usize = 1_024;

#[derive(Debug)]
pub(crate) struct HttpCarrier {
    client: Client,
    user_agent: HeaderValue,
    instance: Instance,
}

impl HttpCarrier {
    pub(crate) fn new(client: Client, user_agent: HeaderValue, instance: Instance) -> Self {
        Self { client, user_agent, instance }
    }
}

impl HttpCarrier {
    pub(crate) fn carry(
        &self,
        parcel: &Parcel,
        destination: Arc<Destination>,
    ) -> BoxFuture<'static, Report> {
        let client = self.client.clone();
        let load = Load::of(parcel);
        let secret = load.written.then(|| Arc::clone(&destination));
        let post = Post {
            destination,
            headers: self.headers(parcel, &load),
            body: load.body,
            deadline: parcel.route.timeout,
            tls: parcel.route.tls.clone(),
        };
        let now_unix_ms = parcel.started_at.as_millis();
        Box::pin(async move {
            match client.post(post).await {
                Ok(answer) => answered(answer, now_unix_ms, secret.as_deref()),
                Err(failure) => failed(failure),
            }
        })
    }
}

/// What is sent: an event's bytes, or what was written of it in the endpoint's format.
struct Load {
    body: Bytes,
    content_type: String,
    written: bool,
}

impl Load {
    fn of(parcel: &Parcel) -> Self {
        let event = &parcel.event;
        match &parcel.route.endpoint.spec.format {
            None => Self {
                body: event.body.clone(),
                content_type: event.content_type.clone(),
                written: false,
            },
            Some(format) => Self {
                body: message::body(format, event),
                content_type: "application/json".to_owned(),
                written: true,
            },
        }
    }
}

impl HttpCarrier {
    fn headers(&self, parcel: &Parcel, load: &Load) -> HeaderMap {
        let event = &parcel.event;
        let id = event.id.to_string();
        let seconds = parcel.started_at.as_seconds();
        // What a source received belongs to the bytes that came with it.
        let mut headers = if load.written { HeaderMap::new() } else { pass_on(&event.headers) };
        headers.reserve(10 + parcel.route.headers.len());
        // An endpoint's own headers come before what a source received.
        for (name, value) in &parcel.route.headers {
            headers.insert(name, value.clone());
        }
        headers.insert(VIA, self.instance.onward(&event.headers));
        if let Some(signature) = parcel.route.signer.sign(&id, seconds, &load.body)
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
            (CONTENT_TYPE, load.content_type.clone()),
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

/// The headers that a source kept, but for those that the gateway writes itself.
fn pass_on(kept: &Headers) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in kept {
        if OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        if let Ok(name) = HeaderName::try_from(name.as_str())
            && let Ok(value) = HeaderValue::from_maybe_shared(value.clone())
        {
            headers.append(name, value);
        }
    }
    headers
}

/// `secret` is the destination where its URL is one: whoever has that of a chat can write there.
fn answered(answer: Answer, now_unix_ms: i64, secret: Option<&Destination>) -> Report {
    let success = (200..300).contains(&answer.status);
    let error = (!success).then(|| describe(&answer, secret));
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
fn describe(answer: &Answer, secret: Option<&Destination>) -> String {
    let mut text = format!("HTTP {}", answer.status);
    let words =
        http::StatusCode::from_u16(answer.status).ok().and_then(|code| code.canonical_reason());
    if let Some(words) = words {
        let _infallible = write!(text, " {words}");
    }
    let mut body = String::from_utf8_lossy(&answer.body);
    if let Some(destination) = secret {
        body = conceal(&body, destination.target()).into();
    }
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

/// Takes the secrets of a URL out of a text: a receiver may repeat what it was asked for.
fn conceal(text: &str, target: &Uri) -> String {
    let target = target.to_string();
    let parts = target.split(['/', '?', '&', '=']);
    parts.filter(|part| part.len() >= SECRET_CHARS).fold(text.to_owned(), |text, part| {
        let decoded = percent_decode_str(part).decode_utf8_lossy();
        text.replace(part, CONCEALED).replace(&*decoded, CONCEALED)
    })
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
            // No escape sequence of a terminal gets into a log or onto a screen by way of a header.
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value).replace(char::is_control, " "),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secrets_of_a_url_are_taken_out_of_what_a_receiver_says() {
        let target =
            Uri::from_static("/bot123456%3AABC-DEF1234ghIkl/sendMessage?key=0123456789abcdef");
        for said in [
            "no /bot123456:ABC-DEF1234ghIkl/sendMessage here",
            "no /bot123456%3AABC-DEF1234ghIkl/sendMessage here",
            "no /[concealed]/sendMessage here",
        ] {
            assert_eq!(conceal(said, &target), "no /[concealed]/sendMessage here");
        }
        assert_eq!(conceal("key 0123456789abcdef", &target), "key [concealed]");
    }
}
