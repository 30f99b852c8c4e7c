//! Connections that break, fall silent or cannot be made, and what comes after.

use std::time::Duration;

use postrider_client::hub::Happening;
use postrider_core::hub::close;
use tokio::net::TcpListener;

use crate::gateway::{Gateway, deliver};
use crate::running::{Running, options};
use crate::service::Service;

#[tokio::test]
async fn a_hub_comes_back_after_its_connection_broke() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let mut running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.welcome().await;
    peer.deliver(deliver(1)).await;
    let arrival = service.next().await;
    drop(peer);
    let (_, unanswered, _) = running.disconnection().await;
    assert_eq!(unanswered, 1);
    // Before the gateway can send it again, the first try is over.
    arrival.given_up().await;

    let mut peer = gateway.welcome().await;
    peer.deliver(deliver(1)).await;
    service.next().await.with(200);
    assert_eq!(peer.status_of(1).await, 200);
}

#[tokio::test]
async fn a_hub_comes_back_when_the_gateway_was_stopping() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut running = Running::start(options(&gateway, target));
    let mut peer = gateway.welcome().await;
    peer.close(close::STOPPING, "the gateway is stopping").await;
    assert_eq!(peer.closed().await.0, close::STOPPING);
    let (reason, unanswered, _) = running.disconnection().await;
    assert_eq!(reason, "the gateway closed the connection (1001): the gateway is stopping");
    assert_eq!(unanswered, 0);
    gateway.welcome().await;
}

#[tokio::test]
async fn silence_is_noticed() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let mut options = options(&gateway, service.address());
    options.timing.heartbeat = Duration::from_millis(20);
    options.timing.silence = Duration::from_millis(150);
    let mut running = Running::start(options);
    // The socket stays open, but nobody reads it or answers a ping: a half-open connection.
    let mut peer = gateway.welcome().await;
    peer.deliver(deliver(1)).await;
    let arrival = service.next().await;
    let (reason, unanswered, _) = running.disconnection().await;
    assert_eq!(reason, "nothing was heard from the gateway for 150ms");
    assert_eq!(unanswered, 1);
    arrival.given_up().await;
    let mut again = gateway.welcome().await;
    again.deliver(deliver(1)).await;
    service.next().await.with(200);
    assert_eq!(again.status_of(1).await, 200);
    drop(peer);
}

#[tokio::test]
async fn a_gateway_that_cannot_be_reached_is_tried_again() {
    let target = Service::answering(200).await;
    let gateway = Gateway::start().await;
    let (address, options) = (gateway.address(), options(&gateway, target));
    drop(gateway);
    let mut running = Running::start(options);
    for _ in 0..3 {
        let (reason, unanswered, retry_in) = running.disconnection().await;
        assert!(reason.starts_with("the gateway cannot be reached: "), "{reason}");
        assert_eq!(unanswered, 0);
        assert!(retry_in <= Duration::from_millis(50), "{retry_in:?}");
    }
    let listener = TcpListener::bind(address).await.expect("the port is still free");
    let gateway = Gateway::on(listener);
    gateway.welcome().await;
}

#[tokio::test]
async fn a_gateway_in_trouble_is_tried_again() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut running = Running::start(options(&gateway, target));
    for (status, body, says) in [
        (503, r#"{"detail":"too many hubs are connected"}"#, "503: too many hubs are connected"),
        (502, "<html>", "502: Bad Gateway"),
        (404, "", "404: Not Found"),
        (429, r#"{"title":"slow down"}"#, "429: Too Many Requests"),
    ] {
        gateway.refuse(status, body).await;
        let (reason, _, _) = running.disconnection().await;
        assert_eq!(reason, format!("the gateway says {says}"));
    }
    gateway.welcome().await;
}

#[tokio::test]
async fn a_gateway_that_does_not_shake_hands_is_given_up_in_time() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut options = options(&gateway, target);
    options.timing.dial = Duration::from_millis(100);
    let mut running = Running::start(options);
    let silent = gateway.stream().await;
    let (reason, _, _) = running.disconnection().await;
    assert_eq!(reason, "the gateway could not be reached within 100ms");
    gateway.welcome().await;
    drop(silent);
}

#[tokio::test]
async fn waits_grow_until_a_connection_lasts() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut options = options(&gateway, target);
    // Only what has lasted makes the next wait a first one, which is none at all here.
    options.timing.first_retry = Duration::ZERO;
    options.timing.lasted = Duration::ZERO;
    let mut running = Running::start(options.clone());
    for _ in 0..5 {
        drop(gateway.welcome().await);
        let (_, _, retry_in) = running.disconnection().await;
        assert_eq!(retry_in, Duration::ZERO);
    }
    running.stop();
    drop(running);

    options.timing.first_retry = Duration::from_millis(1);
    options.timing.longest_retry = Duration::from_millis(64);
    options.timing.lasted = Duration::from_hours(1);
    let mut running = Running::start(options);
    let mut longest = Duration::ZERO;
    // A wait is chance between nothing and its bound, so it takes a few to see that the bound grew.
    while longest <= Duration::from_millis(4) {
        drop(gateway.welcome().await);
        let (_, _, retry_in) = running.disconnection().await;
        longest = longest.max(retry_in);
    }
}

#[tokio::test]
async fn each_connection_is_announced() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut running = Running::start(options(&gateway, target));
    for _ in 0..3 {
        drop(gateway.welcome().await);
        assert!(matches!(running.happening().await, Happening::Connected { .. }));
        assert!(matches!(running.happening().await, Happening::Disconnected { .. }));
    }
}
