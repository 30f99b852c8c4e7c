//! `router`: 30 s, 2 min, 10 min, 1 h; the fifth failure is the last, and an operator can start
//! over.

use serde_json::{Value, json};

use crate::harness::gateway::{Gateway, time};
use crate::harness::sink::{Reply, Sink};
use crate::{days, seconds};

const LADDER: [u64; 4] = [30, 120, 600, 3_600];

async fn with_failing_endpoint() -> (Gateway, Sink, String) {
    let gateway = Gateway::start().await;
    let sink = Sink::start(|_| Reply::status(500).body("the database is away")).await;
    let fields = json!({"policy": "router", "event_types": ["order.*"]});
    let endpoint = gateway.endpoint(&sink.url(), fields).await;
    (gateway, sink, endpoint)
}

/// Goes up the ladder: nothing is tried early, and each rung is where it should be.
async fn climb(gateway: &Gateway, sink: &Sink, id: &str) {
    let bystander = gateway.bystander().await;
    let before = sink.count();
    for (attempts, delay) in (1..).zip(LADDER) {
        let failed = gateway.until_retrying(id, attempts).await;
        let due = gateway.now().plus(seconds(delay));
        assert_eq!(time(&failed["next_attempt_at"]), due);
        assert_eq!(failed["waiting_on"]["reason"], "backoff");
        assert_eq!(time(&failed["waiting_on"]["until"]), due);
        gateway.just_before(due, &bystander).await;
        assert_eq!(sink.count(), before + attempts as usize - 1);
        gateway.clock.set(due);
        sink.nth(before + attempts as usize).await;
    }
}

#[tokio::test]
async fn a_first_failure_is_tried_again_in_thirty_seconds_and_says_why() {
    let (gateway, sink, endpoint) = with_failing_endpoint().await;
    let began = gateway.now();
    let sent = gateway.send("one").await;
    let failed = gateway.until_retrying(sent.only(), 1).await;
    assert_eq!(failed["event_id"], sent.event);
    assert_eq!(failed["endpoint_id"], endpoint);
    assert_eq!(failed["deferrals"], 0);
    assert_eq!(time(&failed["last_attempt_at"]), began);
    assert_eq!(time(&failed["next_attempt_at"]), began.plus(seconds(30)));
    assert_eq!(failed["error_class"], "retryable");
    let error = failed["last_error"].as_str().expect("an error");
    assert!(error.contains("500") && error.contains("the database is away"), "{error}");
    assert_eq!(failed["delivered_at"], Value::Null);
    assert_eq!(failed["reason"], Value::Null);
    let attempt = &failed["attempt_log"][0];
    assert_eq!(attempt["number"], 1);
    assert_eq!(attempt["counted"], true);
    assert_eq!(attempt["status_code"], 500);
    assert_eq!(attempt["outcome"], "retryable");
    assert_eq!(attempt["response_body"], "the database is away");
    let first = sink.nth(1).await;
    assert_eq!(first.header("webhook-id"), sent.event);
    assert_eq!(first.header("postrider-attempt"), "1");
    assert_eq!(first.header("postrider-delivery-id"), sent.only());
}

#[tokio::test]
async fn the_fifth_failure_is_death_until_an_operator_starts_over() {
    let (gateway, sink, endpoint) = with_failing_endpoint().await;
    let mut stream = gateway.client.follow().await;
    let metadata = json!({"metadata": {"session_id": "session-7"}});
    let sent = gateway.send_with("one", metadata).await;
    let id = sent.only();
    sink.nth(1).await;
    climb(&gateway, &sink, id).await;

    let dead = gateway.until_state(id, "dead").await;
    assert_eq!(dead["attempts"], 5);
    assert_eq!(dead["reason"], "exhausted");
    assert_eq!(dead["next_attempt_at"], Value::Null);
    assert_eq!(dead["waiting_on"], Value::Null);
    assert_eq!(dead["error_class"], "retryable");
    assert_eq!(dead["attempt_log"].as_array().map(Vec::len), Some(5));
    let notice = stream.notice("delivery.dead").await;
    assert_eq!(notice["topic"], "gateway:webhooks");
    assert_eq!(notice["delivery_id"], id);
    assert_eq!(notice["event_id"], sent.event);
    assert_eq!(notice["endpoint_id"], endpoint);
    assert_eq!(notice["correlation_id"], "session-7");
    assert_eq!(notice["attempts"], 5);
    assert_eq!(notice["reason"], "exhausted");
    assert!(notice["last_error"].as_str().is_some_and(|error| error.contains("500")));
    assert_eq!(gateway.notices("delivery.dead", id), 1);
    assert_eq!(gateway.notices("delivery.retry_scheduled", id), 4);

    let bystander = gateway.bystander().await;
    gateway.advance(days(7));
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), 5, "no further attempt of its own accord");
    assert_eq!(gateway.delivery(id).await["state"], "dead");

    let reset = gateway.client.act(&format!("/v1/deliveries/{id}/retry")).await.expect(200);
    assert_eq!(reset["attempts"], 0);
    assert_eq!(reset["reason"], Value::Null);
    sink.nth(6).await;
    climb(&gateway, &sink, id).await;
    let dead = gateway.until_state(id, "dead").await;
    assert_eq!(dead["attempts"], 5);
    let log = dead["attempt_log"].as_array().expect("a list");
    let numbers: Vec<_> = log.iter().map(|attempt| attempt["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=10).map(Some).collect::<Vec<_>>(), "history is kept");
    gateway.notice("delivery.dead", id).await;
}

#[tokio::test]
async fn a_success_on_the_ladder_ends_it_and_clears_what_was_to_come() {
    let (gateway, sink, endpoint) = with_failing_endpoint().await;
    let sent = gateway.send("one").await;
    let id = sent.only();
    gateway.until_retrying(id, 1).await;
    gateway.advance(seconds(30));
    gateway.until_retrying(id, 2).await;
    sink.answer(204);
    gateway.advance(seconds(120));
    let delivered = gateway.until_state(id, "delivered").await;
    assert_eq!(delivered["attempts"], 3);
    assert_eq!(time(&delivered["delivered_at"]), gateway.now());
    for cleared in ["next_attempt_at", "error_class", "reason", "waiting_on"] {
        assert_eq!(delivered[cleared], Value::Null, "{cleared}");
    }
    let notice = gateway.notice("delivery.delivered", id).await;
    let about = notice.delivery.as_ref().expect("about a delivery");
    assert_eq!(about.endpoint_id.to_string(), endpoint);
    assert_eq!(about.attempts, 3);

    let received = sink.received();
    assert_eq!(received.len(), 3);
    for (number, request) in (1..).zip(&received) {
        assert_eq!(request.header("webhook-id"), sent.event, "the same on every attempt");
        assert_eq!(request.header("postrider-attempt"), number.to_string());
        assert_eq!(request.body_text(), "\"one\"");
    }
    let stamps: Vec<_> = received.iter().map(|one| one.header("webhook-timestamp")).collect();
    assert!(stamps[0] < stamps[1] && stamps[1] < stamps[2], "fresh each time: {stamps:?}");
    let conflict = gateway.client.act(&format!("/v1/deliveries/{id}/retry")).await;
    assert_eq!(conflict.status, 409, "what was delivered is not sent again");
}
