//! `inbox`: 10, 20, 40, 80 s; a backoff survives a restart.

use serde_json::json;

use crate::harness::gateway::{Gateway, Stopped, time};
use crate::harness::sink::{Reply, Sink};
use crate::seconds;

async fn with_failing_endpoint() -> (Gateway, Sink) {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(500).await;
    let fields = json!({"policy": "inbox", "event_types": ["order.*"]});
    gateway.endpoint(&sink.url(), fields).await;
    (gateway, sink)
}

#[tokio::test]
async fn the_wait_doubles_from_ten_seconds_and_the_fifth_failure_is_the_last() {
    let (gateway, sink) = with_failing_endpoint().await;
    let sent = gateway.send("one").await;
    for (attempts, delay) in (1..).zip([10, 20, 40, 80]) {
        let failed = gateway.until_retrying(sent.only(), attempts).await;
        let due = gateway.now().plus(seconds(delay));
        assert_eq!(time(&failed["next_attempt_at"]), due);
        gateway.clock.set(due);
    }
    let dead = gateway.until_state(sent.only(), "dead").await;
    assert_eq!(dead["attempts"], 5);
    assert_eq!(dead["reason"], "exhausted");
    assert_eq!(sink.count(), 5);
}

/// Starts again before the backoff is over.
async fn assert_not_early(stopped: Stopped, sink: &Sink, id: &str) {
    let before = sink.count();
    let stopped_at = stopped.at;
    let gateway = stopped.start_at(stopped_at.plus(seconds(4))).await;
    let bystander = gateway.bystander().await;
    gateway.quiet(&bystander).await;
    let due = stopped_at.plus(seconds(10));
    let waiting = gateway.delivery(id).await;
    assert_eq!(waiting["state"], "retrying");
    assert_eq!(waiting["attempts"], 1);
    assert_eq!(time(&waiting["next_attempt_at"]), due);
    gateway.just_before(due, &bystander).await;
    assert_eq!(sink.count(), before, "not tried early");
    gateway.clock.set(due);
    gateway.until_retrying(id, 2).await;
    assert_eq!(sink.count(), before + 1, "and not lost");
    assert_eq!(sink.nth(before + 1).await.header("postrider-attempt"), "2");
}

#[tokio::test]
async fn after_a_restart_within_a_backoff_it_is_neither_tried_early_nor_lost() {
    let (gateway, sink) = with_failing_endpoint().await;
    let sent = gateway.send("one").await;
    gateway.until_retrying(sent.only(), 1).await;
    let stopped = gateway.stop().await;
    assert_not_early(stopped, &sink, sent.only()).await;
}

#[tokio::test]
async fn after_a_crash_within_a_backoff_it_is_neither_tried_early_nor_lost() {
    let (gateway, sink) = with_failing_endpoint().await;
    let sent = gateway.send("one").await;
    gateway.until_retrying(sent.only(), 1).await;
    assert_not_early(gateway.image(), &sink, sent.only()).await;
}

#[tokio::test]
async fn a_backoff_that_ran_out_while_the_gateway_was_down_is_tried_at_its_start() {
    let (gateway, sink) = with_failing_endpoint().await;
    let sent = gateway.send("one").await;
    gateway.until_retrying(sent.only(), 1).await;
    let stopped = gateway.stop().await;
    let later = stopped.at.plus(seconds(11));
    let gateway = stopped.start_at(later).await;
    let failed = gateway.until_retrying(sent.only(), 2).await;
    assert_eq!(time(&failed["next_attempt_at"]), later.plus(seconds(20)));
    assert_eq!(sink.count(), 2);
}

#[tokio::test]
async fn what_was_in_flight_at_a_crash_is_tried_again_as_the_same_message() {
    let gateway = Gateway::start().await;
    let mut first = true;
    let sink = Sink::start(move |_| {
        let reply = Reply::status(200);
        if std::mem::replace(&mut first, false) { reply.held() } else { reply }
    })
    .await;
    gateway.endpoint(&sink.url(), json!({"policy": "inbox"})).await;
    let sent = gateway.send("one").await;
    sink.nth(1).await;
    assert_eq!(gateway.delivery(sent.only()).await["state"], "in_flight");
    let stopped = gateway.image();
    let now = stopped.at;
    let restarted = stopped.start_at(now).await;
    let delivered = restarted.until_state(sent.only(), "delivered").await;
    assert_eq!(delivered["attempts"], 1);
    let received = sink.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].header("webhook-id"), received[1].header("webhook-id"));
    assert_eq!(received[0].body, received[1].body);
}
