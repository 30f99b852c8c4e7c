//! The pages of keys and tenants: who may get in, and until when.

use serde_json::json;

use crate::browser::{Browser, Page};
use crate::client::Client;
use crate::gateway::{Gateway, text};

/// The key that a page shows once.
#[track_caller]
fn shown_key(page: &Page) -> String {
    let (_, rest) = page.text.split_once("id=\"secret\">").expect("the key");
    let (key, _) = rest.split_once('<').expect("its end");
    assert!(key.starts_with("pr_"), "{key}");
    key.to_owned()
}

async fn id_of(gateway: &Gateway, name: &str) -> String {
    let listed = gateway.client.get("/v1/keys").await.expect(200);
    let keys = listed["data"].as_array().expect("a list");
    text(&keys.iter().find(|key| key["name"] == name).expect("it is there")["id"])
}

#[tokio::test]
async fn a_key_is_made_shown_once_changed_and_revoked() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let fields = [("name", "checkout"), ("role", "tenant"), ("tenant", "default")];
    let fields = [&fields[..], &[("expires_at", "2026-02-01T12:30")]].concat();
    let made = browser.post("/keys", &fields).await.expect(200);
    let key = shown_key(&made);
    let client = Client { key: key.clone(), ..gateway.client.clone() };
    client.get("/v1/events").await.expect(200);
    let list = browser.get("/keys").await.expect(200);
    list.assert_has("checkout");
    list.assert_has("title=\"2026-02-01 12:30:00.000 UTC\"");
    list.assert_lacks(&key);

    let id = id_of(gateway, "checkout").await;
    let page = format!("/keys/{id}");
    browser.get(&page).await.expect(200).assert_has("value=\"2026-02-01T12:30:00.000\"");
    browser.post(&page, &[("name", "till"), ("expires_at", "")]).await.expect(303);
    let stored = gateway.client.get(&format!("/v1{page}")).await.expect(200);
    assert_eq!((&stored["name"], &stored["expires_at"]), (&json!("till"), &json!(null)));

    let ask = format!("{page}/revoke");
    browser.get(&ask).await.expect(200).assert_has("Revoke the key till?");
    browser.post_without_token(&ask, &[]).await.expect(403);
    client.get("/v1/events").await.expect(200);
    browser.post(&ask, &[]).await.expect(303);
    client.get("/v1/events").await.expect(401);
    browser.get("/keys").await.expect(200).assert_has("state-revoked\">revoked");
}

#[tokio::test]
async fn an_admin_makes_keys_of_every_role_and_revokes_even_its_own() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    gateway.tenant("acme").await;
    let made = browser.post("/keys", &[("name", "one"), ("role", "tenant"), ("tenant", "acme")]);
    shown_key(&made.await.expect(200));
    let id = id_of(gateway, "one").await;
    let stored = gateway.client.get(&format!("/v1/keys/{id}")).await.expect(200);
    assert_eq!(stored["tenant"], "acme");
    let made = browser.post("/keys", &[("name", "two"), ("role", "admin"), ("tenant", "acme")]);
    let second = Browser::with_key(gateway, &shown_key(&made.await.expect(200))).await;
    let own = id_of(gateway, "two").await;
    let ask = format!("/keys/{own}/revoke");
    second.get(&ask).await.expect(200).assert_has("You are signed in with this key");
    second.post(&ask, &[]).await.expect(303);
    assert_eq!(second.get("/keys").await.status, 303, "the session ended with its key");

    let first = id_of(gateway, "made at first start").await;
    let last = browser.post(&format!("/keys/{first}/revoke"), &[]).await;
    last.expect(409).assert_has("last admin key");
}

#[tokio::test]
async fn what_is_wrong_with_a_key_stands_at_its_field_and_nothing_is_made() {
    let browser = Browser::signed_in().await;
    let before = browser.gateway.client.get("/v1/keys").await.expect(200);
    for (fields, says) in [
        (&[("name", "")][..], "must have 1 to 200 characters"),
        (&[("name", "a"), ("tenant", "nobody")], "there is no such tenant"),
        (&[("name", "a"), ("expires_at", "soon")], "must be a day and a time"),
        (&[("name", "a"), ("expires_at", "2020-01-01T00:00")], "has passed"),
    ] {
        browser.post("/keys", fields).await.expect(422).assert_has(says);
    }
    browser.post_without_token("/keys", &[("name", "a")]).await.expect(403);
    let after = browser.gateway.client.get("/v1/keys").await.expect(200);
    let count = |listed: &serde_json::Value| listed["data"].as_array().map(Vec::len);
    assert_eq!(count(&before), count(&after));
    let id = id_of(&browser.gateway, "made at first start").await;
    let page = browser.post(&format!("/keys/{id}"), &[("name", "")]).await.expect(422);
    page.assert_has("must have 1 to 200 characters");
}

#[tokio::test]
async fn a_tenants_key_sees_and_makes_keys_of_its_tenant_only() {
    let gateway = Gateway::start().await;
    let acme = gateway.tenant("acme").await;
    gateway.tenant("other").await;
    let tenant = Browser::with_key(&gateway, &acme.key).await;
    let list = tenant.get("/keys").await.expect(200);
    list.assert_has("acme&#39;s key");
    list.assert_lacks("other&#39;s key");
    list.assert_lacks("made at first start");
    list.assert_lacks("href=\"/tenants\"");
    let id = id_of(&gateway, "other's key").await;
    for path in ["", "/revoke"] {
        tenant.get(&format!("/keys/{id}{path}")).await.expect(404);
        tenant.post(&format!("/keys/{id}{path}"), &[("name", "mine")]).await.expect(404);
    }
    tenant.post("/keys", &[("name", "a"), ("role", "admin")]).await.expect(403);
    tenant.post("/keys", &[("name", "a"), ("tenant", "other")]).await.expect(403);
    shown_key(&tenant.post("/keys", &[("name", "<b>second</b>")]).await.expect(200));
    let list = tenant.get("/keys").await.expect(200);
    list.assert_lacks("<b>second");
    let id = id_of(&gateway, "<b>second</b>").await;
    let stored = gateway.client.get(&format!("/v1/keys/{id}")).await.expect(200);
    assert_eq!(stored["tenant"], "acme");
}

#[tokio::test]
async fn tenants_are_made_and_looked_at_by_admins_alone() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    browser.get("/tenants").await.expect(200).assert_has("from the start");
    browser.post("/tenants", &[("name", "Not Plain")]).await.expect(422).assert_has("a–z");
    browser.post_without_token("/tenants", &[("name", "acme")]).await.expect(403);
    assert_eq!(gateway.client.get("/v1/tenants/acme").await.status, 404);
    browser.post("/tenants", &[("name", "acme")]).await.expect(303);
    let list = browser.get("/tenants").await.expect(200);
    list.assert_has("Look at acme");
    browser.post("/tenant", &[("tenant", "acme"), ("next", "/")]).await.expect(303);
    browser.get("/tenants").await.expect(200).assert_has("Look at default");

    let made = gateway.client.post("/v1/keys", &json!({"name": "k", "tenant": "acme"})).await;
    let tenant = Browser::with_key(gateway, &text(&made.expect(201)["key"])).await;
    tenant.get("/tenants").await.expect(403);
    tenant.post("/tenants", &[("name", "more")]).await.expect(403);
    assert_eq!(gateway.client.get("/v1/tenants/more").await.status, 404);
}
