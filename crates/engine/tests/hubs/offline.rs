//! Deliveries whose hub is away wait for it, use no attempt up, and go in order when it is back.

use postrider_core::endpoint::Spec;
use postrider_core::{Reason, State};
use postrider_engine::notices::NoticeKind;
use postrider_engine::{EndpointAction, WaitReason};
use serde_json::json;

use crate::gateway::{ACTING, Gateway, delivery_of, event, policy, seconds};
use crate::{ROOMY, behind, fifo};

#[tokio::test]
async fn what_waits_for_a_hub_drains_in_order_when_it_connects() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(fifo(hub)).await;
    let sent = gateway.send_all(["n.1", "n.2", "n.3", "n.4"].map(event)).await;
    assert_eq!(gateway.waits_on(delivery_of(sent[0])).await, Some(WaitReason::HubOffline));
    assert_eq!(gateway.waits_on(delivery_of(sent[1])).await, Some(WaitReason::Behind));
    gateway.clock.advance(seconds(3 * 3_600));
    for id in &sent {
        let record = gateway.record(delivery_of(*id)).await;
        assert_eq!((record.state, record.attempts, record.tries), (State::Pending, 0, 0));
    }
    let mut agent = gateway.connect(hub, ROOMY).await;
    for (number, kind) in (1..).zip(["n.1", "n.2", "n.3", "n.4"]) {
        let deliver = agent.next().await;
        assert_eq!((deliver.seq, deliver.kind.as_str(), deliver.attempt), (number, kind, 1));
        assert!(agent.is_quiet().await, "the next one waits for the end of this one");
        agent.done(&deliver);
        gateway.delivered(1).await;
    }
    for id in sent {
        assert_eq!(gateway.state(delivery_of(id)).await, State::Delivered);
    }
}

#[tokio::test]
async fn a_retry_that_falls_due_while_its_hub_is_away_waits_for_it() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let delivery = delivery_of(gateway.send("n.1").await);
    let mut agent = gateway.connect(hub, ROOMY).await;
    let deliver = agent.next().await;
    agent.answer(deliver.seq, crate::status(500)).expect("asked");
    gateway.notice(NoticeKind::RetryScheduled).await;
    drop(agent);
    assert_eq!(gateway.waits_on(delivery).await, Some(WaitReason::Backoff));
    gateway.clock.advance(seconds(60));
    assert_eq!(gateway.waits_on(delivery).await, Some(WaitReason::HubOffline));
    let record = gateway.record(delivery).await;
    assert_eq!((record.state, record.attempts), (State::Retrying, 1));
    let mut agent = gateway.connect(hub, ROOMY).await;
    assert_eq!(agent.next().await.attempt, 2);
}

#[tokio::test]
async fn what_grows_too_old_while_its_hub_is_away_is_dead() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let brief = policy(json!({"preset": "edge", "max_age": "30m"}));
    gateway.endpoint(Spec { policy: brief, ..fifo(hub) }).await;
    let sent = gateway.send_all(["n.1", "n.2"].map(event)).await;
    gateway.clock.advance(seconds(3_600));
    for id in &sent {
        let notice = gateway.notice(NoticeKind::Dead).await;
        let told = notice.delivery.as_ref().expect("about a delivery");
        assert_eq!((told.delivery_id, told.reason), (delivery_of(*id), Some(Reason::Expired)));
        assert_eq!(gateway.record(delivery_of(*id)).await.attempts, 0);
    }
    gateway.send("n.3").await;
    let mut agent = gateway.connect(hub, ROOMY).await;
    assert_eq!(agent.next().await.kind, "n.3");
}

#[tokio::test]
async fn what_has_waited_survives_a_restart_and_so_does_the_hub_s_token() {
    let gateway = Gateway::start().await;
    let made = gateway.engine.create_hub(ACTING, "the workshop".into()).await;
    let (record, token) = made.expect("a hub");
    gateway.endpoint(fifo(record.id)).await;
    let sent = gateway.send_all(["n.1", "n.2"].map(event)).await;
    let mut agent = gateway.connect(record.id, ROOMY).await;
    let deliver = agent.next().await;
    drop(agent);
    let mut gateway = gateway.restart().await;
    assert_eq!(gateway.engine.hub_of_token(&token), Some(record.clone()));
    assert_eq!(gateway.waits_on(delivery_of(sent[0])).await, Some(WaitReason::HubOffline));
    let mut agent = gateway.connect(record.id, ROOMY).await;
    let again = agent.next().await;
    assert_eq!((again.delivery, again.attempt), (deliver.delivery, 1));
    agent.done(&again);
    gateway.delivered(1).await;
    assert_eq!(agent.next().await.kind, "n.2");
}

#[tokio::test]
async fn a_paused_endpoint_sends_nothing_to_a_hub_that_is_there() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let endpoint = gateway.endpoint(behind(hub)).await;
    let set = |action| gateway.engine.set_endpoint_state(ACTING, endpoint, action);
    set(EndpointAction::Pause).await.expect("paused");
    let delivery = delivery_of(gateway.send("n.1").await);
    let mut agent = gateway.connect(hub, ROOMY).await;
    assert!(agent.is_quiet().await);
    assert_eq!(gateway.waits_on(delivery).await, Some(WaitReason::Paused));
    set(EndpointAction::Resume).await.expect("resumed");
    assert_eq!(agent.next().await.delivery, delivery);
    assert_eq!(gateway.waits_on(delivery).await, None, "it is on its way");
}
