//! Leases and what they cover.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::gateway::{KEY, Launch};
use crate::shown;
use crate::sink::{Reply, Sink};

/// For how long a node is believed to live without a word of it.
const NODE_LEASE: &str = "2s";
/// A receiver, and a program, that take a multiple of that.
const SLOW: Duration = Duration::from_secs(6);
/// For how long a delivery is a worker's.
const WORKER_LEASE: &str = "1s";
/// One endpoint, carried by one node: the other has nothing to do, and would take over at once.
const EVENTS: usize = 2;

/// A node on a database that it shares.
pub(crate) fn node(folder: &Path, name: &str, store: &str) -> Launch {
    Launch::serve(&folder.join(name))
        .and(["--node-name", name])
        .variable("POSTRIDER_STORE", store)
        .variable("POSTRIDER_SECRET_KEY", "5e".repeat(32))
}

/// Both nodes are there, and have the lanes between them.
pub(crate) fn share_the_lanes(census: &Value) -> bool {
    let nodes = census["nodes"].as_array().expect("a list");
    let lanes = |node: &Value| node["lanes"].as_array().map_or(0, Vec::len);
    let held: usize = nodes.iter().map(lanes).sum();
    nodes.len() == 2 && nodes.iter().all(|node| lanes(node) > 0) && census["lanes"] == held
}

/// Neither a node that waits for an answer, nor a worker that is at work, loses what it has to another:
/// each request is made once, however long it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_lease_shorter_than_the_request_it_covers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let folder = directory.path();
    let store = Cluster::shared().database();
    let [one, other] =
        ["one", "other"].map(|name| node(folder, name, &store).and(["--lease", NODE_LEASE]));
    let (one, other) = tokio::join!(one.start(), other.start());
    shown(&one, "/v1/nodes", share_the_lanes).await;

    let sink = Sink::start(|_| Reply::After(SLOW)).await;
    one.create_endpoint(json!({ "url": sink.url(), "timeout": "1m" })).await;
    let pulled = one.create_endpoint(json!({ "pull": true })).await;
    let runs = folder.join("runs");
    let script = format!("echo \"$POSTRIDER_ATTEMPT\" >> \"$0\"; sleep {}", SLOW.as_secs());
    // Two workers, so that what one of them lost would be taken by the other.
    let work = |gateway: &crate::Gateway| {
        let url = format!("http://{}", gateway.address);
        Launch::with(["work", "--gateway", &url, "--endpoint", &pulled, "--lease", WORKER_LEASE])
            .and(["--", "sh", "-c", &script])
            .and([&runs])
            .variable("POSTRIDER_KEY", KEY)
            .spawn()
    };
    let _workers = [work(&one), work(&other)];
    for number in 0..EVENTS {
        one.send(number as u64).await;
    }
    let done = |stats: &Value| stats["deliveries"]["delivered"] == 2 * EVENTS;
    shown(&one, "/v1/stats", done).await;
    let listed = other.get("/v1/deliveries?limit=250").await;
    for delivery in listed["data"].as_array().expect("a list") {
        assert_eq!(delivery["attempts"], 1, "{delivery}");
    }
    assert_eq!(sink.arrivals().len(), EVENTS, "something was sent twice");
    let ran = std::fs::read_to_string(&runs).expect("written by the programs");
    assert_eq!(ran, "1\n1\n", "something was run twice");
    one.stop().await;
    other.stop().await;
}
