//! What a crash leaves behind, and what makes others crash.

use std::collections::HashSet;
use std::sync::Mutex;

use http::StatusCode;
use serde_json::json;

use crate::cluster::Cluster;
use crate::gateway::{Gateway, Launch, text};
use crate::peer::{Exchange, Peer};
use crate::sink::{Reply, Sink};
use crate::{delivery_once, lease_one, post, shown};

/// The delivery of an event to an endpoint.
async fn delivery_to(gateway: &Gateway, endpoint: &str, event: &str) -> String {
    let list = gateway.get(&format!("/v1/events/{event}/deliveries")).await;
    let deliveries = list["data"].as_array().expect("a list");
    let delivery = deliveries.iter().find(|delivery| delivery["endpoint_id"] == *endpoint);
    text(delivery.unwrap_or_else(|| panic!("none for {endpoint}: {list}")), "id")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_row_stuck_in_flight_after_a_crash() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let on_a_file = Launch::serve(&directory.path().join("file"));
    let on_a_server = Launch::serve(&directory.path().join("server"))
        .variable("POSTRIDER_STORE", Cluster::shared().database());
    for launch in [on_a_file, on_a_server] {
        crash_with_two_in_flight(&launch).await;
    }
}

/// One is on its way to a URL, which is known in memory alone; one is leased to a worker, which is
/// stored.
async fn crash_with_two_in_flight(launch: &Launch) {
    let met = Mutex::new(HashSet::new());
    let sink = Sink::start(move |arrival| {
        let first = met.lock().expect("no panic").insert(arrival.event.clone());
        if first { Reply::Never } else { Reply::Now(StatusCode::OK) }
    })
    .await;
    let gateway = launch.start().await;
    let pushed = gateway.create_endpoint(json!({ "url": sink.url(), "timeout": "1m" })).await;
    let pulled = gateway.create_endpoint(json!({ "pull": true })).await;
    let event = gateway.send(1).await;
    let ids = [
        delivery_to(&gateway, &pushed, &event).await,
        delivery_to(&gateway, &pulled, &event).await,
    ];
    sink.until("the attempt", |seen| seen.arrivals.len() == 1).await;
    lease_one(&gateway, &pulled, "1s").await;
    for id in &ids {
        delivery_once(&gateway, id, "in_flight").await;
    }
    gateway.process.kill();

    let gateway = launch.start().await;
    sink.until("another attempt", |seen| seen.delivered.contains(&event)).await;
    let lease = lease_one(&gateway, &pulled, "1m").await;
    assert_eq!((&lease["delivery_id"], &lease["attempt"]), (&json!(ids[1]), &json!(2)));
    let ack = format!("/v1/leases/{}/ack", text(&lease, "lease"));
    post(&gateway, &ack, json!({}), StatusCode::OK).await;
    for id in &ids {
        delivery_once(&gateway, id, "delivered").await;
    }
    gateway.stop().await;
    // What is on disk, and not what is in memory.
    let gateway = launch.start().await;
    let stats = gateway.get("/v1/stats").await;
    assert_eq!(stats["deliveries"]["delivered"], 2, "{stats}");
    assert_eq!(stats["deliveries"]["in_flight"], 0, "{stats}");
    gateway.stop().await;
}

/// A poison delivery takes whoever has it down: a worker that is never heard of again, a receiver that
/// hangs up on it. It is tried as often as the policy says, and what stands behind it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_poison_delivery_that_loops_for_ever() {
    const ATTEMPTS: usize = 3;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let policy = json!({ "schedule": { "list": ["10ms"] }, "max_attempts": ATTEMPTS });
    let peer = Peer::start(async |mut exchange: Exchange| {
        exchange.read_request().await;
    })
    .await;
    let spec = json!({ "url": peer.url(), "policy": policy });
    let pushed = gateway.create_endpoint(spec).await;
    let spec = json!({ "pull": true, "policy": policy, "ordering": "fifo" });
    let pulled = gateway.create_endpoint(spec).await;

    let poison = gateway.send(1).await;
    let behind = gateway.send(2).await;
    for number in 1..=ATTEMPTS {
        let lease = lease_one(&gateway, &pulled, "1s").await;
        assert_eq!(lease["event"]["id"], *poison, "{lease}");
        assert_eq!(lease["attempt"], number, "{lease}");
    }
    for endpoint in [&pulled, &pushed] {
        let id = delivery_to(&gateway, endpoint, &poison).await;
        let dead = delivery_once(&gateway, &id, "dead").await;
        assert_eq!(dead["attempts"], ATTEMPTS, "{dead}");
        assert_eq!(dead["reason"], "exhausted", "{dead}");
        assert_eq!(dead["next_attempt_at"], json!(null), "{dead}");
    }
    let lease = lease_one(&gateway, &pulled, "1m").await;
    assert_eq!((&lease["event"]["id"], &lease["attempt"]), (&json!(behind), &json!(1)));
    let id = delivery_to(&gateway, &pushed, &behind).await;
    delivery_once(&gateway, &id, "dead").await;
    assert_eq!(peer.requests().len(), 2 * ATTEMPTS);

    // Nor does a restart begin anew.
    gateway.stop().await;
    let gateway = Launch::serve(directory.path()).start().await;
    let ended = |stats: &serde_json::Value| stats["deliveries"]["dead"] == 3;
    shown(&gateway, "/v1/stats", ended).await;
    assert_eq!(peer.requests().len(), 2 * ATTEMPTS);
}
