//! Deliveries: the list, the page of one with why it is where it is, retrying and cancelling.

use std::time::Duration;

use serde_json::json;

use crate::browser::{Browser, Page};
use crate::client::Client;
use crate::hostile::{self, MARKUP, STEERING, assert_inert};
use crate::sink::{Reply, Sink};

/// Where the way to the next page leads.
#[track_caller]
pub(crate) fn next_page(page: &Page) -> String {
    let (before, _) = page.text.split_once("\" rel=\"next\"").expect("another page");
    let (_, path) = before.rsplit_once("href=\"").expect("a link");
    path.replace("&#38;", "&")
}

#[tokio::test]
async fn a_page_says_why_a_delivery_waits_and_what_lies_ahead() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink =
        Sink::start(|_| Reply::status(503).header("x-server", "busy").body("come back later"))
            .await;
    let endpoint = gateway.endpoint(&sink.url(), json!({"name": "shop", "policy": "router"})).await;
    let sent = gateway.send(json!({"type": "order.created", "payload": {"a": 1}})).await;
    let id = sent.only();
    gateway.until_state(id, "retrying").await;
    let page = browser.get(&format!("/deliveries/{id}")).await.expect(200);
    for text in [
        "Waiting: tried once; the next attempt is at 00:00:30 UTC.",
        "2026-01-01 00:00:30.000 UTC",
        "come back later",
        "x-server",
        "HTTP 503",
        "failed, to be tried again",
        "Retry now",
        "webhook-signature</dt><dd>(not shown)",
        "<dt>webhook-timestamp</dt><dd>1767225600</dd>",
        &format!("<dt>webhook-id</dt><dd>{}</dd>", sent.event),
        &format!("POST {}", sink.url()),
        &format!("/endpoints/{endpoint}"),
        &format!("data-live=\"delivery={id}\""),
        "curl --globoff --request POST",
        "--data-raw &#39;{&#34;a&#34;:1}&#39;",
        &format!("--header &#39;postrider-delivery-id: {id}&#39;"),
        "--header &#39;postrider-attempt: 2&#39;",
    ] {
        page.assert_has(text);
    }
    assert_eq!(page.text.matches("class=\"ahead\"").count(), 4, "{}", page.text);
    page.assert_lacks("whsec_");
}

#[tokio::test]
async fn a_delivery_goes_from_retrying_to_dead_and_back() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(500).await;
    let policy = json!({"preset": "router", "max_attempts": 2});
    gateway.endpoint(&sink.url(), json!({"policy": policy})).await;
    let sent = gateway.send(json!({"type": "a.b", "payload": 1})).await;
    let id = sent.only();
    gateway.until_state(id, "retrying").await;
    gateway.advance(Duration::from_secs(31));
    gateway.until_state(id, "dead").await;
    let path = format!("/deliveries/{id}");
    let page = browser.get(&path).await.expect(200);
    page.assert_has("Dead: tried twice, which is as often as the endpoint&#39;s policy allows.");
    page.assert_has("exhausted");
    page.assert_lacks("Cancel…");
    page.assert_lacks("class=\"ahead\"");

    browser.post_without_token(&format!("{path}/retry"), &[]).await.expect(403);
    gateway.until_state(id, "dead").await;
    sink.follow(|_| Reply::status(200));
    let done = browser.post(&format!("{path}/retry"), &[]).await.expect(303);
    assert_eq!(done.location().as_deref(), Some(path.as_str()));
    gateway.until_state(id, "delivered").await;
    let page = browser.get(&path).await.expect(200);
    page.assert_has("It goes again");
    page.assert_has("Delivered at 00:00:31 UTC.");
    page.assert_lacks("Retry now");

    // Whoever has an old page open is told, and nothing happens.
    browser.post(&format!("{path}/retry"), &[]).await.expect(303);
    browser.get(&path).await.expect(200).assert_has("Not done: ");
    browser.post(&format!("{path}/cancel"), &[]).await.expect(303);
    gateway.until_state(id, "delivered").await;
}

#[tokio::test]
async fn cancelling_asks_first() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(500).await;
    gateway.endpoint(&sink.url(), json!({"policy": "router"})).await;
    let sent = gateway.send(json!({"type": "a.b", "payload": 1})).await;
    let id = sent.only();
    gateway.until_state(id, "retrying").await;
    let path = format!("/deliveries/{id}");
    browser.get(&path).await.expect(200).assert_has(&format!("href=\"{path}/cancel\""));
    let ask = browser.get(&format!("{path}/cancel")).await.expect(200);
    ask.assert_has("Cancel the delivery");
    browser.post_without_token(&format!("{path}/cancel"), &[]).await.expect(403);
    gateway.until_state(id, "retrying").await;
    browser.post(&format!("{path}/cancel"), &[]).await.expect(303);
    gateway.until_state(id, "cancelled").await;
    let page = browser.get(&path).await.expect(200);
    page.assert_has("Cancelled at 00:00:00 UTC.");
    let ask = browser.get(&format!("{path}/cancel")).await.expect(200);
    ask.assert_has("nothing to cancel");
}

#[tokio::test]
async fn a_place_in_a_line_is_said_with_what_holds_it_up() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(500).await;
    let fields = json!({"policy": "router", "ordering": "fifo"});
    let endpoint = gateway.endpoint(&sink.url(), fields).await;
    let mut ids = Vec::new();
    for number in 1..=3 {
        let sent = gateway.send(json!({"type": "a.b", "payload": number})).await;
        ids.push(sent.only().to_owned());
        gateway.until_state(&ids[0], "retrying").await;
    }
    let page = browser.get(&format!("/deliveries/{}", ids[2])).await.expect(200);
    page.assert_has("Waiting: 3rd in line behind <a");
    page.assert_has(&format!("href=\"/deliveries/{}\"", ids[0]));
    page.assert_has(", which retries at 00:00:30 UTC.");
    page.assert_has(&format!("data-live=\"delivery={}&#38;endpoint={endpoint}\"", ids[2]));
    let list = browser.get("/deliveries?state=pending").await.expect(200);
    list.assert_has("in line behind another");
}

#[tokio::test]
async fn hostile_answers_are_shown_as_text() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let headers = "x-evil: <script>alert(1)</script>\"><img src=x onerror=alert(2)>\r\n";
    let mut endless = b"one line ".repeat(1 << 17);
    endless.extend_from_slice(MARKUP.as_bytes());
    let bodies = [
        MARKUP.as_bytes().to_vec(),
        STEERING.as_bytes().to_vec(),
        b"\xff\xfe<script>alert(1)</script>\x80".to_vec(),
        endless,
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let url = hostile::answering("400 Bad Request", headers, body).await;
        let kind = format!("kind.n{number}");
        let fields = json!({"policy": "edge", "event_types": [kind], "name": MARKUP});
        gateway.endpoint(&url, fields).await;
        let sent = gateway.send(json!({"type": kind, "payload": MARKUP})).await;
        gateway.until_state(sent.only(), "failed").await;
        let page = browser.get(&format!("/deliveries/{}", sent.only())).await.expect(200);
        assert_inert(&page);
        page.assert_has("x-evil");
    }
    for path in ["/deliveries", "/deliveries?state=failed", "/dead-letters"] {
        assert_inert(&browser.get(path).await.expect(200));
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_pasted_is_downloaded() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(500).await;
    gateway.endpoint(&sink.url(), json!({"policy": "router"})).await;
    let headers: [(&str, &[u8]); 1] = [("content-type", b"image/png")];
    let event =
        hostile::post_bytes(gateway, "/v1/events?type=a.b", &headers, b"\x89PNG\x1b[201~").await;
    let event = event["id"].as_str().expect("an id");
    let listed = gateway.client.get(&format!("/v1/events/{event}/deliveries")).await.expect(200);
    let id = listed["data"][0]["id"].as_str().expect("an id");
    let page = browser.get(&format!("/deliveries/{id}")).await.expect(200);
    page.assert_has(&format!("--data-binary &#39;@{event}.bin&#39;"));
    page.assert_has(&format!("Download {event}.bin"));
    let file = browser.get(&format!("/events/{event}/payload")).await.expect(200);
    let disposition = file.headers["content-disposition"].to_str().expect("text");
    assert!(disposition.contains(&format!("{event}.bin")), "{disposition}");
}

#[tokio::test]
async fn a_list_is_narrowed_counted_and_paged() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let good = Sink::answering(200).await;
    let bad = Sink::answering(400).await;
    let good_one = gateway.endpoint(&good.url(), json!({"name": "good one"})).await;
    let fields = json!({"name": "bad one", "policy": "edge", "ordering": "none"});
    let bad_one = gateway.endpoint(&bad.url(), fields).await;
    let mut last = None;
    for number in 0..55 {
        let sent = gateway.send(json!({"type": "a.b", "payload": number})).await;
        for id in &sent.deliveries {
            let delivery = gateway.client.get(&format!("/v1/deliveries/{id}")).await.expect(200);
            let to_good = delivery["endpoint_id"] == good_one.as_str();
            gateway.until_state(id, if to_good { "delivered" } else { "failed" }).await;
        }
        last = Some(sent);
    }
    let last = last.expect("some were sent");
    let rows = |page: &Page| page.text.matches("<tr id=\"row-dlv_").count();

    let all = browser.get("/deliveries").await.expect(200);
    assert_eq!(rows(&all), 50);
    all.assert_has("data-live=\"all\"");
    all.assert_has(">all 110</a>");
    all.assert_has(">failed 55</a>");
    let failed = browser.get(&format!("/deliveries?state=failed&endpoint={bad_one}")).await;
    let failed = failed.expect(200);
    assert_eq!(rows(&failed), 50);
    failed.assert_has(">all 55</a>");
    let next = next_page(&failed);
    assert!(next.starts_with(&format!("/deliveries?state=failed&endpoint={bad_one}&cursor=")));
    let rest = browser.get(&next).await.expect(200);
    assert_eq!(rows(&rest), 5);
    rest.assert_lacks("data-live");
    rest.assert_has("Back to the newest");

    for (query, count) in [
        (format!("id={}", last.event), 2),
        (format!("event={}", last.event), 2),
        ("error_class=final&reason=rejected&last=day".to_owned(), 50),
        ("state=dead".to_owned(), 0),
        ("type=a.b&state=failed".to_owned(), 50),
        ("type=a.c".to_owned(), 0),
        (format!("state=delivered&endpoint={bad_one}"), 0),
        ("until=2025-12-31T23%3A59".to_owned(), 0),
    ] {
        let page = browser.get(&format!("/deliveries?{query}")).await.expect(200);
        assert_eq!(rows(&page), count, "{query}");
        if count == 0 {
            page.assert_has("No delivery matches");
        }
    }
    let found = browser.get(&format!("/deliveries?id={}", last.deliveries[0])).await.expect(303);
    assert_eq!(found.location(), Some(format!("/deliveries/{}", last.deliveries[0])));
}

#[tokio::test]
async fn what_is_wrong_with_a_filter_is_said_at_its_field() {
    let browser = Browser::signed_in().await;
    let evil = "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for field in ["id", "state", "endpoint", "error_class", "reason", "since", "until"] {
        let page = browser.get(&format!("/deliveries?{field}={evil}")).await.expect(422);
        assert_inert(&page);
        page.assert_has(&format!("id=\"{field}-wrong\""));
        page.assert_lacks("data-live");
    }
    browser.get("/deliveries?cursor=x").await.expect(422).assert_has("role=\"alert\"");
    let page = browser.get("/deliveries").await.expect(200);
    page.assert_has("There is no delivery yet");
}

#[tokio::test]
async fn another_tenants_deliveries_are_not_there() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(500).await;
    gateway.endpoint(&sink.url(), json!({"name": "ours", "policy": "router"})).await;
    let sent = gateway.send(json!({"type": "a.b", "payload": 1})).await;
    let id = sent.only();
    gateway.until_state(id, "retrying").await;
    let Client { key, .. } = gateway.tenant("other").await;
    let other = Browser::with_key(gateway, &key).await;
    other.get("/deliveries").await.expect(200).assert_has("There is no delivery yet");
    other.get(&format!("/deliveries/{id}")).await.expect(404).assert_lacks("ours");
    other.get(&format!("/deliveries/{id}/cancel")).await.expect(404);
    for action in ["retry", "cancel"] {
        other.post(&format!("/deliveries/{id}/{action}"), &[]).await.expect(404);
    }
    gateway.until_state(id, "retrying").await;
}
