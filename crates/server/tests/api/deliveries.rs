//! Deliveries: retried, given up, reset, cancelled.

use std::time::Duration;

use http::Method;
use postrider_engine::notices::NoticeKind;
use serde_json::{Value, json};

use crate::gateway::{Gateway, await_notice};
use crate::sink::Sink;

#[tokio::test]
async fn a_router_endpoint_that_fails_climbs_the_ladder_dies_and_is_reset() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(500).await;
    gateway.endpoint(json!({"url": sink.url, "policy": "router"})).await;
    let mut notices = gateway.engine.notices().subscribe();
    let event = gateway.event(json!({"type": "a.b", "payload": 1})).await;
    for (attempt, delay) in [30, 120, 600, 3_600].into_iter().enumerate() {
        sink.next().await;
        let notice = await_notice(&mut notices, NoticeKind::RetryScheduled).await;
        let delivery = gateway.delivery_of(&event).await;
        assert_eq!(delivery["state"], "retrying");
        assert_eq!(delivery["attempts"], attempt + 1);
        assert_eq!(delivery["error_class"], "retryable");
        assert!(delivery["last_error"].is_string(), "{delivery}");
        assert_eq!(delivery["waiting_on"]["reason"], "backoff");
        assert_eq!(delivery["waiting_on"]["until"], delivery["next_attempt_at"]);
        assert_eq!(delivery["plan"][0]["at"], delivery["next_attempt_at"]);
        assert_eq!(delivery["plan"][0]["number"], attempt + 2);
        assert_eq!(delivery["plan"].as_array().map(Vec::len), Some(4 - attempt));
        let due: postrider_core::Timestamp =
            serde_json::from_value(delivery["next_attempt_at"].clone()).expect("a time");
        assert_eq!(due.since(notice.at), Duration::from_secs(delay));
        assert_eq!(
            gateway.get(&format!("/v1/events/{event}")).await.json()["status"],
            "processing"
        );
        gateway.clock.set(due);
    }
    sink.next().await;
    await_notice(&mut notices, NoticeKind::Dead).await;
    let dead = gateway.delivery_of(&event).await;
    assert_eq!(dead["state"], "dead");
    assert_eq!(dead["reason"], "exhausted");
    assert_eq!(dead["next_attempt_at"], Value::Null);
    assert_eq!(dead["attempt_log"].as_array().map(Vec::len), Some(5));
    assert_eq!(dead["attempt_log"][4]["outcome"], "retryable");
    assert_eq!(dead["attempt_log"][4]["response_body"], "noted");
    assert_eq!(gateway.get(&format!("/v1/events/{event}")).await.json()["status"], "failed");

    let id = dead["id"].as_str().expect("an id");
    let gate = sink.hold().await;
    let reset = gateway.ask(Method::POST, &format!("/v1/deliveries/{id}/retry")).await;
    assert_eq!(reset.status, 200, "{reset:?}");
    assert_eq!(reset.json()["attempts"], 0);
    sink.next().await;
    let flying = gateway.get(&format!("/v1/deliveries/{id}")).await.json();
    assert_eq!(flying["state"], "in_flight");
    assert_eq!(flying["next_attempt_at"], Value::Null);
    gateway.ask(Method::POST, &format!("/v1/deliveries/{id}/retry")).await.problem(409);
    let listed = gateway.get("/v1/deliveries?state=in_flight").await.json();
    assert_eq!(listed["data"][0]["id"], id);
    assert_eq!(gateway.get("/v1/deliveries?state=pending").await.json()["data"], json!([]));
    sink.answer(200);
    drop(gate);
    await_notice(&mut notices, NoticeKind::RetryScheduled).await;
    gateway.clock.advance(Duration::from_secs(30));
    await_notice(&mut notices, NoticeKind::Delivered).await;
    gateway.ask(Method::POST, &format!("/v1/deliveries/{id}/retry")).await.problem(409);
    assert_eq!(gateway.delivery_of(&event).await["attempt_log"].as_array().map(Vec::len), Some(7));
}

#[tokio::test]
async fn a_waiting_delivery_is_cancelled_once() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(500).await;
    gateway.endpoint(json!({"url": sink.url, "policy": "router"})).await;
    let mut notices = gateway.engine.notices().subscribe();
    let event = gateway.event(json!({"type": "a.b", "payload": 1})).await;
    sink.next().await;
    await_notice(&mut notices, NoticeKind::RetryScheduled).await;
    let id = gateway.delivery_of(&event).await["id"].as_str().expect("an id").to_owned();
    let cancelled = gateway.ask(Method::POST, &format!("/v1/deliveries/{id}/cancel")).await;
    assert_eq!(
        (cancelled.status.as_u16(), cancelled.json()["state"].clone()),
        (200, json!("cancelled"))
    );
    gateway.ask(Method::POST, &format!("/v1/deliveries/{id}/cancel")).await.problem(409);
    assert_eq!(gateway.get(&format!("/v1/events/{event}")).await.json()["status"], "completed");
}

#[tokio::test]
async fn an_ordered_delivery_names_the_one_it_stands_behind() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(500).await;
    gateway.endpoint(json!({"url": sink.url, "policy": "edge"})).await;
    let mut notices = gateway.engine.notices().subscribe();
    let first = gateway.event(json!({"type": "a.b", "payload": 1})).await;
    sink.next().await;
    await_notice(&mut notices, NoticeKind::RetryScheduled).await;
    let second = gateway.event(json!({"type": "a.b", "payload": 2})).await;
    let ahead = gateway.delivery_of(&first).await;
    let behind = gateway.delivery_of(&second).await;
    assert_eq!(behind["waiting_on"]["reason"], "behind");
    assert_eq!(behind["waiting_on"]["delivery_id"], ahead["id"]);
    let third = gateway.event(json!({"type": "a.b", "payload": 3})).await;
    let third = gateway.delivery_of(&third).await;
    for (delivery, position) in [(&ahead, json!(null)), (&behind, json!(2)), (&third, json!(3))] {
        let id = delivery["id"].as_str().expect("an id");
        let shown = gateway.get(&format!("/v1/deliveries/{id}")).await.json();
        assert_eq!(shown["waiting_on"]["position"], position);
    }
}

#[tokio::test]
async fn deliveries_are_filtered_and_paged() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(400).await;
    let one =
        gateway.endpoint(json!({"url": sink.url, "policy": "edge", "ordering": "none"})).await;
    gateway.endpoint(json!({"url": sink.url, "policy": "edge", "ordering": "none"})).await;
    let mut notices = gateway.engine.notices().subscribe();
    for number in 0..3 {
        gateway.event(json!({"type": "a.b", "payload": number})).await;
    }
    for _ in 0..6 {
        sink.next().await;
        await_notice(&mut notices, NoticeKind::Failed).await;
    }
    let count = async |query: &str| {
        let listed = gateway.get(&format!("/v1/deliveries?{query}")).await.json();
        listed["data"].as_array().map(Vec::len)
    };
    assert_eq!(count("").await, Some(6));
    assert_eq!(count("state=failed,dead").await, Some(6));
    assert_eq!(count("state=delivered").await, Some(0));
    assert_eq!(count(&format!("endpoint={one}")).await, Some(3));
    assert_eq!(count("error_class=final&reason=rejected").await, Some(6));
    assert_eq!(count("error_class=retryable").await, Some(0));
    assert_eq!(count("type=a.b").await, Some(6));
    assert_eq!(count("type=a").await, Some(0), "exactly this type");
    assert_eq!(count("since=2026-01-01T00:00:00Z").await, Some(6));
    assert_eq!(count("since=2026-01-01T00:00:01Z").await, Some(0));

    let mut seen = Vec::new();
    let mut path = "/v1/deliveries?limit=4".to_owned();
    loop {
        let page = gateway.get(&path).await.json();
        let rows = page["data"].as_array().expect("a list");
        assert!(rows.iter().all(|row| row.get("attempt_log").is_none()));
        seen.extend(rows.iter().map(|row| row["id"].as_str().expect("an id").to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/deliveries?limit=4&cursor={cursor}"),
            None => break,
        }
    }
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    sorted.reverse();
    assert_eq!(sorted.len(), 6);
    assert_eq!(seen, sorted, "newest first");
}
