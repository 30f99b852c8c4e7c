//! `edge`: refused for good on a 4xx, strictly in order, tried for seven days.

use serde_json::{Value, json};

use crate::harness::gateway::{Gateway, time};
use crate::harness::sink::{Reply, Sink};
use crate::{days, hours, seconds};

async fn start(sink: &Sink) -> (Gateway, String) {
    let gateway = Gateway::start().await;
    let fields = json!({"policy": "edge", "event_types": ["order.*"]});
    let endpoint = gateway.endpoint(&sink.url(), fields).await;
    (gateway, endpoint)
}

#[tokio::test]
async fn a_four_hundred_ends_it_at_once_and_the_next_one_goes() {
    let sink = Sink::start(|request| match request.body_text() {
        "\"bad\"" => Reply::status(422).body("no such order"),
        _ => Reply::status(200),
    })
    .await;
    let (gateway, _) = start(&sink).await;
    let bad = gateway.send("bad").await;
    let good = gateway.send("good").await;
    let failed = gateway.until_state(bad.only(), "failed").await;
    assert_eq!(failed["attempts"], 1);
    assert_eq!(failed["reason"], "rejected");
    assert_eq!(failed["error_class"], "final");
    assert_eq!(failed["next_attempt_at"], Value::Null);
    assert!(failed["last_error"].as_str().is_some_and(|error| error.contains("no such order")));
    gateway.notice("delivery.failed", bad.only()).await;
    gateway.until_state(good.only(), "delivered").await;
    assert_eq!(sink.bodies(), ["\"bad\"", "\"good\""]);
}

#[tokio::test]
async fn a_five_hundred_holds_everything_behind_it_in_order() {
    let mut failures = 4;
    let sink = Sink::start(move |request| match request.body_text() {
        "\"a\"" if failures > 0 => {
            failures -= 1;
            Reply::status(503)
        }
        "\"c\"" => Reply::status(400),
        _ => Reply::status(200),
    })
    .await;
    let (gateway, _) = start(&sink).await;
    let bystander = gateway.bystander().await;
    let mut sent = Vec::new();
    for payload in ["a", "b", "c", "d"] {
        sent.push(gateway.send(payload).await.only().to_owned());
    }
    for (attempts, delay) in (1..).zip([1, 2, 4, 8]) {
        let first = gateway.until_retrying(&sent[0], attempts).await;
        let due = gateway.now().plus(seconds(delay));
        assert_eq!(time(&first["next_attempt_at"]), due);
        for behind in &sent[1..] {
            let waiting = gateway.delivery(behind).await;
            assert_eq!(waiting["state"], "pending");
            assert_eq!(waiting["attempts"], 0);
            assert_eq!(waiting["waiting_on"]["reason"], "behind");
            assert_eq!(waiting["waiting_on"]["delivery_id"], sent[0]);
        }
        gateway.just_before(due, &bystander).await;
        assert_eq!(sink.count(), attempts as usize, "nobody overtakes");
        gateway.clock.set(due);
    }
    for (id, state) in sent.iter().zip(["delivered", "delivered", "failed", "delivered"]) {
        gateway.until_state(id, state).await;
    }
    let order: Vec<String> = "aaaaabcd".chars().map(|payload| format!("\"{payload}\"")).collect();
    assert_eq!(sink.bodies(), order);
}

#[tokio::test]
async fn what_is_older_than_seven_days_is_swept_up_dead_and_not_before() {
    let sink = Sink::answering(200).await;
    let (gateway, endpoint) = start(&sink).await;
    // Removed at the end of the very sweep that must leave the others alone.
    let bystander = gateway.bystander().await;
    let marker = gateway.send_with("marker", json!({"type": "bystander"})).await;
    gateway.until_state(marker.only(), "delivered").await;
    gateway.advance(hours(1));
    gateway.client.act(&format!("/v1/endpoints/{endpoint}/pause")).await.expect(200);
    let mut sent = Vec::new();
    for payload in ["head", "second", "third"] {
        sent.push(gateway.send(payload).await.only().to_owned());
    }

    gateway.advance(days(7));
    let path = format!("/v1/deliveries/{}", marker.only());
    gateway.poll(&path, |answer| answer.status == 404).await;
    for id in &sent {
        assert_eq!(gateway.delivery(id).await["state"], "pending", "seven days are not too many");
    }

    gateway.advance(hours(1));
    for id in &sent {
        let dead = gateway.until_state(id, "dead").await;
        assert_eq!(dead["reason"], "expired");
        assert_eq!(dead["next_attempt_at"], Value::Null);
        assert_eq!(dead["attempts"], 0);
        gateway.notice("delivery.dead", id).await;
    }
    gateway.client.act(&format!("/v1/endpoints/{endpoint}/resume")).await.expect(200);
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), 0);
}

#[tokio::test]
async fn an_endpoint_that_is_away_for_a_week_loses_a_whole_line_to_age() {
    let sink = Sink::answering(500).await;
    let (gateway, _) = start(&sink).await;
    let mut sent = Vec::new();
    for payload in ["head", "second", "third"] {
        sent.push(gateway.send(payload).await.only().to_owned());
    }
    gateway.until_retrying(&sent[0], 1).await;
    gateway.advance(days(7) + seconds(1));
    for id in &sent {
        let dead = gateway.until_state(id, "dead").await;
        assert_eq!(dead["reason"], "expired");
    }
    assert_eq!(sink.count(), 1, "too old is not tried any more");
    let fresh = gateway.send("fresh").await;
    gateway.until_retrying(fresh.only(), 1).await;
    assert_eq!(sink.count(), 2, "the line goes on");
}
