//! Several workers on one endpoint, and workers that are killed.

use std::collections::BTreeSet;
use std::fs;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Shop, line_about, until};
use crate::gateway::{Launch, Process, text};

/// A policy under which only the end of a lease can bring a second try soon enough.
fn patient() -> Value {
    json!({ "schedule": { "list": ["1h"] }, "max_attempts": 5 })
}

fn done(worker: &Process) -> usize {
    worker.stderr.lines().iter().filter(|line| line.ends_with(": done")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_share_five_hundred_deliveries_and_each_is_acked_once() {
    const WORKERS: usize = 8;
    const DELIVERIES: usize = 500;
    let shop = Shop::with(patient()).await;
    let script = r#"echo "$POSTRIDER_ATTEMPT" >> "$0/ran.$POSTRIDER_DELIVERY_ID""#;
    let start = |_| shop.script(&["--concurrency", "4"], script);
    let workers: Vec<Process> = (0..WORKERS).map(start).collect();
    for worker in &workers {
        let begun = worker.stderr.line(|line| line.starts_with("working on")).await;
        assert!(begun.is_some(), "{}", worker.stderr.text());
    }
    let event = |number| json!({ "type": "job", "payload": number });
    let events: Vec<Value> = (0..DELIVERIES).map(event).collect();
    let events = json!({ "events": events }).to_string();
    let answer = shop.gateway.call(Method::POST, "/v1/events/batch", events).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);

    let all = || (workers.iter().map(done).sum::<usize>() >= DELIVERIES).then_some(());
    until("all deliveries", all).await;
    let mut total = 0;
    for worker in workers {
        worker.signal("TERM");
        let finished = worker.finished().await.expect_code(0);
        let last = finished.stderr.lines().last().unwrap_or_default().to_owned();
        let count = last.strip_prefix("stopped: ").and_then(|rest| rest.split(' ').next());
        let count: usize = count.and_then(|count| count.parse().ok()).expect(&last);
        assert!(last.ends_with(" done, 0 failed, 0 given back, 0 lapsed"), "{last}");
        total += count;
    }
    assert_eq!(total, DELIVERIES);

    let mut ran = BTreeSet::new();
    for entry in fs::read_dir(shop.path()).expect("it is there") {
        let entry = entry.expect("it is there");
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_prefix("ran.") else { continue };
        assert_eq!(fs::read_to_string(entry.path()).expect("it is there"), "1\n", "{id}");
        ran.insert(id.to_owned());
    }
    assert_eq!(ran.len(), DELIVERIES);
    let mut path = "/v1/deliveries?state=delivered&limit=250".to_owned();
    loop {
        let page = shop.gateway.get(&path).await;
        for delivery in page["data"].as_array().expect("a list") {
            assert_eq!(delivery["attempts"], 1, "{delivery}");
            assert!(ran.remove(&text(delivery, "id")), "{delivery}");
        }
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/deliveries?state=delivered&limit=250&cursor={cursor}");
    }
    assert_eq!(ran, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_worker_had_goes_to_another_when_its_lease_ends() {
    let shop = Shop::with(patient()).await;
    let script = r#"echo "$$" > "$0/begun.$POSTRIDER_DELIVERY_ID.$POSTRIDER_ATTEMPT"
        [ "$POSTRIDER_ATTEMPT" = 2 ] || exec sleep 1000"#;
    let lease = ["--lease", "2s", "--concurrency", "2"];
    let killed = shop.script(&lease, script);
    let ids = [shop.send_payload(json!(1)).await, shop.send_payload(json!(2)).await];
    let mut orphans = Vec::new();
    for id in &ids {
        orphans.push(shop.appears(&format!("begun.{id}.1")).await);
    }
    let other = shop.script(&lease, script);
    let leased = shop.delivery(&ids[0]).await;
    assert_eq!(leased["state"], "in_flight", "{leased}");
    assert_eq!(leased["waiting_on"]["reason"], "leased", "{leased}");
    killed.kill();
    for id in &ids {
        let line = line_about(&other, id).await;
        assert!(line.contains("attempt 2") && line.ends_with(": done"), "{line}");
        let delivery = shop.delivery(id).await;
        // The attempt that was never heard of again is in the log all the same.
        assert_eq!(delivery["state"], "delivered", "{delivery}");
        assert_eq!(delivery["attempts"], 2, "{delivery}");
        assert_eq!(delivery["attempt_log"].as_array().map(Vec::len), Some(2), "{delivery}");
    }
    // Nobody is left to end what the killed one had started.
    for orphan in orphans {
        let kill = std::process::Command::new("kill").args(["-9", orphan.trim()]).status();
        assert!(kill.expect("kill runs").success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_lasts_for_as_long_as_its_program_runs() {
    let shop = Shop::strict().await;
    let script = r#"echo > "$0/begun"; while [ ! -e "$0/go" ]; do sleep 0.05; done"#;
    let worker = shop.script(&["--lease", "1s"], script);
    let id = shop.send_payload(json!(1)).await;
    shop.appears("begun").await;
    // Its end moves on, well beyond where it was at first.
    let first = text(&shop.delivery(&id).await["waiting_on"], "until");
    let mut moves = BTreeSet::from([first]);
    while moves.len() < 6 {
        let delivery = shop.delivery(&id).await;
        assert_eq!(delivery["state"], "in_flight", "{delivery}");
        moves.insert(text(&delivery["waiting_on"], "until"));
        tokio::time::sleep(super::LOOK).await;
    }
    fs::write(shop.path().join("go"), "").expect("written");
    let line = line_about(&worker, &id).await;
    assert!(line.contains("attempt 1,") && line.ends_with(": done"), "{line}");
    assert_eq!(shop.delivery(&id).await["attempts"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_goes_on_when_its_gateway_has_been_away() {
    let mut shop = Shop::with(patient()).await;
    let script = r#"echo > "$0/begun"; while [ ! -e "$0/go" ]; do sleep 0.05; done"#;
    let worker = shop.script(&["--lease", "1m"], script);
    let id = shop.send_payload(json!(1)).await;
    shop.appears("begun").await;
    shop.gateway.process.signal("KILL");
    let away = worker.stderr.line(|line| line.starts_with("no work for now")).await;
    assert!(away.is_some(), "{}", worker.stderr.text());
    // Done while nobody could be told.
    fs::write(shop.path().join("go"), "").expect("written");

    let (address, data) = (shop.gateway.address.to_string(), shop.path().join("data"));
    let again = Launch::with(["serve", "--listen", &address]).and(["--data"]).and([&data]);
    shop.gateway = again.start().await;
    let line = line_about(&worker, &id).await;
    assert!(line.contains("attempt 1,") && line.ends_with(": done"), "{line}");
    let next = shop.send_payload(json!(2)).await;
    let line = line_about(&worker, &next).await;
    assert!(line.ends_with(": done"), "{line}");
    let back = worker.stderr.line(|line| line.contains("answers again")).await;
    assert!(back.is_some(), "{}", worker.stderr.text());
}
