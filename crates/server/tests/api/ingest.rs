//! What third parties post to sources: believed, marked or refused, stored once, kept as it came.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use postrider_engine::notices::NoticeKind;
use postrider_server::{ConnectionLimits, ServerOptions};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{Call, Gateway, PATIENCE, START, await_notice};
use crate::sink::Sink;
use crate::sources::{make, text};

const SECRET: &str = "a-secret-of-github";

/// A webhook without a signature.
pub(crate) fn post_to(url: &str, body: &str) -> Call {
    let body = Bytes::copy_from_slice(body.as_bytes());
    Call::new(Method::POST, url).without_key().body(body)
}

/// A webhook as GitHub signs it.
pub(crate) fn github(url: &str, secret: &str, body: &str) -> Call {
    let signature = format!("sha256={}", hmac(secret, body));
    post_to(url, body)
        .header("content-type", "application/json")
        .header("x-github-event", "push")
        .header("x-hub-signature-256", &signature)
}

fn slack(url: &str, secret: &str, body: &str) -> Call {
    let seconds = START.as_seconds();
    let signature = format!("v0={}", hmac(secret, &format!("v0:{seconds}:{body}")));
    post_to(url, body)
        .header("content-type", "application/json")
        .header("x-slack-request-timestamp", &seconds.to_string())
        .header("x-slack-signature", &signature)
}

/// HMAC-SHA256 in hexadecimal digits, of a secret that is shorter than a block.
fn hmac(secret: &str, message: &str) -> String {
    let mut block = [0; 64];
    block[..secret.len()].copy_from_slice(secret.as_bytes());
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c));
    let digest = outer.chain_update(inner.finalize()).finalize();
    digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

async fn source_of_github(gateway: &Gateway, on_invalid: &str) -> Value {
    let verify = json!({"scheme": "github", "secret": SECRET});
    make(gateway, json!({"name": "github", "verify": verify, "on_invalid": on_invalid})).await
}

async fn open_source(gateway: &Gateway) -> Value {
    make(gateway, json!({"name": "open", "verify": {"scheme": "none"}})).await
}

/// Sends a webhook that has to be taken, and answers with its event.
async fn accept(gateway: &Gateway, call: Call) -> Value {
    let reply = gateway.call(call).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    let answer = reply.json();
    let event = gateway.get(&format!("/v1/events/{}", text(&answer, "id"))).await;
    assert_eq!(event.status, 200, "{event:?}");
    event.json()
}

async fn events(gateway: &Gateway) -> Value {
    gateway.get("/v1/stats").await.json()["events"].clone()
}

#[tokio::test]
async fn a_good_signature_makes_an_event_of_the_bytes_as_they_came() {
    let gateway = Gateway::start().await;
    let source = source_of_github(&gateway, "reject").await;
    let body = "{\"b\" : 1.0e2,\r\n \"a\":[ ]}\n";
    let call = github(text(&source, "url"), SECRET, body).header("x-github-delivery", "d-1");
    let event = accept(&gateway, call).await;
    assert_eq!(event["type"], "push");
    assert_eq!(event["content_type"], "application/json");
    assert_eq!(event["idempotency_key"], "d-1");
    assert_eq!(event["source"], source["id"]);
    assert_eq!(event["verified"], true);
    let payload = gateway.get(&format!("/v1/events/{}/payload", text(&event, "id"))).await;
    assert_eq!(payload.body, body);

    let open = open_source(&gateway).await;
    let event = accept(&gateway, post_to(text(&open, "url"), "a=1&b=%20")).await;
    assert_eq!(event["verified"], Value::Null);
    assert_eq!(event["type"], "webhook.received");
    assert_eq!(event["content_type"], "application/octet-stream");
    let put = Call::new(Method::PUT, text(&open, "url")).without_key();
    assert_eq!(accept(&gateway, put).await["payload_size"], 0);
}

#[tokio::test]
async fn a_bad_signature_is_refused_and_told() {
    let gateway = Gateway::start().await;
    let source = source_of_github(&gateway, "reject").await;
    let url = text(&source, "url");
    let mut notices = gateway.engine.notices().subscribe();
    let reply = gateway.call(github(url, "another", "{}")).await;
    assert!(reply.problem(401).is_empty());
    assert!(reply.headers.contains_key("www-authenticate"));
    let notice = await_notice(&mut notices, NoticeKind::SignatureFailed).await;
    assert_eq!(notice.source.map(|id| id.to_string()).as_deref(), source["id"].as_str());
    assert!(notice.detail.as_deref().is_some_and(|detail| detail.contains("no live secret")));
    gateway.call(post_to(url, "{}")).await.problem(401);
    gateway.call(github(url, SECRET, "{}").body("{} ")).await.problem(401);
    assert_eq!(events(&gateway).await, 0);
}

#[tokio::test]
async fn a_marked_webhook_is_stored_and_cannot_suppress_the_genuine_one() {
    let gateway = Gateway::start().await;
    let source = source_of_github(&gateway, "mark").await;
    let url = text(&source, "url");
    let mut notices = gateway.engine.notices().subscribe();
    let forged = github(url, "another", "{\"forged\":1}").header("x-github-delivery", "d-1");
    let forged = accept(&gateway, forged).await;
    assert_eq!(forged["verified"], false);
    assert_eq!(forged["idempotency_key"], Value::Null);
    assert_eq!(forged["type"], "push");
    await_notice(&mut notices, NoticeKind::SignatureFailed).await;
    let genuine = github(url, SECRET, "{}").header("x-github-delivery", "d-1");
    let genuine = accept(&gateway, genuine).await;
    assert_eq!(genuine["verified"], true);
    assert_ne!(genuine["id"], forged["id"]);
    assert_eq!(events(&gateway).await, 2);
}

#[tokio::test]
async fn a_hundred_of_the_same_webhook_at_once_are_one_event() {
    const SENT: usize = 100;
    let gateway = Gateway::start().await;
    let source = source_of_github(&gateway, "reject").await;
    let url = text(&source, "url");
    let calls = (0..SENT).map(|number| {
        let body = format!("{{\"sent\":{number}}}");
        gateway.call(github(url, SECRET, &body).header("x-github-delivery", "d-1"))
    });
    let replies = futures_util::future::join_all(calls).await;
    let first = replies[0].json();
    for reply in &replies {
        assert_eq!((reply.status.as_u16(), reply.json()), (202, first.clone()));
    }
    assert_eq!(events(&gateway).await, 1);
    let other = source_of_github(&gateway, "reject").await;
    let call = github(text(&other, "url"), SECRET, "{}").header("x-github-delivery", "d-1");
    assert_ne!(accept(&gateway, call).await["id"], first["id"], "keys are a source's own");
}

/// Sends bytes that no client library would, and answers with the status and the body.
async fn send_raw(gateway: &Gateway, head: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(gateway.address).await.expect("a connection");
    stream.write_all(head).await.expect("sent");
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    tokio::time::timeout(PATIENCE, reading).await.expect("in time").expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

#[tokio::test]
async fn headers_come_back_as_they_came_without_those_that_open_doors() {
    let gateway = Gateway::start().await;
    let source = open_source(&gateway).await;
    let mut head = format!("POST {} HTTP/1.1\r\n", text(&source, "url")).into_bytes();
    head.extend_from_slice(b"Host: gateway.test\r\nConnection: close\r\nContent-Length: 2\r\n");
    head.extend_from_slice(b"X-Many: one\r\nX-Bytes: \xff\xfe\r\nX-Many: two\r\nX-Many: one\r\n");
    head.extend_from_slice(b"Authorization: Bearer mine\r\nCookie: a=b\r\nTE: trailers\r\n");
    head.extend_from_slice(b"Postrider-Event-Type: forged\r\nProxy-Authorization: mine\r\n");
    head.extend_from_slice(b"Content-Type: Text/Plain; Charset=X\r\n\r\nhi");
    let (status, body) = send_raw(&gateway, &head).await;
    assert_eq!(status, 202, "{body}");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    let event = gateway.get(&format!("/v1/events/{}", text(&answer, "id"))).await.json();
    assert_eq!(event["content_type"], "Text/Plain; Charset=X");
    let mut headers = event["headers"].as_array().expect("headers").clone();
    headers.sort_by(|one, other| text(one, "name").cmp(text(other, "name")));
    assert_eq!(
        headers,
        [
            json!({"name": "content-type", "value": "Text/Plain; Charset=X"}),
            json!({"name": "x-bytes", "value_base64": "//4="}),
            json!({"name": "x-many", "value": "one"}),
            json!({"name": "x-many", "value": "two"}),
            json!({"name": "x-many", "value": "one"}),
        ]
    );
}

#[tokio::test]
async fn a_handshake_is_answered_once_its_signature_was_found_good() {
    let gateway = Gateway::start().await;
    let verify = json!({"scheme": "slack", "secret": "slack-secret"});
    let source = make(&gateway, json!({"name": "slack", "verify": verify})).await;
    let url = text(&source, "url");
    let body = r#"{"type":"url_verification","challenge":"c-1","token":"t"}"#;
    gateway.call(slack(url, "another", body)).await.problem(401);
    let reply = gateway.call(slack(url, "slack-secret", body)).await;
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (200, &b"c-1"[..]));
    assert_eq!(reply.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(events(&gateway).await, 0);
    let body = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"app_mention"}}"#;
    let event = accept(&gateway, slack(url, "slack-secret", body)).await;
    assert_eq!((&event["type"], &event["idempotency_key"]), (&json!("app_mention"), &json!("Ev1")));
}

#[tokio::test]
async fn a_probe_is_answered_and_other_methods_are_not() {
    let gateway = Gateway::start().await;
    let source = source_of_github(&gateway, "reject").await;
    let url = text(&source, "url");
    let ask = |method, path: &str| Call::new(method, path).without_key();
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(gateway.call(ask(method.clone(), url)).await.status, 200, "{method}");
        assert_eq!(gateway.call(ask(method, "/in/unknown")).await.status, 404);
    }
    for method in [Method::DELETE, Method::PATCH, Method::OPTIONS] {
        let reply = gateway.call(ask(method, url)).await;
        assert!(reply.problem(405).is_empty());
        let allow = reply.headers["allow"].to_str().expect("text");
        assert!(allow.split(',').any(|known| known == "POST"), "{allow}");
    }
    let long = format!("/in/{}", "x".repeat(5_000));
    for path in ["/in/unknown", "/in/%FF", "/in/a%2Fb", "/in/", "/in", &long] {
        assert!(gateway.call(post_to(path, "{}")).await.problem(404).is_empty(), "{path}");
    }
    assert_eq!(events(&gateway).await, 0);
}

#[tokio::test]
async fn what_is_too_large_is_refused_whole() {
    let options = ServerOptions { event_limit_bytes: 1_000, ..ServerOptions::default() };
    let gateway = Gateway::start_with(options, ConnectionLimits::default()).await;
    let source = open_source(&gateway).await;
    let url = text(&source, "url");
    for bytes in [1_001, 4_000_000] {
        gateway.call(post_to(url, &"x".repeat(bytes))).await.problem(413);
    }
    let many = (0..65).fold(post_to(url, "1"), |call, _| call.header("x-a", "1"));
    gateway.call(many).await.problem(431);
    let large = post_to(url, "1").header("x-a", &"v".repeat(16 << 10));
    gateway.call(large).await.problem(431);
    assert_eq!(events(&gateway).await, 0);
    assert_eq!(gateway.call(post_to(url, &"x".repeat(1_000))).await.status, 202);
}

#[tokio::test]
async fn the_url_that_is_signed_is_the_public_one() {
    let public_url = Some("https://hooks.example.com".to_owned());
    let options = ServerOptions { public_url, ..ServerOptions::default() };
    let behind_proxy = Gateway::start_with(options, ConnectionLimits::default()).await;
    let direct = Gateway::start().await;
    for (gateway, base) in
        [(behind_proxy, "https://hooks.example.com"), (direct, "http://gateway.test")]
    {
        let verify = json!({
            "scheme": "hmac",
            "secret": "url-secret",
            "header": "X-Signature",
            "signed": "{url}|{body}",
        });
        let source = make(&gateway, json!({"name": "signed", "verify": verify})).await;
        let path = format!("{}?a=%20b", text(&source, "url"));
        let signed = |base: &str| {
            let signature = hmac("url-secret", &format!("{base}{path}|body"));
            post_to(&path, "body").header("x-signature", &signature)
        };
        assert_eq!(accept(&gateway, signed(base)).await["verified"], true);
        gateway.call(signed("http://elsewhere.test")).await.problem(401);
    }
}

#[tokio::test]
async fn a_flood_of_bad_signatures_is_one_notice_a_second() {
    let gateway = Gateway::start().await;
    let source = source_of_github(&gateway, "reject").await;
    let url = text(&source, "url");
    for _ in 0..50 {
        gateway.call(post_to(url, "{}")).await.problem(401);
    }
    gateway.clock.advance(Duration::from_secs(1));
    gateway.call(post_to(url, "{}")).await.problem(401);
    let notices = gateway.engine.notices().since(0);
    let details: Vec<&str> = notices
        .iter()
        .filter(|notice| notice.kind == NoticeKind::SignatureFailed)
        .filter_map(|notice| notice.detail.as_deref())
        .collect();
    assert_eq!(details.len(), 2, "{details:?}");
    assert!(!details[0].contains("more"), "{details:?}");
    assert!(details[1].contains("49 more since the last notice"), "{details:?}");
}

#[tokio::test]
async fn an_endpoint_that_names_its_sources_hears_of_no_others() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(200).await;
    let (heard, other) = (open_source(&gateway).await, open_source(&gateway).await);
    gateway.endpoint(json!({"url": sink.url, "sources": [heard["id"]]})).await;
    gateway.event(json!({"type": "a.b", "payload": "by the API"})).await;
    assert_eq!(accept(&gateway, post_to(text(&other, "url"), "other")).await["deliveries"], 0);
    let event = accept(&gateway, post_to(text(&heard, "url"), "heard")).await;
    assert_eq!(event["deliveries"], 1);
    let received = sink.next().await;
    assert_eq!(received.body, "heard");
    assert_eq!(received.headers["webhook-id"], text(&event, "id"));
    let of_source = format!("/v1/events?source={}", text(&heard, "id"));
    let listed = gateway.get(&of_source).await.json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["data"][0]["id"], event["id"]);
}

#[tokio::test]
async fn an_event_that_an_endpoint_brings_back_is_not_taken_in_again() {
    let gateway = Gateway::start().await;
    let source = open_source(&gateway).await;
    let url = format!("http://{}{}", gateway.address, text(&source, "url"));
    gateway.endpoint(json!({"url": url})).await;
    let mut notices = gateway.engine.notices().subscribe();
    let event = gateway.event(json!({"type": "a.b", "payload": 1})).await;
    await_notice(&mut notices, NoticeKind::RetryScheduled).await;
    let delivery = gateway.delivery_of(&event).await;
    assert_eq!(delivery["attempt_log"][0]["status_code"], 508);
    assert_eq!(events(&gateway).await, 1);
}
