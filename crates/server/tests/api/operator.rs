//! Operator webhooks and messages for people, as the API sees them.

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, PATIENCE};
use crate::sink::Sink;

/// The first notice that the stream shows.
async fn first_notice(response: http::Response<hyper::body::Incoming>) -> Value {
    let (mut body, mut text) = (response.into_body(), String::new());
    loop {
        let data = text.lines().find_map(|line| line.strip_prefix("data: "));
        if let Some(data) = data.filter(|_| text.ends_with("\n\n")) {
            return serde_json::from_str(data).expect("JSON");
        }
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("in time");
        let data = frame.expect("it goes on").expect("a frame").into_data().expect("data");
        text.push_str(std::str::from_utf8(&data).expect("text"));
    }
}

#[tokio::test]
async fn an_operator_is_told_what_the_stream_shows() {
    let gateway = Gateway::start().await;
    let (sink, mut watcher) = (Sink::answering(400).await, Sink::answering(200).await);
    let failing = json!({"url": sink.url, "name": "Billing", "policy": "edge"});
    let failing = gateway.endpoint(failing).await;
    let types = json!(["postrider.delivery.failed"]);
    let told = gateway.endpoint(json!({"url": watcher.url, "event_types": types})).await;
    let stream = gateway.open(Call::new(Method::GET, "/v1/stream")).await;
    let sent = json!({"type": "a.b", "payload": 1, "metadata": {"session_id": "s-1"}});
    let event = gateway.event(sent).await;
    let shown = first_notice(stream).await;
    assert_eq!((&shown["event_id"], &shown["endpoint_id"]), (&json!(event), &json!(failing)));
    let received = watcher.next().await;
    let mut payload: Value = serde_json::from_slice(&received.body).expect("JSON");
    let name = payload.as_object_mut().and_then(|payload| payload.remove("endpoint_name"));
    assert_eq!(name, Some(json!("Billing")));
    assert_eq!(payload, shown);

    // It is an event like any other: kept, and with a delivery that can be looked at.
    let id = received.headers["webhook-id"].to_str().expect("text");
    let event = gateway.get(&format!("/v1/events/{id}")).await.json();
    assert_eq!(event["type"], "postrider.delivery.failed");
    assert_eq!(gateway.delivery_of(id).await["endpoint_id"], json!(told));
}

#[tokio::test]
async fn producers_cannot_speak_for_the_gateway() {
    let gateway = Gateway::start().await;
    let event = json!({"type": "postrider.delivery.dead", "payload": 1});
    assert_eq!(gateway.post("/v1/events", event.clone()).await.problem(422), ["type"]);
    let bytes = Call::new(Method::POST, "/v1/events?type=postrider.x")
        .header("content-type", "text/plain")
        .body("text");
    assert_eq!(gateway.call(bytes).await.problem(422), ["type"]);
    let fine = json!({"type": "postrider", "payload": 1});
    let reply = gateway.post("/v1/events/batch", json!({"events": [event, fine]})).await;
    assert_eq!(reply.status, 202);
    let results = reply.json()["results"].clone();
    assert_eq!(results[0]["error"]["errors"][0]["field"], "type");
    assert_eq!(results[1]["type"], "postrider");
}

#[tokio::test]
async fn a_format_is_set_shown_and_taken_away() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(200).await;
    let url = sink.url.replace("hook", "bot123456:ABC-DEF1234ghIkl/sendMessage");
    let format = json!({"telegram": {"chat_id": "-100"}});
    let endpoint = gateway.endpoint(json!({"url": url, "format": format})).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let shown = gateway.get(&path).await.json();
    assert_eq!((&shown["format"], &shown["url"]), (&format, &json!(url)));

    gateway.event(json!({"type": "a.b", "payload": 1})).await;
    let body: Value = serde_json::from_slice(&sink.next().await.body).expect("JSON");
    assert_eq!(body["chat_id"], "-100");
    assert!(body["text"].as_str().is_some_and(|text| text.starts_with("Event a.b evt_")), "{body}");

    let change = |format: Value| Call::new(Method::PATCH, &path).json(&json!({"format": format}));
    assert_eq!(gateway.call(change(json!("slack"))).await.json()["format"], "slack");
    let tested = gateway.ask(Method::POST, &format!("{path}/test")).await;
    assert_eq!(tested.json()["status_code"], 200);
    let body: Value = serde_json::from_slice(&sink.next().await.body).expect("JSON");
    let text = "`This is a test of your endpoint, sent by Postrider.`";
    assert_eq!(body, json!({"text": text}));

    assert_eq!(gateway.call(change(Value::Null)).await.json()["format"], Value::Null);
    gateway.event(json!({"type": "a.b", "payload": 1})).await;
    assert_eq!(&sink.next().await.body[..], b"1");
    assert_eq!(gateway.call(change(json!("fax"))).await.problem(422), ["format"]);
}
