//! Receivers that take their time, or all of ours.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;

use crate::gateway::{BRIEF, Gateway, HUNDRED, SHORT, Visit};
use crate::peer::{Exchange, Peer};
use crate::script::{Then, ended, reply};
use crate::story::{Expected, check};

const LATE: Expected<'_> =
    Expected::NoAnswer { error: "no answer within 500ms (waiting for the response head)" };
/// More than the sockets of both sides hold between them, so that writing it comes to a halt.
const UNWRITABLE_BYTES: usize = 12 << 20;

/// R1
pub(crate) async fn never_reads(gateway: &Gateway) {
    let peer = Peer::start(async |exchange: Exchange| {
        exchange.release.notified().await;
    })
    .await;
    let visit = Visit::to(peer.url()).within(SHORT);
    check(&gateway.hundred(visit.clone()).await, &LATE);
    assert_eq!((peer.connections(), peer.requests().len()), (HUNDRED, 0));
    // The same while the request is still being written.
    let body = Bytes::from(vec![b'x'; UNWRITABLE_BYTES]);
    check(&gateway.deliver(visit, vec![body]).await, &LATE);
}

/// R5
pub(crate) async fn drips(gateway: &Gateway) {
    let until_the_end = "HTTP/1.1 200 OK\r\n\r\n";
    let in_chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (head, drop) in [(until_the_end, "x"), (in_chunks, "1\r\nx\r\n")] {
        let peer = Peer::start(async move |mut exchange: Exchange| {
            exchange.read_request().await;
            let mut written = exchange.stream.write_all(head.as_bytes()).await;
            while written.is_ok() {
                written = exchange.stream.write_all(drop.as_bytes()).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
        .await;
        let stories = gateway.hundred(Visit::to(peer.url()).within(BRIEF)).await;
        for story in &stories {
            story.assert_delivered();
            let body = &story.response().body;
            let dripped = !body.is_empty() && body.iter().all(|byte| *byte == b'x');
            assert!(dripped && story.response().truncated, "{story:?}");
        }
        assert_eq!(peer.requests().len(), HUNDRED);
    }
}

/// R7. The status decides, as it does for any body that does not come to its end in time.
pub(crate) async fn promises_much(gateway: &Gateway) {
    let delivered = Expected::Delivered { status: 200, body: b"x", truncated: true };
    let refused = Expected::Refused { status: 500, error: "HTTP 500 Internal Server Error: x" };
    for (status, expected) in [("200 OK", delivered), ("500 Oops", refused)] {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\nx", 10_u64 << 30);
        let peer = reply(head, Then::Wait).await;
        let stories = gateway.hundred(Visit::to(peer.url()).within(BRIEF)).await;
        check(&stories, &expected);
        assert!(stories.iter().all(|story| story.response().truncated));
        ended(&peer, HUNDRED).await;
    }
}

/// R17
pub(crate) async fn continues(gateway: &Gateway) {
    const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";
    const AT_ONCE: usize = 1_000;
    let peer = Peer::start(async |mut exchange: Exchange| {
        exchange.read_request().await;
        let many = INTERIM.repeat(AT_ONCE);
        for _ in 0..1_000_000 / AT_ONCE {
            if exchange.stream.write_all(many.as_bytes()).await.is_err() {
                return;
            }
        }
        exchange.until_closed().await;
    })
    .await;
    check(&gateway.hundred(Visit::to(peer.url()).within(SHORT)).await, &LATE);
    assert_eq!(peer.requests().len(), HUNDRED);
    ended(&peer, HUNDRED).await;
}
