//! How one gets in, where one lands, and in which tenant.

use serde_json::json;

use crate::browser::{Ask, Browser};
use crate::gateway::{Gateway, text};

#[tokio::test]
async fn whoever_is_not_signed_in_is_led_to_where_one_does_and_back() {
    let gateway = Gateway::start().await;
    let browser = Browser::nobody(&gateway);
    let page = browser.get("/deliveries?state=dead").await.expect(303);
    let sign_in = page.location().expect("a way");
    assert_eq!(sign_in, "/sign-in?next=%2Fdeliveries%3Fstate%3Ddead");
    let form = browser.get(&sign_in).await.expect(200);
    form.assert_has("name=\"next\" value=\"/deliveries?state=dead\"");
    form.assert_has("<label for=\"key\">API key</label>");
    let fields = [("key", gateway.client.key.as_str()), ("next", "/deliveries?state=dead")];
    let entered = browser.post_without_token("/sign-in", &fields).await.expect(303);
    assert_eq!(entered.location().as_deref(), Some("/deliveries?state=dead"));
    browser.get("/deliveries?state=dead").await.expect(200);
    let again = browser.get("/sign-in?next=/events").await.expect(303);
    assert_eq!(again.location().as_deref(), Some("/events"), "nobody signs in twice");
}

#[tokio::test]
async fn a_part_of_a_page_sends_the_whole_page_to_sign_in() {
    let gateway = Gateway::start().await;
    let browser = Browser::nobody(&gateway);
    let ask = Ask::new(http::Method::GET, "/deliveries?part=1")
        .header("hx-request", "true")
        .header("hx-current-url", "http://127.0.0.1:7070/deliveries?state=dead");
    let page = browser.send(ask).await.expect(401);
    assert_eq!(page.headers["hx-redirect"], "/sign-in?next=%2Fdeliveries%3Fstate%3Ddead");
    let posted = Ask::form("/tenant", &[]).header("hx-request", "true");
    assert_eq!(browser.send(posted).await.expect(401).headers["hx-redirect"], "/sign-in");
    let plain = browser.post_without_token("/tenant", &[]).await.expect(303);
    assert_eq!(plain.location().as_deref(), Some("/sign-in"));
}

#[tokio::test]
async fn a_link_from_another_site_asks_again_from_this_one() {
    let browser = Browser::signed_in().await;
    // A browser keeps the cookie to itself when another site leads here.
    let stranger = Browser::nobody(&browser.gateway);
    let ask = Ask::new(http::Method::GET, "/deliveries?state=dead&endpoint=ep_1");
    let page = stranger.send(ask.header("sec-fetch-site", "cross-site")).await.expect(200);
    page.assert_has(
        "<meta http-equiv=\"refresh\" content=\"0;url=/deliveries?state=dead&#38;endpoint=ep_1\">",
    );
    let ask = Ask::new(http::Method::GET, "/deliveries");
    stranger.send(ask.header("sec-fetch-site", "same-origin")).await.expect(303);
}

#[tokio::test]
async fn a_key_that_opens_nothing_is_refused_at_its_field() {
    let gateway = Gateway::start().await;
    let made = gateway.client.post("/v1/keys", &json!({"name": "old"})).await.expect(201);
    let (id, revoked) = (text(&made["id"]), text(&made["key"]));
    gateway.client.delete(&format!("/v1/keys/{id}")).await.expect(204);
    let browser = Browser::nobody(&gateway);
    for (key, status, said) in [
        ("pr_nobody", 401, "this key is not known"),
        ("prh_hub", 401, "this is the token of a hub"),
        (revoked.as_str(), 401, "this key has been revoked"),
        ("  ", 422, "enter an API key"),
        ("\"><script>alert(1)</script>", 401, "this key is not known"),
    ] {
        let page = browser.sign_in(key).await.expect(status);
        page.assert_has(said);
        page.assert_has("aria-invalid=\"true\"");
        page.assert_lacks("<script>alert");
        if key.starts_with("pr_") {
            page.assert_lacks(key);
        }
        assert!(page.headers.get("set-cookie").is_none(), "{key}");
    }
}

#[tokio::test]
async fn a_one_time_link_signs_in_once_and_for_a_while() {
    let gateway = Gateway::start().await;
    let listed = gateway.client.get("/v1/keys").await.expect(200);
    let key = text(&listed["data"][0]["id"]).parse().expect("the id of a key");
    let link = gateway.keys.one_time_link(key, gateway.now());
    let browser = Browser::nobody(&gateway);
    // Programs that show what is behind a link look at it first.
    browser.send(Ask::new(http::Method::HEAD, &link)).await.expect(200);
    let entered = browser.get(&link).await.expect(303);
    assert_eq!(entered.location().as_deref(), Some("/"));
    browser.open("/deliveries").await.expect(200);
    let thief = Browser::nobody(&gateway);
    thief.get(&link).await.expect(401).assert_has("this link has been used, or is too old");
    thief.get("/deliveries").await.expect(303);

    let late = gateway.keys.one_time_link(key, gateway.now());
    gateway.advance(std::time::Duration::from_mins(10));
    thief.get(&late).await.expect(401);

    let first = gateway.keys.one_time_link(key, gateway.now());
    for _ in 0..16 {
        gateway.keys.one_time_link(key, gateway.now());
    }
    thief.get(&first).await.expect(401);
}

#[tokio::test]
async fn an_admin_chooses_the_tenant_and_a_tenant_has_no_choice() {
    let browser = Browser::signed_in().await;
    let gateway = &browser.gateway;
    let acme = gateway.tenant("acme").await;
    acme.post("/v1/endpoints", &json!({"name": "acme's own", "pull": true})).await.expect(201);
    browser.get("/endpoints").await.expect(200).assert_lacks("acme&#39;s own");
    let chosen = browser.post("/tenant", &[("tenant", "acme"), ("next", "/endpoints")]).await;
    assert_eq!(chosen.expect(303).location().as_deref(), Some("/endpoints"));
    let page = browser.get("/endpoints").await.expect(200);
    page.assert_has("acme&#39;s own");
    page.assert_has("<option value=\"acme\" selected>");
    browser.post("/tenant", &[("tenant", "nobody")]).await.expect(404);

    let tenant = Browser::with_key(gateway, &acme.key).await;
    let page = tenant.get("/endpoints").await.expect(200);
    page.assert_has("acme&#39;s own");
    page.assert_lacks("action=\"/tenant\"");
    tenant.post("/tenant", &[("tenant", "default")]).await.expect(403);
    tenant.get("/endpoints").await.expect(200).assert_has("acme&#39;s own");
}

#[tokio::test]
async fn what_a_change_came_to_is_said_once() {
    let browser = Browser::signed_in().await;
    let id = text(
        &browser
            .gateway
            .client
            .post("/v1/endpoints", &json!({"name": "one", "pull": true}))
            .await
            .expect(201)["id"],
    );
    let paused = browser.post(&format!("/endpoints/{id}/pause"), &[]).await.expect(303);
    let there = paused.location().expect("a way");
    let said = "<p class=\"said\">";
    browser.part(&there).await.expect(200).assert_lacks(said);
    browser.get(&there).await.expect(200).assert_has(said);
    browser.get(&there).await.expect(200).assert_lacks(said);
}
