//! Old retries and new work compete by age.

use serde_json::json;

use crate::harness::gateway::Gateway;
use crate::harness::sink::{Reply, Sink};
use crate::{days, hours};

/// The example of the document: the oldest first, whether it was tried before or not; what is not
/// due yet waits without holding anybody up.
#[tokio::test]
async fn whoever_was_submitted_first_goes_first_once_it_is_ready() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(500).await;
    let policy = json!({"preset": "runs", "schedule": {"list": ["96h"]}});
    let fields = json!({"policy": policy, "max_in_flight": 1, "timeout": "60s"});
    let endpoint = gateway.endpoint(&sink.url(), fields).await;

    // Day 1 fails and is due again on day 5, day 2 on day 6.
    let first = gateway.send("day 1, retry on day 5").await;
    gateway.until_retrying(first.only(), 1).await;
    gateway.advance(days(1));
    let second = gateway.send("day 2, retry on day 6").await;
    gateway.until_retrying(second.only(), 1).await;
    // The one slot is taken while the others come in.
    gateway.advance(days(1));
    sink.follow(|_| Reply::status(200).held());
    gateway.send("in the way").await;
    sink.nth(3).await;
    gateway.send("day 3, new").await;
    gateway.advance(days(1));
    gateway.send("day 4, new").await;
    gateway.advance(days(1) + hours(1));
    // The retry has joined those that are ready.
    let stats = format!("/v1/endpoints/{endpoint}/stats");
    gateway.poll(&stats, |answer| answer.json()["health"]["window"] == 3).await;

    sink.release(4);
    gateway.until_state(first.only(), "delivered").await;
    sink.nth(6).await;
    let bodies = sink.bodies();
    assert_eq!(
        bodies[3..],
        ["\"day 1, retry on day 5\"", "\"day 3, new\"", "\"day 4, new\""].map(str::to_owned)
    );
    assert_eq!(gateway.delivery(second.only()).await["state"], "retrying");
    gateway.advance(days(1));
    sink.release(1);
    gateway.until_state(second.only(), "delivered").await;
}
