//! A backlog that no window holds is carried whole: from memory, from the store, and across the two.

mod rig;

use std::collections::BTreeSet;

use futures_util::future::join_all;
use rig::sink::{Reply, Sink};
use rig::{PATIENCE, listen, send, start};

const PRODUCERS: usize = 16;
const BATCHES: usize = 25;
const BATCH: usize = 10;
const EVENTS: usize = PRODUCERS * BATCHES * BATCH;

/// Producers hand over in memory while the rest is read from the store: every delivery has two ways
/// to come, and must take one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_delivery_of_an_overflowing_backlog_arrives_once() {
    let (engine, _data) = start(1_024).await;
    let sinks = [Sink::answering(200).await, Sink::start(|_| Reply::status(200).held()).await];
    for sink in &sinks {
        listen(&engine, sink, "order.created").await;
    }
    // The second is stuck at first, so that all but a window of it has to wait in the store.
    let producers = (0..PRODUCERS).map(|_| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for _ in 0..BATCHES {
                send(&engine, "order.created", BATCH).await;
            }
        })
    });
    for produced in join_all(producers).await {
        produced.expect("all accepted");
    }
    sinks[0].nth(EVENTS).await;
    sinks[1].follow(|_| Reply::status(200));
    sinks[1].release(EVENTS);
    sinks[1].nth(EVENTS).await;
    let drained = engine.drain(PATIENCE).await;
    assert_eq!(drained.abandoned, 0);
    for sink in &sinks {
        let received = sink.received();
        assert_eq!(received.len(), EVENTS);
        let different: BTreeSet<&str> =
            received.iter().map(|one| one.header("postrider-delivery-id")).collect();
        assert_eq!(different.len(), EVENTS, "each once");
        assert!(received.iter().all(|one| one.header("postrider-attempt") == "1"));
    }
}
