//! What an operator does: pausing, cancelling, deleting, sending the same thing twice.

use serde_json::{Value, json};

use crate::harness::gateway::Gateway;
use crate::harness::sink::{Reply, Sink};
use crate::seconds;

#[tokio::test]
async fn a_paused_endpoint_keeps_what_comes_in_and_sends_it_when_it_is_resumed() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(500).await;
    let fields = json!({"policy": "router", "event_types": ["order.*"]});
    let endpoint = gateway.endpoint(&sink.url(), fields).await;
    let bystander = gateway.bystander().await;
    let tried = gateway.send("tried").await;
    gateway.until_retrying(tried.only(), 1).await;
    let paused = gateway.client.act(&format!("/v1/endpoints/{endpoint}/pause")).await.expect(200);
    assert_eq!(paused["state"], "paused");
    let new = gateway.send("new").await;
    gateway.advance(seconds(3_600));
    gateway.quiet(&bystander).await;
    for (waiting, state) in [(&tried, "retrying"), (&new, "pending")] {
        let waiting = gateway.delivery(waiting.only()).await;
        assert_eq!(waiting["state"], state);
        assert_eq!(waiting["waiting_on"]["reason"], "paused");
    }
    assert_eq!(sink.count(), 1);

    sink.answer(200);
    gateway.client.act(&format!("/v1/endpoints/{endpoint}/resume")).await.expect(200);
    for waiting in [&tried, &new] {
        gateway.until_state(waiting.only(), "delivered").await;
    }
    assert_eq!(sink.count(), 3);
}

#[tokio::test]
async fn what_is_cancelled_is_not_sent_any_more() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(500).await;
    let fields = json!({"policy": "router", "event_types": ["order.*"]});
    gateway.endpoint(&sink.url(), fields).await;
    let bystander = gateway.bystander().await;
    let sent = gateway.send("one").await;
    let id = sent.only();
    gateway.until_retrying(id, 1).await;
    let cancelled = gateway.client.act(&format!("/v1/deliveries/{id}/cancel")).await.expect(200);
    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(cancelled["next_attempt_at"], Value::Null);
    gateway.notice("delivery.cancelled", id).await;
    gateway.advance(seconds(30));
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), 1);
    let again = gateway.client.act(&format!("/v1/deliveries/{id}/cancel")).await;
    assert_eq!(again.status, 409);
    sink.answer(200);
    gateway.client.act(&format!("/v1/deliveries/{id}/retry")).await.expect(200);
    gateway.until_state(id, "delivered").await;
}

#[tokio::test]
async fn what_is_cancelled_in_flight_stays_so_whatever_comes_back() {
    let gateway = Gateway::start().await;
    let sink = Sink::start(|_| Reply::status(500).held()).await;
    let fields = json!({"policy": "edge", "event_types": ["order.*"], "timeout": "60s"});
    gateway.endpoint(&sink.url(), fields).await;
    let bystander = gateway.bystander().await;
    let sent = gateway.send("one").await;
    let behind = gateway.send("two").await;
    let id = sent.only();
    sink.nth(1).await;
    let retry = gateway.client.act(&format!("/v1/deliveries/{id}/retry")).await;
    assert_eq!(retry.status, 409, "it is in flight");
    let cancelled = gateway.client.act(&format!("/v1/deliveries/{id}/cancel")).await.expect(200);
    assert_eq!(cancelled["state"], "cancelled");
    sink.nth(2).await;
    sink.follow(|_| Reply::status(200));
    sink.release(2);
    gateway.until_retrying(behind.only(), 1).await;
    gateway.advance(seconds(3_600));
    gateway.until_state(behind.only(), "delivered").await;
    gateway.quiet(&bystander).await;
    assert_eq!(gateway.delivery(id).await["state"], "cancelled");
    assert_eq!(sink.bodies(), ["\"one\"", "\"two\"", "\"two\""]);
}

#[tokio::test]
async fn deleting_an_endpoint_cancels_what_is_unfinished_and_keeps_history() {
    let gateway = Gateway::start().await;
    let sink = Sink::start(|request| match request.body_text() {
        "\"done\"" => Reply::status(200),
        "\"in flight\"" => Reply::status(500).held(),
        _ => Reply::status(500),
    })
    .await;
    let fields = json!({"policy": "router", "event_types": ["order.*"], "timeout": "60s"});
    let endpoint = gateway.endpoint(&sink.url(), fields).await;
    let bystander = gateway.bystander().await;
    let done = gateway.send("done").await;
    gateway.until_state(done.only(), "delivered").await;
    let retrying = gateway.send("retrying").await;
    gateway.until_retrying(retrying.only(), 1).await;
    let in_flight = gateway.send("in flight").await;
    sink.nth(3).await;

    let path = format!("/v1/endpoints/{endpoint}");
    gateway.client.delete(&path).await.expect(204);
    assert_eq!(gateway.client.get(&path).await.status, 404);
    gateway.until_state(retrying.only(), "cancelled").await;
    sink.release(1);
    gateway.until_state(in_flight.only(), "cancelled").await;
    assert_eq!(gateway.delivery(done.only()).await["state"], "delivered");
    gateway.advance(seconds(3_600));
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), 3);
    let after = gateway.submit("nobody listens", json!({})).await.expect(202);
    assert_eq!(after["deliveries"], 0);
}

#[tokio::test]
async fn an_event_sent_twice_with_its_key_is_one_event() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    gateway.endpoint(&sink.url(), json!({"event_types": ["order.*"]})).await;
    let bystander = gateway.bystander().await;
    let key = json!({"idempotency_key": "order-1"});
    let first = gateway.submit("one", key.clone()).await.expect(202);
    assert_eq!(first["duplicate"], false);
    assert_eq!(first["deliveries"], 1);
    gateway.advance(seconds(86_400));
    let again = gateway.submit("one", key.clone()).await.expect(200);
    assert_eq!(again["duplicate"], true);
    for same in ["id", "type", "received_at", "deliveries"] {
        assert_eq!(again[same], first[same], "{same}");
    }
    let other = gateway.submit("two", key).await;
    assert_eq!(other.status, 409, "the same key for something else");
    sink.nth(1).await;
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), 1);
}
