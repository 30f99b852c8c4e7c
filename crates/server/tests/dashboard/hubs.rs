//! The page of hubs: how they are doing, making one, and revoking one.

use serde_json::json;

use crate::browser::Browser;
use crate::gateway::{Gateway, text};

#[tokio::test]
async fn a_hub_is_made_with_a_token_that_is_shown_once_and_revoked_after_a_question() {
    let browser = Browser::signed_in().await;
    browser.get("/hubs").await.expect(200).assert_has("There is no hub yet");
    let made = browser.post("/hubs", &[("name", " office ")]).await.expect(200);
    made.assert_has("The hub office was made");
    let (_, rest) = made.text.split_once("id=\"secret\">").expect("the token");
    let (token, _) = rest.split_once('<').expect("its end");
    assert!(token.starts_with("prh_"), "{token}");
    made.assert_has(&format!("POSTRIDER_HUB_TOKEN={token}"));
    made.assert_has(&format!("--gateway http://{}", browser.gateway.address));

    let list = browser.get("/hubs").await.expect(200);
    list.assert_has("office");
    list.assert_has("away");
    list.assert_lacks(token);
    list.assert_has("data-live=\"all\"");

    let listed = browser.gateway.client.get("/v1/hubs").await.expect(200);
    let id = text(&listed["data"][0]["id"]);
    let ask = format!("/hubs/{id}/revoke");
    browser.get(&ask).await.expect(200).assert_has("Revoke the hub office?");
    browser.post_without_token(&ask, &[]).await.expect(403);
    assert_eq!(browser.gateway.client.get(&format!("/v1/hubs/{id}")).await.status, 200);
    browser.post(&ask, &[]).await.expect(303);
    assert_eq!(browser.gateway.client.get(&format!("/v1/hubs/{id}")).await.status, 404);
}

#[tokio::test]
async fn what_waits_for_a_hub_that_is_away_is_seen() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let hub = gateway.client.post("/v1/hubs", &json!({"name": "depot"})).await.expect(201);
    let endpoint = json!({"hub": hub["id"], "policy": "edge"});
    gateway.client.post("/v1/endpoints", &endpoint).await.expect(201);
    gateway.send(json!({"type": "a", "payload": 1})).await;
    gateway.advance(std::time::Duration::from_secs(200));
    browser.get("/hubs").await.expect(200).assert_has("<td>3 min 20 s</td>");
}

#[tokio::test]
async fn a_bad_name_is_said_at_its_field_and_makes_nothing() {
    let browser = Browser::signed_in().await;
    for name in ["", "  ", "a\u{7}b"] {
        let page = browser.post("/hubs", &[("name", name)]).await.expect(422);
        page.assert_has("must have 1 to 200 characters");
        page.assert_has("aria-invalid=\"true\"");
    }
    browser.post_without_token("/hubs", &[("name", "office")]).await.expect(403);
    let listed = browser.gateway.client.get("/v1/hubs").await.expect(200);
    assert_eq!(listed["data"], json!([]));
}

#[tokio::test]
async fn a_tenant_sees_its_own_hubs_and_names_are_text() {
    let gateway = Gateway::start().await;
    let hostile = json!({"name": "<img src=x onerror=alert(1)>"});
    let made = gateway.client.post("/v1/hubs", &hostile).await.expect(201);
    let admin = Browser::with_key(&gateway, &gateway.client.key).await;
    admin.get("/hubs").await.expect(200).assert_lacks("<img src=x");
    let tenant = Browser::with_key(&gateway, &gateway.tenant("acme").await.key).await;
    tenant.get("/hubs").await.expect(200).assert_has("There is no hub yet");
    let ask = format!("/hubs/{}/revoke", text(&made["id"]));
    tenant.get(&ask).await.expect(404);
    tenant.post(&ask, &[]).await.expect(404);
    let path = format!("/v1/hubs/{}", text(&made["id"]));
    assert_eq!(gateway.client.get(&path).await.status, 200);
}
