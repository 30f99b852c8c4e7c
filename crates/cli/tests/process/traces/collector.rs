//! A collector: takes OTLP over HTTP as JSON, and reads it by what the protocol says.

use http::StatusCode;
use serde_json::Value;

use super::peer::{Peer, Received, Reply};

/// A span as it was received.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) name: String,
    pub(super) kind: u64,
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) failed: bool,
    attributes: Value,
}

impl Span {
    fn read(span: &Value) -> Self {
        let text = |name: &str| span[name].as_str().map(str::to_owned);
        let hex = |name: &str, digits: usize| {
            let id = text(name).unwrap_or_else(|| panic!("no {name} in {span}"));
            assert!(id.len() == digits && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
            id
        };
        let time = |name: &str| text(name).and_then(|text| text.parse().ok()).expect("a time");
        Self {
            name: text("name").expect("a name"),
            kind: span["kind"].as_u64().expect("a kind"),
            trace: hex("traceId", 32),
            id: hex("spanId", 16),
            parent: span.get("parentSpanId").map(|_| hex("parentSpanId", 16)),
            begin: time("startTimeUnixNano"),
            end: time("endTimeUnixNano"),
            failed: span["status"]["code"] == 2,
            attributes: span["attributes"].clone(),
        }
    }

    fn attribute(&self, key: &str, kind: &str) -> Option<&Value> {
        let attributes = self.attributes.as_array().expect("a list");
        attributes.iter().find(|attribute| attribute["key"] == key)?["value"].get(kind)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.attribute(key, "stringValue")?.as_str()
    }

    /// Whole numbers are written as text.
    pub(super) fn whole(&self, key: &str) -> Option<&str> {
        self.attribute(key, "intValue")?.as_str()
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.attribute(key, "boolValue")?.as_bool()
    }
}

#[derive(Debug)]
pub(super) struct Collector {
    pub(super) peer: Peer,
    /// Requests that it did not take before those that it took.
    refuses: usize,
}

impl Collector {
    pub(super) async fn start() -> Self {
        Self { peer: Peer::accepting().await, refuses: 0 }
    }

    /// Never answers anything.
    pub(super) async fn hanging() -> Self {
        Self { peer: Peer::start(|_| Reply::Never).await, refuses: 0 }
    }

    /// Has no time for the first request.
    pub(super) async fn late() -> Self {
        let reply = |before| match before {
            0 => Reply::Status(StatusCode::SERVICE_UNAVAILABLE),
            _ => Reply::Status(StatusCode::OK),
        };
        Self { peer: Peer::start(reply).await, refuses: 1 }
    }

    pub(super) fn url(&self) -> String {
        self.peer.url()
    }

    /// Waits until it has taken so many, and returns them all.
    pub(super) async fn spans(&self, count: usize) -> Vec<Span> {
        self.read(&self.peer.until(|received| self.read(received).len() >= count).await)
    }

    pub(super) fn so_far(&self) -> Vec<Span> {
        self.read(&self.peer.so_far())
    }

    fn read(&self, received: &[Received]) -> Vec<Span> {
        let taken = received.iter().skip(self.refuses);
        taken.flat_map(|request| spans_of(&request.body)).collect()
    }
}

fn spans_of(body: &[u8]) -> Vec<Span> {
    let request: Value = serde_json::from_slice(body).expect("JSON");
    let mut spans = Vec::new();
    for resource in request["resourceSpans"].as_array().expect("a list") {
        let service = &resource["resource"]["attributes"][0];
        assert_eq!(
            (&service["key"], &service["value"]["stringValue"]),
            (&"service.name".into(), &"postrider".into())
        );
        for scope in resource["scopeSpans"].as_array().expect("a list") {
            spans.extend(scope["spans"].as_array().expect("a list").iter().map(Span::read));
        }
    }
    spans
}
