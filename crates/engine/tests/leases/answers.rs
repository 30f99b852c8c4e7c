//! What a worker's word makes of a delivery, and that a word out of turn changes nothing.

use postrider_core::endpoint::Spec;
use postrider_core::{Class, DeliveryId, Reason, State};
use postrider_engine::notices::NoticeKind;
use postrider_engine::{Lease, LeaseToken, Nack, WaitReason};
use postrider_store::record::{Attempt, DeliveryRecord};
use serde_json::json;

use crate::gateway::{ACTING, Gateway, START, TENANT, event, policy, seconds};
use crate::{LEASE, kinds, nack, pull};

#[tokio::test]
async fn an_acked_delivery_is_delivered_with_its_result() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    gateway.clock.advance(seconds(5));
    let lease = gateway.lease_one(endpoint).await;
    gateway.clock.advance(seconds(7));
    let result = Some("NeedsReview".to_owned());
    let acked = gateway.engine.ack(TENANT, vec![lease.token], result.clone()).await;
    assert_eq!(acked.expect("settled"), [true]);
    let record = gateway.record(lease.delivery).await;
    assert_eq!((record.state, record.result), (State::Delivered, result));
    assert_eq!((record.attempts, record.due, record.class), (1, None, None));
    assert_eq!(record.ended_at, Some(START.plus(seconds(12))));
    let attempt = Attempt {
        number: 1,
        counted: true,
        started_at: START.plus(seconds(5)),
        duration: seconds(7),
        status: None,
        class: None,
        error: None,
        response: None,
    };
    assert_eq!(gateway.attempts(lease.delivery).await, [attempt]);
    let notice = gateway.notice(NoticeKind::Delivered).await;
    let told = notice.delivery.as_ref().expect("about a delivery");
    assert_eq!((told.delivery_id, told.attempts), (lease.delivery, 1));
    gateway.clock.advance(2 * LEASE);
    assert!(gateway.lease(endpoint, 10).await.is_empty(), "that was the end of it");
}

#[tokio::test]
async fn a_refusal_for_good_ends_a_delivery_and_is_logged() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    assert!(gateway.nack(&lease, nack(Class::Final)).await);
    let record = gateway.record(lease.delivery).await;
    assert_eq!((record.state, record.reason), (State::Failed, Some(Reason::Rejected)));
    assert_eq!(record.class, Some(Class::Final));
    assert_eq!(record.last_error.as_deref(), Some("it did not work"));
    let attempts = gateway.attempts(lease.delivery).await;
    assert_eq!(attempts[0].error.as_deref(), Some("it did not work"));
    assert_eq!((attempts.len(), attempts[0].class), (1, Some(Class::Final)));
    let notice = gateway.notice(NoticeKind::Failed).await;
    assert_eq!(notice.about(), Some(endpoint));
}

#[tokio::test]
async fn a_failure_is_tried_again_by_the_policy_until_it_is_exhausted() {
    let mut gateway = Gateway::start().await;
    let listed = json!({"schedule": {"list": ["10s", "70s"], "jitter": 0.0}, "max_attempts": 3});
    let endpoint = gateway.endpoint(Spec { policy: policy(listed), ..pull() }).await;
    gateway.send("order.created").await;
    let mut delivery = None;
    for (number, delay) in [(1, 10), (2, 70)] {
        let lease = gateway.lease_one(endpoint).await;
        assert_eq!(lease.attempt, number);
        // A hint is for those who are asked to slow down.
        let told = Nack { retry_after: Some(seconds(1_000)), ..nack(Class::Retryable) };
        assert!(gateway.nack(&lease, told).await);
        let record = gateway.record(lease.delivery).await;
        assert_eq!((record.state, record.attempts, record.deferrals), (State::Retrying, number, 0));
        gateway.notice(NoticeKind::RetryScheduled).await;
        gateway.clock.advance(seconds(delay - 1));
        assert!(gateway.lease(endpoint, 1).await.is_empty());
        gateway.clock.advance(seconds(1));
        delivery = Some(lease.delivery);
    }
    let last = gateway.lease_one(endpoint).await;
    assert_eq!((Some(last.delivery), last.attempt), (delivery, 3));
    assert!(gateway.nack(&last, nack(Class::Retryable)).await);
    let record = gateway.record(last.delivery).await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(Reason::Exhausted)));
    let numbers: Vec<_> =
        gateway.attempts(last.delivery).await.iter().map(|one| (one.number, one.counted)).collect();
    assert_eq!(numbers, [(1, true), (2, true), (3, true)]);
    gateway.notice(NoticeKind::Dead).await;
}

#[tokio::test]
async fn a_worker_asked_to_slow_down_holds_the_whole_endpoint_and_uses_no_attempt_up() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    let beside = gateway.endpoint(pull()).await;
    gateway.send_all(["n.1", "n.2"].map(event)).await;
    let lease = gateway.lease(endpoint, 1).await.remove(0);
    let slower = Nack { retry_after: Some(seconds(60)), ..nack(Class::RateLimited) };
    assert!(gateway.nack(&lease, slower).await);
    let record = gateway.record(lease.delivery).await;
    assert_eq!((record.state, record.attempts, record.deferrals), (State::Retrying, 0, 1));
    assert!(!gateway.attempts(lease.delivery).await[0].counted);
    assert!(gateway.lease(endpoint, 10).await.is_empty(), "not even what was never tried");
    assert_eq!(gateway.lease(beside, 10).await.len(), 2, "others are not held");
    let untried = DeliveryId::from_i64(lease.delivery.as_i64() + 3);
    let untried = gateway.record(untried).await;
    assert_eq!((untried.endpoint, untried.state), (endpoint, State::Pending));
    let waits = gateway.engine.waiting_on(&untried).await.expect("readable").expect("it waits");
    assert_eq!((waits.reason, waits.until), (WaitReason::RetryAfter, record.due));
    let due = record.due.expect("it waits");
    assert!(due >= START.plus(seconds(60)), "never earlier than asked");
    gateway.clock.set(due);
    let leases = gateway.lease(endpoint, 10).await;
    assert_eq!(kinds(&leases), ["n.1", "n.2"]);
    assert_eq!((leases[0].attempt, leases[1].attempt), (2, 1));
}

#[tokio::test]
async fn slowing_down_without_saying_how_much_is_a_failure_that_counts() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send_all(["n.1", "n.2"].map(event)).await;
    let lease = gateway.lease(endpoint, 1).await.remove(0);
    assert!(gateway.nack(&lease, nack(Class::RateLimited)).await);
    let record = gateway.record(lease.delivery).await;
    assert_eq!((record.state, record.attempts, record.deferrals), (State::Retrying, 1, 0));
    assert_eq!(kinds(&gateway.lease(endpoint, 10).await), ["n.2"], "nobody else is held");
    gateway.clock.advance(seconds(10));
    assert_eq!(kinds(&gateway.lease(endpoint, 10).await), ["n.1"]);
}

#[tokio::test]
async fn a_delivery_shows_that_somebody_has_it() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let lease = gateway.lease_one(endpoint).await;
    let record = gateway.record(lease.delivery).await;
    let waits = gateway.engine.waiting_on(&record).await.expect("readable").expect("it waits");
    assert_eq!((waits.reason, waits.until), (WaitReason::Leased, Some(lease.expires_at)));
}

#[tokio::test]
async fn many_are_answered_at_once_each_by_itself_and_in_order() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send_all(["n.1", "n.2", "n.3", "n.4"].map(event)).await;
    let leases = gateway.lease(endpoint, 4).await;
    let tokens: Vec<LeaseToken> = leases.iter().map(|lease| lease.token).collect();
    assert!(gateway.ack(&leases[1]).await);
    let named = vec![tokens[3], tokens[1], tokens[0], tokens[0], tokens[3]];
    let extended = gateway.engine.extend(TENANT, named.clone(), 2 * LEASE).await.expect("settled");
    let until = Some(START.plus(2 * LEASE));
    assert_eq!(extended, [until, None, until, None, None], "each is named once");
    let acked = gateway.engine.ack(TENANT, named, None).await.expect("settled");
    assert_eq!(acked, [true, false, true, false, false]);
    let states = [State::Delivered, State::Delivered, State::InFlight, State::Delivered];
    for (lease, state) in leases.iter().zip(states) {
        assert_eq!(gateway.state(lease.delivery).await, state);
        assert_eq!(gateway.attempts(lease.delivery).await.len(), usize::from(state.is_terminal()));
    }
    assert!(gateway.engine.ack(TENANT, Vec::new(), None).await.expect("settled").is_empty());
}

/// All that there is to see of a delivery.
async fn look(gateway: &Gateway, delivery: DeliveryId) -> (DeliveryRecord, Vec<Attempt>) {
    (gateway.record(delivery).await, gateway.attempts(delivery).await)
}

async fn assert_stale(gateway: &Gateway, token: LeaseToken) {
    let before = look(gateway, token.delivery()).await;
    let result = Some("too late".to_owned());
    let (engine, asked) = (&gateway.engine, || vec![token]);
    assert_eq!(engine.ack(TENANT, asked(), result).await.expect("answered"), [false]);
    let told = Nack { retry_after: Some(seconds(60)), ..nack(Class::RateLimited) };
    assert_eq!(engine.nack(TENANT, asked(), told).await.expect("answered"), [false]);
    let told = nack(Class::Final);
    assert_eq!(engine.nack(TENANT, asked(), told).await.expect("answered"), [false]);
    assert_eq!(engine.extend(TENANT, asked(), LEASE).await.expect("answered"), [None]);
    assert_eq!(look(gateway, token.delivery()).await, before);
    let health = engine.endpoint_health(before.0.endpoint).await.expect("known");
    assert_eq!(health.hold_until, None, "not even the endpoint is held");
}

#[tokio::test]
async fn a_word_that_comes_too_late_changes_nothing() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    let leased = async |gateway: &Gateway| -> Lease {
        gateway.send("order.created").await;
        gateway.lease_one(endpoint).await
    };

    let acked = leased(&gateway).await;
    assert!(gateway.ack(&acked).await);
    assert_stale(&gateway, acked.token).await;

    let nacked = leased(&gateway).await;
    assert!(gateway.nack(&nacked, nack(Class::Final)).await);
    assert_stale(&gateway, nacked.token).await;

    let cancelled = leased(&gateway).await;
    gateway.engine.cancel(ACTING, cancelled.delivery).await.expect("cancelled");
    assert_stale(&gateway, cancelled.token).await;

    let lapsed = leased(&gateway).await;
    gateway.clock.set(lapsed.expires_at);
    assert!(!gateway.ack(&lapsed).await, "not even in the moment in which it ends");
    gateway.notice(NoticeKind::RetryScheduled).await;
    assert_stale(&gateway, lapsed.token).await;

    let others = gateway.lease_one(endpoint).await;
    assert_eq!(others.delivery, lapsed.delivery);
    assert_ne!(others.token, lapsed.token);
    assert_stale(&gateway, lapsed.token).await;
    assert!(gateway.ack(&others).await, "whose turn it is has the last word");

    let text = acked.token.to_string();
    let never: LeaseToken =
        format!("{}ffffffff", &text[..text.len() - 8]).parse().expect("a token");
    assert_stale(&gateway, never).await;
}
