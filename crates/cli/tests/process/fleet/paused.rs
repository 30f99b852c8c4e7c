//! A node that is stopped beyond its lease, with attempts in flight, changes nothing when it wakes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;

use http::StatusCode;
use serde_json::{Value, json};

use super::{Fleet, LOOK};
use crate::gateway::text;
use crate::sink::{Arrival, Reply, Sink};
use crate::within;

/// In flight from the node that is stopped.
const HELD: u64 = 6;
/// Sent while it is stopped.
const LATER: u64 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_node_changes_nothing_when_it_wakes() {
    let fleet = Fleet::start().await;
    // The first attempt at each of the first deliveries is answered when it is too late.
    let held = Mutex::new(HashSet::new());
    let sink = Sink::start(move |arrival| {
        let mut held = held.lock().expect("nobody panics with it");
        let first = arrival.number < HELD && held.insert(arrival.delivery.clone());
        if first { Reply::WhenReleased } else { Reply::Now(StatusCode::OK) }
    })
    .await;
    let ordered = Sink::accepting().await;
    let spec = json!({ "url": sink.url(), "timeout": "1m", "max_in_flight": HELD });
    let endpoint = fleet.node(0).create_endpoint(spec).await;
    fleet.settled().await;
    let sleeper = fleet.carrier_of(&endpoint).await;
    let awake = fleet.other_than(sleeper);
    let beside = ordered_beside(&fleet, sleeper, &ordered).await;

    let mut events = Vec::new();
    for number in 0..HELD {
        events.push(fleet.node(awake).send(number).await);
    }
    sink.until("attempts", |seen| seen.arrivals.len() as u64 == HELD).await;
    fleet.pause(sleeper);
    for number in HELD..HELD + LATER {
        events.push(fleet.node(awake).send(number).await);
    }
    let all = HELD + LATER;
    sink.until("others to take over", |seen| seen.delivered.len() as u64 == all).await;
    ordered.until("others to take over", |seen| seen.delivered.len() as u64 == all).await;
    let before = delivered(&fleet, awake, &events).await;
    for delivery in before.values() {
        // The attempts of the sleeper are unknown: there is one, which the new owner made.
        assert_eq!(delivery["attempts"], 1, "{delivery}");
        let log = delivery["attempt_log"].as_array().expect("a list");
        assert_eq!(log.len(), 1, "{delivery}");
        assert_eq!(log[0]["number"], 1, "{delivery}");
    }

    // Its answers wait for it when it wakes.
    sink.release();
    fleet.resume(sleeper);
    fleet.settled().await;
    // What it had to say was said before it carries anything again.
    let endpoints = [&endpoint, &beside];
    let mut sent = all;
    for node in fleet.running() {
        fleet.node(node).send(sent).await;
        sent += 1;
    }
    for (sink, endpoint) in [&sink, &ordered].into_iter().zip(endpoints) {
        let last = |seen: &crate::sink::Seen| seen.delivered.len() as u64 == sent;
        sink.until(&format!("the last at {endpoint}"), last).await;
    }
    assert_eq!(delivered(&fleet, awake, &events).await, before, "it changed something");

    let arrivals = sink.arrivals();
    assert_eq!(arrivals.len() as u64, sent + HELD, "what was in flight was taken over once");
    for number in 0..HELD {
        let times = arrivals.iter().filter(|arrival| arrival.number == number).count();
        assert_eq!(times, 2, "{number}");
    }
    check_line(&ordered.arrivals(), sent);
}

/// An ordered endpoint that the same node carries.
async fn ordered_beside(fleet: &Fleet, carrier: usize, sink: &Sink) -> String {
    /// With three nodes, one of three endpoints is right.
    const MOST_TRIES: usize = 60;
    for _ in 0..MOST_TRIES {
        let spec = json!({ "url": sink.url(), "ordering": "fifo" });
        let endpoint = fleet.node(0).create_endpoint(spec).await;
        if fleet.carrier_of(&endpoint).await == carrier {
            return endpoint;
        }
        let path = format!("/v1/endpoints/{endpoint}");
        let answer = fleet.node(0).call(http::Method::DELETE, &path, String::new()).await;
        assert!(answer.status.is_success(), "{}", answer.body);
    }
    panic!("node {carrier} carries next to nothing");
}

/// Every delivery of these events as it is stored, once all have been delivered.
async fn delivered(fleet: &Fleet, from: usize, events: &[String]) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for event in events {
        let list = fleet.node(from).get(&format!("/v1/events/{event}/deliveries")).await;
        for delivery in list["data"].as_array().expect("a list") {
            let id = text(delivery, "id");
            let settled = async {
                loop {
                    let delivery = fleet.node(from).get(&format!("/v1/deliveries/{id}")).await;
                    if delivery["state"] == "delivered" {
                        return delivery;
                    }
                    tokio::time::sleep(LOOK).await;
                }
            };
            let delivery = within("a delivery that is recorded", settled).await;
            found.insert(id, delivery);
        }
    }
    assert_eq!(found.len(), 2 * events.len());
    found
}

fn check_line(arrivals: &[Arrival], sent: u64) {
    let numbers: Vec<u64> = arrivals.iter().map(|arrival| arrival.number).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    let mut first = numbers.clone();
    first.dedup();
    // What is sent through several nodes at the end has no order of its own but that of its answers.
    assert_eq!(first, (0..sent).collect::<Vec<_>>());
}
