//! Filters and pages of lists: what is asked for stays in the address, and pages do not lose anything.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::page::{Kind, Visit};
use crate::scene::Scene;

/// One page and a bit.
const MANY: u64 = 60;
const PAGE: usize = 50;
const ROWS: &str = "return Array.from(document.querySelectorAll('#live tbody tr')).map((row) => \
                    row.id);";

async fn rows(visit: &Visit) -> BTreeSet<String> {
    let rows = visit.until("rows", ROWS, &[]).await;
    let rows = rows.as_array().into_iter().flatten().filter_map(Value::as_str);
    rows.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_pages_of_a_list_hold_everything_once() {
    let scene = Scene::empty().await;
    scene.endpoint("Orders", "order.*", &["1h"]).await;
    for number in 0..MANY {
        scene.send(&json!({ "type": "order.created", "payload": { "number": number } })).await;
    }
    let visit = Visit::signed_in(&scene.gateway).await;
    for (path, older) in [("/deliveries", "Older deliveries"), ("/events", "Older events")] {
        visit.open(path).await;
        let first = rows(&visit).await;
        assert_eq!(first.len(), PAGE, "{path}");
        visit.press(Kind::Link, older).await;
        visit.until_at(|path| path.contains("cursor=")).await;
        let second = rows(&visit).await;
        assert!(first.is_disjoint(&second), "{path}");
        assert_eq!(first.len() as u64 + second.len() as u64, MANY, "{path}");
        assert!(!visit.has(Kind::Link, older).await, "there is no third page");
        visit.browser.back().await.expect("a page before");
        visit.until_at(|now| now == path).await;
        assert_eq!(rows(&visit).await, first, "{path}");
    }
}

#[tokio::test]
async fn filters_show_what_matches_and_stay_in_the_address() {
    let scene = Scene::empty().await;
    scene.endpoint("Orders", "order.*", &["1h"]).await;
    let invoices = scene.endpoint("Invoices", "invoice.*", &[]).await;
    let order = scene
        .send(&json!({ "type": "order.created", "idempotency_key": "order-1", "payload": 1 }))
        .await;
    let delivered = scene.delivery_in(&order, "delivered").await;
    scene.make_ill(true);
    let bill = scene.send(&json!({ "type": "invoice.paid", "payload": 2 })).await;
    let dead = scene.delivery_in(&bill, "dead").await;
    let visit = Visit::signed_in(&scene.gateway).await;

    let row = |id: &str| BTreeSet::from([format!("row-{id}")]);
    visit.open("/deliveries").await;
    visit.choose("State", "dead").await;
    visit.press(Kind::Button, "Filter").await;
    visit.until_at(|path| path.contains("state=dead")).await;
    assert_eq!(rows(&visit).await, row(&dead));
    visit.open("/deliveries").await;
    visit.choose("Endpoint", "Orders").await;
    visit.press(Kind::Button, "Filter").await;
    visit.until_at(|path| path.contains("endpoint=ep_")).await;
    assert_eq!(rows(&visit).await, row(&delivered));
    visit.open(&format!("/dead-letters?endpoint={invoices}")).await;
    assert!(visit.text().await.contains(&dead));

    visit.open("/events").await;
    visit.fill("Type", "invoice.paid").await;
    visit.press(Kind::Button, "Filter").await;
    visit.until_at(|path| path.contains("type=invoice.paid")).await;
    assert_eq!(rows(&visit).await, row(&bill));

    for (typed, leads_to) in [
        (dead.as_str(), format!("/deliveries/{dead}")),
        (bill.as_str(), format!("/events/{bill}")),
        (invoices.as_str(), format!("/endpoints/{invoices}")),
        ("order-1", format!("/events/{order}")),
    ] {
        visit.fill("Find an id or an idempotency key", typed).await;
        visit.press(Kind::Button, "Find").await;
        visit.until_at(|path| path == leads_to).await;
    }
}

#[tokio::test]
async fn the_newest_page_of_a_list_follows_what_happens() {
    let scene = Scene::empty().await;
    scene.endpoint("Orders", "order.*", &["1h"]).await;
    let visit = Visit::signed_in(&scene.gateway).await;
    let before = scene.send(&json!({ "type": "order.created", "payload": 1 })).await;
    scene.delivery_in(&before, "delivered").await;
    visit.open("/deliveries").await;
    visit.mark().await;
    let event = scene.send(&json!({ "type": "order.created", "payload": 2 })).await;
    let delivery = scene.delivery_in(&event, "delivered").await;
    visit.sees(&delivery).await;
    assert!(visit.is_the_same_page().await);
}
