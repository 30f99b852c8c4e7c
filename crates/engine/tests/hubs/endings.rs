//! How the gateway ends a line: by revoking, for want of an answer, by stopping.

use std::time::Duration;

use postrider_core::State;
use postrider_core::endpoint::Spec;
use postrider_core::hub::SILENCE;
use postrider_engine::notices::NoticeKind;
use postrider_engine::{Ending, Error, OutOfTurn, WaitReason};

use crate::gateway::{ACTING, Gateway, START, TENANT, delivery_of, event, seconds};
use crate::rig::PATIENCE;
use crate::{ROOMY, behind, hello, status};

/// What an answer may take to come back, beyond the endpoint's own deadline.
const GRACE: Duration = SILENCE.saturating_add(Duration::from_secs(10));

#[tokio::test]
async fn a_hub_that_is_deleted_is_cut_off_at_once_and_its_endpoints_wait() {
    let mut gateway = Gateway::start().await;
    let (record, token) = gateway.engine.create_hub(ACTING, "old".into()).await.expect("a hub");
    let hub = record.id;
    let endpoint = gateway.endpoint(behind(hub)).await;
    let delivery = delivery_of(gateway.send("n.1").await);
    let mut agent = gateway.connect(hub, ROOMY).await;
    let deliver = agent.next().await;
    gateway.engine.delete_hub(ACTING, hub).await.expect("deleted");
    assert_eq!(agent.ending().await, Ending::Revoked);
    agent.answer(deliver.seq, status(200)).expect("it is simply too late");
    gateway.notice(NoticeKind::HubDisconnected).await;
    drop(agent);
    assert_eq!(gateway.notices(NoticeKind::HubDisconnected).len(), 0, "that was told");
    assert_eq!(gateway.engine.hub_of_token(&token), None);
    let refused = gateway.engine.connect_hub(hub, &hello(1)).await.map(drop);
    assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");
    assert!(matches!(gateway.engine.hub(TENANT, hub).await, Err(Error::NotFound)));
    assert!(matches!(gateway.engine.delete_hub(ACTING, hub).await, Err(Error::NotFound)));
    let other = delivery_of(gateway.send("n.2").await);
    for id in [delivery, other] {
        assert_eq!(gateway.waits_on(id).await, Some(WaitReason::HubOffline));
        let record = gateway.record(id).await;
        assert_eq!((record.state, record.attempts), (State::Pending, 0));
    }
    // Given another way, they go.
    let new = gateway.hub().await;
    let mut agent = gateway.connect(new, ROOMY).await;
    gateway.change(endpoint, |spec| *spec = Spec { ..behind(new) }).await;
    let came = [agent.next().await.delivery, agent.next().await.delivery];
    assert_eq!(came, [delivery, other]);
    let gateway = {
        drop(agent);
        gateway.restart().await
    };
    assert_eq!(gateway.engine.hub_of_token(&token), None, "for good");
}

#[tokio::test]
async fn answers_to_what_was_not_asked_are_out_of_turn() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    gateway.send("n.1").await;
    let mut agent = gateway.connect(hub, ROOMY).await;
    let deliver = agent.next().await;
    for seq in [0, deliver.seq + 1, u64::MAX] {
        assert_eq!(agent.answer(seq, status(200)), Err(OutOfTurn), "{seq}");
    }
    agent.done(&deliver);
    assert_eq!(agent.answer(deliver.seq, status(500)), Err(OutOfTurn), "it was answered");
    gateway.delivered(1).await;
    assert_eq!(gateway.state(deliver.delivery).await, State::Delivered);
    assert_eq!(gateway.attempts(deliver.delivery).await.len(), 1);
}

#[tokio::test]
async fn a_hub_that_does_not_answer_in_time_has_failed_and_has_to_begin_anew() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let timeout = Some(seconds(20));
    gateway.endpoint(Spec { timeout, max_in_flight: Some(2), ..behind(hub) }).await;
    let silent = delivery_of(gateway.send("n.1").await);
    let mut agent = gateway.connect(hub, ROOMY).await;
    let deliver = agent.next().await;
    assert_eq!(deliver.timeout, seconds(20));
    let late = START.plus(seconds(20) + GRACE);
    gateway.clock.asleep(late, 0).await;
    gateway.clock.set(late.minus(seconds(5)));
    let beside = delivery_of(gateway.send("n.2").await);
    agent.next().await;
    assert_eq!(gateway.record(silent).await.attempts, 0, "an answer may still be on its way");
    let waiting = delivery_of(gateway.send("n.3").await);
    gateway.clock.set(late);
    // The socket may be stuck: that nobody takes note of its end must not matter.
    gateway.notice(NoticeKind::HubDisconnected).await;
    let notice = gateway.notice(NoticeKind::RetryScheduled).await;
    let told = notice.delivery.as_ref().expect("about a delivery");
    assert_eq!((told.delivery_id, told.attempts), (silent, 1));
    assert_eq!(told.last_error.as_deref(), Some("the hub did not answer, though it had 20s"));
    gateway.all_back(hub).await;
    for id in [beside, waiting] {
        assert_eq!(gateway.waits_on(id).await, Some(WaitReason::HubOffline));
        assert_eq!(gateway.record(id).await.attempts, 0);
    }
    assert!(gateway.engine.hub(TENANT, hub).await.expect("known").connection.is_none());
    assert_eq!(agent.ending().await, Ending::Unanswered);
    drop(agent);
    assert_eq!(gateway.notices(NoticeKind::HubDisconnected).len(), 0, "once");
    let mut agent = gateway.connect(hub, ROOMY).await;
    let came = [agent.next().await, agent.next().await];
    assert_eq!(came.map(|one| (one.delivery, one.attempt)), [(beside, 1), (waiting, 1)]);
}

#[tokio::test]
async fn an_answer_within_the_grace_counts() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    gateway.send("n.1").await;
    let mut agent = gateway.connect(hub, ROOMY).await;
    let deliver = agent.next().await;
    let late = START.plus(seconds(15) + GRACE);
    gateway.clock.asleep(late, 0).await;
    gateway.clock.set(late.minus(seconds(1)));
    agent.done(&deliver);
    gateway.delivered(1).await;
}

#[tokio::test]
async fn a_drain_waits_for_answers_and_then_says_goodbye() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let sent = gateway.send_all(["n.1", "n.2", "n.3"].map(event)).await;
    let mut agent = gateway.connect(hub, 2).await;
    let held = [agent.next().await, agent.next().await];
    let draining = tokio::spawn({
        let engine = gateway.engine.clone();
        async move { engine.drain(PATIENCE).await }
    });
    agent.done(&held[0]);
    gateway.delivered(1).await;
    assert!(agent.is_quiet().await, "nothing more is begun");
    assert!(!draining.is_finished());
    agent.done(&held[1]);
    gateway.delivered(1).await;
    let drained = draining.await.expect("no panic");
    assert_eq!(drained.abandoned, 0);
    assert_eq!(agent.ending().await, Ending::Stopping);
    drop(agent);
    let mut gateway = gateway.restart().await;
    let mut agent = gateway.connect(hub, 2).await;
    let last = agent.next().await;
    assert_eq!((last.delivery, last.attempt), (delivery_of(sent[2]), 1));
    agent.done(&last);
    gateway.delivered(1).await;
}

#[tokio::test]
async fn a_hub_that_leaves_during_a_drain_does_not_hold_it_up() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    gateway.send("n.1").await;
    let mut agent = gateway.connect(hub, 2).await;
    agent.next().await;
    let draining = tokio::spawn({
        let engine = gateway.engine.clone();
        async move { engine.drain(PATIENCE).await }
    });
    assert!(agent.is_quiet().await);
    drop(agent);
    assert_eq!(draining.await.expect("no panic").abandoned, 0);
}

#[tokio::test]
async fn a_line_that_has_ended_goes_on_saying_why() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let mut old = gateway.connect(hub, 1).await;
    let _new = gateway.connect(hub, 1).await;
    for _ in 0..3 {
        assert_eq!(old.ending().await, Ending::TakenOver);
    }
    gateway.engine.delete_hub(ACTING, hub).await.expect("deleted");
    assert_eq!(old.ending().await, Ending::TakenOver);
    for ending in [Ending::TakenOver, Ending::Revoked, Ending::Unanswered, Ending::Stopping] {
        let reason = ending.to_string();
        assert!(!reason.is_empty() && reason.len() <= 120, "fit for a close frame: {reason}");
    }
}
