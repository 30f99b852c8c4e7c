//! The hub socket: a real WebSocket to a real gateway.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use postrider_core::hub::{Answer, Deliver, FromHub, MAX_FROM_HUB_BYTES, Met, PROTOCOL, close};
use postrider_engine::notices::NoticeKind;
use postrider_server::{ConnectionLimits, ServerOptions};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::gateway::{Call, Gateway, PATIENCE, await_notice};
use crate::hub_client::{Connection, Heard, Hub, hello, status};

/// Long enough for something that should not come.
const EARLY: Duration = Duration::from_millis(100);

/// A gateway with a hub and an endpoint behind it.
struct Scene {
    gateway: Gateway,
    hub: Hub,
    endpoint: String,
}

impl Scene {
    async fn set(mut fields: Value) -> Self {
        let gateway = Gateway::start().await;
        let hub = gateway.hub("the office").await;
        fields["hub"] = hub.id.as_str().into();
        let endpoint = gateway.endpoint(fields).await;
        Self { gateway, hub, endpoint }
    }

    async fn event(&self) -> String {
        self.gateway.event(json!({"type": "a.b", "payload": 1})).await
    }

    async fn connect(&self) -> Connection {
        self.gateway.connect(&self.hub, 8).await
    }

    async fn view(&self) -> Value {
        self.gateway.get(&self.hub.path()).await.json()
    }
}

/// A handshake, save for what is left out or put in its place.
fn handshake(hub: &Hub, without: &str) -> Call {
    let headers = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", PROTOCOL),
    ];
    let call = hub.call(Method::GET, "/v1/hub");
    let kept = headers.into_iter().filter(|(name, _)| *name != without);
    kept.fold(call, |call, (name, value)| call.header(name, value))
}

fn mentions(text: &str, word: &str) -> bool {
    text.to_lowercase().contains(word)
}

#[tokio::test]
async fn a_handshake_that_is_none_is_refused_with_a_reason() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub("the office").await;
    for (without, instead, word) in [
        ("connection", None, "connection"),
        ("connection", Some("close"), "connection"),
        ("upgrade", None, "upgrade"),
        ("upgrade", Some("h2c"), "upgrade"),
        ("sec-websocket-version", None, "version"),
        ("sec-websocket-version", Some("8"), "version"),
        ("sec-websocket-key", None, "key"),
        ("sec-websocket-protocol", None, PROTOCOL),
        ("sec-websocket-protocol", Some("postrider.hub.v0"), PROTOCOL),
    ] {
        let mut call = handshake(&hub, without);
        if let Some(instead) = instead {
            call = call.header(without, instead);
        }
        let reply = gateway.call(call).await;
        assert!(reply.problem(400).is_empty(), "{without} {instead:?}");
        let detail = reply.json()["detail"].as_str().expect("a text").to_owned();
        assert!(mentions(&detail, word), "{without} {instead:?}: {detail}");
    }
    gateway.call(hub.call(Method::POST, "/v1/hub")).await.problem(405);
    assert_eq!(gateway.get(&hub.path()).await.json()["connected"], false);
}

#[tokio::test]
async fn only_the_token_of_a_hub_connects_and_it_opens_nothing_else() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub("the office").await;
    let with = |token: &str| Hub { id: hub.id.clone(), token: token.to_owned() };
    let unknown = format!("prh_{}", "0".repeat(64));
    for (token, word) in [(gateway.key.as_str(), "prh_"), (&unknown, "not known"), ("", "prh_")] {
        let reply = gateway.call(handshake(&with(token), "")).await;
        assert!(reply.problem(401).is_empty(), "{reply:?}");
        assert_eq!(reply.headers["www-authenticate"], "Bearer");
        let detail = reply.json()["detail"].as_str().expect("a text").to_owned();
        assert!(mentions(&detail, word), "{detail}");
    }
    gateway.call(Call::new(Method::GET, "/v1/hub").without_key()).await.problem(401);
    for path in ["/v1/hubs", "/v1/stats", "/v1/events"] {
        let reply = gateway.call(hub.call(Method::GET, path)).await;
        assert!(reply.problem(401).is_empty());
        let detail = reply.json()["detail"].as_str().expect("a text").to_owned();
        assert!(mentions(&detail, "hub"), "{detail}");
    }
    gateway.connect(&hub, 1).await;
}

#[tokio::test]
async fn guessing_tokens_is_as_slow_as_guessing_keys() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub("the office").await;
    let mut tries = 0;
    loop {
        let token = format!("prh_{tries:064}");
        let reply = gateway.call(handshake(&Hub { token, ..hub.clone() }, "")).await;
        match reply.status.as_u16() {
            401 => tries += 1,
            429 => break,
            _ => panic!("{reply:?}"),
        }
        assert!(tries < 100, "guessing is not limited");
    }
    // Neither a good token nor a good key is looked at now.
    gateway.call(handshake(&hub, "")).await.problem(429);
    gateway.get("/v1/stats").await.problem(429);
    gateway.clock.advance(Duration::from_mins(1));
    // What is only in the wrong place is no guess.
    for _ in 0..2 * tries {
        let token = gateway.key.clone();
        gateway.call(handshake(&Hub { token, ..hub.clone() }, "")).await.problem(401);
        gateway.call(hub.call(Method::GET, "/v1/stats")).await.problem(401);
    }
    gateway.connect(&hub, 1).await;
}

#[tokio::test]
async fn there_are_only_so_many_connections() {
    let options = ServerOptions { max_hubs: 1, ..ServerOptions::default() };
    let gateway = Gateway::start_with(options, ConnectionLimits::default()).await;
    let (one, other) = (gateway.hub("one").await, gateway.hub("other").await);
    let mut notices = gateway.engine.notices().subscribe();
    let connection = gateway.connect(&one, 1).await;
    let reply = gateway.call(handshake(&other, "")).await;
    reply.problem(503);
    assert_eq!(reply.headers["retry-after"], "1");
    drop(connection);
    await_notice(&mut notices, NoticeKind::HubDisconnected).await;
    let connected = async {
        while gateway.call(handshake(&other, "")).await.status != 101 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, connected).await.expect("in time");
}

#[tokio::test]
async fn what_is_delivered_is_what_an_http_endpoint_would_get() {
    let fields = json!({"name": "till", "timeout": "7s", "headers": {"x-team": "blue"}});
    let scene = Scene::set(fields).await;
    let gateway = &scene.gateway;
    let mut connection = scene.connect().await;
    let body = Bytes::from_static(b"\0\xff\r\n{\"a\": 1 }");
    let call = Call::new(Method::POST, "/v1/events?type=a.b").header("content-type", "x/y; q=1");
    let event = gateway.call(call.body(body.clone())).await.json();
    let deliver = connection.take().await;
    let delivery = gateway.delivery_of(event["id"].as_str().expect("an id")).await;
    assert_eq!((&delivery["state"], &delivery["attempts"]), (&json!("in_flight"), &json!(0)));
    assert_eq!(delivery["waiting_on"], Value::Null);
    assert_eq!((deliver.seq, deliver.attempt), (1, 1));
    assert_eq!(deliver.delivery.to_string(), delivery["id"]);
    assert_eq!(deliver.event.to_string(), event["id"]);
    assert_eq!(deliver.endpoint.to_string(), scene.endpoint);
    assert_eq!((deliver.endpoint_name.as_deref(), &*deliver.kind), (Some("till"), "a.b"));
    assert_eq!((deliver.timeout, &deliver.body), (Duration::from_secs(7), &body));
    let header = |name: &str| {
        let mut found = deliver.headers.iter().filter(|(known, _)| known == name);
        let (_, value) = found.next().unwrap_or_else(|| panic!("no {name}: {deliver:?}"));
        assert_eq!(found.next(), None, "{name} is there once");
        String::from_utf8(value.to_vec()).expect("text")
    };
    assert_eq!(header("content-type"), "x/y; q=1");
    assert_eq!(header("webhook-id"), event["id"].as_str().expect("an id"));
    assert!(header("webhook-signature").starts_with("v1,"));
    assert_eq!(header("postrider-event-type"), "a.b");
    assert_eq!(header("postrider-delivery-id"), deliver.delivery.to_string());
    assert_eq!(header("x-team"), "blue");

    let view = scene.view().await;
    assert_eq!((&view["connected"], &view["in_flight"]), (&json!(true), &json!(1)));
    assert_eq!((&view["agent"], &view["capacity"]), (&json!("test/1"), &json!(8)));
    assert!(view["since"].is_string(), "{view}");
    connection.answer(deliver.seq, status(204)).await;
}

#[tokio::test]
async fn a_body_of_any_size_comes_as_it_is() {
    let scene = Scene::set(json!({})).await;
    let mut connection = scene.connect().await;
    for size in [0, 1, 65_536, 1_000_000] {
        let body: Bytes = (0..=250).cycle().take(size).collect();
        let call = Call::new(Method::POST, "/v1/events?type=a.b").header("content-type", "x/y");
        assert_eq!(scene.gateway.call(call.body(body.clone())).await.status, 202);
        let deliver = connection.take().await;
        assert!(deliver.body == body, "{size} bytes came as {}", deliver.body.len());
        connection.answer(deliver.seq, status(200)).await;
    }
}

#[tokio::test]
async fn what_the_hub_met_with_decides_as_if_the_gateway_had_met_with_it() {
    let policy = json!({"preset": "edge", "classify": {"429": "rate_limited"}});
    let scene = Scene::set(json!({"policy": policy, "ordering": "none"})).await;
    let gateway = &scene.gateway;
    let mut connection = scene.connect().await;
    let mut notices = gateway.engine.notices().subscribe();
    let full = |code: u16, headers: &[(&str, &'static [u8])], body: &'static [u8]| Met::Status {
        status: code,
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Bytes::from_static(value)))
            .collect(),
        body: Bytes::from_static(body),
        truncated: true,
    };
    let error = || "connection refused".to_owned();
    // What it met with, then: state, attempts, outcome, status code.
    let cases = [
        (full(201, &[("x-a", b"1")], b"made"), "delivered", 1, "delivered", Some(201)),
        (status(404), "failed", 1, "final", Some(404)),
        (status(500), "retrying", 1, "retryable", Some(500)),
        (Met::Network { error: error() }, "retrying", 1, "retryable", None),
        (Met::Timeout { error: error() }, "retrying", 1, "retryable", None),
        (full(429, &[("retry-after", b"60")], b""), "retrying", 0, "rate_limited", Some(429)),
    ];
    for (met, state, attempts, outcome, code) in cases {
        let event = scene.event().await;
        let deliver = connection.take().await;
        connection.answer(deliver.seq, met.clone()).await;
        let kind = match state {
            "delivered" => NoticeKind::Delivered,
            "failed" => NoticeKind::Failed,
            _ => NoticeKind::RetryScheduled,
        };
        await_notice(&mut notices, kind).await;
        let delivery = gateway.delivery_of(&event).await;
        assert_eq!(delivery["state"], state, "{met:?}");
        assert_eq!(delivery["attempts"], attempts, "{met:?}");
        let attempt = &delivery["attempt_log"][0];
        assert_eq!((&attempt["outcome"], &attempt["status_code"]), (&json!(outcome), &json!(code)));
        assert_eq!(attempt["counted"], attempts == 1, "{met:?}");
        match met {
            Met::Status { status: 201, .. } => {
                assert_eq!(attempt["response_body"], "made");
                assert_eq!(attempt["response_headers"]["x-a"], "1");
                assert_eq!(attempt["response_truncated"], true);
            }
            Met::Status { .. } => {}
            Met::Network { error } | Met::Timeout { error } => {
                let said = attempt["error"].as_str().expect("a sentence");
                assert!(said.contains(&error), "{said}");
            }
        }
    }
}

#[tokio::test]
async fn a_hub_never_has_more_in_its_hands_than_it_can_hold() {
    let scene = Scene::set(json!({})).await;
    let mut connection = scene.gateway.connect(&scene.hub, 2).await;
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(scene.event().await);
    }
    let mut held: Vec<Deliver> = vec![connection.take().await, connection.take().await];
    let mut taken: Vec<String> = held.iter().map(|deliver| deliver.event.to_string()).collect();
    while taken.len() < sent.len() {
        let early = tokio::time::timeout(EARLY, connection.hear()).await;
        assert!(early.is_err(), "its hands are full: {early:?}");
        let done = held.remove(0);
        connection.answer(done.seq, status(200)).await;
        held.push(connection.take().await);
        taken.extend(held.last().map(|deliver| deliver.event.to_string()));
    }
    assert_eq!(taken, sent, "the oldest event first");
}

#[tokio::test]
async fn an_ordered_endpoint_is_in_order_through_a_hub_too() {
    let scene = Scene::set(json!({"ordering": "fifo"})).await;
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(scene.event().await);
    }
    let mut connection = scene.connect().await;
    for event in sent {
        let deliver = connection.take().await;
        assert_eq!(deliver.event.to_string(), event);
        let early = tokio::time::timeout(EARLY, connection.hear()).await;
        assert!(early.is_err(), "the next one waits: {early:?}");
        connection.answer(deliver.seq, status(200)).await;
    }
}

#[tokio::test]
async fn what_waited_for_a_hub_goes_in_order_when_it_comes_and_costs_no_attempt() {
    let scene = Scene::set(json!({"policy": "edge"})).await;
    let gateway = &scene.gateway;
    let (first, second) = (scene.event().await, scene.event().await);
    gateway.clock.advance(Duration::from_hours(24));
    let waiting = gateway.delivery_of(&first).await;
    assert_eq!((&waiting["state"], &waiting["attempts"]), (&json!("pending"), &json!(0)));
    assert_eq!(waiting["waiting_on"]["reason"], "hub_offline");
    // It goes away with what it was given, again and again.
    for _ in 0..3 {
        let mut notices = gateway.engine.notices().subscribe();
        let mut connection = scene.connect().await;
        let deliver = connection.take().await;
        assert_eq!((deliver.event.to_string(), deliver.attempt), (first.clone(), 1));
        drop(connection);
        await_notice(&mut notices, NoticeKind::HubDisconnected).await;
        let waiting = gateway.delivery_of(&first).await;
        assert_eq!((&waiting["state"], &waiting["attempts"]), (&json!("pending"), &json!(0)));
        assert_eq!(waiting["attempt_log"], json!([]));
    }
    let mut connection = scene.connect().await;
    for event in [first, second] {
        let deliver = connection.take().await;
        assert_eq!(deliver.event.to_string(), event);
        connection.answer(deliver.seq, status(200)).await;
    }
}

/// What a hub must not say once it has a delivery, and how the connection then ends.
#[tokio::test]
async fn a_frame_that_is_wrong_closes_the_connection_with_a_reason_and_loses_nothing() {
    let answer = |seq: u64, met: Met| {
        let duration = Duration::ZERO;
        Message::Binary(FromHub::Answer(Answer { seq, duration, met }).encode())
    };
    let large = MAX_FROM_HUB_BYTES + 1;
    let cases = [
        ("text", Message::Text("{}".into()), close::MALFORMED),
        ("nothing", Message::Binary(Bytes::new()), close::MALFORMED),
        ("noise", Message::Binary(Bytes::from_static(&[0, 0, 0, 9, 1, 2, 3])), close::MALFORMED),
        ("hello again", Message::Binary(hello(8).encode()), close::MALFORMED),
        ("never asked", answer(2, status(200)), close::MALFORMED),
        ("none", answer(0, status(200)), close::MALFORMED),
        ("a long head", Message::Binary(vec![0xff; 64].into()), close::TOO_LARGE),
        ("too large", Message::Binary(vec![0; large].into()), close::TOO_LARGE),
        ("far too large", Message::Binary(vec![0; 32 * large].into()), close::TOO_LARGE),
    ];
    let scene = Scene::set(json!({})).await;
    let event = scene.event().await;
    for (name, message, code) in cases {
        let mut connection = scene.connect().await;
        let deliver = connection.take().await;
        assert_eq!(
            (deliver.event.to_string(), deliver.seq, deliver.attempt),
            (event.clone(), 1, 1)
        );
        connection.send(message).await;
        let (said, reason) = connection.closed().await;
        assert_eq!(said, code, "{name}: {reason}");
        assert!(!reason.is_empty(), "{name}");
        let delivery = scene.gateway.delivery_of(&event).await;
        assert_eq!(delivery["attempt_log"], json!([]), "{name}");
    }
    let mut connection = scene.connect().await;
    let deliver = connection.take().await;
    let mut notices = scene.gateway.engine.notices().subscribe();
    connection.answer(deliver.seq, status(200)).await;
    await_notice(&mut notices, NoticeKind::Delivered).await;
    // An answer counts once.
    connection.answer(deliver.seq, status(500)).await;
    assert_eq!(connection.closed().await.0, close::MALFORMED);
    assert_eq!(scene.gateway.delivery_of(&event).await["state"], "delivered");
}

/// A frame that is nothing but its head.
fn head(text: &str) -> Message {
    let length = u32::try_from(text.len()).expect("short");
    Message::Binary([&length.to_be_bytes()[..], text.as_bytes()].concat().into())
}

#[tokio::test]
async fn the_first_word_is_hello() {
    let scene = Scene::set(json!({})).await;
    scene.event().await;
    let answer = FromHub::Answer(Answer { seq: 1, duration: Duration::ZERO, met: status(200) });
    for (name, message) in [
        ("an answer", Message::Binary(answer.encode())),
        ("text", Message::Text("hello".into())),
        ("no capacity", head(r#"{"kind":"hello","agent":"a","capacity":0}"#)),
        ("too much capacity", head(r#"{"kind":"hello","agent":"a","capacity":1001}"#)),
        ("no agent", head(r#"{"kind":"hello","capacity":1}"#)),
    ] {
        let mut connection = scene.gateway.dial(&scene.hub).await;
        connection.send(message).await;
        let (code, reason) = connection.closed().await;
        assert_eq!(code, close::MALFORMED, "{name}: {reason}");
        assert_eq!(scene.view().await["connected"], false, "{name}");
    }
}

#[tokio::test]
async fn a_second_connection_takes_over() {
    let scene = Scene::set(json!({})).await;
    let event = scene.event().await;
    let mut old = scene.connect().await;
    let deliver = old.take().await;
    let mut new = scene.connect().await;
    assert_eq!(old.closed().await.0, close::TAKEN_OVER);
    let again = new.take().await;
    assert_eq!((again.delivery, again.attempt, again.seq), (deliver.delivery, 1, 1));
    let mut notices = scene.gateway.engine.notices().subscribe();
    new.answer(again.seq, status(200)).await;
    await_notice(&mut notices, NoticeKind::Delivered).await;
    let delivery = scene.gateway.delivery_of(&event).await;
    assert_eq!(delivery["attempt_log"].as_array().map(Vec::len), Some(1));
    assert_eq!(scene.view().await["connected"], true);
}

#[tokio::test]
async fn a_deleted_hub_is_cut_off_at_once() {
    let scene = Scene::set(json!({})).await;
    let event = scene.event().await;
    let mut connection = scene.connect().await;
    connection.take().await;
    assert_eq!(scene.gateway.ask(Method::DELETE, &scene.hub.path()).await.status, 204);
    assert_eq!(connection.closed().await.0, close::REVOKED);
    scene.gateway.call(handshake(&scene.hub, "")).await.problem(401);
    let waiting = scene.gateway.delivery_of(&event).await;
    assert_eq!((&waiting["state"], &waiting["attempts"]), (&json!("pending"), &json!(0)));
    assert_eq!(waiting["waiting_on"]["reason"], "hub_offline");
}

#[tokio::test]
async fn a_hub_that_was_deleted_before_it_said_hello_is_not_taken_in() {
    let scene = Scene::set(json!({})).await;
    let mut connection = scene.gateway.dial(&scene.hub).await;
    assert_eq!(scene.gateway.ask(Method::DELETE, &scene.hub.path()).await.status, 204);
    connection.say(&hello(1)).await;
    assert_eq!(connection.closed().await.0, close::REVOKED);
}

#[tokio::test]
async fn a_stop_says_goodbye_to_hubs_and_waits_for_them() {
    let scene = Scene::set(json!({})).await;
    let mut connection = scene.connect().await;
    let mut silent = scene.gateway.dial(&scene.hub).await;
    scene.gateway.stop.send(()).expect("the server runs");
    for connection in [&mut connection, &mut silent] {
        assert_eq!(connection.closed().await.0, close::STOPPING);
        assert!(matches!(connection.hear().await, Heard::Cut));
    }
    let ended = tokio::time::timeout(PATIENCE, scene.gateway.server).await.expect("in time");
    ended.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn a_stop_takes_the_answers_that_are_on_their_way() {
    let scene = Scene::set(json!({})).await;
    let event = scene.event().await;
    let mut connection = scene.connect().await;
    let deliver = connection.take().await;
    scene.gateway.stop.send(()).expect("the server runs");
    let early = tokio::time::timeout(EARLY, connection.hear()).await;
    assert!(early.is_err(), "its answer is waited for: {early:?}");
    let mut notices = scene.gateway.engine.notices().subscribe();
    connection.answer(deliver.seq, status(200)).await;
    assert_eq!(connection.closed().await.0, close::STOPPING);
    let notice = await_notice(&mut notices, NoticeKind::Delivered).await;
    let about = notice.delivery.as_ref().expect("a delivery");
    assert_eq!(about.event_id.to_string(), event);
}

#[tokio::test]
async fn a_hub_is_a_connection_like_any_other_and_lives_longer() {
    let limits = ConnectionLimits {
        max_connections: 1,
        header_timeout: Duration::from_millis(50),
        ..ConnectionLimits::default()
    };
    let gateway = Gateway::start_with(ServerOptions::default(), limits).await;
    let hub = gateway.hub("the office").await;
    let connection = gateway.connect(&hub, 1).await;
    // Several times as long as a client may take to make its request.
    let other = gateway.get("/healthz");
    tokio::pin!(other);
    let early = tokio::time::timeout(4 * limits.header_timeout, &mut other).await;
    assert!(early.is_err(), "the hub has the only place");
    let view = gateway.engine.hub_of_token(&hub.token).expect("the hub");
    let view = gateway.engine.hub(view.tenant, view.id).await.expect("the hub");
    assert!(view.connection.is_some(), "and keeps it");
    drop(connection);
    assert_eq!(other.await.status, 200);
}

#[tokio::test]
async fn the_stream_tells_of_hubs_that_come_and_go() {
    let scene = Scene::set(json!({})).await;
    let stream = scene.gateway.open(Call::new(Method::GET, "/v1/stream")).await;
    let mut body = stream.into_body();
    drop(scene.connect().await);
    let mut text = String::new();
    while !text.contains("hub.disconnected") {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("in time");
        let frame = frame.expect("the stream goes on").expect("no error");
        text.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
    }
    let notices: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    let kinds: Vec<&Value> = notices.iter().map(|notice| &notice["kind"]).collect();
    assert_eq!(kinds, ["hub.connected", "hub.disconnected"]);
    assert!(notices.iter().all(|notice| notice["hub_id"] == scene.hub.id.as_str()), "{text}");
}
