//! Workers of a pull endpoint on any node: a lease is good everywhere, and outlives the node that
//! gave it.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Fleet;
use crate::gateway::{Gateway, text};

/// Leased one by one from a node that is then killed.
const BY_HAND: usize = 9;
/// Taken by workers on all nodes.
const BY_WORKERS: usize = 300;
const WORKERS_PER_NODE: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_good_on_every_node_and_each_delivery_is_acked_once() {
    let mut fleet = Fleet::start().await;
    let endpoint = fleet.node(0).create_endpoint(json!({ "pull": true })).await;
    fleet.settled().await;
    let carrier = fleet.carrier_of(&endpoint).await;
    let others: Vec<usize> = fleet.running().filter(|node| *node != carrier).collect();

    send(fleet.node(others[0]), 0..BY_HAND).await;
    // Some from the node that carries the endpoint's lane, and some from another.
    let mut leases = lease(fleet.node(carrier), &endpoint, BY_HAND - 3).await;
    leases.extend(lease(fleet.node(others[0]), &endpoint, BY_HAND).await);
    assert_eq!(leases.len(), BY_HAND, "each is leased once");
    let mut acked = BTreeSet::new();
    for (place, (delivery, token)) in leases.iter().take(3).enumerate() {
        let node = [carrier, others[0], others[1]][place];
        assert_eq!(settle(fleet.node(node), token, "ack", json!({})).await, StatusCode::OK);
        acked.insert(delivery.clone());
    }
    fleet.kill(carrier);
    for (place, (delivery, token)) in leases.iter().skip(3).enumerate() {
        let [one, other] = [others[place % 2], others[1 - place % 2]];
        let more = json!({ "lease": "1m" });
        assert_eq!(settle(fleet.node(one), token, "extend", more).await, StatusCode::OK);
        let done = settle(fleet.node(other), token, "ack", json!({})).await;
        assert_eq!(done, StatusCode::OK, "{delivery} was leased by a node that is gone");
        acked.insert(delivery.clone());
        let again = settle(fleet.node(one), token, "ack", json!({})).await;
        assert_eq!(again, StatusCode::CONFLICT, "{delivery} was acked already");
    }
    assert_eq!(acked.len(), BY_HAND);

    fleet.launch(carrier).await;
    send(fleet.node(carrier), BY_HAND..BY_HAND + BY_WORKERS).await;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let workers = fleet.running().flat_map(|node| [node; WORKERS_PER_NODE]);
    let workers = workers.map(|node| work(fleet.node(node), &endpoint));
    for done in futures_util::future::join_all(workers).await.into_iter().flatten() {
        *counts.entry(done).or_default() += 1;
    }
    assert!(counts.values().all(|times| *times == 1), "{counts:?}");
    assert!(counts.keys().all(|delivery| !acked.contains(delivery)), "{counts:?}");
    assert_eq!(counts.len(), BY_WORKERS);
    fleet.all_delivered(BY_HAND + BY_WORKERS, BY_HAND + BY_WORKERS).await;
    let first = acked.first().expect("one of them");
    let delivery = fleet.node(carrier).get(&format!("/v1/deliveries/{first}")).await;
    assert_eq!(delivery["attempts"], 1, "{delivery}");
}

/// A worker that waits is woken by an event that comes in elsewhere: had it to look for itself, its
/// wait would be over first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_waits_is_woken_by_an_event_on_another_node() {
    let fleet = Fleet::start().await;
    let endpoint = fleet.node(0).create_endpoint(json!({ "pull": true })).await;
    fleet.settled().await;
    for node in fleet.running() {
        let path = format!("/v1/endpoints/{endpoint}/lease");
        let wish = json!({ "max": 1, "wait": "30s" }).to_string();
        let waiting = fleet.node(node).call(Method::POST, &path, wish);
        let sending = send(fleet.node((node + 1) % 3), 0..1);
        let (answer, ()) = tokio::join!(waiting, sending);
        let [(_, token)] = &read(&answer.body)[..] else { panic!("{}", answer.body) };
        assert_eq!(settle(fleet.node(node), token, "ack", json!({})).await, StatusCode::OK);
    }
}

/// Leases and acks until there is nothing left. Returns the deliveries whose ack was taken.
async fn work(node: &Gateway, endpoint: &str) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        let leases = lease(node, endpoint, 7).await;
        if leases.is_empty() {
            return done;
        }
        for (delivery, token) in leases {
            assert_eq!(settle(node, &token, "ack", json!({})).await, StatusCode::OK);
            done.push(delivery);
        }
    }
}

/// Takes what is there. Returns each delivery with its token.
async fn lease(node: &Gateway, endpoint: &str, max: usize) -> Vec<(String, String)> {
    let path = format!("/v1/endpoints/{endpoint}/lease");
    let wish = json!({ "max": max, "lease": "1m" }).to_string();
    let answer = node.call(Method::POST, &path, wish).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    read(&answer.body)
}

fn read(answer: &Value) -> Vec<(String, String)> {
    let leases = answer["leases"].as_array().unwrap_or_else(|| panic!("{answer}"));
    leases.iter().map(|lease| (text(lease, "delivery_id"), text(lease, "lease"))).collect()
}

async fn settle(node: &Gateway, token: &str, how: &str, with: Value) -> StatusCode {
    let path = format!("/v1/leases/{token}/{how}");
    node.call(Method::POST, &path, with.to_string()).await.status
}

async fn send(node: &Gateway, numbers: std::ops::Range<usize>) {
    let event = |number| json!({ "type": "job", "payload": { "number": number } });
    let events: Vec<Value> = numbers.map(event).collect();
    let body = json!({ "events": events }).to_string();
    let answer = node.call(Method::POST, "/v1/events/batch", body).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
}
