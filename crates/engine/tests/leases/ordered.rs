//! Endpoints that keep an order: a worker sees the head of a line and nothing behind it.

use postrider_core::endpoint::{Ordering, Spec};
use postrider_core::{Class, State};
use postrider_engine::notices::NoticeKind;
use postrider_engine::{Submission, WaitReason};

use crate::gateway::{ACTING, Gateway, delivery_of, event, seconds};
use crate::{kinds, nack, pull};

fn keyed(kind: &str, key: &str) -> Submission {
    Submission { ordering_key: Some(key.to_owned()), ..event(kind) }
}

#[tokio::test]
async fn of_an_ordered_endpoint_only_the_head_is_leased() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(Spec { ordering: Ordering::Fifo, ..pull() }).await;
    let sent = gateway.send_all(["n.1", "n.2", "n.3", "n.4", "n.5", "n.6"].map(event)).await;
    let first = gateway.lease_one(endpoint).await;
    assert_eq!(first.event.kind, "n.1");
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    let behind = gateway.record(delivery_of(sent[1])).await;
    let waits = gateway.engine.waiting_on(&behind).await.expect("readable").expect("it waits");
    assert_eq!((waits.reason, waits.behind), (WaitReason::Behind, Some(first.delivery)));
    assert!(gateway.ack(&first).await);

    let second = gateway.lease_one(endpoint).await;
    assert!(gateway.nack(&second, nack(Class::Retryable)).await);
    assert!(gateway.lease(endpoint, 10).await.is_empty(), "it is still the head");
    gateway.clock.advance(seconds(10));
    let second = gateway.lease_one(endpoint).await;
    assert_eq!((second.event.kind.as_str(), second.attempt), ("n.2", 2));
    assert!(gateway.nack(&second, nack(Class::Final)).await);

    let third = gateway.lease_one(endpoint).await;
    assert_eq!(third.event.kind, "n.3");
    gateway.engine.cancel(ACTING, third.delivery).await.expect("cancelled");
    let fourth = gateway.lease_one(endpoint).await;
    assert_eq!(fourth.event.kind, "n.4");
    // One that is not the head ends without anybody noticing.
    gateway.engine.cancel(ACTING, delivery_of(sent[4])).await.expect("cancelled");
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    assert!(gateway.ack(&fourth).await);
    assert_eq!(gateway.lease_one(endpoint).await.event.kind, "n.6");
}

#[tokio::test]
async fn a_head_that_runs_out_stays_the_head() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(Spec { ordering: Ordering::Fifo, ..pull() }).await;
    gateway.send_all(["n.1", "n.2"].map(event)).await;
    let first = gateway.lease_one(endpoint).await;
    gateway.clock.set(first.expires_at);
    gateway.notice(NoticeKind::RetryScheduled).await;
    let again = gateway.lease_one(endpoint).await;
    assert_eq!((again.event.kind.as_str(), again.attempt), ("n.1", 2));
    assert!(gateway.ack(&again).await);
    assert_eq!(gateway.lease_one(endpoint).await.event.kind, "n.2");
}

#[tokio::test]
async fn one_of_each_key_is_leased_and_all_that_have_none() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(Spec { ordering: Ordering::FifoByKey, ..pull() }).await;
    let sent = [keyed("a.1", "a"), keyed("a.2", "a"), keyed("b.1", "b"), keyed("b.2", "b")];
    gateway.send_all(sent.into_iter().chain(["c.1", "c.2"].map(event))).await;
    let leases = gateway.lease(endpoint, 10).await;
    assert_eq!(kinds(&leases), ["a.1", "b.1", "c.1", "c.2"]);
    assert!(gateway.nack(&leases[0], nack(Class::Final)).await);
    assert_eq!(gateway.state(leases[0].delivery).await, State::Failed);
    assert_eq!(kinds(&gateway.lease(endpoint, 10).await), ["a.2"]);
    assert!(gateway.ack(&leases[1]).await);
    assert_eq!(kinds(&gateway.lease(endpoint, 10).await), ["b.2"]);
}
