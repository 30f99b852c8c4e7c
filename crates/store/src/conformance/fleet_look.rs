//! A look finds the endpoints that have something to try, and says how configuration stands.

use postrider_core::EndpointId;

use super::Place;
use super::auditing::audit;
use super::fleet::LONG;
use super::scene::{A, B, DAY, SECOND, Scene, Turn, edit, to};
use crate::fleet::Found;

const C: EndpointId = EndpointId::from_i64(13);

/// What is found among `endpoints`, in their order.
async fn look(scene: &Scene, endpoints: &[EndpointId]) -> Vec<Found> {
    let mut found = scene.fleet().look(endpoints.to_vec()).await.expect("looked").found;
    found.sort_unstable_by_key(|found| found.endpoint);
    found
}

async fn revision(scene: &Scene) -> i64 {
    scene.fleet().look(Vec::new()).await.expect("looked").revision
}

pub async fn what_may_be_tried_is_found(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    assert_eq!(look(&scene, &[A, B, C]).await, []);
    let start = scene.now;
    let first = scene.deliver(A).await;
    scene.pass(SECOND);
    let second = scene.deliver(A).await;
    scene.deliver(B).await;
    let found = |endpoint, ready, due| Found { endpoint, ready, due };
    let on_a = found(A, Some(start), None);
    assert_eq!(look(&scene, &[A, B, C]).await, [on_a, found(B, Some(scene.now), None)]);
    assert_eq!(look(&scene, &[C, A]).await, [on_a], "only those that were asked for");
    assert_eq!(look(&scene, &[]).await, []);

    // One that waits for its time is found before it has come, and after.
    let due = scene.now.plus(SECOND);
    scene.turn(first, Turn::Retry(SECOND)).await;
    assert_eq!(look(&scene, &[A]).await, [found(A, Some(scene.now), Some(due))]);
    scene.turn(second, Turn::Retry(DAY)).await;
    assert_eq!(look(&scene, &[A]).await, [found(A, None, Some(due))], "the earliest");
    scene.pass(DAY);
    assert_eq!(look(&scene, &[A]).await, [found(A, None, Some(due))]);
    let later = scene.now.plus(DAY);
    let new = scene.event_to(vec![to(C)]);
    scene.keep(edit(new, |event| event.deliver_at = Some(later))).await;
    assert_eq!(look(&scene, &[C]).await, [found(C, None, Some(later))]);
}

pub async fn what_nobody_may_try_is_not_found(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let ends = [Turn::Succeed, Turn::Fail, Turn::Exhaust, Turn::Expire, Turn::Cancel];
    for turn in ends {
        let id = scene.deliver(A).await;
        scene.turn(id, turn).await;
        assert_eq!(look(&scene, &[A]).await, [], "{turn:?}");
    }
    let leased = scene.deliver(B).await;
    scene.turn(leased, Turn::Lease(SECOND)).await;
    let head = scene.deliver_in(C, "").await;
    scene.deliver_in(C, "").await;
    let on_c = Found { endpoint: C, ready: Some(scene.now), due: None };
    assert_eq!(look(&scene, &[A, B, C]).await, [on_c], "not what a worker has");
    scene.turn(head, Turn::Lease(SECOND)).await;
    assert_eq!(look(&scene, &[A, B, C]).await, [], "nor what stands behind that");
    scene.pass(DAY);
    assert_eq!(look(&scene, &[A, B, C]).await, [], "even if its lease has ended");

    scene.turn(head, Turn::Succeed).await;
    scene.turn(leased, Turn::Release).await;
    let found = look(&scene, &[A, B, C]).await;
    let endpoints: Vec<EndpointId> = found.iter().map(|found| found.endpoint).collect();
    assert_eq!(endpoints, [B, C]);
}

pub async fn many_endpoints_are_looked_at(place: &dyn Place) {
    const ENDPOINTS: i64 = 1_500;
    let mut scene = Scene::new(place).await;
    let endpoints: Vec<EndpointId> = (100..100 + ENDPOINTS).map(EndpointId::from_i64).collect();
    let some: Vec<EndpointId> = endpoints.iter().copied().step_by(7).collect();
    for chunk in some.chunks(100) {
        let new = scene.event(chunk);
        scene.keep(new).await;
    }
    let found = look(&scene, &endpoints).await;
    assert_eq!(found.iter().map(|found| found.endpoint).collect::<Vec<_>>(), some);
}

pub async fn a_beat_sees_the_revision_that_a_look_sees(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let node = scene.join(LONG, 4).await;
    let first = revision(&scene).await;
    let id = scene.deliver(A).await;
    scene.turn(id, Turn::Succeed).await;
    assert_eq!(scene.beat(node).await.revision, first, "events are no configuration");
    assert_eq!(revision(&scene).await, first, "nor are nodes");
    let audit = audit(&scene, "tenant.create");
    scene.store.make_tenant("new".to_owned(), scene.now, audit).await.expect("made");
    let next = revision(&scene).await;
    assert!(next > first);
    assert_eq!(scene.beat(node).await.revision, next);
}
