//! Nodes tell one another things by way of the database, and go on doing so after it failed over.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use crate::cluster::Cluster;
use crate::gateway::{Gateway, KEY, Launch, Process, text};
use crate::leased::{node, share_the_lanes};
use crate::sink::Sink;
use crate::wire::{Failover, Wire};
use crate::{shown, within};

/// Enough that each of two nodes carries some.
const ENDPOINTS: usize = 16;
/// Another event is sent if nothing was heard of one for so long.
const ROUND: Duration = Duration::from_secs(2);

/// What one node delivers, whoever follows the stream of the other learns by a notification of the
/// database and in no other way. So a connection that listens and has died without a word shows; and a
/// node that only listens has nothing to say that would tell it so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_listen_that_is_silently_dead_after_a_failover() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let wire = Wire::to(Cluster::shared()).await;
    let nodes = ["one", "other"].map(|name| node(directory.path(), name, wire.url()));
    let (one, other) = tokio::join!(nodes[0].start(), nodes[1].start());
    shown(&one, "/v1/nodes", share_the_lanes).await;
    let sink = Sink::accepting().await;
    for _ in 0..ENDPOINTS {
        one.create_endpoint(json!({ "url": sink.url() })).await;
    }
    let tail = follow(&one);
    assert!(tail.stderr.line(|line| line.starts_with("following")).await.is_some());

    let mut acknowledged = Vec::new();
    for failover in [None, Some(Failover::Told), Some(Failover::Silent), Some(Failover::Silent)] {
        if let Some(failover) = failover {
            wire.fail_over(failover);
        }
        within("word of what both deliver", hears(&tail, &other, &mut acknowledged)).await;
        println!("after {failover:?}: {} events were acknowledged", acknowledged.len());
    }
    // Whatever was heard: all of it arrives.
    sink.until("everything", |seen| {
        acknowledged.iter().all(|event| {
            let arrived = seen.arrivals.iter().filter(|arrival| arrival.event == *event);
            arrived.count() >= ENDPOINTS
        })
    })
    .await;
}

fn follow(gateway: &Gateway) -> Process {
    Launch::with(["tail", "--json", "--kind", "delivery.delivered"])
        .variable("POSTRIDER_GATEWAY", format!("http://{}", gateway.address))
        .variable("POSTRIDER_KEY", KEY)
        .spawn()
}

/// Sends events until one is heard of from every endpoint.
async fn hears(tail: &Process, gateway: &Gateway, acknowledged: &mut Vec<String>) {
    loop {
        let number = acknowledged.len() as u64;
        let answer = gateway.connect().await.send_event(number).await.expect("an answer");
        if answer.status == StatusCode::ACCEPTED {
            let event = text(&answer.body, "id");
            acknowledged.push(event.clone());
            let all = tail.stdout.lines_of(ENDPOINTS, |line| line.contains(&event));
            if let Ok(heard) = tokio::time::timeout(ROUND, all).await {
                assert!(heard, "nobody follows any more: {}", tail.stderr.text());
                return;
            }
        } else {
            // While the database cannot be reached.
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.body);
            tokio::time::sleep(crate::LOOK).await;
        }
    }
}
