//! Receivers whose bodies are too long, too short, or not what they seem.

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::gateway::{BRIEF, Gateway, HUNDRED, Visit, growth};
use crate::memory::MIB;
use crate::peer::{Exchange, Peer, let_events_arrive};
use crate::script::{OK, Then, ended, header, reply};
use crate::story::{Expected, check};

/// How much of a body is kept.
const KEPT_BYTES: usize = 16 * 1_024;

/// R6. The row allows 1 MiB for an attempt. The hundred run at the same time, and in the same
/// process as their receivers; what they need at their peak is held to a quarter of what the row
/// allows them together, and what remains of them to a twelfth. That is not zero, because the
/// allocator and the database keep some of what they got, and 16 KiB of each answer are stored.
pub(crate) async fn endless(gateway: &Gateway) {
    const PEAK: u64 = HUNDRED as u64 * MIB / 4;
    const REMAINS: u64 = HUNDRED as u64 * MIB / 12;
    let until_the_end = "HTTP/1.1 200 OK\r\n\r\n";
    let in_chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (head, piece) in [
        (until_the_end, "y".repeat(0x8000)),
        (in_chunks, format!("8000\r\n{}\r\n", "y".repeat(0x8000))),
    ] {
        let piece = Bytes::from(piece);
        let peer = Peer::start(async move |mut exchange: Exchange| {
            exchange.read_request().await;
            let mut written = exchange.stream.write_all(head.as_bytes()).await;
            while written.is_ok() {
                written = exchange.stream.write_all(&piece).await;
            }
        })
        .await;
        let kept = vec![b'y'; KEPT_BYTES];
        let expected = Expected::Delivered { status: 200, body: &kept, truncated: true };
        let visit = Visit::to(peer.url());
        let (peak, remains) = growth(gateway, &visit, |stories| check(stories, &expected)).await;
        assert!(peak < PEAK, "{} KiB at the peak", peak / 1_024);
        assert!(remains < REMAINS, "{} KiB remain", remains / 1_024);
        // The receiver writes as long as it can: that it came to an end means that we closed.
        ended(&peer, 2 * HUNDRED).await;
        assert_eq!(peer.requests().len(), 2 * HUNDRED);
    }
}

/// R8
pub(crate) async fn longer_than_announced(gateway: &Gateway) {
    const FORGED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    let delivered = Expected::Delivered { status: 200, body: b"ok", truncated: false };
    let peer = reply(format!("{OK}{FORGED}"), Then::Repeat).await;
    // Few at a time, so that there would be connections to use again.
    check(&gateway.hundred(Visit::to(peer.url()).at_once(4)).await, &delivered);
    assert_eq!((peer.connections(), peer.requests().len()), (HUNDRED, HUNDRED));

    // The same, with the rest on its way when the connection is idle already.
    let (forge, forged) = mpsc::channel(1);
    let peer = Peer::start(async move |mut exchange: Exchange| {
        while exchange.read_request().await {
            exchange.write(OK).await;
            exchange.release.notified().await;
            exchange.write(FORGED).await;
            forge.send(()).await.expect("somebody waits for it");
        }
    })
    .await;
    let mut forged = forged;
    let stories = gateway
        .one_by_one(Visit::to(peer.url()), async || {
            peer.release();
            forged.recv().await.expect("written");
            let_events_arrive().await;
        })
        .await;
    check(&stories, &delivered);
    assert_eq!((peer.connections(), peer.requests().len()), (HUNDRED, HUNDRED));
}

/// R11. What is wrong is the body, and the status had come before it: the attempt is flagged as
/// truncated, the connection is not used again, and the status decides.
pub(crate) async fn huge_chunk(gateway: &Gateway) {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    for size in ["ffffffffffffffff", "10000000000000000", "fffffffffffffffffffffffffffffffff"] {
        for (rest, body, then) in [
            ("", "x", Then::Close),
            ("tail", if size.len() == 16 { "xtail" } else { "x" }, Then::Close),
            ("", "x", Then::Wait),
        ] {
            let peer = reply(format!("{head}{size}\r\n{rest}"), then).await;
            let stories = gateway.hundred(Visit::to(peer.url()).within(BRIEF)).await;
            let body = body.as_bytes();
            check(&stories, &Expected::Delivered { status: 200, body, truncated: true });
            assert_eq!((peer.connections(), peer.requests().len()), (HUNDRED, HUNDRED));
        }
    }
}

/// R13
pub(crate) async fn encoded(gateway: &Gateway) {
    let nested = "br, zstd, deflate, ".repeat(10);
    let nested = nested.trim_end_matches(", ");
    let body = b"\x1f\x8b\x08\0\0\0\0\0\0\x03(\xb5/\xfd\x04\0x\x9c\x0b\0\x80";
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: {nested}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    let peer = reply(answer, Then::Repeat).await;
    let stories = gateway.hundred(Visit::to(peer.url())).await;
    check(&stories, &Expected::Delivered { status: 200, body, truncated: false });
    for story in &stories {
        let kept = &story.response().headers;
        assert_eq!(*kept, [("content-encoding".to_owned(), nested.to_owned())]);
    }
    let asked = header(&peer.requests(), "accept-encoding");
    assert_eq!(asked, vec!["identity"; HUNDRED]);
}

/// R34
pub(crate) async fn cut(gateway: &Gateway) {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    ] {
        let peer = reply(answer, Then::Close).await;
        let stories = gateway.hundred(Visit::to(peer.url())).await;
        check(&stories, &Expected::Delivered { status: 200, body: b"x", truncated: true });
        assert_eq!((peer.connections(), peer.requests().len()), (HUNDRED, HUNDRED));
    }
}

/// R46
pub(crate) async fn hostile_text(gateway: &Gateway) {
    const ERROR: &str = "HTTP 500 Internal Server Error: ";
    /// How much of a body is quoted in an error.
    const QUOTED_CHARS: usize = 300;
    let bodies: [&[u8]; 4] = [
        b"<script>alert(document.cookie)</script>",
        b"\x1b[2J\x1b]0;owned\x07\r\n\x1b[31mred\x08\x08\xc2\x9b31m\x7f\0",
        &vec![b'z'; 1 << 20],
        b"\xff\xfe\xc3\x28\xa0\xa1\xf0\x28\x8c\x28",
    ];
    for body in bodies {
        for status in [200, 500] {
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n", body.len());
            let peer = reply([head.as_bytes(), body].concat(), Then::Repeat).await;
            let stories = gateway.hundred(Visit::to(peer.url())).await;
            let kept = &body[..body.len().min(KEPT_BYTES)];
            for story in stories {
                assert_eq!(story.only_attempt().status, Some(status));
                let response = story.response();
                assert!(response.body == kept, "what came, byte for byte: {story:?}");
                assert_eq!(response.truncated, body.len() > KEPT_BYTES);
                let error = story.error();
                assert!(!error.chars().any(char::is_control), "{error:?}");
                if status == 500 {
                    let quoted = error.strip_prefix(ERROR).expect(ERROR);
                    assert!((1..=QUOTED_CHARS).contains(&quoted.chars().count()), "{error:?}");
                }
            }
            assert_eq!(peer.requests().len(), HUNDRED);
        }
    }
}
