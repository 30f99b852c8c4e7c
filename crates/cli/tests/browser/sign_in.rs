//! Signing in with a key, being sent on to where one wanted to go, and signing out.

use serde_json::json;

use crate::gateway::KEY;
use crate::page::{Kind, Visit};
use crate::scene::Scene;

const WRONG: &str = "pr_00000000000000000000000000000000000000";

#[tokio::test]
async fn a_key_opens_the_page_that_was_asked_for_and_signing_out_closes_it() {
    let scene = Scene::empty().await;
    let visit = Visit::new(&scene.gateway).await;
    visit.open("/dead-letters").await;
    visit.until_at(|path| path.starts_with("/sign-in")).await;

    visit.sign_in(WRONG).await;
    visit.until_message_at("API key").await;
    assert!(visit.path().await.starts_with("/sign-in"));

    visit.sign_in(KEY).await;
    visit.until_at(|path| path == "/dead-letters").await;
    let cookies = visit.browser.run("return document.cookie;", &[]).await.expect("a page");
    assert_eq!(cookies, json!(""), "no script may see the session");

    visit.press(Kind::Button, "Sign out").await;
    visit.until_at(|path| path.starts_with("/sign-in")).await;
    visit.open("/dead-letters").await;
    visit.until_at(|path| path.starts_with("/sign-in")).await;
}

#[tokio::test]
async fn the_key_of_a_tenant_shows_that_tenant() {
    let scene = Scene::empty().await;
    scene.endpoint("Of the default tenant", "order.*", &["1h"]).await;
    scene.create("/v1/tenants", &json!({ "name": "acme" })).await;
    let made = scene.create("/v1/keys", &json!({ "name": "shop", "tenant": "acme" })).await;
    let visit = Visit::new(&scene.gateway).await;
    visit.open("/sign-in").await;
    visit.sign_in(made["key"].as_str().expect("shown once")).await;
    visit.until_at(|path| !path.starts_with("/sign-in")).await;
    visit.open("/endpoints").await;
    visit.sees("acme").await;
    assert!(!visit.text().await.contains("Of the default tenant"));
}
