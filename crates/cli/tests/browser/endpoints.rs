//! Making an endpoint in the form: what is wrong shows while one types, a filter is tried on what has
//! come in, and the endpoint then does what was said.

use serde_json::json;

use crate::page::{Kind, Visit};
use crate::scene::Scene;

/// A change of the form reaches the gateway a moment after it; its answer is put here.
const NOTHING_AGAINST: &str =
    "return document.querySelector('#checked').innerText.includes('Nothing stands against it');";

#[tokio::test]
async fn an_endpoint_is_made_with_its_mistakes_shown_while_one_types() {
    let scene = Scene::empty().await;
    for total in [50, 150] {
        scene.send(&json!({ "type": "order.created", "payload": { "total": total } })).await;
    }
    let visit = Visit::signed_in(&scene.gateway).await;
    visit.open("/endpoints").await;
    visit.press(Kind::Link, "New endpoint").await;
    visit.until_at(|path| path == "/endpoints/new").await;
    visit.mark().await;

    visit.fill("Name", "Orders").await;
    visit.fill("URL", "ftp://example.com/").await;
    let message = visit.until_message_at("URL").await;
    assert!(message.contains("http"), "{message}");
    visit.fill("URL", &scene.sink.url()).await;
    visit.until("no more objection", NOTHING_AGAINST, &[]).await;

    visit.fill("Event types", "order.*").await;
    visit.fill("Filter", "payload.total >").await;
    visit.until_message_at("Filter").await;
    visit.fill("Filter", "payload.total > 100").await;
    visit.sees("1 of the newest 2 events would go here").await;
    visit.until("no more objection", NOTHING_AGAINST, &[]).await;
    assert!(visit.is_the_same_page().await);
    let endpoints = scene.gateway.get("/v1/endpoints").await;
    assert_eq!(endpoints["data"].as_array().map(Vec::len), Some(0), "nothing is made by typing");

    visit.press(Kind::Button, "Make the endpoint").await;
    visit.until_at(|path| path.starts_with("/endpoints/ep_")).await;
    visit.sees("Orders").await;
    let made = scene.gateway.get("/v1/endpoints").await["data"][0].clone();
    assert_eq!(made["url"], scene.sink.url());
    assert_eq!(made["filter"], "payload.total > 100");
    assert_eq!(made["event_types"], json!(["order.*"]));

    visit.press(Kind::Button, "Send a test").await;
    visit
        .until(
            "the attempt",
            "return document.querySelector('#tested').innerText.includes('200');",
            &[],
        )
        .await;
}

#[tokio::test]
async fn a_paused_endpoint_keeps_what_comes_and_sends_it_when_resumed() {
    let scene = Scene::empty().await;
    let endpoint = scene.endpoint("Orders", "order.*", &["1h"]).await;
    let visit = Visit::signed_in(&scene.gateway).await;
    visit.open(&format!("/endpoints/{endpoint}")).await;
    visit.press(Kind::Button, "Pause").await;
    visit.find(Kind::Button, "Resume").await;
    let event = scene.send(&json!({ "type": "order.created", "payload": {} })).await;
    let waiting = scene.delivery_in(&event, "pending").await;
    visit.press(Kind::Button, "Resume").await;
    visit.find(Kind::Button, "Pause").await;
    visit.sees(&waiting).await;
    scene.delivery_in(&event, "delivered").await;
    visit.press(Kind::Link, "Edit").await;
    visit.fill("Name", "Orders to the warehouse").await;
    visit.press(Kind::Button, "Save").await;
    visit.until_at(|path| !path.ends_with("/edit")).await;
    visit.sees("Orders to the warehouse").await;
}
