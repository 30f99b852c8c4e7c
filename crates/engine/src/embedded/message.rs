//! A message as a handler gets it, and as a program enqueues it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::{DeliveryId, EventId, Timestamp, Trace, pattern};
use postrider_store::record::Event;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::answer::Failure;
use crate::accept::Submission;
use crate::carrier::Parcel;
use crate::error::Error;

/// The longest body.
pub const MAX_BODY_BYTES: usize = 100 << 20;
/// The longest idempotency key and ordering key.
pub const MAX_KEY_CHARS: usize = 255;
/// The longest metadata, as JSON.
pub const MAX_METADATA_BYTES: usize = 16 << 10;
const MAX_CONTENT_TYPE_BYTES: usize = 255;
/// How far ahead a message can be put off.
const MAX_AHEAD: Duration = Duration::from_hours(366 * 24);

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// A message in the hands of a handler. Clones are cheap.
#[derive(Clone)]
pub struct Message {
    event: Arc<Event>,
    delivery: DeliveryId,
    attempt: u32,
    trace: Option<Trace>,
}

impl Message {
    pub(crate) fn new(parcel: Parcel) -> Self {
        Self {
            event: parcel.event,
            delivery: parcel.delivery,
            attempt: parcel.number,
            trace: parcel.trace,
        }
    }

    /// The same at every attempt, and for every handler that gets this message: what to compare
    /// with to notice that it was handled before.
    pub fn id(&self) -> EventId {
        self.event.id
    }

    /// This message on its way to this handler: what [`Queue`](super::Queue) is asked about.
    pub fn delivery_id(&self) -> DeliveryId {
        self.delivery
    }

    /// What kind of message it is, such as `run.discovered`.
    pub fn event_type(&self) -> &str {
        &self.event.kind
    }

    /// The body, as it was enqueued.
    pub fn bytes(&self) -> &Bytes {
        &self.event.body
    }

    /// The body, read as JSON. What cannot be read now cannot be read later either, so that the
    /// failure is [fatal](Failure::fatal).
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.event.body)
            .map_err(|error| Failure::fatal(format_args!("the body cannot be read: {error}")))
    }

    /// The number of this attempt, from 1. It counts all that were ever made, those included that
    /// the policy does not count.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// It was tried before.
    pub fn is_retry(&self) -> bool {
        self.attempt > 1
    }

    /// The trace that handling it is part of, if there is one.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// When it was enqueued.
    pub fn received_at(&self) -> Timestamp {
        self.event.received_at
    }

    /// What was said of it when it was enqueued; empty if nothing was.
    pub fn metadata(&self) -> Map<String, Value> {
        let text = self.event.metadata.as_deref();
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The key under which it is there only once.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.event.idempotency_key.as_deref()
    }

    /// Messages that share it keep their order, where the handler is ordered by key.
    pub fn ordering_key(&self) -> Option<&str> {
        self.event.ordering_key.as_deref()
    }
}

/// Without the body, which may hold a secret.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.event.id)
            .field("event_type", &self.event.kind)
            .field("delivery", &self.delivery)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// A message to be enqueued.
///
/// ```
/// use postrider_engine::embedded::NewMessage;
///
/// # fn main() -> Result<(), serde_json::Error> {
/// let run = serde_json::json!({"id": "r-17", "category": "any%"});
/// let message = NewMessage::json("run.discovered", &run)?
///     .idempotency_key("r-17")
///     .metadata("session_id", "s-4");
/// # drop(message);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a message does nothing until it is enqueued"]
pub struct NewMessage {
    event_type: String,
    content_type: String,
    body: Bytes,
    idempotency_key: Option<String>,
    ordering_key: Option<String>,
    deliver_at: Option<Timestamp>,
    metadata: Map<String, Value>,
    trace: Option<Trace>,
}

impl NewMessage {
    /// Bytes of any kind. Types are parts with dots between them, like `run.discovered`.
    pub fn new(event_type: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            event_type: event_type.into(),
            content_type: BYTES.to_owned(),
            body: body.into(),
            idempotency_key: None,
            ordering_key: None,
            deliver_at: None,
            metadata: Map::new(),
            trace: None,
        }
    }

    /// A value, written as JSON.
    pub fn json(
        event_type: impl Into<String>,
        body: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_vec(body)?;
        Ok(Self { content_type: JSON.to_owned(), ..Self::new(event_type, body) })
    }

    /// Enqueued twice under one key, it is there once.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// A handler with `Ordering::FifoByKey` takes messages with the same key one after the other.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Not to be handled before then.
    pub fn deliver_at(mut self, at: Timestamp) -> Self {
        self.deliver_at = Some(at);
        self
    }

    /// Something to know of it that is not part of the body. `session_id` and `correlation_id` are
    /// repeated in notices.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// The trace that it is part of.
    pub fn trace(mut self, trace: Trace) -> Self {
        self.trace = Some(trace);
        self
    }

    /// What the body is, where that is neither JSON nor just bytes.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = content_type.into();
        self
    }

    pub(crate) fn event_type(&self) -> &str {
        &self.event_type
    }

    pub(crate) fn submit(self, now: Timestamp) -> Result<Submission, Error> {
        pattern::check_type(&self.event_type)
            .map_err(|error| Error::invalid("type", error.to_string()))?;
        if self.body.len() > MAX_BODY_BYTES {
            let message = format!("must have at most {MAX_BODY_BYTES} bytes");
            return Err(Error::invalid("body", message));
        }
        if !(1..=MAX_CONTENT_TYPE_BYTES).contains(&self.content_type.len())
            || !self.content_type.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        {
            return Err(Error::invalid("content_type", "is not a content type"));
        }
        if self.deliver_at.is_some_and(|at| at > now.plus(MAX_AHEAD)) {
            return Err(Error::invalid("deliver_at", "is more than a year ahead"));
        }
        let metadata =
            (!self.metadata.is_empty()).then(|| Value::Object(self.metadata).to_string());
        if metadata.as_ref().is_some_and(|text| text.len() > MAX_METADATA_BYTES) {
            let message = format!("must have at most {MAX_METADATA_BYTES} bytes");
            return Err(Error::invalid("metadata", message));
        }
        // Read once, so that nobody who reads it later finds it too deep.
        if metadata.as_deref().is_some_and(|text| serde_json::from_str::<Value>(text).is_err()) {
            return Err(Error::invalid("metadata", "is nested too deeply"));
        }
        Ok(Submission {
            kind: self.event_type,
            content_type: self.content_type,
            body: self.body,
            idempotency_key: check_key("idempotency_key", self.idempotency_key)?,
            ordering_key: check_key("ordering_key", self.ordering_key)?,
            deliver_at: self.deliver_at,
            metadata,
            source: None,
            verified: None,
            headers: Vec::new(),
            trace: self.trace,
        })
    }
}

/// Without the body, which may hold a secret.
impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMessage")
            .field("event_type", &self.event_type)
            .field("idempotency_key", &self.idempotency_key)
            .field("ordering_key", &self.ordering_key)
            .field("deliver_at", &self.deliver_at)
            .finish_non_exhaustive()
    }
}

fn check_key(field: &str, key: Option<String>) -> Result<Option<String>, Error> {
    match key {
        Some(key) if key.chars().any(|c| c.is_control() || c.is_whitespace()) => {
            Err(Error::invalid(field, "must be visible characters, without spaces"))
        }
        Some(key) if !(1..=MAX_KEY_CHARS).contains(&key.chars().count()) => {
            Err(Error::invalid(field, format!("must have 1 to {MAX_KEY_CHARS} characters")))
        }
        key => Ok(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    #[test]
    fn a_message_is_stored_as_it_was_said() {
        let message = NewMessage::json("run.discovered", &[1, 2])
            .expect("JSON")
            .idempotency_key("r-1")
            .ordering_key("k")
            .deliver_at(NOW)
            .metadata("a", 1)
            .metadata("b", "two");
        let stored = message.submit(NOW).expect("valid");
        assert_eq!((stored.kind.as_str(), &stored.body[..]), ("run.discovered", &b"[1,2]"[..]));
        assert_eq!(stored.content_type, JSON);
        assert_eq!(stored.idempotency_key.as_deref(), Some("r-1"));
        assert_eq!(stored.ordering_key.as_deref(), Some("k"));
        assert_eq!(stored.deliver_at, Some(NOW));
        assert_eq!(stored.metadata.as_deref(), Some(r#"{"a":1,"b":"two"}"#));
        let plain = NewMessage::new("a", "bytes").submit(NOW).expect("valid");
        assert_eq!((plain.content_type.as_str(), plain.metadata), (BYTES, None));
    }

    #[test]
    fn every_field_is_bounded() {
        let new = || NewMessage::new("run.discovered", "x");
        let long = "k".repeat(MAX_KEY_CHARS + 1);
        let deep = (0..500).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let (far, soon) = (NOW.plus(MAX_AHEAD * 2), NOW.plus(MAX_AHEAD));
        for (message, field) in [
            (NewMessage::new("a b", ""), "type"),
            (NewMessage::new("", ""), "type"),
            (new().idempotency_key(&long), "idempotency_key"),
            (new().idempotency_key(""), "idempotency_key"),
            (new().idempotency_key("a b"), "idempotency_key"),
            (new().ordering_key("\0"), "ordering_key"),
            (new().deliver_at(far), "deliver_at"),
            (new().content_type(""), "content_type"),
            (new().content_type("a\nb"), "content_type"),
            (new().metadata("m", "m".repeat(MAX_METADATA_BYTES)), "metadata"),
            (new().metadata("m", deep), "metadata"),
            (NewMessage::new("a", vec![0; MAX_BODY_BYTES + 1]), "body"),
        ] {
            let shown = format!("{message:?}");
            match message.submit(NOW) {
                Err(Error::Invalid { field: named, .. }) => assert_eq!(named, field, "{shown}"),
                other => panic!("{field}: {shown} gave {other:?}"),
            }
        }
        let longest = new().idempotency_key(&long[1..]).deliver_at(soon);
        assert!(longest.submit(NOW).is_ok());
    }

    #[test]
    fn what_is_printed_of_a_message_is_not_its_body() {
        let message = NewMessage::new("a", "secret").metadata("token", "secret");
        assert!(!format!("{message:?}").contains("secret"));
    }
}
