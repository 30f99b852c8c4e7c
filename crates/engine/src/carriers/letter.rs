//! What is posted: an event's bytes, and the headers that say what they are and prove who sends them.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use postrider_core::Trace;
use postrider_core::trace::{TRACEPARENT, TRACESTATE};
use postrider_store::record::Headers;

use crate::carrier::Parcel;
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

/// What every post of this gateway says of it.
#[derive(Debug, Clone)]
pub(crate) struct Stationery {
    user_agent: HeaderValue,
    instance: Instance,
}

/// What is sent: an event's bytes, or what was written of it in the endpoint's format.
pub(crate) struct Load {
    pub(crate) body: Bytes,
    content_type: String,
    /// It is in the endpoint's format rather than as it came.
    pub(crate) written: bool,
}

impl Load {
    pub(crate) fn of(parcel: &Parcel) -> Self {
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

impl Stationery {
    pub(crate) fn new(user_agent: HeaderValue, instance: Instance) -> Self {
        Self { user_agent, instance }
    }

    pub(crate) fn headers(&self, parcel: &Parcel, load: &Load) -> HeaderMap {
        let event = &parcel.event;
        let id = event.id.to_string();
        let seconds = parcel.started_at.as_seconds();
        // What a source received belongs to the bytes that came with it.
        let mut headers = if load.written { HeaderMap::new() } else { pass_on(&event.headers) };
        headers.reserve(12 + parcel.route.headers.len());
        if let Some(trace) = &parcel.trace
            && !parcel.route.headers.contains_key(TRACEPARENT)
        {
            add_trace(&mut headers, trace);
        }
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

/// In place of what a source received: that was the trace on its way in.
fn add_trace(headers: &mut HeaderMap, trace: &Trace) {
    headers.remove(TRACESTATE);
    let texts =
        [(TRACEPARENT, Some(trace.parent())), (TRACESTATE, trace.state().map(str::to_owned))];
    for (name, text) in texts {
        if let Some(Ok(value)) = text.map(HeaderValue::try_from) {
            headers.insert(name, value);
        }
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
