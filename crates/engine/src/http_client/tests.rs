//! The client against peers on real sockets, well-behaved and hostile.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod certificate;
mod dns;
mod endpoint_tls;
mod peer;
mod proxy;
mod tls;

use std::time::Duration;

use http::HeaderMap;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::{Barrier, mpsc};
use tokio::time::Instant;

use super::pool::Sweep;
use super::*;
use peer::Peer;

/// Longer than any exchange between two sockets of one machine takes.
const AMPLE: Duration = Duration::from_secs(30);
/// For peers that never answer: the test waits this long.
const SHORT: Duration = Duration::from_millis(300);

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn loopback_guard() -> Arc<Guard> {
    Arc::new(Guard::new(vec!["127.0.0.0/8".parse().unwrap()]))
}

fn client() -> Client {
    client_with(loopback_guard(), Vec::new(), None)
}

fn client_with(
    guard: Arc<Guard>,
    extra_roots: Vec<CertificateDer<'static>>,
    egress_proxy: Option<EgressProxy>,
) -> Client {
    Client::new(ClientOptions { guard, extra_roots, revoked: Vec::new(), egress_proxy }).unwrap()
}

fn post_to(url: &str, deadline: Duration) -> Post {
    Post {
        destination: Arc::new(loopback_guard().check_url(url).unwrap()),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        deadline,
        tls: None,
    }
}

fn post(peer: &Peer) -> Post {
    post_to(&peer.url(), AMPLE)
}

#[tokio::test]
async fn a_connection_is_kept_and_used_again() {
    let peer = Peer::answering(OK).await;
    let client = client();
    for _ in 0..5 {
        let mut post = post(&peer);
        post.headers.insert("webhook-id", HeaderValue::from_static("evt_1"));
        let answer = client.post(post).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        assert!(!answer.truncated);
    }
    assert_eq!((peer.connections(), peer.requests().len()), (1, 5));
    let request = peer.requests().pop().unwrap();
    assert!(request.starts_with("POST /hook?a=1 HTTP/1.1\r\n"), "{request}");
    let host = format!("\r\nhost: {}\r\n", peer.address);
    for part in [&host, "\r\nwebhook-id: evt_1\r\n", "\r\ncontent-length: 2\r\n"] {
        assert!(request.contains(part), "{request}");
    }
    assert!(request.ends_with("\r\n\r\n{}"), "{request}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_used_by_one_request_at_a_time() {
    let peer = Peer::answering(OK).await;
    let client = client();
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let (client, url) = (client.clone(), peer.url());
            tokio::spawn(async move {
                for _ in 0..200 {
                    assert_eq!(client.post(post_to(&url, AMPLE)).await.unwrap().status, 200);
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    assert_eq!(peer.requests().len(), 800);
    assert!(peer.connections() <= 4, "{} connections", peer.connections());
}

#[tokio::test]
async fn a_connection_that_the_peer_closed_is_replaced() {
    let peer = Peer::start(async |mut exchange: peer::Exchange| {
        exchange.read_request().await;
        exchange.write(OK).await;
    })
    .await;
    let client = client();
    for _ in 0..3 {
        assert_eq!(client.post(post(&peer)).await.unwrap().status, 200);
        peer.exchange_ended().await;
        peer::let_events_arrive().await;
    }
    assert_eq!((peer.connections(), peer.requests().len()), (3, 3));
}

#[tokio::test]
async fn a_request_comes_back_unsent_from_a_closed_connection() {
    let peer = Peer::start(async |_: peer::Exchange| {}).await;
    let client = client();
    let destination = post(&peer).destination;
    let key = Key { origin: destination.origin(), identity: None };
    let mut connection = client.open(key, None, &mut Stage::Connecting).await.ok().unwrap();
    peer.exchange_ended().await;
    peer::let_events_arrive().await;
    let request = Request::post("/").body(Full::new(Bytes::from_static(b"{}"))).unwrap();
    let outcome = connection.send(request, &destination).await;
    assert!(matches!(outcome, Err(SendError::Unsent(..))));
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_sent_again() {
    let peer = Peer::start(async |mut exchange: peer::Exchange| {
        if exchange.number == 0 {
            exchange.read_request().await;
            exchange.write(OK).await;
        }
        exchange.read_request().await;
    })
    .await;
    let client = client();
    assert_eq!(client.post(post(&peer)).await.unwrap().status, 200);
    let failure = client.post(post(&peer)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Closed, "{failure}");
    assert_eq!((peer.connections(), peer.requests().len()), (1, 2));
}

#[tokio::test]
async fn the_status_decides_when_the_body_does_not_come_to_its_end() {
    let stalled = "HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\nx";
    let peer = Peer::start(async |mut exchange: peer::Exchange| {
        exchange.read_request().await;
        exchange.write(stalled).await;
        exchange.until_closed().await;
    })
    .await;
    let answer = client().post(post_to(&peer.url(), SHORT)).await.unwrap();
    assert_eq!((answer.status, &answer.body[..], answer.truncated), (200, &b"x"[..], true));
    peer.exchange_ended().await;

    let overflow =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nffffffffffffffff\r\n";
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx";
    for response in [overflow, cut] {
        let peer = Peer::start(async move |mut exchange: peer::Exchange| {
            exchange.read_request().await;
            exchange.write(response).await;
        })
        .await;
        let client = client();
        let answer = client.post(post(&peer)).await.unwrap();
        assert_eq!((answer.status, &answer.body[..], answer.truncated), (200, &b"x"[..], true));
        assert_eq!(client.shared.pool.kept(), 0);
    }
}

#[tokio::test]
async fn bodies_are_read_and_kept_up_to_their_bounds() {
    // Length, whether the connection is used again.
    for (length, reused) in [
        (BODY_KEPT_BYTES, true),
        (BODY_KEPT_BYTES + 1, true),
        (BODY_READ_BYTES, true),
        (BODY_READ_BYTES + 1, false),
    ] {
        let body = "x".repeat(length);
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        let peer = Peer::answering(response).await;
        let client = client();
        let answer = client.post(post(&peer)).await.unwrap();
        assert_eq!(answer.body.len(), BODY_KEPT_BYTES);
        assert_eq!(answer.truncated, length > BODY_KEPT_BYTES);
        assert_eq!(client.shared.pool.kept(), usize::from(reused), "{length}");
    }
}

#[tokio::test]
async fn an_endless_body_is_left_and_its_connection_closed() {
    let peer = Peer::start(async |mut exchange: peer::Exchange| {
        exchange.read_request().await;
        exchange.write("HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let chunk = format!("2000\r\n{}\r\n", "y".repeat(0x2000));
        while exchange.stream.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let answer = client().post(post(&peer)).await.unwrap();
    assert_eq!((answer.status, answer.body.len()), (500, BODY_KEPT_BYTES));
    assert!(answer.truncated);
    peer.exchange_ended().await;
}

#[tokio::test]
async fn answers_that_are_not_acceptable_http_fail() {
    let many_headers = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    let long_header = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(1 << 20));
    let long_reason = format!("HTTP/1.1 200 {}\r\n\r\n", "b".repeat(1 << 20));
    let over_limit = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(HEAD_BYTES));
    let cases = [
        many_headers.as_str(),
        &long_header,
        &long_reason,
        &over_limit,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "<html>hello from 1991</html>\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for response in cases {
        let shown = &response[..response.len().min(60)];
        let peer = Peer::start({
            let response = response.to_owned();
            async move |mut exchange: peer::Exchange| {
                exchange.read_request().await;
                // The client may hang up half-way.
                if exchange.stream.write_all(response.as_bytes()).await.is_ok() {
                    exchange.until_closed().await;
                }
            }
        })
        .await;
        let client = client();
        let failure = client.post(post(&peer)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Protocol, "{shown:?}: {failure}");
        assert_eq!((peer.requests().len(), client.shared.pool.kept()), (1, 0), "{shown:?}");
        peer.exchange_ended().await;
    }
}

#[tokio::test]
async fn interim_answers_are_skipped() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(5_000);
    for before in [early, &interim] {
        let peer = Peer::answering(format!("{before}{OK}")).await;
        let answer = client().post(post(&peer)).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        assert!(!answer.headers.contains_key("link"));
    }
}

#[tokio::test]
async fn redirects_are_answers_like_any_other() {
    let target = Peer::answering(OK).await;
    let head = format!("HTTP/1.1 307 Over There\r\nLocation: {}\r\n", target.url());
    let peer = Peer::answering(format!("{head}Retry-After: 7\r\nContent-Length: 0\r\n\r\n")).await;
    let answer = client().post(post(&peer)).await.unwrap();
    assert_eq!(answer.status, 307);
    assert_eq!(answer.retry_after, Some(HeaderValue::from_static("7")));
    assert_eq!((peer.requests().len(), target.connections()), (1, 0));
}

#[tokio::test]
async fn bytes_after_an_answer_are_never_the_next_answer() {
    let forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    let peer = Peer::answering(format!("{OK}{forged}")).await;
    let client = client();
    for _ in 0..3 {
        assert_eq!(&client.post(post(&peer)).await.unwrap().body[..], b"ok");
        peer::let_events_arrive().await;
    }
    assert_eq!(peer.connections(), 3);
}

#[tokio::test]
async fn a_silent_peer_costs_the_deadline_and_nothing_after_it() {
    for body in [Bytes::from_static(b"{}"), Bytes::from(vec![b'x'; 32 << 20])] {
        let peer = Peer::start(async |mut exchange: peer::Exchange| {
            // Reading begins only once the client has given up.
            exchange.release.notified().await;
            exchange.until_closed().await;
        })
        .await;
        let client = client();
        let failure = client.post(Post { body, ..post_to(&peer.url(), SHORT) }).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout);
        let message = "no answer within 300ms (waiting for the response head)";
        assert_eq!(failure.message, message);
        assert_eq!(client.shared.pool.kept(), 0);
        peer.release();
        peer.exchange_ended().await;
    }
}

#[tokio::test]
async fn a_request_that_is_no_longer_wanted_closes_its_connection() {
    let (arrived, mut arrivals) = mpsc::channel(1);
    let peer = Peer::start(async move |mut exchange: peer::Exchange| {
        exchange.read_request().await;
        arrived.send(()).await.unwrap();
        exchange.until_closed().await;
    })
    .await;
    let client = client();
    tokio::select! {
        outcome = client.post(post(&peer)) => panic!("{outcome:?}"),
        arrival = arrivals.recv() => arrival.unwrap(),
    }
    peer.exchange_ended().await;
}

#[tokio::test]
async fn peers_that_hang_up_are_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let failure = client().post(post_to(&format!("http://{address}/"), AMPLE)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Connect);
    assert_eq!(failure.message, format!("connection refused by {address}"));

    let peer = Peer::start(async |mut exchange: peer::Exchange| {
        exchange.read_request().await;
        exchange.stream.set_zero_linger().unwrap();
    })
    .await;
    let failure = client().post(post(&peer)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Closed);
    assert_eq!(failure.message, format!("connection reset by {}", peer.address));

    let peer = Peer::start(async |mut exchange: peer::Exchange| {
        exchange.read_request().await;
        exchange.write("HTTP/1.1 200 OK\r\nContent-").await;
    })
    .await;
    let failure = client().post(post(&peer)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Closed);
    let message = format!("{} closed the connection before it answered", peer.address);
    assert_eq!(failure.message, message);
}

#[tokio::test]
async fn the_guard_decides_at_dial_time() {
    let peer = Peer::answering(OK).await;
    let strict = client_with(Arc::new(Guard::new(Vec::new())), Vec::new(), None);
    let by_name = format!("http://localhost:{}/", peer.address.port());
    assert_eq!(client().post(post_to(&by_name, AMPLE)).await.unwrap().status, 200);
    for url in [&peer.url(), &by_name] {
        let failure = strict.post(post_to(url, AMPLE)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Refused);
        assert!(failure.message.contains("may not be reached"), "{failure}");
    }
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn idle_connections_are_bounded_and_swept() {
    const SENT: usize = MAX_IDLE_PER_ORIGIN + 2;
    // Nobody is answered until all are connected.
    let everybody = Arc::new(Barrier::new(SENT));
    let peer = Peer::start(async move |mut exchange: peer::Exchange| {
        exchange.read_request().await;
        everybody.wait().await;
        exchange.write(OK).await;
        exchange.until_closed().await;
    })
    .await;
    let client = client();
    let posts = (0..SENT).map(|_| client.post(post(&peer)));
    for answer in futures_util::future::join_all(posts).await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(peer.connections(), SENT);
    let pool = &client.shared.pool;
    assert_eq!(pool.kept(), MAX_IDLE_PER_ORIGIN);

    let now = Instant::now();
    assert_eq!(pool.sweep(now), Sweep::Kept);
    assert_eq!(pool.kept(), MAX_IDLE_PER_ORIGIN);
    assert_eq!(pool.sweep(now + IDLE_TIMEOUT), Sweep::Empty);
    assert_eq!(pool.kept(), 0);
    for _ in 0..SENT {
        peer.exchange_ended().await;
    }
}
