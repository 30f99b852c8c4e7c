//! What operators do to deliveries that workers have.

use postrider_core::endpoint::Spec;
use postrider_core::pattern::Pattern;
use postrider_core::{Class, State};
use postrider_engine::notices::NoticeKind;
use postrider_engine::{EndpointAction, Error};

use crate::gateway::{ACTING, Gateway, TENANT, delivery_of, event, seconds};
use crate::{kinds, nack, pull, wish};

#[tokio::test]
async fn what_is_leased_cannot_be_reset_but_can_be_cancelled() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    let before = gateway.record(lease.delivery).await;
    let reset = gateway.engine.retry(ACTING, lease.delivery).await;
    assert!(matches!(&reset, Err(Error::Conflict(why)) if why.contains("in flight")), "{reset:?}");
    assert_eq!(gateway.record(lease.delivery).await, before);
    let cancelled = gateway.engine.cancel(ACTING, lease.delivery).await.expect("cancelled");
    assert_eq!(cancelled.state, State::Cancelled);
    gateway.notice(NoticeKind::Cancelled).await;
    assert!(!gateway.ack(&lease).await);
    assert!(!gateway.nack(&lease, nack(Class::Retryable)).await);
    assert_eq!(gateway.state(lease.delivery).await, State::Cancelled);
    // From here on it may have another life, of which the old lease knows nothing.
    gateway.engine.retry(ACTING, lease.delivery).await.expect("reset");
    let again = gateway.lease_one(endpoint).await;
    assert!(!gateway.ack(&lease).await);
    assert!(gateway.ack(&again).await);
}

#[tokio::test]
async fn a_reset_begins_anew_and_goes_on_numbering() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    assert!(gateway.nack(&lease, nack(Class::Retryable)).await);
    let reset = gateway.engine.retry(ACTING, lease.delivery).await.expect("reset");
    assert_eq!((reset.state, reset.attempts), (State::Pending, 0));
    let again = gateway.lease_one(endpoint).await;
    assert_eq!((again.attempt, gateway.record(again.delivery).await.attempts), (2, 0));
}

#[tokio::test]
async fn a_paused_endpoint_gives_nothing_out_and_takes_answers() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send_all(["n.1", "n.2", "n.3"].map(event)).await;
    let leases = gateway.lease(endpoint, 2).await;
    let set = |action| gateway.engine.set_endpoint_state(ACTING, endpoint, action);
    set(EndpointAction::Pause).await.expect("paused");
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    assert!(gateway.ack(&leases[0]).await);
    assert!(gateway.extend(&leases[1], seconds(100)).await.is_some());
    assert!(gateway.nack(&leases[1], nack(Class::Retryable)).await);
    gateway.clock.advance(seconds(10));
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    set(EndpointAction::Resume).await.expect("resumed");
    assert_eq!(kinds(&gateway.lease(endpoint, 10).await), ["n.2", "n.3"]);
}

#[tokio::test]
async fn what_runs_out_at_a_paused_endpoint_waits_there() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    let set = |action| gateway.engine.set_endpoint_state(ACTING, endpoint, action);
    set(EndpointAction::Pause).await.expect("paused");
    gateway.clock.set(lease.expires_at);
    gateway.notice(NoticeKind::RetryScheduled).await;
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    let resume = gateway.engine.set_endpoint_state(ACTING, endpoint, EndpointAction::Resume);
    resume.await.expect("resumed");
    assert_eq!(gateway.lease_one(endpoint).await.attempt, 2);
}

#[tokio::test]
async fn deleting_an_endpoint_cancels_what_workers_have_and_what_waits() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(Spec { max_in_flight: Some(2), ..pull() }).await;
    let sent = gateway.send_all(["n.1", "n.2", "n.3"].map(event)).await;
    let leases = gateway.lease(endpoint, 10).await;
    assert_eq!(leases.len(), 2);
    gateway.engine.delete_endpoint(ACTING, endpoint).await.expect("deleted");
    for _ in &sent {
        gateway.notice(NoticeKind::Cancelled).await;
    }
    for id in sent {
        assert_eq!(gateway.state(delivery_of(id)).await, State::Cancelled);
    }
    for lease in &leases {
        assert!(!gateway.ack(lease).await);
        assert_eq!(gateway.extend(lease, seconds(60)).await, None);
    }
}

/// A lease that is being committed while its endpoint is deleted must not be left to nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_leased_of_an_endpoint_that_is_deleted_meanwhile() {
    let mut gateway = Gateway::start().await;
    for round in 0..40 {
        let event_types = vec![Pattern::Exact(format!("round.{round}"))];
        let endpoint = gateway.endpoint(Spec { event_types, ..pull() }).await;
        let events: Vec<_> = (0..20).map(|_| event(&format!("round.{round}"))).collect();
        let sent = gateway.send_all(events).await;
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let engine = gateway.engine.clone();
                tokio::spawn(async move {
                    let lease = || engine.lease(TENANT, wish(endpoint, 3));
                    while lease().await.is_ok_and(|leases| !leases.is_empty()) {}
                })
            })
            .collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        gateway.engine.delete_endpoint(ACTING, endpoint).await.expect("deleted");
        for _ in &sent {
            gateway.notice(NoticeKind::Cancelled).await;
        }
        for worker in workers {
            worker.await.expect("no panic");
        }
    }
}
