//! The policy editor: its picture follows what is typed.

use serde_json::json;

use crate::page::{Kind, Visit};
use crate::scene::Scene;

/// What the picture says of itself, once it shows so many attempts.
const SENTENCE: &str = "const picture = document.querySelector('#picture svg'); return picture && \
                        picture.querySelectorAll('circle').length === arguments[0] && \
                        picture.querySelector('title').textContent;";

async fn until_attempts(visit: &Visit, count: u64) -> String {
    let what = format!("a picture of {count} attempts");
    let sentence = visit.until(&what, SENTENCE, &[json!(count)]).await;
    sentence.as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_picture_follows_what_is_typed_without_a_reload() {
    let scene = Scene::empty().await;
    let visit = Visit::signed_in(&scene.gateway).await;
    visit.open("/policies").await;
    let standard = until_attempts(&visit, 10).await;
    visit.mark().await;

    visit.choose("Preset", "router").await;
    let router = until_attempts(&visit, 5).await;
    assert_ne!(router, standard);
    visit.choose("Waits", "a list").await;
    visit.fill("List of waits", "1s 2s").await;
    visit.fill("Most attempts", "3").await;
    let own = until_attempts(&visit, 3).await;
    assert_ne!(own, router);

    visit.fill("Most attempts", "none").await;
    visit.until_message_at("Most attempts").await;
    visit.fill("Most attempts", "4").await;
    until_attempts(&visit, 4).await;
    assert!(visit.is_the_same_page().await);
    // What is typed is also a link: without script the same page comes by a button.
    visit.press(Kind::Button, "Show").await;
    visit.until_at(|path| path.contains("max_attempts=4")).await;
    until_attempts(&visit, 4).await;
}
