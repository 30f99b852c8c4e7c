//! An empty gateway: three steps, each of which really does it.

use crate::page::{Kind, Visit};
use crate::scene::Scene;

#[tokio::test]
async fn three_steps_take_a_webhook_through_an_empty_gateway() {
    let scene = Scene::empty().await;
    let visit = Visit::signed_in(&scene.gateway).await;
    visit.open("/").await;
    visit.sees("0 of 3 done").await;
    visit.sees("postrider demo").await;

    visit.fill("Name", "shop").await;
    visit.press(Kind::Button, "Create the source").await;
    visit.sees("1 of 3 done").await;
    let sources = scene.gateway.get("/v1/sources").await;
    assert_eq!(sources["data"][0]["name"], "shop");

    visit.fill("URL", "http://10.1.2.3/hook").await;
    visit.press(Kind::Button, "Create the endpoint").await;
    let message = visit.until_message_at("URL").await;
    assert!(message.contains("10.1.2.3"), "{message}");
    let endpoints = scene.gateway.get("/v1/endpoints").await;
    assert_eq!(endpoints["data"].as_array().map(Vec::len), Some(0));

    visit.fill("URL", &scene.sink.url()).await;
    visit.press(Kind::Button, "Create the endpoint").await;
    visit.sees("2 of 3 done").await;
    visit.press(Kind::Button, "Send a test event").await;
    visit.sees("3 of 3 done").await;
    scene.sink.until("the test event", |seen| seen.arrivals.len() == 1).await;
    visit
        .until(
            "it to be shown as delivered",
            "return document.querySelector('#live').innerText.toLowerCase().includes('delivered');",
            &[],
        )
        .await;
}
