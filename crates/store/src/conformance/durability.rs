//! What was acknowledged is there after the store was closed and opened again.

use postrider_core::delivery::State;

use super::Place;
use super::history::one_of_each;
use super::scene::{A, SECOND, Scene, TENANT, Turn};
use crate::error::Error;
use crate::journal::Urgency;
use crate::ledger::DeliveryFilter;
use crate::record::Settled;

pub async fn everything_survives_closing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let made = one_of_each(&mut scene).await;
    let head = scene.deliver_in(A, "").await;
    let parked = scene.deliver_in(A, "").await;
    let before = scene.all(DeliveryFilter::default()).await;
    assert_eq!(before.len(), made.len() + 2);
    let event = scene.store.event(TENANT, made[0].event).await.expect("readable");
    let attempts = scene.store.attempts(made[4].id).await.expect("readable");
    let counts = scene.store.counts(TENANT).await.expect("counted");
    let highest = scene.store.highest_id().await.expect("known");
    scene.store.close().await;

    scene.store = place.open().await;
    assert_eq!(scene.all(DeliveryFilter::default()).await, before);
    assert_eq!(scene.store.event(TENANT, made[0].event).await.expect("readable"), event);
    assert_eq!(scene.store.attempts(made[4].id).await.expect("readable"), attempts);
    assert_eq!(scene.store.counts(TENANT).await.expect("counted"), counts);
    assert_eq!(scene.store.highest_id().await.expect("known"), highest);

    scene.pass(SECOND);
    assert_eq!(scene.ready(A).await, [made[0].id, made[2].id, head]);
    let promoted = scene.turn(head, Turn::Succeed).await.expect("the next");
    assert_eq!(promoted.id, parked);
}

pub async fn lazy_writes_are_on_disk_after_closing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let settle = scene.settle_of(&scene.record(id).await, Turn::Succeed);
    // Closing overtakes nothing that was asked for before it.
    let lazy = scene.store.settle(vec![settle], Urgency::Lazy);
    let (settled, ()) = tokio::join!(lazy, scene.store.close());
    let settled = settled.expect("settled");
    assert!(matches!(settled[..], [Settled::Applied { .. }]));
    scene.store = place.open().await;
    assert_eq!(scene.state(id).await, State::Delivered);
}

pub async fn a_closed_store_says_so(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    scene.store.close().await;
    scene.store.close().await;
    let new = scene.event(&[A]);
    assert!(matches!(scene.store.append(vec![new]).await, Err(Error::Closed)));
    assert!(matches!(scene.store.delivery(TENANT, id).await, Err(Error::Closed)));
    assert!(matches!(scene.store.page(scene.page_of(A)).await, Err(Error::Closed)));
    assert!(matches!(scene.store.ping().await, Err(Error::Closed)));
}
