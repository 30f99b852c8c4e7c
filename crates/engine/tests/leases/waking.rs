//! Workers that wait, and everything that has to wake them.

use postrider_core::endpoint::{Destination, Ordering, RateLimit, Spec};
use postrider_core::{Class, EndpointId};
use postrider_engine::ports::Clock as _;
use postrider_engine::{EndpointAction, Error, LeaseWish, Nack, Submission};
use serde_json::json;

use crate::gateway::{ACTING, Gateway, START, TENANT, event, policy, seconds};
use crate::rig::{PATIENCE, sink::Sink};
use crate::{WAIT, kinds, nack, patterns, pull, wish};

fn fifo() -> Spec {
    Spec { ordering: Ordering::Fifo, ..pull() }
}

/// An endpoint with one delivery, which somebody has.
async fn taken(gateway: &Gateway, spec: Spec) -> (EndpointId, postrider_engine::Lease) {
    let endpoint = gateway.endpoint(spec).await;
    gateway.send("n.1").await;
    let lease = gateway.lease_one(endpoint).await;
    (endpoint, lease)
}

#[tokio::test]
async fn a_new_event_wakes_a_worker_that_waits() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    let worker = gateway.worker(endpoint).await;
    gateway.send("n.1").await;
    assert_eq!(worker.gets_one().await.event.kind, "n.1");
    assert_eq!(gateway.clock.now(), START, "without waiting");
}

#[tokio::test]
async fn of_several_that_wait_each_event_wakes_one() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    let one = gateway.worker_wishing(wish(endpoint, 1)).await;
    let other = gateway.worker_wishing(wish(endpoint, 1)).await;
    gateway.send("n.1").await;
    gateway.send("n.2").await;
    let (one, other) = (one.gets_one().await, other.gets_one().await);
    assert_ne!(one.delivery, other.delivery);
}

#[tokio::test]
async fn a_worker_that_is_choosy_is_woken_by_what_it_asks_for_alone() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("other").await;
    let choosy = LeaseWish { event_types: patterns(&["order.*"]), ..wish(endpoint, 10) };
    let worker = gateway.worker_wishing(choosy).await;
    let asleep = gateway.clock.sleeps(START.plus(WAIT));
    gateway.send("another").await;
    gateway.clock.asleep(START.plus(WAIT), asleep).await;
    gateway.send("order.created").await;
    assert_eq!(worker.gets_one().await.event.kind, "order.created");
    assert_eq!(kinds(&gateway.lease(endpoint, 10).await), ["other", "another"]);
}

#[tokio::test]
async fn the_time_of_a_retry_wakes_a_worker() {
    let gateway = Gateway::start().await;
    let (endpoint, lease) = taken(&gateway, pull()).await;
    assert!(gateway.nack(&lease, nack(Class::Retryable)).await);
    let due = START.plus(seconds(10));
    let worker = gateway.worker_until(wish(endpoint, 10), due).await;
    gateway.clock.set(due);
    let again = worker.gets_one().await;
    assert_eq!((again.delivery, again.attempt), (lease.delivery, 2));
}

#[tokio::test]
async fn what_another_gives_up_is_waited_for_by_who_waits_already() {
    let gateway = Gateway::start().await;
    let (endpoint, lease) = taken(&gateway, pull()).await;
    let worker = gateway.worker(endpoint).await;
    assert!(gateway.nack(&lease, nack(Class::Retryable)).await);
    let due = START.plus(seconds(10));
    gateway.clock.asleep(due, 0).await;
    gateway.clock.set(due);
    assert_eq!(worker.gets_one().await.delivery, lease.delivery);
}

#[tokio::test]
async fn the_time_an_event_is_meant_for_wakes_a_worker() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    let worker = gateway.worker(endpoint).await;
    let at = START.plus(seconds(60));
    gateway.send_all([Submission { deliver_at: Some(at), ..event("later") }]).await;
    gateway.clock.asleep(at, 0).await;
    gateway.clock.set(at);
    assert_eq!(worker.gets_one().await.event.kind, "later");
}

#[tokio::test]
async fn the_end_of_another_s_lease_wakes_a_worker() {
    let gateway = Gateway::start().await;
    let (endpoint, lease) = taken(&gateway, pull()).await;
    let worker = gateway.worker(endpoint).await;
    gateway.clock.set(lease.expires_at);
    let again = worker.gets_one().await;
    assert_eq!((again.delivery, again.attempt), (lease.delivery, 2));
}

#[tokio::test]
async fn the_end_of_the_head_of_a_line_wakes_a_worker() {
    for acked in [true, false] {
        let gateway = Gateway::start().await;
        let (endpoint, head) = taken(&gateway, fifo()).await;
        gateway.send("n.2").await;
        let worker = gateway.worker(endpoint).await;
        if acked {
            assert!(gateway.ack(&head).await);
        } else {
            assert!(gateway.nack(&head, nack(Class::Final)).await);
        }
        assert_eq!(worker.gets_one().await.event.kind, "n.2");
    }
}

#[tokio::test]
async fn a_hand_that_becomes_free_wakes_a_worker() {
    for acked in [true, false] {
        let gateway = Gateway::start().await;
        let (endpoint, held) = taken(&gateway, Spec { max_in_flight: Some(1), ..pull() }).await;
        gateway.send("n.2").await;
        let worker = gateway.worker(endpoint).await;
        if acked {
            assert!(gateway.ack(&held).await);
        } else {
            gateway.engine.cancel(ACTING, held.delivery).await.expect("cancelled");
        }
        assert_eq!(worker.gets_one().await.event.kind, "n.2");
    }
}

#[tokio::test]
async fn an_operator_who_resets_or_replays_wakes_a_worker() {
    let gateway = Gateway::start().await;
    let (endpoint, lease) = taken(&gateway, pull()).await;
    assert!(gateway.nack(&lease, nack(Class::Final)).await);
    let worker = gateway.worker(endpoint).await;
    gateway.engine.retry(ACTING, lease.delivery).await.expect("reset");
    let again = worker.gets_one().await;
    assert_eq!((again.delivery, again.attempt), (lease.delivery, 2));
    let worker = gateway.worker(endpoint).await;
    let replayed = gateway.engine.replay_event(ACTING, lease.event.id, None).await;
    assert_eq!(vec![worker.gets_one().await.delivery], replayed.expect("replayed"));
}

#[tokio::test]
async fn an_endpoint_that_is_resumed_wakes_a_worker_and_one_that_is_paused_gives_nothing() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("n.1").await;
    let set = |action| gateway.engine.set_endpoint_state(ACTING, endpoint, action);
    set(EndpointAction::Pause).await.expect("paused");
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    let worker = gateway.worker(endpoint).await;
    gateway.send("n.2").await;
    set(EndpointAction::Resume).await.expect("resumed");
    assert_eq!(kinds(&worker.gets().await), ["n.1", "n.2"]);
}

#[tokio::test]
async fn a_token_of_the_rate_limit_wakes_a_worker() {
    let gateway = Gateway::start().await;
    let limit = Some(RateLimit { per_second: 0.5, burst: 1 });
    let (endpoint, _held) = taken(&gateway, Spec { rate_limit: limit, ..pull() }).await;
    gateway.send("n.2").await;
    let token_at = START.plus(seconds(2));
    let worker = gateway.worker_until(wish(endpoint, 10), token_at).await;
    gateway.clock.set(token_at);
    assert_eq!(worker.gets_one().await.event.kind, "n.2");
}

#[tokio::test]
async fn the_end_of_a_hold_wakes_a_worker() {
    let gateway = Gateway::start().await;
    let (endpoint, lease) = taken(&gateway, pull()).await;
    let asked = Nack { retry_after: Some(seconds(90)), ..nack(Class::RateLimited) };
    assert!(gateway.nack(&lease, asked).await);
    gateway.send("n.2").await;
    let held_until = START.plus(seconds(90));
    let worker = gateway.worker_until(wish(endpoint, 10), held_until).await;
    gateway.clock.set(held_until);
    assert_eq!(kinds(&worker.gets().await), ["n.1", "n.2"]);
}

#[tokio::test]
async fn an_event_behind_one_that_has_grown_too_old_is_given_to_who_waits() {
    let gateway = Gateway::start().await;
    let brief = policy(json!({"preset": "dispatch", "max_attempts": null, "max_age": "10s"}));
    let (endpoint, _held) =
        taken(&gateway, Spec { policy: brief, max_in_flight: Some(1), ..pull() }).await;
    gateway.send("n.2").await;
    gateway.clock.advance(seconds(11));
    gateway.send("n.3").await;
    let worker = gateway.worker(endpoint).await;
    gateway.change(endpoint, |spec| spec.max_in_flight = None).await;
    assert_eq!(worker.gets_one().await.event.kind, "n.3");
}

#[tokio::test]
async fn a_worker_that_has_waited_for_long_enough_goes_away_with_nothing() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    let worker = gateway.worker(endpoint).await;
    gateway.clock.advance(WAIT);
    assert!(worker.gets().await.is_empty());
}

#[tokio::test]
async fn workers_are_sent_away_when_there_is_nothing_to_wait_for_any_more() {
    let gateway = Gateway::start().await;
    let deleted = gateway.endpoint(pull()).await;
    let worker = gateway.worker(deleted).await;
    gateway.engine.delete_endpoint(ACTING, deleted).await.expect("deleted");
    assert!(matches!(worker.hears().await, Err(Error::NotFound)));

    let changed = gateway.endpoint(pull()).await;
    let worker = gateway.worker(changed).await;
    let sink = Sink::answering(200).await;
    gateway.change(changed, |spec| spec.destination = Destination::Url(sink.url())).await;
    assert!(matches!(worker.hears().await, Err(Error::Conflict(_))));

    let stopped = gateway.endpoint(pull()).await;
    let worker = gateway.worker(stopped).await;
    gateway.engine.drain(PATIENCE).await;
    assert!(worker.gets().await.is_empty());
    let asked = gateway.engine.lease(TENANT, wish(stopped, 1)).await;
    assert!(asked.expect("no error").is_empty());
}
