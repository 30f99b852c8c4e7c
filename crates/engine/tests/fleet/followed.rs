//! Workers and hubs may come to any node.

use std::collections::BTreeSet;

use postrider_core::State;
use postrider_core::endpoint::Destination;
use postrider_core::hub::{Answer, Hello, Met};
use postrider_core::pattern::Pattern;
use postrider_engine::{Ending, LeaseWish, Link};

use super::*;

const WORK: usize = 30;

fn listens_to_all(destination: Destination) -> Spec {
    let spec = rig::spec(String::new(), "replaced");
    Spec { destination, event_types: vec![Pattern::Any], ..spec }
}

#[tokio::test]
async fn workers_at_all_nodes_get_each_delivery_once() {
    let fleet = Fleet::of(3).await;
    let endpoint = rig::create(fleet.engine(0), listens_to_all(Destination::Pull)).await;
    let wish = LeaseWish {
        endpoint,
        max: 4,
        wait: Duration::from_secs(10),
        lease: Duration::from_mins(1),
        event_types: Vec::new(),
    };
    let mut workers = Vec::new();
    for node in 0..3 {
        let (lender, answerer) = (fleet.engine(node).clone(), fleet.engine((node + 1) % 3).clone());
        let wish = wish.clone();
        workers.push(tokio::spawn(async move {
            let mut done = Vec::new();
            loop {
                let leases = lender.lease(TENANT, wish.clone()).await.expect("answered");
                if leases.is_empty() || leases.iter().any(|lease| lease.event.kind == "last") {
                    return done;
                }
                let tokens = leases.iter().map(|lease| lease.token).collect();
                let acked = answerer.ack(TENANT, tokens, None).await.expect("answered");
                assert!(acked.iter().all(|acked| *acked), "a lease is good on every node");
                done.extend(leases.into_iter().map(|lease| lease.delivery));
            }
        }));
    }
    let mut sent = BTreeSet::new();
    for number in 0..WORK {
        sent.extend(
            rig::send(fleet.engine(number % 3), "work", 1).await.into_iter().map(delivery_of),
        );
    }
    for delivery in &sent {
        fleet.ends(*delivery, State::Delivered).await;
    }
    rig::send(fleet.engine(0), "last", 3).await;
    let mut done = Vec::new();
    for worker in workers {
        done.extend(worker.await.expect("no panic"));
    }
    assert_eq!(done.len(), WORK, "each once");
    assert_eq!(done.into_iter().collect::<BTreeSet<_>>(), sent);
}

fn hello() -> Hello {
    Hello { agent: "a test".into(), capacity: 4 }
}

/// Takes the next delivery and says that it went well.
async fn forward(link: &mut Link) -> DeliveryId {
    let next = tokio::time::timeout(PATIENCE, link.next()).await.expect("something comes");
    let deliver = next.expect("the line is open");
    let met = Met::Status {
        status: 200,
        headers: Vec::new(),
        body: bytes::Bytes::new(),
        truncated: false,
    };
    link.answer(Answer { seq: deliver.seq, duration: Duration::ZERO, met }).expect("asked for");
    deliver.delivery
}

#[tokio::test]
async fn a_hub_gets_its_deliveries_from_whatever_node_it_comes_to() {
    let fleet = Fleet::of(3).await;
    let (hub, _) = fleet.engine(0).create_hub(ACTING, "the workshop".into()).await.expect("a hub");
    let hub = hub.id;
    rig::create(fleet.engine(1), listens_to_all(Destination::Hub(hub))).await;
    let mut old = None;
    for node in [0, 1, 2, 0] {
        let engine = fleet.engine(node);
        let mut link = engine.connect_hub(hub, &hello()).await.expect("known on every node");
        for sender in 0..3 {
            let event = rig::send(fleet.engine(sender), "work", 1).await[0];
            assert_eq!(forward(&mut link).await, delivery_of(event));
            fleet.ends(delivery_of(event), State::Delivered).await;
        }
        until("every node sees it connected", async || {
            let view = fleet.engine((node + 1) % 3).hub(TENANT, hub).await.expect("known");
            view.connection.is_some_and(|connection| connection.agent == "a test")
        })
        .await;
        if let Some(mut old) = old.replace(link) {
            let ended = tokio::time::timeout(PATIENCE, old.next()).await.expect("it ends");
            assert_eq!(ended.map(|deliver| deliver.seq), Err(Ending::TakenOver));
        }
    }
    drop(old);
    let waits = rig::send(fleet.engine(1), "work", 1).await[0];
    let record = fleet.record(delivery_of(waits)).await;
    until("every node knows why", async || {
        let on = fleet.engine(2).waiting_on(&record).await.expect("readable");
        on.is_some_and(|on| on.reason.as_str() == "hub_offline")
    })
    .await;
}

#[tokio::test]
async fn a_hub_with_another_token_is_cut_off_on_whatever_node_it_is() {
    let fleet = Fleet::of(2).await;
    let (hub, old) =
        fleet.engine(0).create_hub(ACTING, "the workshop".into()).await.expect("a hub");
    fleet.engine(1).catch_up().await.expect("known everywhere");
    let mut link = fleet.engine(1).connect_hub(hub.id, &hello()).await.expect("connected");
    let rotated = fleet.engine(0).rotate_hub_token(ACTING, hub.id, None).await;
    let (_, new) = rotated.expect("another token");
    let ended = tokio::time::timeout(PATIENCE, link.next()).await.expect("it ends");
    assert_eq!(ended.map(|deliver| deliver.seq), Err(Ending::Revoked));
    for node in 0..2 {
        let engine = fleet.engine(node);
        engine.catch_up().await.expect("up to date");
        assert!(engine.hub_of_token(&old).is_none(), "{node}");
        assert_eq!(engine.hub_of_token(&new).map(|hub| hub.id), Some(hub.id), "{node}");
    }
}
