//! `dispatch`: seconds, doubling, spread by a tenth either way.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use crate::harness::gateway::{Gateway, time};
use crate::harness::sink::{Reply, Sink};
use crate::seconds;

#[tokio::test]
async fn retries_are_spread_by_a_tenth_either_way_and_no_further() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(500).await;
    gateway.endpoint(&sink.url(), json!({"policy": "dispatch"})).await;
    let mut sent = Vec::new();
    for number in 0..30 {
        sent.push(gateway.send(&number.to_string()).await.only().to_owned());
    }
    for (attempts, nominal) in (1..).zip([1_000, 2_000, 4_000, 8_000]) {
        let mut waits = BTreeSet::new();
        let failed_at = gateway.now();
        for id in &sent {
            let failed = gateway.until_retrying(id, attempts).await;
            waits.insert(time(&failed["next_attempt_at"]).since(failed_at));
        }
        let (least, most) = (nominal * 9 / 10, nominal * 11 / 10);
        let bounds = Duration::from_millis(least)..=Duration::from_millis(most);
        assert!(waits.iter().all(|wait| bounds.contains(wait)), "{waits:?}");
        assert!(waits.len() > 10, "spread, not all at once: {waits:?}");
        gateway.advance(Duration::from_millis(most));
    }
    for id in &sent {
        let dead = gateway.until_state(id, "dead").await;
        assert_eq!(dead["attempts"], 5);
    }
    assert_eq!(sink.count(), 150);
}

#[tokio::test]
async fn unavailable_with_a_hint_is_a_rate_limit_and_without_one_a_failure() {
    let gateway = Gateway::start().await;
    let sink =
        Sink::in_turn([Reply::status(503).header("retry-after", "7"), Reply::status(503)]).await;
    gateway.endpoint(&sink.url(), json!({"policy": "dispatch"})).await;
    let sent = gateway.send("one").await;
    let began = gateway.now();
    let deferred = gateway.until(sent.only(), |delivery| delivery["deferrals"] == 1).await;
    assert_eq!(deferred["attempts"], 0);
    assert_eq!(deferred["error_class"], "rate_limited");
    let wait = time(&deferred["next_attempt_at"]).since(began);
    assert!((seconds(7)..=Duration::from_millis(7_700)).contains(&wait), "{wait:?}");
    gateway.advance(wait);
    let failed = gateway.until_retrying(sent.only(), 1).await;
    assert_eq!(failed["error_class"], "retryable");
    assert_eq!(failed["deferrals"], 1);
}
