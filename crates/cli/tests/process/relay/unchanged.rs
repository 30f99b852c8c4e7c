//! From a provider through a source and a hub to a service: the same bytes, the same headers.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

use super::service::{self, Service};
use super::{Hub, url_of};
use crate::gateway::{Gateway, Launch, text};
use crate::within;

/// The largest event that a gateway takes if it is not told otherwise.
const LARGEST: usize = 1 << 20;

/// What the gateway says itself.
const OWN: [&str; 10] = [
    "accept-encoding",
    "postrider-attempt",
    "postrider-delivery-id",
    "postrider-event-type",
    "postrider-via",
    "user-agent",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
    // Of the connection to the service.
    "content-length",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_and_headers_reach_the_service_as_the_provider_sent_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let mut service = Service::start().await;
    let hub = Hub::create(&gateway, "site").await;
    gateway.create_endpoint(json!({ "hub": hub.id, "policy": "edge" })).await;
    let source = json!({ "name": "provider", "verify": { "scheme": "none" } }).to_string();
    let answer = gateway.call(Method::POST, "/v1/sources", source).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    let path = text(&answer.body, "url");
    let process = hub.launch(&url_of(&gateway), &service.url()).spawn();
    hub.connected(&gateway).await;

    let all_bytes: Vec<u8> = (0..=u8::MAX).collect();
    let large: Vec<u8> = (0..251).cycle().take(LARGEST).collect();
    for body in [all_bytes, b"\r\n\r\n\0".to_vec(), Vec::new(), large] {
        let headers = odd_headers();
        let event = post(&gateway, &path, &headers, &body).await;
        let (head, arrived) = service.next().await;
        assert_eq!(head.method, Method::POST);
        assert_eq!(head.uri, "/hook?way=in");
        assert!(arrived == body, "{} bytes arrived of {}", arrived.len(), body.len());
        check_headers(&headers, &head.headers);
        assert_eq!(head.headers["webhook-id"], event);
        assert_eq!(head.headers["postrider-attempt"], "1");
    }
    process.signal("TERM");
    process.finished().await.expect_code(0);

    // And the way back: what the service said is in the record of the attempt. That the hub has passed it
    // on does not mean that it is settled; a gateway that has stopped does.
    gateway.stop().await;
    let gateway = Launch::serve(directory.path()).start().await;
    let list = gateway.get("/v1/deliveries").await;
    let delivery = text(&list["data"][0], "id");
    let delivery = gateway.get(&format!("/v1/deliveries/{delivery}")).await;
    assert_eq!(delivery["state"], "delivered", "{delivery}");
    let [attempt] = delivery["attempt_log"].as_array().expect("a list").as_slice() else {
        panic!("not one attempt: {delivery}");
    };
    assert_eq!(attempt["status_code"], service::STATUS.as_u16(), "{attempt}");
    assert_eq!(attempt["response_body"], service::BODY, "{attempt}");
}

/// Repeated names, bytes beyond ASCII, nothing at all.
fn odd_headers() -> HeaderMap {
    let beyond_ascii: Vec<u8> = (0x80..=u8::MAX).collect();
    let table: [(&str, &[u8]); 9] = [
        ("content-type", b"application/x-odd; charset=\"?\""),
        ("content-encoding", b"br"),
        ("x-many", b"second to none"),
        ("x-many", b"a, b"),
        ("x-many", b"a, b"),
        ("x-empty", b""),
        ("x-bytes", &beyond_ascii),
        ("x-tab", b"a\tb"),
        ("x-hub-signature-256", b"sha256=00"),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in table {
        let value = HeaderValue::from_bytes(value).expect("HTTP allows it");
        headers.append(HeaderName::from_static(name), value);
    }
    headers
}

/// Posts to a source as a provider does, and returns the event's id.
async fn post(gateway: &Gateway, path: &str, headers: &HeaderMap, body: &[u8]) -> String {
    let stream = TcpStream::connect(gateway.address).await.expect("it listens");
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.expect("a connection");
    tokio::spawn(async move { drop(connection.await) });
    let mut request = Request::new(Full::new(Bytes::copy_from_slice(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().expect("a path");
    *request.headers_mut() = headers.clone();
    let authority = HeaderValue::try_from(gateway.address.to_string()).expect("an address");
    request.headers_mut().insert(HOST, authority);
    let answer = within("an answer", sender.send_request(request)).await.expect("an answer");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(status, StatusCode::ACCEPTED, "{body:?}");
    text(&serde_json::from_slice(&body).expect("JSON"), "id")
}

fn check_headers(sent: &HeaderMap, arrived: &HeaderMap) {
    for name in sent.keys() {
        let sent: Vec<_> = sent.get_all(name).iter().collect();
        let arrived: Vec<_> = arrived.get_all(name).iter().collect();
        assert_eq!(arrived, sent, "{name}");
    }
    for name in arrived.keys() {
        let known = sent.contains_key(name) || OWN.contains(&name.as_str()) || *name == HOST;
        assert!(known, "{name} was added on the way: {arrived:?}");
    }
    for name in OWN.iter().filter(|name| **name != CONTENT_LENGTH) {
        assert_eq!(arrived.get_all(*name).iter().count(), 1, "{name}: {arrived:?}");
    }
}
