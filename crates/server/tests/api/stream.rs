//! The stream of notices.

use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, PATIENCE};
use crate::sink::Sink;

/// A reader of server-sent events.
pub(crate) struct Reader {
    body: Incoming,
    text: String,
}

impl Reader {
    pub(crate) async fn open(gateway: &Gateway, call: Call) -> Self {
        let response = gateway.open(call).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event with data: its id and its data. None at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
                };
                let found = field("id: ").zip(field("data: "));
                self.text = rest.into();
                if let Some((id, data)) = found {
                    return Some((id, serde_json::from_str(&data).expect("JSON")));
                }
            }
            let frame =
                tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("in time")?;
            let data = frame.expect("a frame").into_data().expect("data");
            self.text.push_str(std::str::from_utf8(&data).expect("text"));
        }
    }
}

#[tokio::test]
async fn notices_are_followed_and_resumed() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(400).await;
    let endpoint = gateway.endpoint(json!({"url": sink.url, "policy": "edge"})).await;
    let path = "/v1/stream?topic=gateway:webhooks";
    let mut reader = Reader::open(&gateway, Call::new(Method::GET, path)).await;
    let mut events = Vec::new();
    let mut ids = Vec::new();
    for number in 0..2 {
        let event = json!({"type": "a.b", "payload": number, "metadata": {"session_id": "s-1"}});
        events.push(gateway.event(event).await);
        sink.next().await;
        let (id, notice) = reader.next().await.expect("a notice");
        assert_eq!(notice["id"], id.as_str());
        assert_eq!(notice["topic"], "gateway:webhooks");
        assert_eq!(notice["kind"], "delivery.failed");
        assert_eq!(notice["at"], "2026-01-01T00:00:00.000Z");
        assert_eq!(notice["tenant"], "default");
        assert_eq!(notice["event_id"], events[number].as_str());
        assert_eq!(notice["endpoint_id"], endpoint);
        assert_eq!(notice["correlation_id"], "s-1");
        assert_eq!(notice["attempts"], 1);
        assert_eq!(notice["reason"], "rejected");
        assert!(notice["delivery_id"].as_str().is_some_and(|id| id.starts_with("dlv_")));
        assert!(notice["last_error"].is_string());
        ids.push(id);
    }
    let resume = Call::new(Method::GET, "/v1/stream").header("last-event-id", &ids[0]);
    let mut resumed = Reader::open(&gateway, resume).await;
    let (id, notice) = resumed.next().await.expect("what was missed");
    assert_eq!((&id, notice["event_id"].as_str()), (&ids[1], Some(events[1].as_str())));
    gateway.event(json!({"type": "a.b", "payload": 2})).await;
    assert!(resumed.next().await.expect("what comes next").0 > ids[1]);
}

#[tokio::test]
async fn a_stop_ends_the_streams() {
    let gateway = Gateway::start().await;
    let mut reader = Reader::open(&gateway, Call::new(Method::GET, "/v1/stream")).await;
    gateway.stop.send(()).expect("the server runs");
    assert_eq!(reader.next().await, None);
    let ended = tokio::time::timeout(PATIENCE, gateway.server).await.expect("in time");
    ended.expect("no panic").expect("a clean end");
}
