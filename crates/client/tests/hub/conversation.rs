//! Whose turn it is: hello and welcome, credits, pings, and frames that nobody can take.

use std::time::Duration;

use bytes::Bytes;
use postrider_client::hub::Happening;
use postrider_core::hub::{FromGateway, close};
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::{Gateway, deliver, welcome};
use crate::running::{Running, options};
use crate::service::Service;

#[tokio::test]
async fn a_hub_says_what_it_is_and_what_it_can_hold() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut options = options(&gateway, target);
    options.capacity = 17;
    let _running = Running::start(options);
    let hello = gateway.accept().await.hello().await;
    assert_eq!(hello.capacity, 17);
    assert_eq!(hello.agent, format!("postrider/{}", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn a_hub_works_on_as_many_as_it_can_hold_and_on_no_more() {
    const CAPACITY: u64 = 5;
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let mut options = options(&gateway, service.address());
    options.capacity = u32::try_from(CAPACITY).expect("a small number");
    let mut running = Running::start(options);
    let mut peer = gateway.welcome().await;

    let mut waiting = Vec::new();
    for seq in 1..=CAPACITY {
        peer.deliver(deliver(seq)).await;
    }
    for _ in 1..=CAPACITY {
        waiting.push(service.next().await);
    }
    // An answer gives back the room for one.
    waiting.remove(2).with(200);
    let answered = peer.answer().await.seq;
    assert!((1..=CAPACITY).contains(&answered));
    peer.deliver(deliver(CAPACITY + 1)).await;
    waiting.push(service.next().await);

    // A gateway that sends more is out of turn.
    peer.deliver(deliver(CAPACITY + 2)).await;
    let reason = "more deliveries than this hub has room for".to_owned();
    assert_eq!(peer.closed().await, (close::MALFORMED, reason.clone()));
    let (says, unanswered, _) = running.disconnection().await;
    assert_eq!(says, format!("the gateway sent what this hub does not take: {reason}"));
    assert_eq!(unanswered, waiting.len());
    for arrival in waiting {
        arrival.given_up().await;
    }
    assert!(service.is_idle(), "what was too much was not forwarded");
    gateway.welcome().await;
}

#[tokio::test]
async fn pings_go_both_ways() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut options = options(&gateway, target);
    options.timing.heartbeat = Duration::from_millis(10);
    options.timing.silence = Duration::from_millis(200);
    let mut running = Running::start(options);
    let mut peer = gateway.welcome().await;
    peer.say(Message::Ping(Bytes::from_static(b"there?"))).await;
    // Longer than the silence that would end it: answering pings is enough to be there.
    let (mut asked, mut answered) = (0, 0);
    while asked < 40 {
        match peer.message().await {
            Some(Ok(Message::Ping(_))) => asked += 1,
            Some(Ok(Message::Pong(bytes))) => {
                assert_eq!(bytes, "there?");
                answered += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(answered, 1);
    let happenings = running.so_far();
    assert!(matches!(happenings[..], [Happening::Connected { .. }]), "{happenings:?}");
    // And it still works.
    peer.deliver(deliver(1)).await;
    assert_eq!(peer.status_of(1).await, 200);
}

#[tokio::test]
async fn what_is_malformed_or_out_of_turn_is_closed_with_the_reason() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut running = Running::start(options(&gateway, target));
    let binary = |bytes: &'static [u8]| Message::Binary(Bytes::from_static(bytes));
    for (message, code, reason) in [
        (binary(b"\0"), close::MALFORMED, "the message ends before the length of its head"),
        (
            binary(b"\0\0\0\x0e{\"kind\":\"bye\"}"),
            close::MALFORMED,
            "`bye` is no kind of frame that is expected here",
        ),
        (
            binary(b"\x7f\xff\xff\xff"),
            close::TOO_LARGE,
            "the head is 2147483647 bytes long; at most 1048576 are allowed",
        ),
        (Message::text("{}"), close::MALFORMED, "frames are binary, not text"),
        (
            Message::Binary(FromGateway::Welcome(welcome()).encode()),
            close::MALFORMED,
            "a second welcome",
        ),
    ] {
        let mut peer = gateway.welcome().await;
        peer.say(message).await;
        assert_eq!(peer.closed().await, (code, reason.to_owned()));
        let (says, _, _) = running.disconnection().await;
        assert!(says.ends_with(reason), "{says}");
    }
}

#[tokio::test]
async fn the_numbers_of_deliveries_grow() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let _running = Running::start(options(&gateway, target));
    let mut peer = gateway.welcome().await;
    peer.deliver(deliver(3)).await;
    assert_eq!(peer.status_of(3).await, 200);
    peer.deliver(deliver(3)).await;
    let reason = "the numbers of deliveries must grow".to_owned();
    assert_eq!(peer.closed().await, (close::MALFORMED, reason));
    // On another connection they begin anew.
    let mut peer = gateway.welcome().await;
    peer.deliver(deliver(1)).await;
    assert_eq!(peer.status_of(1).await, 200);
}

#[tokio::test]
async fn nothing_is_taken_before_the_welcome() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let _running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.accept().await;
    peer.hello().await;
    peer.deliver(deliver(1)).await;
    let reason = "a delivery before the welcome".to_owned();
    assert_eq!(peer.closed().await, (close::MALFORMED, reason));
    assert!(service.is_idle());
}

#[tokio::test]
async fn a_gateway_that_does_not_welcome_is_left() {
    let (gateway, target) = (Gateway::start().await, Service::answering(200).await);
    let mut options = options(&gateway, target);
    options.timing.greeting = Duration::from_millis(50);
    let _running = Running::start(options);
    let mut peer = gateway.accept().await;
    peer.hello().await;
    assert_eq!(peer.closed().await, (close::MALFORMED, "no welcome came in time".to_owned()));
    gateway.welcome().await;
}

#[tokio::test]
async fn a_large_message_over_a_slow_line_is_not_silence() {
    const PIECES: usize = 12;
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let mut options = options(&gateway, service.address());
    options.timing.silence = Duration::from_millis(300);
    let mut running = Running::start(options);
    let mut peer = gateway.welcome().await;

    let mut large = deliver(1);
    large.body = vec![b'x'; 1 << 20].into();
    let message = FromGateway::Deliver(large.clone()).encode();
    // A final binary frame with its length in eight bytes.
    let mut frame = vec![0x82, 127];
    frame.extend_from_slice(&u64::try_from(message.len()).expect("it fits").to_be_bytes());
    frame.extend_from_slice(&message);
    // The whole takes twice the silence that would end the connection; the pauses are the line.
    for piece in frame.chunks(frame.len().div_ceil(PIECES)) {
        peer.socket.get_mut().write_all(piece).await.expect("the hub is there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let arrival = service.next().await;
    assert_eq!(arrival.request.body(), &large.body);
    arrival.with(200);
    assert_eq!(peer.status_of(1).await, 200);
    let disconnected = |happening: &Happening| matches!(happening, Happening::Disconnected { .. });
    assert!(!running.so_far().iter().any(disconnected));
}
