//! How an open page is told to look again, and for how long.

use serde_json::json;

use crate::browser::Browser;
use crate::sink::Sink;

#[tokio::test]
async fn a_page_is_told_of_what_happens_to_its_delivery() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(200).await;
    gateway.endpoint(&sink.url(), json!({})).await;
    let sent = gateway.send(json!({"type": "order.created", "payload": 1})).await;
    let mut events = browser.follow(&format!("/live?delivery={}", sent.only())).await;
    let greeting = events.next().await.expect("a greeting");
    assert!(greeting.contains(": following"), "{greeting}");
    let told = events.next().await.expect("a word");
    assert!(told.starts_with("event: live\ndata: "), "{told}");
}

#[tokio::test]
async fn it_ends_with_the_session() {
    let browser = Browser::signed_in().await;
    let mut events = browser.follow("/live?overview").await;
    assert!(events.next().await.is_some());
    assert!(events.next().await.is_some(), "something comes in a steady rhythm");
    browser.post("/sign-out", &[]).await.expect(303);
    let mut left = 0;
    while events.next().await.is_some() {
        left += 1;
        assert!(left <= 1, "what was on its way, and no more");
    }
    browser.get("/live?overview").await.expect(303);
}

#[tokio::test]
async fn it_ends_when_the_gateway_stops() {
    let browser = Browser::signed_in().await;
    let mut events = browser.follow("/live?overview").await;
    assert!(events.next().await.is_some());
    browser.gateway.stop();
    let mut left = 0;
    while events.next().await.is_some() {
        left += 1;
        assert!(left <= 1, "what was on its way, and no more");
    }
}

#[tokio::test]
async fn it_has_to_be_about_something() {
    let browser = Browser::signed_in().await;
    for query in ["", "?", "?nothing", "?delivery=ep_1", "?overview&delivery="] {
        browser.get(&format!("/live{query}")).await.expect(422);
    }
}
