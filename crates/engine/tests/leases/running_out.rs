//! Leases that run out, and leases that are made longer so that they do not.

use postrider_core::endpoint::Spec;
use postrider_core::{Class, Reason, State};
use postrider_engine::LeaseWish;
use postrider_engine::notices::NoticeKind;
use postrider_engine::ports::Clock as _;
use serde_json::json;

use crate::gateway::{Gateway, START, event, policy, seconds};
use crate::{LEASE, kinds, pull, wish};

#[tokio::test]
async fn a_lease_that_runs_out_is_an_attempt_that_failed_and_the_next_worker_has_it_at_once() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    gateway.clock.set(lease.expires_at);
    let notice = gateway.notice(NoticeKind::RetryScheduled).await;
    let told = notice.delivery.as_ref().expect("about a delivery");
    assert_eq!((told.attempts, told.next_attempt_at), (1, Some(lease.expires_at)));
    let record = gateway.record(lease.delivery).await;
    assert_eq!((record.state, record.attempts), (State::Retrying, 1));
    assert_eq!(record.class, Some(Class::Retryable));
    let attempts = gateway.attempts(lease.delivery).await;
    assert_eq!((attempts.len(), attempts[0].number, attempts[0].counted), (1, 1, true));
    assert_eq!((attempts[0].started_at, attempts[0].duration), (START, LEASE));
    assert!(attempts[0].error.as_deref().is_some_and(|error| error.contains("lease ran out")));
    let again = gateway.lease_one(endpoint).await;
    assert_eq!((again.delivery, again.attempt), (lease.delivery, 2));
    assert_eq!(gateway.clock.now(), lease.expires_at);
}

#[tokio::test]
async fn leases_that_run_out_use_the_attempts_up() {
    let mut gateway = Gateway::start().await;
    let twice = json!({"schedule": {"list": ["10s"], "jitter": 0.0}, "max_attempts": 2});
    let endpoint = gateway.endpoint(Spec { policy: policy(twice), ..pull() }).await;
    gateway.send("order.created").await;
    let first = gateway.lease_one(endpoint).await;
    gateway.clock.set(first.expires_at);
    gateway.notice(NoticeKind::RetryScheduled).await;
    let second = gateway.lease_one(endpoint).await;
    gateway.clock.set(second.expires_at);
    let notice = gateway.notice(NoticeKind::Dead).await;
    let told = notice.delivery.as_ref().expect("about a delivery");
    assert_eq!((told.attempts, told.reason), (2, Some(Reason::Exhausted)));
    let record = gateway.record(second.delivery).await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(Reason::Exhausted)));
    assert!(gateway.lease(endpoint, 10).await.is_empty());
}

#[tokio::test]
async fn a_lease_that_outlives_its_delivery_s_age_ends_it() {
    let mut gateway = Gateway::start().await;
    let brief = json!({"preset": "dispatch", "max_attempts": null, "max_age": "20s"});
    let endpoint = gateway.endpoint(Spec { policy: policy(brief), ..pull() }).await;
    gateway.send_all(["n.1", "n.2"].map(event)).await;
    let leases = gateway.lease(endpoint, 2).await;
    gateway.clock.advance(seconds(30));
    assert!(gateway.ack(&leases[0]).await, "what is done is done, however old");
    gateway.clock.set(leases[1].expires_at);
    gateway.notice(NoticeKind::Dead).await;
    let record = gateway.record(leases[1].delivery).await;
    assert_eq!((record.reason, record.attempts), (Some(Reason::Expired), 1));
}

#[tokio::test]
async fn each_lease_ends_at_its_own_time() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send_all(["n.1", "n.2", "n.3"].map(event)).await;
    for length in [300, 100, 200] {
        let wish = LeaseWish { lease: seconds(length), ..wish(endpoint, 1) };
        assert_eq!(gateway.lease_as(wish).await.len(), 1);
    }
    for kind in ["n.2", "n.3", "n.1"] {
        gateway.clock.advance(seconds(100));
        let notice = gateway.notice(NoticeKind::RetryScheduled).await;
        let told = notice.delivery.as_ref().expect("about a delivery");
        let leases =
            gateway.lease_as(LeaseWish { lease: seconds(900), ..wish(endpoint, 10) }).await;
        assert_eq!(kinds(&leases), [kind]);
        assert_eq!(leases[0].delivery, told.delivery_id);
    }
}

#[tokio::test]
async fn more_leases_than_are_settled_at_once_all_run_out() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send_all((0..300).map(|_| event("order.created"))).await;
    for _ in 0..3 {
        assert_eq!(gateway.lease(endpoint, 100).await.len(), 100);
    }
    gateway.clock.advance(LEASE);
    for _ in 0..300 {
        gateway.notice(NoticeKind::RetryScheduled).await;
    }
    let again = gateway.lease(endpoint, 100).await;
    assert!(again.len() == 100 && again.iter().all(|lease| lease.attempt == 2));
}

#[tokio::test]
async fn a_lease_made_longer_does_not_run_out_and_its_token_stays_good() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send_all(["n.1", "n.2"].map(event)).await;
    let leases = gateway.lease(endpoint, 2).await;
    for step in 1..=3 {
        gateway.clock.advance(LEASE / 2);
        let until = gateway.clock.now().plus(2 * LEASE);
        assert_eq!(gateway.extend(&leases[0], 2 * LEASE).await, Some(until), "{step}");
        assert_eq!(gateway.record(leases[0].delivery).await.due, Some(until));
        if step == 1 {
            // The one that was not made longer shows that somebody has looked.
            gateway.clock.set(leases[1].expires_at);
            let notice = gateway.notice(NoticeKind::RetryScheduled).await;
            let told = notice.delivery.as_ref().expect("about a delivery");
            assert_eq!(told.delivery_id, leases[1].delivery);
        }
        assert_eq!(gateway.state(leases[0].delivery).await, State::InFlight);
    }
    assert!(gateway.ack(&leases[0]).await);
    let attempts = gateway.attempts(leases[0].delivery).await;
    assert_eq!((attempts.len(), attempts[0].number), (1, 1));
    assert_eq!(attempts[0].started_at, START, "it is one try, however often it was made longer");
}

#[tokio::test]
async fn a_lease_made_shorter_runs_out_sooner() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    let until = gateway.extend(&lease, seconds(1)).await.expect("it is live");
    gateway.clock.set(until);
    gateway.notice(NoticeKind::RetryScheduled).await;
    assert_eq!(gateway.lease_one(endpoint).await.attempt, 2);
}

#[tokio::test]
async fn a_lease_that_has_run_out_cannot_be_made_longer() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    gateway.clock.set(lease.expires_at);
    assert_eq!(gateway.extend(&lease, LEASE).await, None);
}

#[tokio::test]
async fn the_sweep_of_old_deliveries_leaves_what_is_in_somebody_s_hands() {
    let mut gateway = Gateway::start().await;
    let brief = json!({"preset": "dispatch", "max_attempts": null, "max_age": "1m"});
    let endpoint = gateway.endpoint(Spec { policy: policy(brief), ..pull() }).await;
    gateway.send_all(["n.1", "n.2"].map(event)).await;
    let long = LeaseWish { lease: seconds(12 * 3_600), ..wish(endpoint, 1) };
    let lease = gateway.lease_as(long).await.remove(0);
    gateway.clock.advance(seconds(3_600));
    let notice = gateway.notice(NoticeKind::Dead).await;
    let told = notice.delivery.as_ref().expect("about a delivery");
    assert_ne!(told.delivery_id, lease.delivery, "the sweep has come by");
    assert!(gateway.ack(&lease).await);
}
