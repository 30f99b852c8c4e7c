//! A write that is based on something older than what is stored changes nothing.

use std::sync::Arc;

use postrider_core::DeliveryId;
use postrider_core::delivery::State;

use super::Place;
use super::scene::{A, B, SECOND, Scene, TENANT, Turn};
use crate::journal::Urgency;
use crate::record::Settled;

pub async fn a_stale_settle_changes_nothing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let old = scene.record(id).await;
    scene.turn(id, Turn::Retry(SECOND)).await;
    let current = scene.record(id).await;
    assert_eq!(current.fence, old.fence + 1);
    let attempts = scene.store.attempts(id).await.expect("readable");
    let counts = scene.store.counts(TENANT).await.expect("counted");

    scene.pass(SECOND);
    for turn in [Turn::Succeed, Turn::Retry(SECOND), Turn::Fail, Turn::Exhaust, Turn::Cancel] {
        for from in [State::Pending, State::Retrying] {
            let mut stale = scene.settle_of(&old, turn);
            stale.from = from;
            assert!(matches!(scene.settle(vec![stale]).await[..], [Settled::Stale]), "{turn:?}");
        }
    }
    assert_eq!(scene.record(id).await, current);
    assert_eq!(scene.store.attempts(id).await.expect("readable"), attempts);
    assert_eq!(scene.store.counts(TENANT).await.expect("counted"), counts);
}

pub async fn a_settle_that_believes_something_else_changes_nothing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let record = scene.record(id).await;
    let right = scene.settle_of(&record, Turn::Succeed);
    let mut other_state = right.clone();
    other_state.from = State::Retrying;
    let mut other_endpoint = right.clone();
    other_endpoint.endpoint = B;
    let mut other_line = right.clone();
    other_line.in_line = true;
    for wrong in [other_state, other_endpoint, other_line] {
        assert!(matches!(scene.settle(vec![wrong]).await[..], [Settled::Stale]));
    }
    assert_eq!(scene.record(id).await, record);
    assert!(matches!(scene.settle(vec![right]).await[..], [Settled::Applied { .. }]));
}

pub async fn a_settle_of_nothing_is_stale(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let mut settle = scene.settle_of(&scene.record(id).await, Turn::Succeed);
    settle.id = DeliveryId::from_i64(id.as_i64() + 1_000);
    assert!(matches!(scene.settle(vec![settle]).await[..], [Settled::Stale]));
    assert_eq!(scene.state(id).await, State::Pending);
}

pub async fn the_stale_ones_of_a_batch_leave_the_others(place: &dyn Place) {
    const COUNT: usize = 300;
    let mut scene = Scene::new(place).await;
    let events: Vec<_> = (0..COUNT).map(|_| scene.event(&[A])).collect();
    let ids: Vec<_> = events.iter().map(|new| new.delivery_id(0)).collect();
    scene.append(events).await;
    let mut settles = Vec::with_capacity(COUNT);
    for (index, id) in ids.iter().enumerate() {
        let mut settle = scene.settle_of(&scene.record(*id).await, Turn::Succeed);
        settle.fence += u32::from(index % 3 == 0);
        settles.push(settle);
    }
    let settled = scene.settle(settles).await;
    assert_eq!(settled.len(), COUNT);
    for (index, (id, settled)) in ids.iter().zip(settled).enumerate() {
        let (is_stale, state) = match settled {
            Settled::Stale => (true, State::Pending),
            Settled::Applied { .. } => (false, State::Delivered),
        };
        assert_eq!(is_stale, index % 3 == 0);
        assert_eq!(scene.state(*id).await, state);
    }
}

pub async fn of_many_with_one_fence_exactly_one_applies(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let record = scene.record(id).await;
    let tasks: Vec<_> = (0..16)
        .map(|index| {
            let turn = if index % 2 == 0 { Turn::Succeed } else { Turn::Cancel };
            let urgency = if index % 3 == 0 { Urgency::Lazy } else { Urgency::Now };
            let settle = scene.settle_of(&record, turn);
            let store = Arc::clone(&scene.store);
            tokio::spawn(async move { store.settle(vec![settle], urgency).await })
        })
        .collect();
    let mut applied = 0;
    for task in tasks {
        match task.await.expect("no panic").expect("answered")[..] {
            [Settled::Applied { .. }] => applied += 1,
            [Settled::Stale] => {}
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(applied, 1);
    assert_eq!(scene.record(id).await.fence, 1);
}
