//! Many workers at once.

use std::collections::BTreeSet;

use postrider_core::{DeliveryId, EndpointId, State};
use postrider_engine::{Engine, LeaseWish};
use tokio::sync::mpsc;

use crate::gateway::{TENANT, event};
use crate::rig::PATIENCE;
use crate::{pull, rig, wish};

const WORKERS: usize = 8;
const DELIVERIES: usize = 2_000;
const BATCH: usize = 100;

/// Leases and acks until it is sent away.
async fn work(
    engine: Engine,
    endpoint: EndpointId,
    max: usize,
    done: mpsc::UnboundedSender<DeliveryId>,
) {
    loop {
        let wish = LeaseWish { wait: 2 * PATIENCE, ..wish(endpoint, max) };
        let leases = engine.lease(TENANT, wish).await.expect("the endpoint is there");
        if leases.is_empty() {
            return;
        }
        assert!(leases.iter().all(|lease| lease.attempt == 1));
        let tokens = leases.iter().map(|lease| lease.token).collect();
        let acked = engine.ack(TENANT, tokens, None).await.expect("settled");
        assert!(acked.into_iter().all(|acked| acked), "nobody else has it");
        for lease in leases {
            done.send(lease.delivery).expect("somebody counts");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_deliveries_is_handed_to_one_of_many_workers_once() {
    let (engine, _data) = rig::start(1_024).await;
    let endpoint = rig::create(&engine, pull()).await;
    let (done, mut counted) = mpsc::unbounded_channel();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| tokio::spawn(work(engine.clone(), endpoint, 1 + 10 * worker, done.clone())))
        .collect();
    drop(done);
    for _ in 0..DELIVERIES / BATCH {
        let events = (0..BATCH).map(|_| event("order.created")).collect();
        engine.accept(TENANT, events).await.expect("accepted");
    }
    let mut seen = BTreeSet::new();
    for count in 0..DELIVERIES {
        let delivery = tokio::time::timeout(PATIENCE, counted.recv()).await;
        let delivery = delivery.unwrap_or_else(|_| panic!("{count} came")).expect("they work");
        assert!(seen.insert(delivery), "{delivery} came twice");
    }
    let counts = engine.store().counts(TENANT).await.expect("readable");
    let counts: Vec<_> = counts
        .iter()
        .filter(|count| count.deliveries > 0)
        .map(|count| (count.state, count.deliveries))
        .collect();
    assert_eq!(counts, [(State::Delivered, DELIVERIES as u64)]);
    engine.drain(PATIENCE).await;
    for worker in workers {
        worker.await.expect("no panic");
    }
    assert_eq!(counted.recv().await, None, "nothing else came");
}
