//! A delivery that is watched: retrying, then dead, without a reload; replayed, then delivered.

use serde_json::json;

use crate::page::{ENTER, Kind, SPACE, TAB, Visit};
use crate::scene::Scene;

/// Long enough to open a page while it waits for its second and last attempt.
const WAIT: &str = "6s";
/// More than any page has to offer.
const MAX_TABS: usize = 150;
const HEADING_SAYS: &str = "return document.querySelector('h1').innerText.toLowerCase()\
                            .includes(arguments[0]);";
/// What has the focus, by its name, once it can be seen that it has.
const FOCUSED: &str = r"
    const focused = document.activeElement;
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(focused);
    const seen = (outlineStyle !== 'none' && parseFloat(outlineWidth) > 0) || boxShadow !== 'none';
    const name = focused.getAttribute('aria-label') || focused.innerText || focused.value || '';
    return [name.replace(/\s+/g, ' ').trim(), seen];";

async fn until_state(visit: &Visit, state: &str) {
    visit.until(&format!("“{state}” in the heading"), HEADING_SAYS, &[json!(state)]).await;
}

#[tokio::test]
async fn a_delivery_is_seen_retrying_then_dead_and_once_replayed_delivered() {
    let scene = Scene::empty().await;
    scene.make_ill(true);
    scene.endpoint("Invoices", "invoice.*", &[WAIT]).await;
    let visit = Visit::signed_in(&scene.gateway).await;
    let event = scene.send(&json!({ "type": "invoice.paid", "payload": { "id": 7 } })).await;
    let delivery = scene.delivery_in(&event, "retrying").await;
    let page = format!("/deliveries/{delivery}");
    visit.open(&page).await;
    until_state(&visit, "retrying").await;
    visit.sees("Attempt 2").await;
    visit.mark().await;
    until_state(&visit, "dead").await;
    assert!(visit.is_the_same_page().await, "it came without a reload");

    scene.make_ill(false);
    visit.press(Kind::Link, "Dead letters").await;
    visit.sees("Invoices").await;
    visit.press(Kind::Link, "Replay all").await;
    visit.sees("Replay 1 dead letter?").await;
    visit.press(Kind::Button, "Replay 1 dead letter").await;
    visit.until_at(|path| path.starts_with("/jobs/job_")).await;
    visit.sees("Finished").await;
    visit.open(&page).await;
    until_state(&visit, "delivered").await;
    visit.sees("Attempt 3: delivered").await;
    let complaints = visit.complaints().await;
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[tokio::test]
async fn a_dead_letter_is_replayed_with_nothing_but_a_keyboard() {
    let scene = Scene::empty().await;
    scene.make_ill(true);
    scene.endpoint("Invoices", "invoice.*", &[]).await;
    let event = scene.send(&json!({ "type": "invoice.paid", "payload": { "id": 7 } })).await;
    let delivery = scene.delivery_in(&event, "dead").await;
    scene.make_ill(false);

    let visit = Visit::signed_in(&scene.gateway).await;
    visit.open("/").await;
    tab_to(&visit, "Dead letters").await;
    press(&visit, ENTER).await;
    visit.until_at(|path| path == "/dead-letters").await;
    tab_to(&visit, "Replay all…").await;
    press(&visit, ENTER).await;
    visit.until_at(|path| path.starts_with("/dead-letters/replay")).await;
    tab_to(&visit, "Replay 1 dead letter").await;
    press(&visit, SPACE).await;
    visit.until_at(|path| path.starts_with("/jobs/job_")).await;
    scene.delivery_in(&event, "delivered").await;
    tab_to(&visit, "Deliveries").await;
    press(&visit, ENTER).await;
    visit.until_at(|path| path.starts_with("/deliveries")).await;
    tab_to(&visit, &delivery).await;
    press(&visit, ENTER).await;
    visit.until_at(|path| path == format!("/deliveries/{delivery}")).await;
    until_state(&visit, "delivered").await;
}

async fn press(visit: &Visit, key: char) {
    visit.browser.press_keys(&key.to_string()).await.expect("a key");
}

/// Presses the tabulator until the focus is on what is called like this. Wherever it is on the way,
/// it can be seen.
async fn tab_to(visit: &Visit, name: &str) {
    visit.until("a whole page", "return document.readyState === 'complete';", &[]).await;
    let mut passed = Vec::new();
    for _ in 0..MAX_TABS {
        press(visit, TAB).await;
        let focused = visit.browser.run(FOCUSED, &[]).await.expect("a page");
        let called = focused[0].as_str().unwrap_or_default().to_owned();
        assert_eq!(focused[1], json!(true), "the focus on “{called}” is not seen");
        if called == name {
            return;
        }
        passed.push(called);
    }
    panic!("no “{name}” by the keyboard at {}, only {passed:?}", visit.path().await);
}
