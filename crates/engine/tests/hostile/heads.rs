//! Receivers whose answers begin wrong.

use bytes::Bytes;

use crate::gateway::{Gateway, HUNDRED, Visit};
use crate::script::{OK, Then, ended, reply};
use crate::story::{Expected, Story, check};

/// Visits a receiver that gives this answer; each visit is one request.
async fn visit(gateway: &Gateway, answer: impl Into<Bytes>) -> Vec<Story> {
    let peer = reply(answer, Then::Repeat).await;
    let stories = gateway.hundred(Visit::to(peer.url())).await;
    assert_eq!(peer.requests().len(), HUNDRED);
    stories
}

/// Each of these is an error, and its connection is closed.
async fn refuse<A: Into<Bytes>>(
    gateway: &Gateway,
    answers: impl IntoIterator<Item = A>,
    error: &str,
) {
    for answer in answers {
        let peer = reply(answer, Then::Wait).await;
        let stories = gateway.hundred(Visit::to(peer.url())).await;
        check(&stories, &Expected::NoAnswer { error });
        ended(&peer, HUNDRED).await;
        assert_eq!((peer.connections(), peer.requests().len()), (HUNDRED, HUNDRED));
    }
}

/// R9
pub(crate) async fn length_and_chunks(gateway: &Gateway) {
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    ];
    refuse(gateway, answers, "both Content-Length and Transfer-Encoding").await;
}

/// R10
pub(crate) async fn two_lengths(gateway: &Gateway) {
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 2\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nabc",
    ];
    refuse(gateway, answers, "is not valid HTTP").await;
}

/// R14
pub(crate) async fn too_large(gateway: &Gateway) {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    let long = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(1 << 20));
    let unfinished = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(1 << 20));
    refuse(gateway, [many, long, unfinished], "is larger than 16384 bytes").await;
}

/// R15
pub(crate) async fn unprintable(gateway: &Gateway) {
    let answers = [
        "HTTP/1.1 200 OK\r\nx-note: a\0b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-note: a\rb\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-note: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-note: a\x1b[31mb\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-note: a\x7fb\r\nContent-Length: 0\r\n\r\n",
    ];
    refuse(gateway, answers, "is not valid HTTP").await;

    let high: Vec<u8> = (0x80..=0xff).collect();
    // A control character that needs no byte below 0x80: what a terminal takes for the beginning of
    // an escape sequence.
    let control = "a\u{9b}31mb".as_bytes();
    for value in [&high[..], control] {
        let answer = [b"HTTP/1.1 200 OK\r\nx-note: ", value, b"\r\nContent-Length: 0\r\n\r\n"];
        for story in visit(gateway, answer.concat()).await {
            story.assert_delivered();
            let headers = &story.response().headers;
            let [(name, shown)] = &headers[..] else { panic!("one header: {headers:?}") };
            assert_eq!(name, "x-note");
            assert!(!shown.chars().any(char::is_control), "re-emitted raw: {shown:?}");
        }
    }
}

/// R16
pub(crate) async fn long_reason(gateway: &Gateway) {
    let answer = format!("HTTP/1.1 200 {}\r\n\r\n", "b".repeat(1 << 20));
    refuse(gateway, [answer], "is larger than 16384 bytes").await;
}

/// R18
pub(crate) async fn switches(gateway: &Gateway) {
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    refuse(gateway, [answer], "answered 101, which was not asked for").await;
}

/// R19
pub(crate) async fn hints(gateway: &Gateway) {
    let answer = format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{OK}");
    let stories = visit(gateway, answer).await;
    check(&stories, &Expected::Delivered { status: 200, body: b"ok", truncated: false });
    assert!(stories.iter().all(|story| story.response().headers.is_empty()));
}

/// R31
pub(crate) async fn odd_statuses(gateway: &Gateway) {
    for (status, error) in [
        (999, Some("HTTP 999")),
        (600, Some("HTTP 600")),
        (300, Some("HTTP 300 Multiple Choices")),
        (299, None),
        (250, None),
    ] {
        let answer = format!("HTTP/1.1 {status} Odd\r\nContent-Length: 0\r\n\r\n");
        let expected = match error {
            Some(error) => Expected::Refused { status, error },
            None => Expected::Delivered { status, body: b"", truncated: false },
        };
        check(&visit(gateway, answer).await, &expected);
    }
    let no_status = ["099", "000", "20", "2000", "2xx", "-20"];
    let answers = no_status.map(|status| format!("HTTP/1.1 {status} Low\r\n\r\n"));
    refuse(gateway, answers, "is not valid HTTP").await;
}

/// R32
pub(crate) async fn not_http(gateway: &Gateway) {
    let answers = [
        "<html>hello from 1991</html>\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\0\0\0\x04\0\0\0\0\0",
        "HTTP/2.0 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
    ];
    refuse(gateway, answers, "is not valid HTTP").await;
}
