//! What an operator does on one node holds on all of them.

use postrider_core::State;
use postrider_engine::notices::NoticeKind;
use postrider_engine::{EndpointAction, Error};

use super::rig::sink::Reply;
use super::*;

#[tokio::test]
async fn what_is_in_flight_elsewhere_is_known_and_not_reset() {
    let fleet = Fleet::of(2).await;
    let sink = Sink::start(|_| Reply::status(200).held()).await;
    let endpoint = fleet.endpoints(&sink, |_| {}).await[0];
    let carrier = fleet.carrier(endpoint).await;
    let other = fleet.engine(fleet.other_than(carrier));
    let delivery = delivery_of(rig::send(other, &kind(0), 1).await[0]);
    sink.nth(1).await;
    assert!(other.is_in_flight(endpoint, delivery).await);
    assert_eq!(other.endpoint_health(endpoint).await.expect("known").in_flight, 1);
    let refused = other.retry(ACTING, delivery).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    sink.release(1);
    fleet.ends(delivery, State::Delivered).await;
    assert_eq!(sink.count(), 1);
}

#[tokio::test]
async fn what_was_cancelled_on_another_node_is_not_sent() {
    let fleet = Fleet::of(2).await;
    let sink = Sink::start(|_| Reply::status(200).held()).await;
    let endpoint = fleet.endpoints(&sink, |spec| spec.max_in_flight = Some(1)).await[0];
    let carrier = fleet.carrier(endpoint).await;
    let other = fleet.engine(fleet.other_than(carrier));
    let events = rig::send(fleet.engine(carrier), &kind(0), 3).await;
    sink.nth(1).await;
    // It waits in the carrier's memory.
    other.cancel(ACTING, delivery_of(events[1])).await.expect("cancelled");
    sink.follow(|_| Reply::status(200));
    sink.release(1);
    fleet.ends(delivery_of(events[2]), State::Delivered).await;
    assert_eq!(fleet.record(delivery_of(events[1])).await.state, State::Cancelled);
    assert_eq!(sink.count(), 2);
}

#[tokio::test]
async fn a_retry_asked_of_any_node_goes_at_once() {
    let fleet = Fleet::of(2).await;
    let sink = Sink::in_turn([Reply::status(500), Reply::status(200)]).await;
    let endpoint = fleet.endpoints(&sink, |_| {}).await[0];
    let other = fleet.engine(fleet.other_than(fleet.carrier(endpoint).await));
    let delivery = delivery_of(rig::send(other, &kind(0), 1).await[0]);
    fleet.ends(delivery, State::Retrying).await;
    other.retry(ACTING, delivery).await.expect("reset");
    fleet.ends(delivery, State::Delivered).await;
}

#[tokio::test]
async fn what_is_changed_on_one_node_is_in_force_on_all_when_the_answer_comes() {
    let fleet = Fleet::of(3).await;
    let sink = Sink::answering(200).await;
    let endpoint = fleet.endpoints(&sink, |_| {}).await[0];
    for node in 0..3 {
        assert_eq!(fleet.engine(node).endpoints(TENANT).len(), ENDPOINTS, "made on all of them");
    }
    let carrier = fleet.carrier(endpoint).await;
    let other = fleet.engine(fleet.other_than(carrier));
    other.set_endpoint_state(ACTING, endpoint, EndpointAction::Pause).await.expect("paused");
    let waits = rig::send(fleet.engine(carrier), &kind(0), 1).await[0];
    assert_eq!(sink.count(), 0, "nobody sends to it");
    other.set_endpoint_state(ACTING, endpoint, EndpointAction::Resume).await.expect("resumed");
    fleet.ends(delivery_of(waits), State::Delivered).await;
    other.delete_endpoint(ACTING, endpoint).await.expect("deleted");
    for node in 0..3 {
        assert!(fleet.engine(node).endpoint(TENANT, endpoint).is_none());
    }
}

#[tokio::test]
async fn what_a_deleted_endpoint_left_is_cancelled_by_whoever_looks_after_it() {
    let fleet = Fleet::of(2).await;
    let sink = Sink::answering(200).await;
    let endpoint = fleet.endpoints(&sink, |_| {}).await[0];
    let carrier = fleet.carrier(endpoint).await;
    let other = fleet.engine(fleet.other_than(carrier));
    other.set_endpoint_state(ACTING, endpoint, EndpointAction::Pause).await.expect("paused");
    let event = rig::send(other, &kind(0), 1).await[0];
    other.delete_endpoint(ACTING, endpoint).await.expect("deleted");
    fleet.ends(delivery_of(event), State::Cancelled).await;
}

#[tokio::test]
async fn what_happens_on_another_node_is_told_to_who_listens_here() {
    let fleet = Fleet::of(2).await;
    let sink = Sink::answering(200).await;
    let endpoint = fleet.endpoints(&sink, |_| {}).await[0];
    let carrier = fleet.carrier(endpoint).await;
    let other = fleet.engine(fleet.other_than(carrier));
    let mut feed = other.notices().subscribe();
    let _listening = other.listen();
    let before = rig::send(other, &kind(0), 1).await[0];
    fleet.ends(delivery_of(before), State::Delivered).await;
    // It may have happened before anybody knew that somebody listens: then it is remembered.
    until("it is remembered", async || {
        let told = other.notices_since(0).await;
        told.iter().any(|one| one.delivery.as_ref().is_some_and(|of| of.event_id == before))
    })
    .await;
    let told = async {
        loop {
            let event = rig::send(other, &kind(0), 1).await[0];
            fleet.ends(delivery_of(event), State::Delivered).await;
            while let Ok(notice) = feed.try_recv() {
                if notice.kind == NoticeKind::Delivered {
                    return notice;
                }
            }
        }
    };
    let notice = tokio::time::timeout(PATIENCE, told).await.expect("it is told here");
    assert_eq!(notice.about(), Some(endpoint));
}
