//! History is removed at its age, by kind, and not earlier.

use serde_json::{Value, json};

use crate::harness::gateway::Gateway;
use crate::harness::sink::{Reply, Sink};
use crate::{days, hours};

/// Waits for the sweep that removes `gone`, and looks whether it left `kept` alone.
async fn assert_swept(gateway: &Gateway, gone: &str, kept: &str) {
    let path = format!("/v1/deliveries/{gone}");
    gateway.poll(&path, |answer| answer.status == 404).await;
    let path = format!("/v1/deliveries/{kept}");
    assert_eq!(gateway.client.get(&path).await.status, 200);
}

async fn assert_removed(gateway: &Gateway, id: &str) {
    let path = format!("/v1/deliveries/{id}");
    gateway.poll(&path, |answer| answer.status == 404).await;
}

#[tokio::test]
async fn a_delivered_one_goes_seven_days_after_its_delivery() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    gateway.endpoint(&sink.url(), json!({})).await;
    // Accepted first, so that a sweep that has come to the other has passed this one.
    let later = gateway.now().plus(hours(2)).to_string();
    let younger = gateway.send_with("younger", json!({"deliver_at": later})).await;
    let older = gateway.send("older").await;
    gateway.until_state(older.only(), "delivered").await;
    gateway.advance(hours(2));
    gateway.until_state(younger.only(), "delivered").await;

    gateway.advance(hours(7 * 24 - 1));
    assert_swept(&gateway, older.only(), younger.only()).await;
    let event = format!("/v1/events/{}", older.event);
    assert_eq!(gateway.client.get(&event).await.status, 404, "its event went with it");
    gateway.advance(hours(2));
    assert_removed(&gateway, younger.only()).await;
}

#[tokio::test]
async fn a_failed_one_goes_seven_days_after_its_last_attempt() {
    let gateway = Gateway::start().await;
    let mut patient = true;
    let sink = Sink::start(move |request| {
        let first = std::mem::replace(&mut patient, false);
        Reply::status(if first && request.body_text() == "\"younger\"" { 500 } else { 400 })
    })
    .await;
    let policy = json!({"preset": "edge", "schedule": {"list": ["2h"]}});
    gateway.endpoint(&sink.url(), json!({"policy": policy, "ordering": "none"})).await;
    let younger = gateway.send("younger").await;
    gateway.until_retrying(younger.only(), 1).await;
    let older = gateway.send("older").await;
    gateway.until_state(older.only(), "failed").await;
    gateway.advance(hours(2));
    gateway.until_state(younger.only(), "failed").await;

    gateway.advance(hours(7 * 24 - 1));
    assert_swept(&gateway, older.only(), younger.only()).await;
    gateway.advance(hours(2));
    assert_removed(&gateway, younger.only()).await;
}

#[tokio::test]
async fn a_dead_one_goes_fourteen_days_after_its_event_was_received() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(500).await;
    let policy = json!({"preset": "router", "max_attempts": 2, "schedule": {"list": ["5d"]}});
    gateway.endpoint(&sink.url(), json!({"policy": policy})).await;
    let older = gateway.send("older").await;
    gateway.until_retrying(older.only(), 1).await;
    gateway.advance(hours(2));
    let younger = gateway.send("younger").await;
    gateway.until_retrying(younger.only(), 1).await;
    gateway.advance(days(5));
    for sent in [&older, &younger] {
        gateway.until_state(sent.only(), "dead").await;
    }

    // Fourteen days and an hour after the first was received; nine after it died.
    gateway.advance(hours(9 * 24 - 1));
    assert_swept(&gateway, older.only(), younger.only()).await;
    gateway.advance(hours(2));
    assert_removed(&gateway, younger.only()).await;
}

#[tokio::test]
async fn what_is_unfinished_is_never_removed() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    let endpoint = gateway.endpoint(&sink.url(), json!({"event_types": ["order.*"]})).await;
    gateway.client.act(&format!("/v1/endpoints/{endpoint}/pause")).await.expect(200);
    let waiting = gateway.send("waiting").await;
    gateway.bystander().await;
    let marker = gateway.send_with("marker", json!({"type": "bystander"})).await;
    gateway.until_state(marker.only(), "delivered").await;
    gateway.advance(days(300));
    assert_swept(&gateway, marker.only(), waiting.only()).await;
    gateway.client.act(&format!("/v1/endpoints/{endpoint}/resume")).await.expect(200);
    let delivered = gateway.until_state(waiting.only(), "delivered").await;
    assert_eq!(delivered["reason"], Value::Null);
    assert_eq!(sink.bodies(), ["\"waiting\""]);
}
