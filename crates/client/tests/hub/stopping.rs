//! A stop: nothing more is taken, what is in hand is answered, and the gateway is told goodbye.

use std::time::Duration;

use postrider_client::hub::Happening;
use postrider_core::hub::{Met, close};

use crate::gateway::{Gateway, deliver};
use crate::running::{Running, options};
use crate::service::Service;

#[tokio::test]
async fn a_stop_answers_what_is_in_hand_and_takes_no_more() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let mut running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.welcome().await;
    peer.deliver(deliver(1)).await;
    peer.deliver(deliver(2)).await;
    let (one, other) = (service.next().await, service.next().await);
    running.stop();
    while running.happening().await != (Happening::Stopping { in_hand: 2 }) {}

    peer.deliver(deliver(3)).await;
    one.with(200);
    let Met::Status { status: 200, .. } = peer.answer().await.met else { panic!("an answer") };
    other.with(404);
    let Met::Status { status: 404, .. } = peer.answer().await.met else { panic!("an answer") };
    assert_eq!(peer.closed().await, (close::NORMAL, String::new()));

    assert_eq!(running.end().await, Ok(()));
    assert_eq!(running.so_far().last(), Some(&Happening::Stopped { unanswered: 0 }));
    assert!(service.is_idle(), "what came after the stop was not forwarded");
}

#[tokio::test]
async fn a_stop_does_not_wait_longer_than_its_limit() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let mut options = options(&gateway, service.address());
    options.timing.drain = Duration::from_millis(50);
    let mut running = Running::start(options);
    let mut peer = gateway.welcome().await;
    peer.deliver(deliver(1)).await;
    let arrival = service.next().await;
    running.stop();
    assert_eq!(peer.closed().await, (close::NORMAL, String::new()));
    assert_eq!(running.end().await, Ok(()));
    assert_eq!(running.so_far().last(), Some(&Happening::Stopped { unanswered: 1 }));
    arrival.given_up().await;
}

#[tokio::test]
async fn a_stop_with_empty_hands_is_at_once() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut running = Running::start(options(&gateway, target));
    let peer = gateway.welcome().await;
    assert!(matches!(running.happening().await, Happening::Connected { .. }));
    running.stop();
    assert_eq!(peer.closed().await, (close::NORMAL, String::new()));
    assert_eq!(running.end().await, Ok(()));
}

#[tokio::test]
async fn a_stop_needs_no_connection() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut options = options(&gateway, target);
    options.timing.first_retry = Duration::from_hours(1);
    options.timing.longest_retry = Duration::from_hours(1);

    // While it waits for the next try.
    let mut running = Running::start(options.clone());
    gateway.refuse(503, "").await;
    running.disconnection().await;
    running.stop();
    assert_eq!(running.end().await, Ok(()));

    // While it shakes hands.
    let mut running = Running::start(options.clone());
    let silent = gateway.stream().await;
    running.stop();
    assert_eq!(running.end().await, Ok(()));
    drop(silent);

    // While it waits to be welcomed.
    let mut running = Running::start(options);
    let mut peer = gateway.accept().await;
    peer.hello().await;
    running.stop();
    assert_eq!(peer.closed().await, (close::NORMAL, String::new()));
    assert_eq!(running.end().await, Ok(()));
}

#[tokio::test]
async fn a_connection_that_breaks_during_a_stop_is_not_made_again() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let mut running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.welcome().await;
    peer.deliver(deliver(1)).await;
    let arrival = service.next().await;
    running.stop();
    while running.happening().await != (Happening::Stopping { in_hand: 1 }) {}
    drop(peer);
    assert_eq!(running.end().await, Ok(()));
    assert_eq!(running.so_far().last(), Some(&Happening::Stopped { unanswered: 1 }));
    arrival.given_up().await;
}
