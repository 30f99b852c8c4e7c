//! The overview: whether all is well, how much goes through, and what needs somebody.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::browser::{Browser, Page};
use crate::gateway::Gateway;
use crate::sink::{Reply, Sink};

/// What the page says at its top.
fn verdict(page: &Page) -> &str {
    let start = "verdict-sentence\" role=\"status\">";
    let (_, rest) = page.text.split_once(start).expect("a verdict");
    rest.split("</p>").next().expect("its end")
}

/// How many rows the page has about endpoints that need a look.
fn concerns(page: &Page) -> usize {
    page.text.matches("<th scope=\"row\"><a href=\"/endpoints/ep_").count()
}

/// Sends an event to the only endpoint and waits until its delivery has ended so.
async fn ended(gateway: &Gateway, kind: &str, state: &str) {
    let sent = gateway.send(json!({"type": kind, "payload": 1})).await;
    gateway.until_state(sent.only(), state).await;
}

#[tokio::test]
async fn an_empty_gateway_greets_and_one_with_something_in_it_is_looked_over() {
    let browser = Browser::signed_in().await;
    browser.get("/").await.expect(200).assert_has("Welcome to Postrider");
    let source = json!({"name": "a", "verify": {"scheme": "none"}});
    browser.gateway.client.post("/v1/sources", &source).await.expect(201);
    let page = browser.get("/").await.expect(200);
    page.assert_lacks("Welcome to Postrider");
    assert_eq!(verdict(&page), "Nothing goes anywhere yet");
}

#[tokio::test]
async fn what_goes_through_is_counted_and_drawn() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(200).await;
    gateway.endpoint(&sink.url(), json!({})).await;
    for _ in 0..3 {
        ended(gateway, "order.created", "delivered").await;
    }
    let page = browser.get("/").await.expect(200);
    assert_eq!(verdict(&page), "All is well");
    assert_eq!(concerns(&page), 0);
    page.assert_has("100 %");
    page.assert_has("<title>00:00: 3 delivered, 0 failed attempts, 0 dead</title>");
    page.assert_has("All deliveries in the last hour: 3 delivered");
    page.assert_has("<a href=\"/deliveries?state=delivered\"><span class=\"badge state-delivered\">delivered</span> <span class=\"value\">3</span>");
    page.assert_has("nothing waits");
    page.assert_has("data-live=\"overview\"");
}

#[tokio::test]
async fn the_chart_is_of_the_span_that_was_chosen() {
    let browser = Browser::signed_in().await;
    let sink = Sink::answering(200).await;
    browser.gateway.endpoint(&sink.url(), json!({})).await;
    ended(&browser.gateway, "order.created", "delivered").await;
    let table = [
        ("/", "hour", 60),
        ("/?span=day", "day", 96),
        ("/?span=week", "week", 84),
        ("/?span=%3Cscript%3E", "hour", 60),
    ];
    for (path, span, columns) in table {
        let page = browser.get(path).await.expect(200);
        page.assert_has(&format!(
            "<a href=\"/?span={span}\" aria-current=\"true\">Last {span}</a>"
        ));
        page.assert_has(&format!("hx-get=\"/?span={span}\""));
        page.assert_has(&format!("All deliveries in the last {span}: 1 delivered"));
        assert_eq!(page.text.matches("<g class=\"column\">").count(), columns, "{path}");
        page.assert_lacks("<script>");
    }
}

#[tokio::test]
async fn a_dead_letter_needs_somebody_for_an_hour() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(500).await;
    let id = gateway
        .endpoint(&sink.url(), json!({"name": "orders", "policy": {"max_attempts": 1}}))
        .await;
    ended(gateway, "order.created", "dead").await;
    let page = browser.get("/").await.expect(200);
    assert_eq!(verdict(&page), "1 endpoint needs you");
    page.assert_has("<li>1 dead letter in the last hour</li>");
    page.assert_has("made 1 dead letter in the last hour");
    page.assert_has(&format!("<a href=\"/endpoints/{id}\">orders</a>"));
    page.assert_has(&format!("<a href=\"/dead-letters?endpoint={id}\">1</a>"));
    page.assert_has("0.00 %");
    // The session outlasts no such wait; whoever comes back signs in again.
    gateway.advance(Duration::from_hours(2));
    let back = Browser::with_key(gateway, &gateway.client.key).await;
    let page = back.get("/").await.expect(200);
    assert_eq!(verdict(&page), "All is well");
    page.assert_has("<span class=\"badge state-dead\">dead</span> <span class=\"value\">1</span>");
}

#[tokio::test]
async fn why_an_endpoint_needs_a_look_is_said_in_words() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let gone = Sink::answering(410).await;
    let busy = Sink::start(|_| Reply::status(429).header("retry-after", "120")).await;
    gateway.endpoint(&gone.url(), json!({"name": "gone", "event_types": ["a"]})).await;
    let held = gateway.endpoint(&busy.url(), json!({"name": "busy", "event_types": ["b"]})).await;
    let still = Sink::answering(200).await;
    let paused =
        gateway.endpoint(&still.url(), json!({"name": "quiet", "event_types": ["c"]})).await;
    gateway.client.act(&format!("/v1/endpoints/{paused}/pause")).await.expect(200);
    ended(gateway, "a", "failed").await;
    ended(gateway, "b", "retrying").await;
    let page = browser.get("/").await.expect(200);
    assert_eq!(verdict(&page), "1 endpoint needs you");
    for words in [
        "<li>1 endpoint is disabled</li>",
        "<li>1 endpoint asked for a pause</li>",
        "<li>1 endpoint is paused</li>",
        "asked to be left alone (Retry-After); sending goes on <time datetime=\"2026-01-01T00:02:",
        "paused; deliveries are kept until it is resumed",
    ] {
        page.assert_has(words);
    }
    page.assert_has(&format!("<a href=\"/deliveries?endpoint={held}\">1</a>"));
    let places: Vec<Option<usize>> =
        [">gone</a>", ">busy</a>", ">quiet</a>"].map(|name| page.text.find(name)).to_vec();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
}

#[tokio::test]
async fn only_the_worst_endpoints_are_shown() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(200).await;
    for _ in 0..23 {
        let id = gateway.endpoint(&sink.url(), json!({})).await;
        gateway.client.act(&format!("/v1/endpoints/{id}/pause")).await.expect(200);
    }
    let page = browser.get("/").await.expect(200);
    assert_eq!((verdict(&page), concerns(&page)), ("All is well", 20));
    page.assert_has("3 more are in the list");
}

#[tokio::test]
async fn a_hub_that_deliveries_wait_for_needs_somebody() {
    let browser = Browser::signed_in().await;
    let client = &browser.gateway.client;
    let hub = client.post("/v1/hubs", &json!({"name": "cellar"})).await.expect(201);
    client.post("/v1/endpoints", &json!({"hub": hub["id"]})).await.expect(201);
    let page = browser.get("/").await.expect(200);
    assert_eq!(verdict(&page), "All is well");
    page.assert_has("not connected");
    browser.gateway.send(json!({"type": "a", "payload": 1})).await;
    let page = browser.get("/").await.expect(200);
    assert_eq!(verdict(&page), "1 hub is not connected");
    page.assert_has(">cellar</a>");
    page.assert_lacks("nothing waits");
}

#[tokio::test]
async fn names_from_outside_are_only_text() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(200).await;
    let name = "\"><script>alert(1)</script>\u{202e}";
    let id = gateway.endpoint(&sink.url(), json!({"name": name})).await;
    gateway.client.act(&format!("/v1/endpoints/{id}/pause")).await.expect(200);
    gateway
        .client
        .post("/v1/hubs", &json!({"name": "<img src=x onerror=alert(1)>"}))
        .await
        .expect(201);
    let page = browser.get("/").await.expect(200);
    for hostile in ["<script>alert", "<img src=x", "\u{202e}"] {
        page.assert_lacks(hostile);
    }
    page.assert_has("&#60;script&#62;alert(1)");
    page.assert_has("&#60;img src=x");
}

#[tokio::test]
async fn a_tenant_sees_nothing_of_another() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(500).await;
    gateway
        .endpoint(&sink.url(), json!({"name": "not theirs", "policy": {"max_attempts": 1}}))
        .await;
    gateway.client.post("/v1/hubs", &json!({"name": "nor this"})).await.expect(201);
    ended(gateway, "order.created", "dead").await;
    let theirs = gateway.tenant("acme").await;
    let visitor = Browser::with_key(gateway, &theirs.key).await;
    visitor.get("/").await.expect(200).assert_has("Welcome to Postrider");
    theirs.post("/v1/endpoints", &json!({"url": sink.url()})).await.expect(201);
    let page = visitor.get("/").await.expect(200);
    assert_eq!(verdict(&page), "All is well");
    page.assert_lacks("not theirs");
    page.assert_lacks("nor this");
    page.assert_has("<span class=\"badge state-dead\">dead</span> <span class=\"value\">0</span>");
    page.assert_has("Nothing has happened in this time");
}

#[tokio::test]
async fn nobody_sees_it_without_signing_in() {
    let gateway = Gateway::start().await;
    let nobody = Browser::nobody(&gateway);
    for method in [Method::GET, Method::HEAD] {
        let page = nobody.send(crate::browser::Ask::new(method, "/")).await;
        assert_eq!(page.status, 303, "{page:?}");
        page.assert_lacks("Overview");
    }
}
