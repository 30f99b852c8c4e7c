//! A hub never has more in its hands than it can hold, and its endpoints share that.

use std::collections::VecDeque;

use postrider_core::State;
use postrider_core::endpoint::{Destination, Spec};
use postrider_core::hub::Deliver;
use postrider_core::pattern::Pattern;
use postrider_core::{DeliveryId, EndpointId, HubId};
use postrider_engine::{EndpointAction, WaitReason};

use crate::gateway::{ACTING, Gateway, delivery_of, event};
use crate::rig::sink::{Reply, Sink};
use crate::{behind, fifo};

/// An endpoint that only events of one type go to.
async fn endpoint_of(gateway: &Gateway, hub: HubId, kind: &str) -> EndpointId {
    let event_types = vec![Pattern::Exact(kind.to_owned())];
    gateway.endpoint(Spec { event_types, ..behind(hub) }).await
}

#[tokio::test]
async fn endpoints_of_one_hub_together_never_exceed_what_it_can_hold() {
    const CAPACITY: u32 = 4;
    const EACH: usize = 30;
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    for kind in ["a", "b", "c"] {
        endpoint_of(&gateway, hub, kind).await;
    }
    gateway.endpoint(Spec { event_types: vec![Pattern::Exact("d".into())], ..fifo(hub) }).await;
    let mut agent = gateway.connect(hub, CAPACITY).await;
    for kind in ["a", "b", "c", "d"] {
        gateway.send_all((0..EACH).map(|_| event(kind))).await;
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut held: VecDeque<Deliver> = VecDeque::new();
    let mut came: Vec<(DeliveryId, String)> = Vec::new();
    while came.len() < 4 * EACH {
        loop {
            let in_order = came.iter().filter(|(_, kind)| kind == "d").count();
            let others_left = came.len() - in_order < 3 * EACH;
            let head_left = in_order < EACH && held.iter().all(|held| held.kind != "d");
            if held.len() == CAPACITY as usize || !(others_left || head_left) {
                break;
            }
            let deliver = agent.next().await;
            came.push((deliver.delivery, deliver.kind.clone()));
            held.push_back(deliver);
        }
        assert!(agent.is_quiet().await, "its hands are full");
        assert!(gateway.hub_in_flight(hub).await >= held.len());
        assert!(gateway.hub_in_flight(hub).await <= CAPACITY as usize);
        for _ in 0..random.usize(1..=held.len()) {
            let at = random.usize(0..held.len());
            agent.done(&held.remove(at).expect("there"));
        }
    }
    for deliver in &held {
        agent.done(deliver);
    }
    gateway.delivered(4 * EACH).await;
    assert_eq!(gateway.hub_in_flight(hub).await, 0);
    came.sort_unstable();
    came.dedup();
    assert_eq!(came.len(), 4 * EACH, "each once");
}

#[tokio::test]
async fn the_backlog_of_one_endpoint_does_not_starve_another_of_the_same_hub() {
    const BACKLOG: usize = 40;
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    for kind in ["many", "few"] {
        endpoint_of(&gateway, hub, kind).await;
    }
    gateway.send_all((0..BACKLOG).map(|_| event("many"))).await;
    let mut agent = gateway.connect(hub, 1).await;
    let mut held = agent.next().await;
    for round in 0..10 {
        gateway.send("few").await;
        let mut came = Vec::new();
        for _ in 0..2 {
            agent.done(&held);
            gateway.delivered(1).await;
            held = agent.next().await;
            came.push(held.kind.clone());
        }
        assert!(came.contains(&"few".to_owned()), "{round}: {came:?}");
        assert!(came.contains(&"many".to_owned()), "{round}: {came:?}");
    }
}

#[tokio::test]
async fn a_full_hub_holds_up_nobody_else_and_says_so() {
    let mut gateway = Gateway::start().await;
    let (full, free) = (gateway.hub().await, gateway.hub().await);
    endpoint_of(&gateway, full, "full").await;
    endpoint_of(&gateway, free, "free").await;
    let (mut stuck, mut quick) = (gateway.connect(full, 1).await, gateway.connect(free, 1).await);
    let sent = gateway.send_all(["full", "full"].map(event)).await;
    let held = stuck.next().await;
    assert_eq!(gateway.waits_on(delivery_of(sent[1])).await, Some(WaitReason::Capacity));
    for _ in 0..20 {
        gateway.send("free").await;
        let deliver = quick.next().await;
        quick.done(&deliver);
        gateway.delivered(1).await;
    }
    stuck.done(&held);
    assert_eq!(stuck.next().await.delivery, delivery_of(sent[1]));
}

#[tokio::test]
async fn a_new_connection_says_anew_how_much_it_can_hold() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    gateway.send_all((0..10).map(|_| event("n.1"))).await;
    for capacity in [2, 5, 1] {
        let mut agent = gateway.connect(hub, capacity).await;
        for _ in 0..capacity {
            agent.next().await;
        }
        assert!(agent.is_quiet().await, "{capacity}");
        assert_eq!(gateway.hub_in_flight(hub).await, capacity as usize);
    }
}

/// What a hub has in its hands stays there when its endpoint is given another way: the room that it
/// takes is not to be had by the hub's other endpoints.
#[tokio::test]
async fn what_an_endpoint_leaves_behind_still_takes_its_hub_s_room() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let leaving = endpoint_of(&gateway, hub, "leaving").await;
    endpoint_of(&gateway, hub, "staying").await;
    let mut agent = gateway.connect(hub, 1).await;
    let left = delivery_of(gateway.send("leaving").await);
    let held = agent.next().await;
    let sink = Sink::start(|_| Reply::status(200)).await;
    gateway.change(leaving, |spec| spec.destination = Destination::Url(sink.url())).await;
    let waits = delivery_of(gateway.send("staying").await);
    assert!(agent.is_quiet().await);
    assert_eq!(gateway.hub_in_flight(hub).await, 1);
    assert_eq!(gateway.waits_on(waits).await, Some(WaitReason::Capacity));
    gateway.send("leaving").await;
    sink.nth(1).await;
    gateway.delivered(1).await;
    agent.done(&held);
    assert_eq!(agent.next().await.delivery, waits);
    gateway.delivered(1).await;
    assert_eq!(gateway.state(left).await, State::Delivered);
    assert_eq!(sink.count(), 1, "what the hub had was not sent again");
}

#[tokio::test]
async fn what_is_on_its_way_to_a_url_takes_no_room_of_a_hub() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let sink = Sink::start(|_| Reply::status(200).held()).await;
    let url = Spec { destination: Destination::Url(sink.url()), ..behind(hub) };
    let endpoint = gateway.endpoint(url).await;
    gateway.send("n.1").await;
    sink.nth(1).await;
    gateway.change(endpoint, |spec| spec.destination = Destination::Hub(hub)).await;
    let mut agent = gateway.connect(hub, 1).await;
    assert_eq!(gateway.hub_in_flight(hub).await, 0);
    gateway.send("n.2").await;
    assert_eq!(agent.next().await.kind, "n.2");
    sink.release(1);
}

#[tokio::test]
async fn the_room_of_what_an_operator_cancels_is_free_once_it_is_answered() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let mut agent = gateway.connect(hub, 1).await;
    let sent = gateway.send_all(["n.1", "n.2"].map(event)).await;
    let held = agent.next().await;
    gateway.engine.cancel(ACTING, held.delivery).await.expect("cancelled");
    assert!(agent.is_quiet().await, "the hub still has it");
    agent.done(&held);
    assert_eq!(agent.next().await.delivery, delivery_of(sent[1]));
    assert_eq!(gateway.state(held.delivery).await, State::Cancelled);
}

#[tokio::test]
async fn an_endpoint_that_is_deleted_gives_its_room_back() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    let deleted = endpoint_of(&gateway, hub, "deleted").await;
    let paused = endpoint_of(&gateway, hub, "paused").await;
    endpoint_of(&gateway, hub, "other").await;
    let mut agent = gateway.connect(hub, 2).await;
    gateway.send_all(["deleted", "paused"].map(event)).await;
    let held = [agent.next().await, agent.next().await];
    gateway.send_all(["other", "other", "other"].map(event)).await;
    gateway.engine.delete_endpoint(ACTING, deleted).await.expect("deleted");
    let pause = gateway.engine.set_endpoint_state(ACTING, paused, EndpointAction::Pause);
    pause.await.expect("paused");
    assert!(agent.is_quiet().await);
    for deliver in &held {
        agent.done(deliver);
        assert_eq!(agent.next().await.kind, "other");
    }
    assert_eq!(gateway.hub_in_flight(hub).await, 2);
}
