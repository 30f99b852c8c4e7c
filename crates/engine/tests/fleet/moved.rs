//! What becomes of endpoints when the node that carries them goes, in good order or not.

use postrider_core::endpoint::RateLimit;
use postrider_core::{Class, State};
use postrider_store::Registry as _;

use super::rig::sink::Reply;
use super::*;

#[tokio::test]
async fn what_a_crashed_node_carried_is_carried_on() {
    let mut fleet = Fleet::of(3).await;
    let sink = Sink::start(|_| Reply::status(200).held()).await;
    fleet.endpoints(&sink, |_| {}).await;
    let mut events = Vec::new();
    for number in 0..ENDPOINTS {
        events.extend(rig::send(fleet.engine(number % 3), &kind(number), 1).await);
    }
    sink.nth(ENDPOINTS).await;
    fleet.crash(1);
    sink.answer(200);
    sink.release(ENDPOINTS);
    for event in events {
        fleet.ends(delivery_of(event), State::Delivered).await;
    }
    fleet.evenly(2).await;
    let repeats = sink.count() - ENDPOINTS;
    assert!((1..ENDPOINTS).contains(&repeats), "only what it had in flight goes again: {repeats}");
}

#[tokio::test]
async fn a_lane_is_handed_over_when_nothing_of_it_is_in_flight_and_nothing_is_repeated() {
    let fleet = Fleet::of(2).await;
    let sink = Sink::start(|_| Reply::status(200).held()).await;
    let endpoints = fleet.endpoints(&sink, |_| {}).await;
    let (endpoint, number) = (endpoints[0], 0);
    let carrier = fleet.carrier(endpoint).await;
    let other = fleet.other_than(carrier);
    let first = rig::send(fleet.engine(carrier), &kind(number), 1).await[0];
    sink.nth(1).await;
    fleet.engine(carrier).hand_over();
    let second = rig::send(fleet.engine(carrier), &kind(number), 1).await[0];
    // All others have gone over by then; this one waits for its attempt.
    until("the others are handed over", async || {
        let nodes = fleet.engine(other).nodes().await.expect("readable").expect("shared");
        let held = nodes.nodes.iter().map(|node| node.held.len()).max();
        held == Some(usize::from(nodes.lanes) - 1)
    })
    .await;
    assert_eq!(fleet.carrier(endpoint).await, carrier);
    assert_eq!(sink.count(), 1, "nobody sends the second one yet");
    sink.follow(|_| Reply::status(200));
    sink.release(1);
    fleet.ends(delivery_of(first), State::Delivered).await;
    fleet.ends(delivery_of(second), State::Delivered).await;
    assert_eq!(fleet.carrier(endpoint).await, other);
    assert_eq!(sink.count(), 2, "each once");
}

#[tokio::test]
async fn an_endpoint_that_asked_for_a_pause_has_it_from_whoever_carries_it_next() {
    let mut fleet = Fleet::of(2).await;
    let busy = Reply::status(429).header("retry-after", "3600");
    let sink = Sink::in_turn([busy, Reply::status(200)]).await;
    let endpoint = fleet.endpoints(&sink, |_| {}).await[0];
    let carrier = fleet.carrier(endpoint).await;
    let held = rig::send(fleet.engine(carrier), &kind(0), 1).await[0];
    fleet.ends(delivery_of(held), State::Retrying).await;
    let standing = fleet.store.standings().await.expect("readable");
    assert_eq!(standing.len(), 1, "it is on disk with what led to it");
    fleet.crash(carrier);
    fleet.evenly(1).await;
    let other = fleet.other_than(carrier);
    let next = rig::send(fleet.engine(other), &kind(0), 1).await[0];
    let record = fleet.record(delivery_of(next)).await;
    until("it waits for that", async || {
        let waiting = fleet.engine(other).waiting_on(&record).await.expect("readable");
        waiting.is_some_and(|on| on.until.is_some() && on.reason.as_str() == "retry_after")
    })
    .await;
    assert_eq!(sink.count(), 1);
    assert_eq!(fleet.record(delivery_of(held)).await.class, Some(Class::RateLimited));
}

#[tokio::test]
async fn a_rate_is_not_exceeded_because_a_lane_moves() {
    let mut fleet = Fleet::of(2).await;
    let sink = Sink::answering(200).await;
    let limit = RateLimit { per_second: 0.001, burst: 2 };
    let endpoint = fleet.endpoints(&sink, |spec| spec.rate_limit = Some(limit)).await[0];
    let carrier = fleet.carrier(endpoint).await;
    // A new carrier begins with nothing: nobody knows what was used before.
    rig::send(fleet.engine(carrier), &kind(0), 3).await;
    let before = sink.count();
    assert!(before <= 2);
    fleet.crash(carrier);
    fleet.evenly(1).await;
    let other = fleet.other_than(carrier);
    let next = rig::send(fleet.engine(other), &kind(0), 1).await[0];
    let record = fleet.record(delivery_of(next)).await;
    until("it waits for its turn", async || {
        let waiting = fleet.engine(other).waiting_on(&record).await.expect("readable");
        waiting.is_some_and(|on| on.reason.as_str() == "rate_limit")
    })
    .await;
    assert!(sink.count() <= 2, "in all");
}

#[tokio::test]
async fn a_replay_whose_node_is_gone_is_finished_by_another() {
    const DEAD: usize = 40;
    let mut fleet = Fleet::of(3).await;
    let sink = Sink::answering(400).await;
    let edge = serde_json::from_value(serde_json::json!("edge")).expect("a policy");
    fleet.endpoints(&sink, |spec| spec.policy = postrider_core::policy::Spec::clone(&edge)).await;
    let events = rig::send(fleet.engine(0), &kind(0), DEAD).await;
    for event in &events {
        fleet.ends(delivery_of(*event), State::Failed).await;
    }
    sink.answer(200);
    let filter = postrider_store::ledger::DeliveryFilter::default();
    let job = fleet.engine(0).replay_dead_letters(ACTING, filter, Some(20.0)).await.expect("a job");
    sink.nth(DEAD + 3).await;
    let worker = fleet.carrier(EndpointId::from_i64(job.id.as_i64())).await;
    fleet.crash(worker);
    for event in events {
        fleet.ends(delivery_of(event), State::Delivered).await;
    }
    until("the job knows", async || {
        let job = fleet.store.job(TENANT, job.id).await.expect("readable").expect("known");
        job.state == postrider_store::registry::JobState::Finished
    })
    .await;
}
