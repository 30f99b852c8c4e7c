//! A clock that is set forward or back fires nothing twice and loses nothing.

use serde_json::json;

use crate::harness::gateway::{Gateway, time};
use crate::harness::sink::Sink;
use crate::{days, hours, seconds};

#[tokio::test]
async fn what_was_ready_stays_ready_when_the_clock_is_set_back() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    let endpoint = gateway.endpoint(&sink.url(), json!({})).await;
    gateway.client.act(&format!("/v1/endpoints/{endpoint}/pause")).await.expect(200);
    let mut sent = Vec::new();
    for number in 0..5 {
        sent.push(gateway.send(&number.to_string()).await);
    }
    gateway.clock.set(gateway.now().minus(hours(1)));
    sent.push(gateway.send("after the change").await);
    gateway.client.act(&format!("/v1/endpoints/{endpoint}/resume")).await.expect(200);
    for one in &sent {
        gateway.until_state(one.only(), "delivered").await;
    }
    assert_eq!(sink.count(), 6);
}

#[tokio::test]
async fn a_retry_goes_once_at_its_time_whichever_way_the_clock_went() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(500).await;
    let fields = json!({"policy": "router", "event_types": ["order.*"]});
    gateway.endpoint(&sink.url(), fields).await;
    let bystander = gateway.bystander().await;
    let sent = gateway.send("one").await;
    let failed = gateway.until_retrying(sent.only(), 1).await;
    let due = time(&failed["next_attempt_at"]);
    gateway.clock.set(due.minus(days(1)));
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), 1);
    gateway.just_before(due, &bystander).await;
    assert_eq!(sink.count(), 1);
    gateway.clock.set(due.plus(hours(1)));
    gateway.until_retrying(sent.only(), 2).await;
    gateway.clock.set(due.minus(seconds(10)));
    gateway.clock.set(due.plus(seconds(10)));
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), 2, "not a second time at the same time");
}
