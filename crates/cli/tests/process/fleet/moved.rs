//! What an endpoint has asked for stays in force when another node carries it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::{Fleet, LEASE, LOOK};
use crate::sink::{Reply, Sink};
use crate::within;

/// A burst of one, and then one in this time: a lane that moves must not bring another burst.
const PER_SECOND: u32 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_not_exceeded_because_the_lane_moved() {
    const EVENTS: usize = 32;
    let mut fleet = Fleet::start().await;
    let sink = Sink::accepting().await;
    let spec = json!({
        "url": sink.url(), "rate_limit": { "per_second": PER_SECOND, "burst": 4 },
    });
    let endpoint = fleet.node(0).create_endpoint(spec).await;
    fleet.settled().await;
    for number in 0..EVENTS {
        fleet.node(number % 3).send(number as u64).await;
    }
    sink.until("some", |seen| seen.arrivals.len() >= 10).await;
    let carrier = fleet.carrier_of(&endpoint).await;
    fleet.stop(carrier).await;
    let enough = sink.arrivals().len() + 6;
    sink.until("some more", |seen| seen.arrivals.len() >= enough).await;
    let other = fleet.carrier_of(&endpoint).await;
    assert_ne!(carrier, other, "it moved");
    fleet.kill(other);
    sink.until("all", |seen| seen.delivered.len() == EVENTS).await;
    // In any stretch of time there are no more than the rate brings, and one burst.
    let times: Vec<Instant> = sink.arrivals().iter().map(|arrival| arrival.at).collect();
    for first in 0..times.len() {
        for (more, last) in times[first..].iter().enumerate() {
            let gone = *last - times[first];
            // The one that is repeated after the kill, and the time between sending and arriving.
            let allowed = f64::from(PER_SECOND) * (gone.as_secs_f64() + 0.5) + 4.0 + 1.0;
            let count = f64::from(u32::try_from(more).expect("a few") + 1);
            assert!(count <= allowed, "{count} within {gone:?}, from number {first}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_asked_to_be_left_alone_is_left_alone_by_the_next_node_too() {
    let hold = 2 * LEASE + Duration::from_secs(2);
    let mut fleet = Fleet::start().await;
    let asked = AtomicBool::new(false);
    let sink = Sink::start(move |_| {
        if asked.swap(true, Ordering::SeqCst) {
            Reply::Now(StatusCode::OK)
        } else {
            Reply::Busy(hold.as_secs())
        }
    })
    .await;
    let endpoint = fleet.node(0).create_endpoint(json!({ "url": sink.url() })).await;
    fleet.settled().await;
    let event = fleet.node(1).send(1).await;
    let refusal = async {
        while fleet.delivery_of(2, &event).await["waiting_on"]["reason"] != "retry_after" {
            tokio::time::sleep(LOOK).await;
        }
    };
    within("a hold", refusal).await;
    let carrier = fleet.carrier_of(&endpoint).await;
    fleet.kill(carrier);
    // Of one that is new the next node knows nothing but how its endpoint stands.
    fleet.node(fleet.other_than(carrier)).send(2).await;
    sink.until("both", |seen| seen.delivered.len() == 2).await;
    let [refused, first, _] = &sink.arrivals()[..] else { panic!("{:?}", sink.arrivals()) };
    let waited = first.at - refused.at;
    println!("asked for {hold:?}, was left alone for {waited:?}");
    assert!(waited >= hold, "{waited:?}");
}
