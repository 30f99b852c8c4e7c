//! Leases outlive the gateway's process, and workers that go away take nothing with them.

use std::future::{Future as _, poll_fn};
use std::task::Poll;

use postrider_core::endpoint::Spec;
use postrider_core::{Class, EndpointId, State};
use postrider_engine::LeaseWish;
use postrider_engine::notices::NoticeKind;
use postrider_engine::ports::Clock as _;

use crate::gateway::{Gateway, START, TENANT, event, seconds};
use crate::rig::PATIENCE;
use crate::{LEASE, WAIT, Worker, kinds, nack, patterns, pull, wish};

#[tokio::test]
async fn leases_are_still_held_after_a_restart() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send_all(["n.1", "n.2", "n.3", "n.4"].map(event)).await;
    let leases = gateway.lease(endpoint, 3).await;
    let gateway = gateway.restart().await;
    assert_eq!(kinds(&gateway.lease(endpoint, 10).await), ["n.4"], "the others are taken");
    assert!(gateway.ack(&leases[0]).await, "by the token from before");
    assert!(gateway.nack(&leases[1], nack(Class::Final)).await);
    let until = gateway.extend(&leases[2], 2 * LEASE).await.expect("it is live");
    assert_eq!(gateway.state(leases[0].delivery).await, State::Delivered);
    assert_eq!(gateway.state(leases[1].delivery).await, State::Failed);
    let gateway = gateway.restart().await;
    gateway.clock.set(until.minus(seconds(1)));
    assert!(gateway.ack(&leases[2]).await);
    assert!(!gateway.ack(&leases[0]).await);
}

#[tokio::test]
async fn a_lease_that_ends_after_a_restart_runs_out() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    let mut gateway = gateway.restart().await;
    gateway.clock.set(lease.expires_at);
    gateway.notice(NoticeKind::RetryScheduled).await;
    assert!(!gateway.ack(&lease).await);
    assert_eq!(gateway.lease_one(endpoint).await.attempt, 2);
}

#[tokio::test]
async fn a_lease_that_ended_while_nobody_was_there_runs_out_at_the_start() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    assert_eq!(gateway.engine.drain(PATIENCE).await.abandoned, 0);
    gateway.clock.advance(LEASE);
    let gateway = gateway.restart().await;
    let worker = tokio::spawn({
        let engine = gateway.engine.clone();
        async move { engine.lease(TENANT, patient(endpoint)).await }
    });
    let again = Worker(worker).gets_one().await;
    assert_eq!((again.delivery, again.attempt), (lease.delivery, 2));
    assert_eq!(gateway.clock.now(), lease.expires_at);
}

fn patient(endpoint: EndpointId) -> LeaseWish {
    LeaseWish { wait: WAIT, ..wish(endpoint, 10) }
}

/// Polls a worker's question once, lets others run for a while, and lets go of it.
async fn ask_and_go_away(gateway: &Gateway, wish: LeaseWish, turns: usize) {
    let mut asking = Box::pin(gateway.engine.lease(TENANT, wish));
    let told = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
    assert!(told.is_pending(), "nobody can have answered yet");
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_was_leased_to_a_worker_that_has_gone_is_put_back_and_counts_for_nothing() {
    const ROUNDS: usize = 120;
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(Spec { max_in_flight: Some(1), ..pull() }).await;
    let mut given_back = 0;
    for round in 0..ROUNDS {
        gateway.send("order.created").await;
        // From before anything is written until long after it.
        ask_and_go_away(&gateway, wish(endpoint, 10), round * round / 4).await;
        let lease = gateway.lease_as(patient(endpoint)).await.remove(0);
        let record = gateway.record(lease.delivery).await;
        assert_eq!((lease.attempt, record.attempts, record.tries), (1, 0, 0), "{round}");
        // Once for the lease, and once for each time that it came and went before.
        assert!(record.fence == 1 || record.fence == 3, "{round}: {}", record.fence);
        given_back += usize::from(record.fence == 3);
        assert!(gateway.ack(&lease).await);
        assert_eq!(gateway.attempts(lease.delivery).await.len(), 1);
    }
    assert_eq!(gateway.clock.now(), START, "nobody waited for a lease to end");
    assert!(given_back > 0, "in no round was there anything to put back");
}

#[tokio::test]
async fn what_is_put_back_is_what_it_was_before() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let first = gateway.lease_one(endpoint).await;
    assert!(gateway.nack(&first, nack(Class::Retryable)).await);
    gateway.clock.advance(seconds(10));
    ask_and_go_away(&gateway, wish(endpoint, 10), 3_000).await;
    let again = gateway.lease_as(patient(endpoint)).await.remove(0);
    let record = gateway.record(again.delivery).await;
    assert_eq!((again.attempt, record.attempts, record.tries), (2, 1, 1));
    assert_eq!(record.class, Some(Class::Retryable));
    assert_eq!(record.last_error.as_deref(), Some("it did not work"));
}

#[tokio::test]
async fn a_worker_that_has_gone_does_not_make_room_for_one_too_many() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(Spec { max_in_flight: Some(1), ..pull() }).await;
    gateway.send("mine").await;
    for round in 0..60 {
        gateway.send("yours").await;
        let mine = LeaseWish { event_types: patterns(&["mine"]), ..wish(endpoint, 1) };
        ask_and_go_away(&gateway, mine, round * 4).await;
        let yours = LeaseWish { event_types: patterns(&["yours"]), ..patient(endpoint) };
        let lease = gateway.lease_as(yours).await.remove(0);
        let counts = gateway.engine.store().counts(TENANT).await.expect("readable");
        let leased = counts.iter().find(|count| count.state == State::InFlight);
        assert_eq!(leased.map(|count| count.deliveries), Some(1), "{round}");
        assert!(gateway.ack(&lease).await);
    }
}
