//! Deliveries that are looked at, retried and cancelled, and dead letters that are replayed and
//! purged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use serde_json::json;

use super::{json_of, launch};
use crate::gateway::{Gateway, Launch, text};
use crate::sink::{Reply, Sink};

/// Sends so many events and waits until each is a dead letter.
async fn bury(gateway: &Gateway, count: u64) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        let data = json!({ "number": number }).to_string();
        let send = ["events", "send", "--type", "a.b", "--data", &data, "--wait", "--json"];
        let buried = json_of(&launch(gateway, &send).run().await.expect_code(3));
        ids.push(text(&buried["deliveries"][0], "id"));
    }
    ids
}

#[tokio::test]
async fn dead_letters_are_grouped_sent_again_and_thrown_away() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let healthy = Arc::new(AtomicBool::new(false));
    let seen_by_sink = Arc::clone(&healthy);
    let sink = Sink::start(move |_| {
        let healthy = seen_by_sink.load(Ordering::Relaxed);
        Reply::Now(if healthy { StatusCode::OK } else { StatusCode::IM_A_TEAPOT })
    })
    .await;
    gateway
        .create_endpoint(json!({ "name": "billing", "url": sink.url(), "policy": "edge" }))
        .await;
    let ids = bury(&gateway, 4).await;

    let shown = launch(&gateway, &["dead", "show", &ids[0]]).run().await.expect_code(0);
    for part in ["trying again will not help", "418", "rejected", "attempt  started"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let listed = launch(&gateway, &["dead", "list", "--endpoint", "billing"]).run().await;
    assert_eq!(listed.expect_code(0).stdout.matches("dlv_").count(), 4);
    let grouped = launch(&gateway, &["dead", "groups"]).run().await.expect_code(0);
    assert!(grouped.stdout.lines().any(|line| line.starts_with("4 ")), "{}", grouped.stdout);

    let replay = ["dead", "replay", "--endpoint", "billing"];
    let asked = launch(&gateway, &replay).run().await.expect_code(2);
    assert!(asked.stderr.contains("4 dead letters") && asked.stderr.contains("--yes"), "{asked:?}");
    let dry = launch(&gateway, &replay).and(["--dry-run", "--json"]).run().await.expect_code(0);
    assert_eq!(json_of(&dry), json!({ "matched": 4 }));
    let none = launch(&gateway, &["dead", "replay", "--type", "no.such", "--yes"]).run().await;
    assert!(none.expect_code(0).stdout.contains("No dead letters"));

    healthy.store(true, Ordering::Relaxed);
    let purged = launch(&gateway, &["dead", "purge", &ids[3], "--yes"]).run().await;
    assert!(purged.expect_code(0).stdout.contains("1 dead letter"));
    let one = launch(&gateway, &["dead", "replay", &ids[0], "--yes", "--detach", "--json"]);
    let one = json_of(&one.run().await.expect_code(0));
    let job = ["jobs", "show", &text(&one, "job"), "--follow", "--json"];
    let job = json_of(&launch(&gateway, &job).run().await.expect_code(0));
    assert_eq!((&job["state"], &job["replayed"]), (&json!("finished"), &json!(1)), "{job}");
    let rest = launch(&gateway, &replay).and(["--yes", "--rate", "1000"]).run().await;
    let rest = rest.expect_code(0);
    assert!(rest.stdout.contains("2 on their way again"), "{rest:?}");
    sink.until("each of the three", |seen| seen.delivered.len() == 3).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_delivery_says_why_it_waits_and_is_ended_and_begun_anew() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let sink = Sink::start(|_| Reply::Now(StatusCode::SERVICE_UNAVAILABLE)).await;
    gateway.create_endpoint(json!({ "name": "slow", "url": sink.url(), "policy": "router" })).await;
    let event = gateway.send(1).await;
    sink.until("a first attempt", |seen| !seen.arrivals.is_empty()).await;
    let list = ["deliveries", "list", "--state", "retrying", "--event", &event, "--json"];
    let delivery = crate::within("a retry that is planned", async {
        loop {
            let listed = json_of(&launch(&gateway, &list).run().await.expect_code(0));
            if let Some(id) = listed["data"][0]["id"].as_str() {
                return id.to_owned();
            }
        }
    })
    .await;
    let shown = launch(&gateway, &["deliveries", "show", &delivery]).run().await.expect_code(0);
    for part in ["Waiting: tried once; the next attempt is at", "503", "planned", "retrying"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let ended = launch(&gateway, &["deliveries", "cancel", &delivery]).run().await.expect_code(0);
    assert!(ended.stdout.starts_with("Cancelled"), "{}", ended.stdout);
    launch(&gateway, &["deliveries", "cancel", &delivery]).run().await.expect_code(2);
    launch(&gateway, &["deliveries", "retry", &delivery]).run().await.expect_code(0);
    sink.until("an attempt anew", |seen| seen.arrivals.len() >= 2).await;
    gateway.stop().await;
}
