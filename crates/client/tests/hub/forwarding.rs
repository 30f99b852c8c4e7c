//! What a target gets, and what the gateway is told about it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, LOCATION};
use http::{HeaderValue, Method, Response, StatusCode};
use postrider_client::hub::{Happening, Routes};
use postrider_core::hub::{Answer, Deliver, MAX_EXCERPT_BYTES, Met};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::gateway::{Gateway, deliver, welcome};
use crate::running::{Running, options};
use crate::service::Service;
use crate::within;

fn header(name: &str, value: &[u8]) -> (String, Bytes) {
    (name.to_owned(), Bytes::copy_from_slice(value))
}

#[tokio::test]
async fn body_and_headers_pass_unchanged() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let mut options = options(&gateway, service.address());
    options.routes =
        Routes::to(&format!("http://{}/hooks?from=hub", service.address())).expect("a URL");
    let _running = Running::start(options);
    let mut peer = gateway.welcome().await;

    let body: Bytes = (0..=u8::MAX).collect();
    // All that a header can hold: no control characters but the tab.
    let value: Vec<u8> = (b'!'..=b'~').chain(0x80..=u8::MAX).chain([b'\t', b'x']).collect();
    let passed = vec![
        header("content-type", b"application/octet-stream"),
        header("webhook-signature", b"v1,abc="),
        header("x-bytes", &value),
        header("x-twice", b"first"),
        header("x-twice", b"second"),
    ];
    let mut headers = passed.clone();
    headers.extend([
        header("host", b"hooks.example.com"),
        header("connection", b"keep-alive, X-Hop"),
        header("x-hop", b"only as far as the next"),
        header("keep-alive", b"timeout=5"),
        header("transfer-encoding", b"chunked"),
        header("content-length", b"3"),
        header("upgrade", b"h2c"),
    ]);
    peer.deliver(Deliver { headers, body: body.clone(), ..deliver(1) }).await;

    let arrival = service.next().await;
    let request = &arrival.request;
    assert_eq!(request.method(), Method::POST);
    assert_eq!(request.uri(), "/hooks?from=hub");
    assert_eq!(request.headers()[HOST], service.address().to_string());
    assert_eq!(request.headers()[CONTENT_LENGTH], "256");
    assert_eq!(request.body(), &body);
    let mut got: Vec<_> = request
        .headers()
        .iter()
        .filter(|(name, _)| ![HOST, CONTENT_LENGTH].contains(name))
        .map(|(name, value)| header(name.as_str(), value.as_bytes()))
        .collect();
    // Between names there is no order, between values of one name there is.
    got.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(got, passed);
    arrival.with(204);
    assert_eq!(peer.status_of(1).await, 204);
}

#[tokio::test]
async fn what_the_target_says_is_reported_as_it_is() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let _running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.welcome().await;
    for (seq, status) in (1..).zip([200, 201, 302, 404, 410, 429, 500, 503]) {
        peer.deliver(deliver(seq)).await;
        let arrival = service.next().await;
        let mut response = Response::new(Bytes::from_static(b"\0said\xff"));
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        // A redirect is reported like everything else, and not followed.
        let headers = response.headers_mut();
        headers.insert(LOCATION, HeaderValue::from_static("http://127.0.0.1:1/"));
        headers.append("x-twice", HeaderValue::from_static("1"));
        headers.append("x-twice", HeaderValue::from_static("2"));
        arrival.answer(response);

        let answer = peer.answer().await;
        let Answer { seq: of, met: Met::Status { status: told, headers, body, truncated }, .. } =
            answer
        else {
            panic!("{answer:?}");
        };
        assert_eq!((of, told), (seq, status));
        assert_eq!(body, &b"\0said\xff"[..]);
        assert!(!truncated);
        let twice: Vec<_> = headers.iter().filter(|(name, _)| name == "x-twice").collect();
        assert_eq!(twice, [&header("x-twice", b"1"), &header("x-twice", b"2")]);
    }
}

#[tokio::test]
async fn a_long_answer_is_cut() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let _running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.welcome().await;
    for (seq, (length, kept, cut)) in (1..).zip([
        (MAX_EXCERPT_BYTES, MAX_EXCERPT_BYTES, false),
        (MAX_EXCERPT_BYTES + 1, MAX_EXCERPT_BYTES, true),
        (1 << 20, MAX_EXCERPT_BYTES, true),
        (0, 0, false),
    ]) {
        peer.deliver(deliver(seq)).await;
        service.next().await.answer(Response::new(vec![b'x'; length].into()));
        let answer = peer.answer().await;
        let Met::Status { status: 200, body, truncated, .. } = answer.met else {
            panic!("{answer:?}");
        };
        assert_eq!((body.len(), truncated), (kept, cut), "{length} bytes");
    }
}

#[tokio::test]
async fn a_target_that_is_not_there_is_a_network_error() {
    let gateway = Gateway::start().await;
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        listener.local_addr().expect("it listens")
    };
    let _running = Running::start(options(&gateway, nobody));
    let mut peer = gateway.welcome().await;
    peer.deliver(deliver(1)).await;
    let Met::Network { error } = peer.answer().await.met else { panic!("a network error") };
    assert!(error.starts_with(&format!("http://{nobody} cannot be reached: ")), "{error}");
    assert!(error.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_target_that_breaks_off_is_a_network_error() {
    let gateway = Gateway::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(async move {
        for said in ["", "HTTP/1.1 200 OK\r\nx-cut", "nonsense\r\n\r\n", "HTTP/1.1 101 Up\r\n\r\n"]
        {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer).await.expect("a request");
            stream.write_all(said.as_bytes()).await.expect("it is read");
        }
    });
    let _running = Running::start(options(&gateway, address));
    let mut peer = gateway.welcome().await;
    for seq in 1..=4 {
        peer.deliver(deliver(seq)).await;
        let answer = peer.answer().await;
        let Met::Network { error } = &answer.met else { panic!("{answer:?}") };
        assert!(error.starts_with(&format!("http://{address} ")), "{error}");
    }
}

#[tokio::test]
async fn a_target_that_hangs_is_a_timeout_at_the_deadline_of_the_frame() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let _running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.welcome().await;
    let timeout = Duration::from_millis(50);
    peer.deliver(Deliver { timeout, ..deliver(1) }).await;
    let arrival = service.next().await;
    let answer = peer.answer().await;
    let Met::Timeout { error } = &answer.met else { panic!("{answer:?}") };
    assert_eq!(error, &format!("http://{} did not answer within 50ms", service.address()));
    assert!(answer.duration >= timeout, "{:?}", answer.duration);
    arrival.given_up().await;
}

#[tokio::test]
async fn a_status_decides_although_its_body_never_ends() {
    let gateway = Gateway::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let _running = Running::start(options(&gateway, listener.local_addr().expect("it listens")));
    let mut peer = gateway.welcome().await;
    peer.deliver(Deliver { timeout: Duration::from_millis(200), ..deliver(1) }).await;
    let (mut stream, _) = within("a dial", listener.accept()).await.expect("a connection");
    let began = b"HTTP/1.1 503 No\r\ncontent-length: 10\r\n\r\nonly";
    stream.write_all(began).await.expect("it is read");
    let answer = peer.answer().await;
    let Met::Status { status: 503, body, truncated: true, .. } = answer.met else {
        panic!("{answer:?}");
    };
    assert_eq!(body, "only");
}

#[tokio::test]
async fn what_cannot_be_a_request_is_answered_nevertheless() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let _running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.welcome().await;
    peer.deliver(Deliver { headers: vec![header("x-split", b"a\r\nb: c")], ..deliver(1) }).await;
    let answer = peer.answer().await;
    let Met::Network { error } = answer.met else { panic!("{answer:?}") };
    assert_eq!(error, "the header `x-split` holds what HTTP does not allow");
    assert!(service.is_idle());
}

#[tokio::test]
async fn each_endpoint_goes_where_its_route_says() {
    let gateway = Gateway::start().await;
    let (mut by_id, mut by_name) = (Service::start().await, Service::start().await);
    let mut options = options(&gateway, by_id.address());
    options.routes = Routes::default();
    let url = |service: &Service| format!("http://{}", service.address());
    options.routes.send("ep_0000000000007", &url(&by_id)).expect("a route");
    options.routes.send("mail", &url(&by_name)).expect("a route");
    let mut running = Running::start(options);
    let mut peer = gateway.welcome().await;

    peer.deliver(deliver(1)).await;
    by_id.next().await.with(201);
    assert_eq!(peer.status_of(1).await, 201);

    let endpoint = postrider_core::EndpointId::from_i64(8);
    let named = |seq, name: Option<&str>| Deliver {
        endpoint,
        endpoint_name: name.map(str::to_owned),
        ..deliver(seq)
    };
    peer.deliver(named(2, Some("mail"))).await;
    by_name.next().await.with(202);
    assert_eq!(peer.status_of(2).await, 202);

    for (seq, name, says) in [
        (3, Some("print"), "no route for endpoint ep_0000000000008 (print) at this hub"),
        (4, None, "no route for endpoint ep_0000000000008 at this hub"),
    ] {
        peer.deliver(named(seq, name)).await;
        let answer = peer.answer().await;
        assert_eq!(answer.met, Met::Network { error: says.to_owned() });
    }
    let reported = running.so_far();
    assert_eq!(reported.len(), 1 + 4 * 2, "{reported:?}");
}

#[tokio::test]
async fn connections_to_a_target_are_used_again() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let _running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.welcome().await;
    for seq in 1..=3 {
        peer.deliver(deliver(seq)).await;
        let arrival = service.next().await;
        assert_eq!(arrival.connection, 1);
        arrival.with(200);
        assert_eq!(peer.status_of(seq).await, 200);
    }
}

#[tokio::test]
async fn everything_that_happens_is_reported_in_its_order() {
    let (gateway, mut service) = (Gateway::start().await, Service::start().await);
    let mut running = Running::start(options(&gateway, service.address()));
    let mut peer = gateway.welcome().await;
    let sent = deliver(1);
    peer.deliver(sent.clone()).await;
    service.next().await.with(500);
    let answer = peer.answer().await;

    let welcome = welcome();
    let connected = Happening::Connected { hub: welcome.hub, name: welcome.name };
    assert_eq!(running.happening().await, connected);
    assert_eq!(running.happening().await, Happening::Received(sent.clone().into()));
    let Happening::Answered { deliver, answer: told } = running.happening().await else {
        panic!("answered");
    };
    assert_eq!(*deliver, sent);
    assert_eq!(told.met, answer.met);
}
