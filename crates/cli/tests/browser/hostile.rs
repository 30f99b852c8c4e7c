//! What comes from outside is text: whatever it says, nothing of it runs and nothing of it is markup.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

use crate::gateway::{KEY, text};
use crate::page::Visit;
use crate::scene::Scene;
use crate::within;

/// Each tries to set a flag on the window, another way.
const ATTACKS: &[&str] = &[
    "<script>window.pwned = 1; alert(1)</script>",
    "\"><img src=x onerror=\"window.pwned = 1; alert(1)\">",
    "'><svg onload=window.pwned=1>",
    "</title><script>window.pwned = 1</script>",
    "</textarea></pre></code><iframe srcdoc=\"<script>parent.pwned = 1</script>\"></iframe>",
    "javascript:window.pwned=1",
    "<div hx-get=/sign-out hx-trigger=load hx-on:load=\"window.pwned = 1\">",
    "{{ constructor.constructor('window.pwned = 1')() }}",
    "\u{1b}[31mred\u{1b}[0m \u{202e}desrever",
];
/// For keys, which have none.
const WITHOUT_SPACES: &str = "\"><img/src=x/onerror=window.pwned=1>";
/// Headings, tables, forms and all else that a page has anyway; never what an attack would make.
const MADE: &str = "return document.querySelectorAll('main img:not([alt]), main iframe, \
                    main script, main svg[onload], main [onerror], main [hx-on\\\\:load]').length;";

#[tokio::test]
async fn what_comes_from_outside_is_shown_and_never_run() {
    let scene = Scene::empty().await;
    scene.make_ill(true);
    let attack = ATTACKS.join(" ");
    let endpoint = scene.endpoint(&ATTACKS[1..4].join(" "), "hostile.*", &[]).await;
    let event = scene
        .send(&json!({
            "type": "hostile.payload",
            "idempotency_key": WITHOUT_SPACES,
            "ordering_key": WITHOUT_SPACES,
            "metadata": { "correlation_id": ATTACKS[3], "note": attack },
            "payload": { "attack": attack, "long": "x".repeat(700_000) },
        }))
        .await;
    let delivery = scene.delivery_in(&event, "dead").await;
    let bytes = [b"\xff\xfe\x00".as_slice(), attack.as_bytes()].concat();
    let raw = post_bytes(&scene, bytes).await;
    let name = json!({ "name": ATTACKS[1], "verify": { "scheme": "none" } });
    scene.create("/v1/sources", &name).await;

    let visit = Visit::signed_in(&scene.gateway).await;
    let query: String = url::form_urlencoded::byte_serialize(attack.as_bytes()).collect();
    let mut shown = BTreeMap::new();
    for path in [
        "/".to_owned(),
        "/events".to_owned(),
        format!("/events/{event}"),
        format!("/events/{raw}"),
        "/deliveries".to_owned(),
        format!("/deliveries/{delivery}"),
        "/dead-letters".to_owned(),
        "/dead-letters/replay".to_owned(),
        "/endpoints".to_owned(),
        format!("/endpoints/{endpoint}"),
        format!("/endpoints/{endpoint}/edit"),
        "/endpoints/new".to_owned(),
        "/sources".to_owned(),
        "/audit".to_owned(),
        format!("/search?q={query}"),
        format!("/events?type={query}"),
        format!("/endpoints?q={query}"),
        format!("/sign-in?next={query}"),
    ] {
        visit.open(&path).await;
        // With an alert open this would fail.
        let run = visit.browser.run("return window.pwned === undefined;", &[]).await;
        assert_eq!(run.unwrap_or_else(|error| panic!("{path}: {error:#}")), json!(true), "{path}");
        let made = visit.browser.run(MADE, &[]).await.expect("a page");
        assert_eq!(made, json!(0), "{path}");
        let title = visit.browser.title().await.expect("a title");
        assert!(title.ends_with("Postrider"), "{path}: {title}");
        let complaints = visit.complaints().await;
        let stopped: Vec<_> =
            complaints.iter().filter(|line| line.message.contains("Content Security")).collect();
        assert!(stopped.is_empty(), "{path}: {stopped:?}");
        shown.insert(path, visit.text().await);
    }
    let payload = &shown[&format!("/events/{event}")];
    assert!(payload.contains(ATTACKS[0]), "it is to be read as it came");
    assert!(!payload.contains('\u{1b}') && !payload.contains('\u{202e}'), "made visible");
    assert!(payload.len() < 200_000, "a long line is cut");
    assert!(shown[&format!("/deliveries/{delivery}")].contains(&delivery));
}

/// Sends an event that is no JSON, and returns its id.
async fn post_bytes(scene: &Scene, bytes: Vec<u8>) -> String {
    let address = scene.gateway.address;
    within("an answer", async {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(async move { drop(connection.await) });
        let request = Request::post("/v1/events?type=hostile.bytes")
            .header(HOST, address.to_string())
            .header(AUTHORIZATION, format!("Bearer {KEY}"))
            .header(CONTENT_TYPE, "text/html")
            .body(Full::new(Bytes::from(bytes)))
            .expect("a request");
        let answer = sender.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        text(&serde_json::from_slice(&body).expect("JSON"), "id")
    })
    .await
}
