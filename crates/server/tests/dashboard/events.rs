//! Events: the list, the page of one, its payload, sending it again.

use std::time::Duration;

use serde_json::json;

use crate::browser::Browser;
use crate::client::Client;
use crate::deliveries::next_page;
use crate::hostile::{self, MARKUP, STEERING, assert_inert};
use crate::sink::Sink;

#[tokio::test]
async fn an_empty_list_says_how_events_come_in() {
    let browser = Browser::signed_in().await;
    let page = browser.get("/events").await.expect(200);
    page.assert_has("There is no event yet");
    page.assert_has("POST /v1/events");
}

#[tokio::test]
async fn an_events_page_shows_what_came_and_what_became_of_it() {
    let browser = Browser::signed_in().await;
    let sink = Sink::answering(200).await;
    let endpoint = browser.gateway.endpoint(&sink.url(), json!({"name": "shop"})).await;
    let sent = browser
        .gateway
        .send(json!({
            "type": "order.created",
            "payload": {"lines": [], "total": 12.5},
            "idempotency_key": "order-7",
            "ordering_key": "customer-3",
            "metadata": {"session_id": "s-1"},
        }))
        .await;
    browser.gateway.until_state(sent.only(), "delivered").await;
    let page = browser.get(&format!("/events/{}", sent.event)).await.expect(200);
    for text in [
        "order.created",
        "order-7",
        "customer-3",
        "s-1",
        "{\n  &#34;lines&#34;: [],\n  &#34;total&#34;: 12.5\n}",
        "application/json",
        "shop",
        "state-delivered",
        &format!("/deliveries/{}", sent.only()),
        &format!("/endpoints/{endpoint}"),
        &format!("data-live=\"event={}\"", sent.event),
    ] {
        page.assert_has(text);
    }
    let list = browser.get("/events").await.expect(200);
    list.assert_has(&format!("/events/{}", sent.event));
    list.assert_has("order-7");
    list.assert_has("data-live=\"all\"");
}

#[tokio::test]
async fn hostile_payloads_are_shown_as_text() {
    let browser = Browser::signed_in().await;
    let one_line = "a".repeat(900 << 10);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let json = json!({"html": MARKUP, "ansi": STEERING}).to_string();
    let cases: [(&str, &[u8], &str); 8] = [
        ("application/vnd.shop+json", json.as_bytes(), "&#60;script&#62;"),
        ("text/html", MARKUP.as_bytes(), "&#60;script&#62;"),
        ("text/plain", STEERING.as_bytes(), "\u{241b}[31mred"),
        ("text/plain", b"caf\xe9 <script>alert(1)</script>", "63 61 66 e9"),
        ("application/octet-stream", &[0xff; 9_000], "00000ff0"),
        ("text/plain", one_line.as_bytes(), "only its beginning is shown"),
        ("application/vnd.shop+json", deep.as_bytes(), "only its beginning is shown"),
        ("text/plain", b"", "It has none."),
    ];
    for (content_type, body, shown) in cases {
        let headers = [("content-type", content_type.as_bytes())];
        let event =
            hostile::post_bytes(&browser.gateway, "/v1/events?type=a.b", &headers, body).await;
        let id = event["id"].as_str().expect("an id");
        let page = browser.get(&format!("/events/{id}")).await.expect(200);
        assert_inert(&page);
        page.assert_has(shown);

        let file = browser.get(&format!("/events/{id}/payload")).await.expect(200);
        assert_eq!(file.bytes, body, "a download has every byte");
        assert_eq!(file.headers["content-type"], "application/octet-stream");
        assert_eq!(file.headers["x-content-type-options"], "nosniff");
        let disposition = file.headers["content-disposition"].to_str().expect("text");
        assert!(disposition.starts_with(&format!("attachment; filename=\"{id}.")));
        let policy = file.headers["content-security-policy"].to_str().expect("text");
        assert!(policy.starts_with("sandbox;"), "{policy}");
    }
}

#[tokio::test]
async fn hostile_names_keys_and_headers_are_shown_as_text() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(500).await;
    let name = format!("{MARKUP}\u{202e}");
    // Keys have no spaces.
    let key = MARKUP.replace(' ', "/");
    gateway.endpoint(&sink.url(), json!({"name": name})).await;
    let sent = gateway
        .send(json!({
            "type": "a.b",
            "payload": 1,
            "idempotency_key": key,
            "ordering_key": key,
            "metadata": {MARKUP: STEERING},
        }))
        .await;
    let source = json!({"name": MARKUP, "verify": {"scheme": "none"}, "keep_headers": "all"});
    let source = gateway.client.post("/v1/sources", &source).await.expect(201);
    let url = source["url"].as_str().expect("a URL");
    let headers: [(&str, &[u8]); 3] = [
        ("content-type", b"text/html;<script>alert(1)</script>"),
        ("x-evil", MARKUP.as_bytes()),
        ("x-bytes", b"\xff\xfe"),
    ];
    let event = hostile::post_bytes(gateway, url, &headers, b"{}").await;
    let received = event["id"].as_str().expect("an id");
    for path in [
        "/events".to_owned(),
        format!("/events/{}", sent.event),
        format!("/events/{received}"),
        "/deliveries".to_owned(),
        format!("/deliveries/{}", sent.only()),
        format!("/deliveries/{}/cancel", sent.only()),
    ] {
        let page = browser.get(&path).await.expect(200);
        assert_inert(&page);
        page.assert_has("&#60;script&#62;");
    }
    let page = browser.get(&format!("/events/{received}")).await.expect(200);
    page.assert_has("(not text, in base64)");
}

#[tokio::test]
async fn what_is_wrong_with_a_filter_is_said_at_its_field() {
    let browser = Browser::signed_in().await;
    let evil = "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for field in ["id", "type", "source", "since", "until"] {
        let page = browser.get(&format!("/events?{field}={evil}")).await.expect(422);
        assert_inert(&page);
        page.assert_has(&format!("id=\"{field}-wrong\""));
        page.assert_has("something is wrong with the filter");
        page.assert_lacks("data-live");
    }
    let page = browser.get("/events?cursor=x").await.expect(422);
    page.assert_has("role=\"alert\"");
    // What a page does not know it does not pass on.
    browser.get("/events?limit=9999&colour=red").await.expect(200);
}

#[tokio::test]
async fn a_list_is_narrowed_and_paged_without_losing_its_filter() {
    let browser = Browser::signed_in().await;
    for number in 0..66 {
        let kind = if number % 6 == 0 { "rare.kind" } else { "common.kind" };
        browser.gateway.send(json!({"type": kind, "payload": number})).await;
        browser.gateway.advance(Duration::from_millis(2));
    }
    let first = browser.get("/events?type=common.kind").await.expect(200);
    assert_eq!(first.text.matches("<tr id=\"row-evt_").count(), 50);
    let next = next_page(&first);
    assert!(next.starts_with("/events?type=common.kind&cursor="), "{next}");
    let page = browser.get("/events").await.expect(200);
    let next = next_page(&page);
    let last = browser.get(&next).await.expect(200);
    assert_eq!(last.text.matches("<tr id=\"row-evt_").count(), 16);
    last.assert_lacks("data-live");
    last.assert_lacks("rel=\"next\"");
    let rare = browser.get("/events?type=rare.kind&last=hour").await.expect(200);
    assert_eq!(rare.text.matches("<tr id=\"row-evt_").count(), 11);
    browser.gateway.advance(Duration::from_hours(2));
    // The session has ended meanwhile.
    browser.sign_in(&browser.gateway.client.key).await.expect(303);
    let none = browser.get("/events?type=rare.kind&last=hour").await.expect(200);
    none.assert_has("No event matches");
    let since = browser.get("/events?since=2026-01-01T00%3A00&type=rare.kind").await.expect(200);
    assert_eq!(since.text.matches("<tr id=\"row-evt_").count(), 11);
}

#[tokio::test]
async fn an_event_is_sent_again_to_all_or_to_chosen_endpoints() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(200).await;
    let mut endpoints = Vec::new();
    for name in ["one", "two"] {
        endpoints.push(gateway.endpoint(&sink.url(), json!({"name": name})).await);
    }
    let sent = gateway.send(json!({"type": "a.b", "payload": 1})).await;
    let path = format!("/events/{}", sent.event);
    let action = format!("{path}/replay");
    let count = async || {
        let listed = gateway.client.get(&format!("/v1{path}/deliveries")).await.expect(200);
        listed["data"].as_array().expect("a list").len()
    };
    assert_eq!(count().await, 2);
    let done = browser.post(&action, &[("to", "all")]).await.expect(303);
    assert_eq!(done.location().as_deref(), Some(path.as_str()));
    browser.get(&path).await.expect(200).assert_has("2 new deliveries on the way.");
    assert_eq!(count().await, 4);
    let chosen = [("endpoint", endpoints[1].as_str()), ("to", "chosen")];
    browser.post(&action, &chosen).await.expect(303);
    assert_eq!(count().await, 5);

    let none = browser.post(&action, &[("to", "chosen")]).await.expect(422);
    none.assert_has("id=\"replay-wrong\"");
    let wrong = [("endpoint", "\"><script>alert(1)</script>"), ("to", "chosen")];
    let wrong = browser.post(&action, &wrong).await.expect(422);
    assert_inert(&wrong);
    wrong.assert_has("id=\"replay-wrong\"");
    browser.post_without_token(&action, &[("to", "all")]).await.expect(403);
    assert_eq!(count().await, 5);
}

#[tokio::test]
async fn another_tenants_events_are_not_there() {
    let browser = Browser::signed_in().await;
    let sent = browser.gateway.send(json!({"type": "a.b", "payload": "ours"})).await;
    let Client { key, .. } = browser.gateway.tenant("other").await;
    let other = Browser::with_key(&browser.gateway, &key).await;
    other.get("/events").await.expect(200).assert_has("There is no event yet");
    for path in [format!("/events/{}", sent.event), format!("/events/{}/payload", sent.event)] {
        other.get(&path).await.expect(404).assert_lacks("ours");
    }
    other.post(&format!("/events/{}/replay", sent.event), &[("to", "all")]).await.expect(404);
    browser.get("/events/evt_7").await.expect(404);
    browser.get("/events/..%2F..%2Fv1%2Fkeys").await.expect(404);
}
