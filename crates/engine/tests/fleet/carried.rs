//! Whichever node takes an event, the one that carries its endpoint sends it, once.

use std::collections::BTreeMap;

use postrider_core::{HubId, State};

use super::*;

#[tokio::test]
async fn every_event_reaches_its_endpoint_once_whichever_node_takes_it() {
    let fleet = Fleet::of(3).await;
    let sink = Sink::answering(200).await;
    let endpoints = fleet.endpoints(&sink, |_| {}).await;
    let mut events = Vec::new();
    for number in 0..ENDPOINTS {
        for node in 0..3 {
            events.extend(rig::send(fleet.engine(node), &kind(number), 2).await);
        }
    }
    for event in &events {
        fleet.ends(delivery_of(*event), State::Delivered).await;
    }
    let mut arrivals: BTreeMap<String, usize> = BTreeMap::new();
    for received in sink.received() {
        *arrivals.entry(received.header("webhook-id").to_owned()).or_default() += 1;
    }
    assert_eq!(arrivals.len(), events.len());
    assert!(arrivals.values().all(|count| *count == 1), "{arrivals:?}");
    let mut carriers = Vec::new();
    for endpoint in endpoints {
        carriers.push(fleet.carrier(endpoint).await);
    }
    carriers.sort_unstable();
    carriers.dedup();
    assert_eq!(carriers, [0, 1, 2], "or this test shows nothing");
}

#[tokio::test]
async fn nodes_make_ids_that_never_meet() {
    let fleet = Fleet::of(3).await;
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..200 {
        for node in 0..3 {
            let first = fleet.engine(node).take_ids(5);
            for id in first..first + 5 {
                assert!(ids.insert(HubId::from_i64(id)), "{id} was given twice");
            }
        }
    }
}
