//! `standard`: an endpoint that says it is gone is switched off, and nothing is lost by it.

use serde_json::{Value, json};

use crate::harness::gateway::Gateway;
use crate::harness::sink::{Reply, Sink};

#[tokio::test]
async fn gone_disables_the_endpoint_and_the_others_wait_until_it_is_enabled() {
    let gateway = Gateway::start().await;
    let sink = Sink::start(|_| Reply::status(410).held()).await;
    let fields = json!({"max_in_flight": 1, "event_types": ["order.*"]});
    let endpoint = gateway.endpoint(&sink.url(), fields).await;
    let bystander = gateway.bystander().await;
    let mut stream = gateway.client.follow().await;
    let gone = gateway.send("gone").await;
    sink.nth(1).await;
    let queued = gateway.send("queued").await;
    sink.release(1);

    let failed = gateway.until_state(gone.only(), "failed").await;
    assert_eq!(failed["reason"], "rejected");
    let notice = stream.notice("endpoint.disabled").await;
    assert_eq!(notice["endpoint_id"], endpoint);
    let path = format!("/v1/endpoints/{endpoint}");
    assert_eq!(gateway.client.get(&path).await.expect(200)["state"], "disabled");
    let late = gateway.send("late").await;
    gateway.quiet(&bystander).await;
    for waiting in [&queued, &late] {
        let waiting = gateway.delivery(waiting.only()).await;
        assert_eq!(waiting["state"], "pending");
        assert_eq!(waiting["waiting_on"]["reason"], "disabled");
    }
    assert_eq!(sink.count(), 1, "nothing more is sent to it");

    sink.answer(200);
    let enabled = gateway.client.act(&format!("{path}/enable")).await.expect(200);
    assert_eq!(enabled["state"], "active");
    for waiting in [&queued, &late] {
        let delivered = gateway.until_state(waiting.only(), "delivered").await;
        assert_eq!(delivered["waiting_on"], Value::Null);
    }
    assert_eq!(sink.bodies(), ["\"gone\"", "\"queued\"", "\"late\""]);
    assert_eq!(gateway.delivery(gone.only()).await["state"], "failed");
}
