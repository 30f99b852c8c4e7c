//! The first run: three steps that really do it.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::gateway::{Gateway, text};
use crate::sink::Sink;

/// What there is, as the API counts it.
async fn inventory(gateway: &Gateway) -> [usize; 3] {
    let mut counts = [0; 3];
    for (count, path) in counts.iter_mut().zip(["/v1/sources", "/v1/endpoints", "/v1/events"]) {
        let listed = gateway.client.get(path).await.expect(200);
        *count = listed["data"].as_array().map_or(0, Vec::len);
    }
    counts
}

#[tokio::test]
async fn the_three_steps_take_a_webhook_through_the_gateway() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let sink = Sink::answering(200).await;
    let page = browser.get("/first-run").await.expect(200);
    page.assert_has("0 of 3 done");
    page.assert_has("This needs an endpoint first");
    page.assert_lacks("action=\"/first-run/event\"");
    page.assert_has("postrider demo");

    let made = browser.post("/first-run/source", &[("name", "shop")]).await.expect(303);
    assert_eq!(made.location().as_deref(), Some("/first-run"));
    let page = browser.open("/first-run").await.expect(200);
    page.assert_has("1 of 3 done");
    page.assert_has("The source is there.");
    page.assert_lacks("action=\"/first-run/source\"");
    let source: Value = gateway.client.get("/v1/sources").await.expect(200)["data"][0].clone();
    assert_eq!((&source["name"], &source["verify"]["scheme"]), (&json!("shop"), &json!("none")));
    let path = format!("/v1/sources/{}", text(&source["id"]));
    let url = text(&gateway.client.get(&path).await.expect(200)["url"]);
    page.assert_has(&format!("curl http://{}{url}", gateway.address));

    browser.post("/first-run/endpoint", &[("url", &sink.url())]).await.expect(303);
    let page = browser.open("/first-run").await.expect(200);
    page.assert_has("2 of 3 done");
    page.assert_lacks("action=\"/first-run/endpoint\"");

    browser.post("/first-run/event", &[]).await.expect(303);
    let page = browser.open("/first-run").await.expect(200);
    page.assert_has("3 of 3 done");
    page.assert_has("The event is on its way to 1 endpoint.");
    let received = sink.nth(1).await;
    assert_eq!(received.body_text(), r#"{"hello":"world"}"#);
    let listed = gateway.client.get("/v1/deliveries").await.expect(200);
    let delivery = text(&listed["data"][0]["id"]);
    gateway.until_state(&delivery, "delivered").await;
    let page = browser.get("/first-run").await.expect(200);
    page.assert_has(&format!("href=\"/deliveries/{delivery}\""));
    page.assert_has("<span class=\"badge state-delivered\">delivered</span>");
    page.assert_has("data-live=\"all\"");
    assert_eq!(inventory(gateway).await, [1, 1, 1]);
    browser.get("/").await.expect(200).assert_has("All is well");
}

#[tokio::test]
async fn what_the_api_refuses_is_said_at_the_field_and_stays_typed() {
    let browser = Browser::signed_in().await;
    let long = "x".repeat(1_000);
    let table = [
        ("/first-run/endpoint", "url", "http://10.0.0.1/hook", "url-error"),
        ("/first-run/endpoint", "url", "ftp://example.com/", "url-error"),
        ("/first-run/endpoint", "url", "", "url-error"),
        ("/first-run/source", "name", long.as_str(), "name-error"),
    ];
    for (path, field, value, error) in table {
        let page = browser.post(path, &[(field, value)]).await.expect(422);
        page.assert_has(&format!("aria-invalid=\"true\" aria-describedby=\"{error}\""));
        page.assert_has(&format!("id=\"{error}\">"));
        page.assert_has(&format!("value=\"{value}\""));
    }
    assert_eq!(inventory(&browser.gateway).await, [0, 0, 0]);
}

#[tokio::test]
async fn what_is_typed_is_only_text() {
    let browser = Browser::signed_in().await;
    let hostile = "\"><script>alert(1)</script>";
    let page = browser.post("/first-run/endpoint", &[("url", hostile)]).await.expect(422);
    page.assert_lacks("<script>alert");
    page.assert_has("&#60;script&#62;");
    browser.post("/first-run/source", &[("name", "<b>\u{202e}</b>")]).await.expect(303);
    let page = browser.get("/first-run").await.expect(200);
    page.assert_lacks("<b>");
    page.assert_lacks("\u{202e}");
    page.assert_has("&#60;b&#62;");
}

#[tokio::test]
async fn without_the_token_nothing_is_done() {
    let browser = Browser::signed_in().await;
    let sink = Sink::answering(200).await;
    let url = sink.url();
    for (path, fields) in [
        ("/first-run/source", [("name", "a")]),
        ("/first-run/endpoint", [("url", url.as_str())]),
        ("/first-run/event", [("a", "b")]),
    ] {
        let page = browser.post_without_token(path, &fields).await;
        assert_eq!(page.status, 403, "{path}: {}", page.text);
    }
    assert_eq!(inventory(&browser.gateway).await, [0, 0, 0]);
}

#[tokio::test]
async fn an_event_that_nobody_wants_is_said_to_be_so() {
    let browser = Browser::signed_in().await;
    let sink = Sink::answering(200).await;
    browser.gateway.endpoint(&sink.url(), json!({"event_types": ["order.*"]})).await;
    browser.post("/first-run/event", &[]).await.expect(303);
    let page = browser.open("/first-run").await.expect(200);
    page.assert_has("no endpoint wants it");
    page.assert_has("No endpoint wanted it.");
}

#[tokio::test]
async fn the_steps_and_the_commands_are_of_the_tenant_that_is_looked_at() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let theirs = gateway.tenant("acme").await;
    browser.get("/first-run").await.expect(200).assert_lacks("Postrider-Tenant");
    browser.post("/tenant", &[("tenant", "acme"), ("next", "/first-run")]).await.expect(303);
    let page = browser.get("/first-run").await.expect(200);
    page.assert_has("-H &#39;Postrider-Tenant: acme&#39;");
    browser.post("/first-run/source", &[("name", "inside")]).await.expect(303);
    assert_eq!(inventory(gateway).await, [0, 0, 0], "the default tenant has none of it");
    let listed = theirs.get("/v1/sources").await.expect(200);
    assert_eq!(listed["data"][0]["name"], "inside");
    let visitor = Browser::with_key(gateway, &theirs.key).await;
    let page = visitor.get("/first-run").await.expect(200);
    page.assert_has("1 of 3 done");
    page.assert_lacks("Postrider-Tenant");
}
