//! Events: in, shown, again.

use http::Method;
use postrider_engine::notices::NoticeKind;
use postrider_server::{ConnectionLimits, ServerOptions};
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, await_notice};
use crate::sink::Sink;

#[tokio::test]
async fn an_event_is_stored_delivered_and_shown() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(200).await;
    let endpoint = gateway.endpoint(json!({"url": sink.url, "event_types": ["order.*"]})).await;
    let mut notices = gateway.engine.notices().subscribe();

    let call = Call::new(Method::POST, "/v1/events")
        .header("content-type", "application/json")
        .body(r#"{"type":"order.created","payload":{"b" : 1.0e2},"metadata":{"session_id":"s1"}}"#);
    let reply = gateway.call(call).await;
    assert_eq!(reply.status, 202);
    let receipt = reply.json();
    assert_eq!(receipt["type"], "order.created");
    assert_eq!(receipt["received_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(receipt["deliveries"], 1);
    assert_eq!(receipt["duplicate"], false);
    let id = receipt["id"].as_str().expect("an id");

    let received = sink.next().await;
    assert_eq!(&received.body[..], br#"{"b" : 1.0e2}"#);
    assert_eq!(received.headers["webhook-id"], id);
    assert_eq!(received.headers["postrider-event-type"], "order.created");
    let notice = await_notice(&mut notices, NoticeKind::Delivered).await;

    let event = gateway.get(&format!("/v1/events/{id}")).await.json();
    assert_eq!(event["status"], "completed");
    assert_eq!(event["counts"]["delivered"], 1);
    assert_eq!(event["deliveries"], 1);
    assert_eq!(event["payload_size"], 13);
    assert_eq!(event["metadata"], json!({"session_id": "s1"}));
    assert_eq!(event["content_type"], "application/json");

    let payload = gateway.get(&format!("/v1/events/{id}/payload")).await;
    assert_eq!(&payload.body[..], br#"{"b" : 1.0e2}"#);
    assert_eq!(payload.headers["content-type"], "application/json");
    assert_eq!(payload.headers["x-content-type-options"], "nosniff");

    let delivery = gateway.delivery_of(id).await;
    assert_eq!(
        delivery["id"],
        notice.delivery.as_ref().expect("of a delivery").delivery_id.to_string()
    );
    assert_eq!(delivery["state"], "delivered");
    assert_eq!(delivery["event_id"], id);
    assert_eq!(delivery["endpoint_id"], endpoint);
    assert_eq!(delivery["attempts"], 1);
    assert_eq!(delivery["next_attempt_at"], Value::Null);
    assert_eq!(delivery["waiting_on"], Value::Null);
    assert_eq!(delivery["delivered_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(delivery["plan"], json!([]));
    let attempt = &delivery["attempt_log"][0];
    assert!(attempt["id"].as_str().is_some_and(|id| id.starts_with("att_")), "{attempt}");
    assert_eq!(attempt["number"], 1);
    assert_eq!(attempt["counted"], true);
    assert_eq!(attempt["status_code"], 200);
    assert_eq!(attempt["outcome"], "delivered");
}

#[tokio::test]
async fn the_same_key_again_gives_the_first_answer_and_another_body_a_conflict() {
    let gateway = Gateway::start().await;
    let event = json!({"type": "a.b", "payload": {"n": 1}, "idempotency_key": "k-1"});
    let first = gateway.post("/v1/events", event.clone()).await;
    assert_eq!(first.status, 202);
    let again = gateway.post("/v1/events", event).await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json()["id"], first.json()["id"]);
    assert_eq!(again.json()["received_at"], first.json()["received_at"]);
    assert_eq!(again.json()["duplicate"], true);

    let other = json!({"type": "a.b", "payload": {"n": 2}, "idempotency_key": "k-1"});
    gateway.post("/v1/events", other).await.problem(409);

    let by_header = Call::new(Method::POST, "/v1/events")
        .json(&json!({"type": "a.b", "payload": {"n": 1}}))
        .header("idempotency-key", "k-1");
    let by_header = gateway.call(by_header).await;
    assert_eq!(
        (by_header.status.as_u16(), by_header.json()["duplicate"].clone()),
        (200, json!(true))
    );

    let found = gateway.get("/v1/events?idempotency_key=k-1").await.json();
    assert_eq!(found["data"][0]["id"], first.json()["id"]);
    assert_eq!(found["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn bytes_of_any_other_kind_are_stored_as_they_are() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(204).await;
    gateway.endpoint(json!({"url": sink.url})).await;
    let path = "/v1/events?type=scan.done&ordering_key=o&idempotency_key=k";
    let bytes: &[u8] = b"\x00\xff<xml>";
    let call = Call::new(Method::POST, path).header("content-type", "image/x-raw; a=b").body(bytes);
    let reply = gateway.call(call).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    let received = sink.next().await;
    assert_eq!(&received.body[..], bytes);
    assert_eq!(received.headers["content-type"], "image/x-raw; a=b");

    let id = reply.json()["id"].as_str().expect("an id").to_owned();
    let payload = gateway.get(&format!("/v1/events/{id}/payload")).await;
    assert_eq!(&payload.body[..], bytes);
    assert_eq!(payload.headers["content-type"], "image/x-raw; a=b");
    let event = gateway.get(&format!("/v1/events/{id}")).await.json();
    assert_eq!(
        (event["ordering_key"].as_str(), event["idempotency_key"].as_str()),
        (Some("o"), Some("k"))
    );
}

#[tokio::test]
async fn a_batch_answers_each_event_in_its_place() {
    let options = ServerOptions { event_limit_bytes: 2_000, ..ServerOptions::default() };
    let gateway = Gateway::start_with(options, ConnectionLimits::default()).await;
    let keyed = json!({"type": "a.b", "payload": 1, "idempotency_key": "k"});
    let first = gateway.event(keyed.clone()).await;
    let reply = gateway
        .post(
            "/v1/events/batch",
            json!({"events": [
                {"type": "a.b", "payload": 1},
                {"type": "a b", "payload": 1},
                keyed,
                {"type": "a.b", "payload": 2, "idempotency_key": "k"},
                {"type": "a.b", "payload": "x".repeat(3_000)},
                {"type": "a.b", "payload": 3, "colour": "red"},
                7,
                {"type": "c.d", "payload": null},
            ]}),
        )
        .await;
    assert_eq!(reply.status, 202, "{reply:?}");
    let results = reply.json()["results"].clone();
    let seen: Vec<(Option<u64>, Option<&str>)> = results
        .as_array()
        .expect("a list")
        .iter()
        .map(|result| {
            let error = &result["error"];
            (error["status"].as_u64(), error["errors"][0]["field"].as_str())
        })
        .collect();
    let invalid = |field| (Some(422), Some(field));
    let fine = (None, None);
    assert_eq!(
        seen,
        [
            fine,
            invalid("type"),
            fine,
            (Some(409), None),
            (Some(413), None),
            invalid("colour"),
            invalid("body"),
            fine
        ]
    );
    assert_eq!(results[2]["id"], first);
    assert_eq!(results[2]["duplicate"], true);
    assert_eq!(results[7]["type"], "c.d");
    assert_eq!(gateway.get("/v1/stats").await.json()["events"], 3);
    assert_eq!(
        gateway.post("/v1/events/batch", json!({"events": []})).await.json(),
        json!({"results": []})
    );
}

#[tokio::test]
async fn a_list_goes_on_where_it_stopped_while_events_arrive() {
    let gateway = Gateway::start().await;
    let mut sent = Vec::new();
    for number in 0..5 {
        sent.push(gateway.event(json!({"type": "a.b", "payload": number})).await);
    }
    sent.reverse();
    let mut seen = Vec::new();
    let mut path = "/v1/events?type=a.b&limit=2".to_owned();
    loop {
        let page = gateway.get(&path).await.json();
        let rows = page["data"].as_array().expect("a list");
        assert!(rows.len() <= 2);
        seen.extend(rows.iter().map(|row| row["id"].as_str().expect("an id").to_owned()));
        gateway.event(json!({"type": "a.b", "payload": "later"})).await;
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/events?type=a.b&limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, sent);
    let other = gateway.get("/v1/events?type=c.d").await.json();
    assert_eq!(other, json!({"data": [], "next_cursor": null}));
}

#[tokio::test]
async fn an_old_event_is_replayed_to_chosen_endpoints() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(200).await;
    let event = gateway.event(json!({"type": "a.b", "payload": 1})).await;
    let chosen = gateway.endpoint(json!({"url": sink.url, "event_types": ["never.sent"]})).await;
    let path = format!("/v1/events/{event}/replay");
    let reply = gateway.post(&path, json!({"endpoints": [chosen]})).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    assert_eq!(reply.json()["deliveries"].as_array().map(Vec::len), Some(1));
    assert_eq!(sink.next().await.headers["webhook-id"], event.as_str());
    assert_eq!(gateway.delivery_of(&event).await["replay"], true);

    let unknown = json!({"endpoints": ["ep_0000000000000"]});
    assert_eq!(gateway.post(&path, unknown).await.problem(422), ["endpoints[0]"]);
    gateway.post("/v1/events/evt_0000000000000/replay", json!({})).await.problem(404);
}

#[tokio::test]
async fn an_event_for_later_waits() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(200).await;
    gateway.endpoint(json!({"url": sink.url})).await;
    let later = json!({"type": "a.b", "payload": 1, "deliver_at": "2026-01-01T01:00:00Z"});
    let event = gateway.event(later).await;
    let delivery = gateway.delivery_of(&event).await;
    assert_eq!(delivery["state"], "pending");
    assert_eq!(delivery["next_attempt_at"], "2026-01-01T01:00:00.000Z");
    assert_eq!(
        delivery["waiting_on"],
        json!({"reason": "deliver_at", "until": "2026-01-01T01:00:00.000Z"})
    );
    assert_eq!(gateway.get(&format!("/v1/events/{event}")).await.json()["status"], "pending");
    gateway.clock.advance(std::time::Duration::from_hours(1));
    sink.next().await;
}
