//! The page of changes.

use serde_json::json;

use crate::browser::Browser;
use crate::gateway::{Gateway, text};

#[tokio::test]
async fn changes_are_listed_filtered_and_led_to() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let source = json!({"name": "a", "verify": {"scheme": "none"}});
    let source = text(&gateway.client.post("/v1/sources", &source).await.expect(201)["id"]);
    gateway.client.post("/v1/hubs", &json!({"name": "h"})).await.expect(201);
    let all = browser.get("/audit").await.expect(200);
    all.assert_has("<th scope=\"row\">source.create</th>");
    all.assert_has("<th scope=\"row\">hub.create</th>");
    all.assert_has(&format!("href=\"/sources/{source}\""));
    all.assert_has("{&#34;scheme&#34;:&#34;none&#34;}");
    for query in ["action=source.create", &format!("subject={source}")] {
        let some = browser.get(&format!("/audit?{query}")).await.expect(200);
        some.assert_has("<th scope=\"row\">source.create</th>");
        some.assert_lacks("<th scope=\"row\">hub.create</th>");
    }
    browser.get("/audit?action=nothing.such").await.expect(200).assert_has("No change matches");
    browser.get("/audit?cursor=nonsense").await.expect(422);
}

#[tokio::test]
async fn older_changes_are_a_page_away_with_the_same_filter() {
    let browser = Browser::signed_in().await;
    for number in 0..60 {
        let hub = json!({"name": format!("h{number}")});
        browser.gateway.client.post("/v1/hubs", &hub).await.expect(201);
    }
    let first = browser.get("/audit?action=hub.create&scope=tenant").await.expect(200);
    let (_, rest) = first.text.split_once("href=\"/audit?").expect("the next page");
    let (query, _) = rest.split_once('"').expect("its end");
    let query = query.replace("&#38;", "&");
    assert!(query.contains("action=hub.create") && query.contains("scope=tenant"), "{query}");
    let second = browser.get(&format!("/audit?{query}")).await.expect(200);
    let rows = |text: &str| text.matches("<th scope=\"row\">hub.create</th>").count();
    assert_eq!((rows(&first.text), rows(&second.text)), (50, 10));
    second.assert_lacks("Older changes");
}

#[tokio::test]
async fn a_tenant_sees_its_own_changes_and_details_are_text() {
    let gateway = Gateway::start().await;
    let acme = gateway.tenant("acme").await;
    let hostile = json!({"name": "<script>alert(1)</script>\u{1b}[2J"});
    // A name has no control characters; a key's detail has its name.
    assert_eq!(acme.post("/v1/keys", &hostile).await.status, 422);
    let hostile = json!({"name": "<script>alert(1)</script>\u{202e}"});
    acme.post("/v1/keys", &hostile).await.expect(201);
    gateway.client.post("/v1/hubs", &json!({"name": "h"})).await.expect(201);

    let admin = Browser::with_key(&gateway, &gateway.client.key).await;
    let tenant = Browser::with_key(&gateway, &acme.key).await;
    for browser in [&admin, &tenant] {
        let page = browser.get("/audit").await.expect(200);
        page.assert_has("script&#62;alert(1)");
        page.assert_lacks("<script>alert");
        page.assert_lacks("\u{202e}");
    }
    tenant.get("/audit").await.assert_lacks("hub.create</th>");
    tenant.get("/audit?scope=all").await.assert_lacks("hub.create</th>");
    admin.get("/audit").await.assert_has("hub.create</th>");
    admin.post("/tenant", &[("tenant", "acme"), ("next", "/")]).await.expect(303);
    admin.get("/audit").await.assert_has("hub.create</th>");
    admin.get("/audit?scope=tenant").await.assert_lacks("hub.create</th>");
}
