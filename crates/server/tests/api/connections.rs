//! Connections: bounded, and ended in good order.

use std::time::Duration;

use http::Method;
use postrider_server::{ConnectionLimits, ServerOptions};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{Call, Gateway, PATIENCE};
use crate::sink::Sink;

/// All that a connection still sends.
async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes));
    read.await.expect("in time").expect("readable");
    bytes
}

#[tokio::test]
async fn a_client_that_says_nothing_or_half_a_request_is_hung_up_on() {
    let limits = ConnectionLimits {
        header_timeout: Duration::from_millis(50),
        ..ConnectionLimits::default()
    };
    let gateway = Gateway::start_with(ServerOptions::default(), limits).await;
    for said in
        [b"".as_slice(), b"P", b"PRI * HTTP/2.0\r\n", b"GET /healthz HTTP/1.1\r\nhost: a\r\n"]
    {
        let mut stream = TcpStream::connect(gateway.address).await.expect("a connection");
        stream.write_all(said).await.expect("writable");
        let answer = read_to_end(&mut stream).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn one_connection_too_many_waits_for_its_turn() {
    let limits = ConnectionLimits { max_connections: 1, ..ConnectionLimits::default() };
    let gateway = Gateway::start_with(ServerOptions::default(), limits).await;
    let mut first = TcpStream::connect(gateway.address).await.expect("a connection");
    first.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("writable");
    let mut start = [0; 12];
    first.read_exact(&mut start).await.expect("an answer");
    assert_eq!(&start, b"HTTP/1.1 200");
    let second = gateway.call(Call::new(Method::GET, "/healthz").without_key());
    tokio::pin!(second);
    let early = tokio::time::timeout(Duration::from_millis(100), &mut second).await;
    assert!(early.is_err(), "the only place is taken");
    drop(first);
    assert_eq!(second.await.status, 200);
}

#[tokio::test]
async fn a_stop_lets_a_request_finish_and_takes_no_more() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(200).await;
    let endpoint = gateway.endpoint(json!({"url": sink.url})).await;
    let gate = sink.hold().await;
    let idle = TcpStream::connect(gateway.address).await.expect("a connection");
    let under_way = {
        let mut stream = TcpStream::connect(gateway.address).await.expect("a connection");
        let request = format!(
            "POST /v1/endpoints/{endpoint}/test HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n\r\n",
            gateway.key
        );
        stream.write_all(request.as_bytes()).await.expect("writable");
        tokio::spawn(async move { read_to_end(&mut stream).await })
    };
    sink.next().await;
    gateway.stop.send(()).expect("the server runs");
    drop(gate);
    let answer = under_way.await.expect("no panic");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    let ended = tokio::time::timeout(PATIENCE, gateway.server).await.expect("in time");
    ended.expect("no panic").expect("a clean end");
    assert!(TcpStream::connect(gateway.address).await.is_err(), "nobody listens any more");
    drop(idle);
}

#[tokio::test]
async fn http_2_is_spoken_too() {
    use http_body_util::Empty;
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let gateway = Gateway::start().await;
    let stream = TcpStream::connect(gateway.address).await.expect("a connection");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("a handshake");
    tokio::spawn(connection);
    let request = http::Request::builder().uri(format!("http://{}/readyz", gateway.address));
    let request = request.body(Empty::<bytes::Bytes>::new()).expect("a request");
    assert_eq!(sender.send_request(request).await.expect("an answer").status(), 200);
}
