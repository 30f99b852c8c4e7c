//! `runs`: a minute, doubling; asked to wait is not a failure; some failures are final.

use serde_json::{Value, json};

use crate::harness::gateway::{Gateway, time};
use crate::harness::sink::{Reply, Sink};
use crate::seconds;

#[tokio::test]
async fn a_rate_limit_with_a_hint_does_not_count_and_holds_the_whole_endpoint() {
    let gateway = Gateway::start().await;
    let sink = Sink::in_turn([
        Reply::status(429).header("retry-after", "120").body("slow down"),
        Reply::status(200),
    ])
    .await;
    let fields = json!({"policy": "runs", "event_types": ["order.*"]});
    gateway.endpoint(&sink.url(), fields).await;
    let bystander = gateway.bystander().await;
    let limited = gateway.send("limited").await;
    let id = limited.only();
    let deferred = gateway.until(id, |delivery| delivery["deferrals"] == 1).await;
    let due = gateway.now().plus(seconds(120));
    assert_eq!(deferred["state"], "retrying");
    assert_eq!(deferred["attempts"], 0, "it does not count");
    assert_eq!(deferred["error_class"], "rate_limited");
    assert_eq!(time(&deferred["next_attempt_at"]), due);
    assert_eq!(deferred["waiting_on"]["reason"], "retry_after");
    assert_eq!(deferred["attempt_log"][0]["counted"], false);
    assert_eq!(deferred["attempt_log"][0]["outcome"], "rate_limited");

    let other = gateway.send("other").await;
    let held = gateway.delivery(other.only()).await;
    assert_eq!(held["state"], "pending");
    assert_eq!(held["waiting_on"]["reason"], "retry_after");
    assert_eq!(time(&held["waiting_on"]["until"]), due);
    gateway.just_before(due, &bystander).await;
    assert_eq!(sink.count(), 1, "neither of them goes before");
    gateway.clock.set(due);
    let delivered = gateway.until_state(id, "delivered").await;
    assert_eq!(delivered["attempts"], 1);
    assert_eq!(delivered["deferrals"], 1);
    assert_eq!(delivered["error_class"], Value::Null);
    gateway.until_state(other.only(), "delivered").await;
    assert_eq!(sink.count(), 3);
}

#[tokio::test]
async fn a_rate_limit_without_a_hint_counts_and_backs_off_from_a_minute() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(429).await;
    gateway.endpoint(&sink.url(), json!({"policy": "runs"})).await;
    let sent = gateway.send("one").await;
    for (attempts, delay) in (1..).zip([60, 120, 240, 480, 960, 1_920, 3_600]) {
        let failed = gateway.until_retrying(sent.only(), attempts).await;
        assert_eq!(failed["deferrals"], 0);
        assert_eq!(failed["error_class"], "rate_limited");
        let due = gateway.now().plus(seconds(delay));
        assert_eq!(time(&failed["next_attempt_at"]), due);
        gateway.clock.set(due);
    }
    let dead = gateway.until_state(sent.only(), "dead").await;
    assert_eq!(dead["attempts"], 8);
    assert_eq!(dead["reason"], "exhausted");
}

#[tokio::test]
async fn a_failure_that_is_classed_as_final_is_not_tried_again() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(409).await;
    let policy = json!({"preset": "runs", "classify": {"409": "final"}});
    gateway.endpoint(&sink.url(), json!({"policy": policy})).await;
    let sent = gateway.send("one").await;
    let failed = gateway.until_state(sent.only(), "failed").await;
    assert_eq!(failed["attempts"], 1);
    assert_eq!(failed["error_class"], "final");
    assert_eq!(failed["reason"], "rejected");
    assert_eq!(failed["next_attempt_at"], Value::Null);
    gateway.notice("delivery.failed", sent.only()).await;
    sink.answer(418);
    let other = gateway.send("other").await;
    let retrying = gateway.until_retrying(other.only(), 1).await;
    assert_eq!(retrying["error_class"], "retryable", "the others stay as they were");
}
