//! Order within a key, independence between keys, and deliveries for later.

use serde_json::json;

use crate::harness::gateway::{Gateway, time};
use crate::harness::sink::{Reply, Sink};
use crate::{hours, seconds};

#[tokio::test]
async fn keys_keep_their_order_and_do_not_wait_for_each_other() {
    let gateway = Gateway::start().await;
    let mut failures = 1;
    let sink = Sink::start(move |request| match request.body_text() {
        "\"a1\"" if failures > 0 => {
            failures -= 1;
            Reply::status(500)
        }
        _ => Reply::status(200),
    })
    .await;
    let fields = json!({"policy": "router", "ordering": "fifo_by_key"});
    gateway.endpoint(&sink.url(), fields).await;
    let mut sent = Vec::new();
    for (payload, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")] {
        sent.push(gateway.send_with(payload, json!({"ordering_key": key})).await);
    }
    let free = gateway.send("free").await;
    gateway.until_retrying(sent[0].only(), 1).await;
    for delivered in [&sent[2], &sent[4], &free] {
        gateway.until_state(delivered.only(), "delivered").await;
    }
    for behind in [&sent[1], &sent[3]] {
        let waiting = gateway.delivery(behind.only()).await;
        assert_eq!(waiting["state"], "pending");
        assert_eq!(waiting["waiting_on"]["reason"], "behind");
        assert_eq!(waiting["waiting_on"]["delivery_id"], sent[0].only());
    }
    gateway.advance(seconds(30));
    gateway.until_state(sent[3].only(), "delivered").await;
    let order = |key: char| -> Vec<String> {
        sink.bodies().into_iter().filter(|body| body.starts_with(&format!("\"{key}"))).collect()
    };
    assert_eq!(order('a'), ["\"a1\"", "\"a1\"", "\"a2\"", "\"a3\""]);
    assert_eq!(order('b'), ["\"b1\"", "\"b2\""]);
    assert_eq!(sink.count(), 7);
}

#[tokio::test]
async fn a_delivery_for_later_goes_at_its_time_and_not_before() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    gateway.endpoint(&sink.url(), json!({"event_types": ["order.*"]})).await;
    let bystander = gateway.bystander().await;
    let at = gateway.now().plus(hours(1));
    let later = gateway.send_with("later", json!({"deliver_at": at.to_string()})).await;
    let now = gateway.send("now").await;
    gateway.until_state(now.only(), "delivered").await;
    let waiting = gateway.delivery(later.only()).await;
    assert_eq!(waiting["state"], "pending");
    assert_eq!(time(&waiting["next_attempt_at"]), at);
    assert_eq!(waiting["waiting_on"]["reason"], "deliver_at");
    assert_eq!(time(&waiting["waiting_on"]["until"]), at);
    gateway.just_before(at, &bystander).await;
    assert_eq!(sink.bodies(), ["\"now\""]);
    gateway.clock.set(at);
    gateway.until_state(later.only(), "delivered").await;
    assert_eq!(sink.bodies(), ["\"now\"", "\"later\""]);
}
