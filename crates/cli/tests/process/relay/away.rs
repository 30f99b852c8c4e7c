//! A hub that is away: what is for it waits without being tried, and dies only of old age.

use serde_json::json;

use super::{Hub, send, url_of};
use crate::gateway::{Launch, text};
use crate::sink::Sink;

const EVENTS: u64 = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_hub_drains_in_order_and_what_grew_too_old_is_dead() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path()).and(["--housekeeping", "1s"]);
    let gateway = launch.start().await;
    let service = Sink::accepting().await;
    let hub = Hub::create(&gateway, "site").await;
    let endpoint = |kind: &str, max_age: &str| {
        json!({
            "hub": hub.id, "ordering": "fifo", "event_types": [kind],
            "policy": { "preset": "edge", "max_age": max_age },
        })
    };
    gateway.create_endpoint(endpoint("patient", "7d")).await;
    let urgent = gateway.create_endpoint(endpoint("urgent", "1s")).await;

    let dead = send(&gateway, "urgent", 1_000).await;
    let mut waiting = Vec::new();
    for number in 0..EVENTS {
        waiting.push(send(&gateway, "patient", number).await);
    }
    let buried = gateway.process.stderr.line(|line| {
        line.contains("deliveries grew too old and are dead") && line.contains(&urgent)
    });
    assert!(buried.await.is_some(), "{}", gateway.process.stderr.text());
    let dead = gateway.delivery_of(&dead).await;
    assert_eq!((&dead["state"], &dead["reason"]), (&json!("dead"), &json!("expired")), "{dead}");
    assert_eq!(dead["attempts"], 0, "{dead}");
    let first = gateway.delivery_of(&waiting[0]).await;
    assert_eq!(first["state"], "pending", "{first}");
    assert_eq!(first["waiting_on"]["reason"], "hub_offline", "{first}");
    let shown = hub.shown(&gateway).await;
    assert_eq!(shown["connected"], false, "{shown}");
    assert_eq!(shown["waiting"], EVENTS, "{shown}");

    let process = hub.launch(&url_of(&gateway), &service.url()).spawn();
    service.until("what waited", |seen| seen.arrivals.len() as u64 >= EVENTS).await;
    let arrived: Vec<u64> = service.arrivals().iter().map(|arrival| arrival.number).collect();
    assert_eq!(arrived, (0..EVENTS).collect::<Vec<_>>());
    process.signal("TERM");
    process.finished().await.expect_code(0);
    gateway.stop().await;

    let gateway = launch.start().await;
    for event in &waiting {
        let delivery = gateway.delivery_of(event).await;
        assert_eq!(delivery["state"], "delivered", "{delivery}");
        assert_eq!(delivery["attempts"], 1, "{delivery}");
    }
    let dead_letters = gateway.get("/v1/dead-letters").await;
    assert_eq!(text(&dead_letters["data"][0], "id"), text(&dead, "id"));
}
