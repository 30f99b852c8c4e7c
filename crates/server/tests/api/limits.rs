//! How often somebody may ask: failed logins, and requests where that is configured.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::Method;
use postrider_server::{ConnectionLimits, ServerOptions};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::gateway::{Call, Gateway, PATIENCE, Reply};

/// How many unknown keys an address may show at once.
const BURST: u32 = 20;

impl Gateway {
    async fn guess(&self, index: u32) -> Reply {
        let guess = format!("Bearer pr_{index:043}");
        let call = Call::new(Method::GET, "/v1/stats").without_key();
        self.call(call.header("authorization", &guess)).await
    }

    /// Guesses until it is told to wait, and answers how often that was possible.
    async fn guess_until_limited(&self) -> u32 {
        for index in 0..10 * BURST {
            let reply = self.guess(index).await;
            if reply.status != 401 {
                limited(&reply, 1);
                return index;
            }
        }
        panic!("guessing is not limited");
    }

    /// The status that the good key gets from another address of this machine.
    async fn status_from(&self, address: Ipv4Addr) -> String {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((address, 0).into()).expect("loopback has many addresses");
        let mut stream = socket.connect(self.address).await.expect("a connection");
        let request = format!(
            "GET /v1/stats HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {}\r\n\
             connection: close\r\n\r\n",
            self.key
        );
        stream.write_all(request.as_bytes()).await.expect("writable");
        let mut answer = String::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
        read.expect("in time").expect("readable");
        answer.split(' ').nth(1).expect("a status line").to_owned()
    }
}

#[track_caller]
fn limited(reply: &Reply, seconds: u64) {
    assert!(reply.problem(429).is_empty());
    assert_eq!(reply.headers["retry-after"], seconds.to_string());
}

fn second() -> Duration {
    Duration::from_secs(1)
}

#[tokio::test]
async fn guessing_keys_is_slow_and_costs_only_the_address_it_comes_from() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.guess_until_limited().await, BURST);
    // No key is looked at, so that a good guess cannot be told from a bad one.
    limited(&gateway.get("/v1/stats").await, 1);
    assert_eq!(gateway.status_from(Ipv4Addr::new(127, 0, 0, 2)).await, "200");
    assert_eq!(gateway.get("/healthz").await.status, 200, "health needs no key");
}

#[tokio::test]
async fn whoever_waits_gets_in_again() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.guess_until_limited().await, BURST);
    gateway.clock.advance(second());
    assert_eq!(gateway.get("/v1/stats").await.status, 200);
    assert_eq!(gateway.guess_until_limited().await, 1, "a success is no reason to guess on");
    gateway.clock.advance(3 * second());
    assert_eq!(gateway.guess_until_limited().await, 3);
    gateway.clock.advance(1_000 * second());
    assert_eq!(gateway.guess_until_limited().await, BURST);
}

#[tokio::test]
async fn only_keys_that_nobody_knows_are_guesses() {
    let gateway = Gateway::start().await;
    let revoked = gateway.key(json!({"name": "revoked"})).await;
    let path = format!("/v1/keys/{}", revoked.id);
    assert_eq!(gateway.ask(Method::DELETE, &path).await.status, 204);
    for _ in 0..2 * BURST {
        assert_eq!(gateway.try_key(&revoked).await, 401);
        let call = Call::new(Method::GET, "/v1/stats").without_key();
        gateway.call(call).await.problem(401);
    }
    assert_eq!(gateway.get("/v1/stats").await.status, 200);
    assert_eq!(gateway.guess_until_limited().await, BURST);
}

#[tokio::test]
async fn requests_are_not_limited_unless_configured() {
    let gateway = Gateway::start().await;
    for _ in 0..10 * BURST {
        assert_eq!(gateway.get("/v1/policies").await.status, 200);
    }
}

#[tokio::test]
async fn a_key_has_its_rate_where_that_is_configured() {
    let options =
        ServerOptions { requests_per_second_per_key: Some(3), ..ServerOptions::default() };
    let gateway = Gateway::start_with(options, ConnectionLimits::default()).await;
    let other = gateway.key(json!({"name": "other"})).await;
    for _ in 0..2 {
        assert_eq!(gateway.get("/v1/stats").await.status, 200);
    }
    limited(&gateway.get("/v1/stats").await, 1);
    assert_eq!(gateway.try_key(&other).await, 200, "each has its own");
    gateway.clock.advance(second());
    for _ in 0..3 {
        assert_eq!(gateway.get("/v1/stats").await.status, 200);
    }
    limited(&gateway.post("/v1/events", json!({"type": "a.b", "payload": 1})).await, 1);
    gateway.clock.advance(second());
    assert_eq!(gateway.get("/v1/stats").await.json()["events"], 0);
}

#[tokio::test]
async fn an_address_has_its_rate_where_that_is_configured() {
    let options =
        ServerOptions { requests_per_second_per_address: Some(3), ..ServerOptions::default() };
    let gateway = Gateway::start_with(options, ConnectionLimits::default()).await;
    let other = gateway.key(json!({"name": "other"})).await;
    assert_eq!(gateway.get("/v1/stats").await.status, 200);
    assert_eq!(gateway.try_key(&other).await, 200);
    assert_eq!(gateway.try_key(&other).await, 429, "whichever key it is");
    limited(&gateway.guess(0).await, 1);
    assert_eq!(gateway.status_from(Ipv4Addr::new(127, 0, 0, 2)).await, "200");
    assert_eq!(gateway.ask(Method::GET, "/healthz").await.status, 200);
    gateway.clock.advance(second());
    assert_eq!(gateway.get("/v1/stats").await.status, 200);
}
