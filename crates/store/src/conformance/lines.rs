//! Deliveries of one line go one after the other, in the order of their events.

use postrider_core::DeliveryId;
use postrider_core::delivery::State;

use super::Place;
use super::scene::{A, B, SECOND, Scene, Turn, edit, in_line, to};
use crate::journal::Appended;

const LINE: &str = "";

async fn three(scene: &mut Scene) -> [DeliveryId; 3] {
    [
        scene.deliver_in(A, LINE).await,
        scene.deliver_in(A, LINE).await,
        scene.deliver_in(A, LINE).await,
    ]
}

async fn is_parked(scene: &Scene, id: DeliveryId) -> bool {
    scene.record(id).await.parked
}

pub async fn the_next_of_a_line_becomes_ready_when_its_head_ends(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let several = scene.event_to(vec![in_line(A, LINE), to(A), in_line(B, LINE), in_line(A, LINE)]);
    let [first, free, other, second] = [0, 1, 2, 3].map(|index| several.delivery_id(index));
    assert_eq!(scene.append(vec![several]).await, [Appended::New { parked: vec![3] }]);
    let third = scene.deliver_in(A, LINE).await;
    assert_eq!(scene.ready(A).await, [first, free]);
    assert_eq!(scene.ready(B).await, [other]);
    assert!(is_parked(&scene, second).await && is_parked(&scene, third).await);

    let expected = [(first, Some(second)), (second, Some(third)), (third, None)];
    let turns = [Turn::Succeed, Turn::Fail, Turn::Cancel];
    for ((id, next), turn) in expected.into_iter().zip(turns) {
        scene.pass(SECOND);
        let promoted = scene.turn(id, turn).await;
        assert_eq!(promoted.as_ref().map(|waiting| waiting.id), next);
        if let Some(waiting) = promoted {
            let record = scene.record(waiting.id).await;
            assert_eq!(waiting.event.id, record.event);
            assert_eq!(waiting.delivery, record.for_step());
            assert_eq!((waiting.endpoint, waiting.fence, waiting.tries), (A, record.fence, 0));
            assert!(waiting.in_line && !record.parked);
            assert!(scene.ready(A).await.contains(&waiting.id));
        }
    }
    assert_eq!(scene.ready(A).await, [free]);
}

pub async fn keys_have_lines_of_their_own(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = scene.deliver_in(A, "one").await;
    let second = scene.deliver_in(A, "one").await;
    let other = scene.deliver_in(A, "two").await;
    assert_eq!(scene.ready(A).await, [first, other]);
    let promoted = scene.turn(other, Turn::Succeed).await;
    assert!(promoted.is_none(), "another line does not move");
    assert!(is_parked(&scene, second).await);
}

pub async fn a_retry_keeps_its_line_waiting(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let [first, second, _] = three(&mut scene).await;
    assert!(scene.turn(first, Turn::Retry(SECOND)).await.is_none());
    assert!(scene.ready(A).await.is_empty());
    scene.pass(SECOND);
    assert_eq!(scene.ready(A).await, [first]);
    let promoted = scene.turn(first, Turn::Exhaust).await.expect("the next");
    assert_eq!(promoted.id, second);
}

pub async fn leaving_the_middle_of_a_line_promotes_nobody(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let [first, second, third] = three(&mut scene).await;
    assert!(scene.turn(second, Turn::Cancel).await.is_none());
    assert!(is_parked(&scene, third).await);
    assert_eq!(scene.ready(A).await, [first]);
    let promoted = scene.turn(first, Turn::Succeed).await.expect("the next");
    assert_eq!(promoted.id, third);
}

pub async fn a_reset_goes_back_behind_the_head(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let [first, second, third] = three(&mut scene).await;
    scene.turn(first, Turn::Fail).await;
    scene.pass(SECOND);
    assert!(scene.turn(first, Turn::Reset).await.is_none());
    assert!(is_parked(&scene, first).await, "the second has started meanwhile");
    assert_eq!(scene.ready(A).await, [second]);

    // A parked one that is reset stays where it is.
    scene.turn(third, Turn::Reset).await;
    assert!(is_parked(&scene, third).await);

    let promoted = scene.turn(second, Turn::Succeed).await.expect("the next");
    assert_eq!(promoted.id, first, "the oldest event goes first");
    assert_eq!(promoted.delivery.due, scene.now);
    let promoted = scene.turn(first, Turn::Succeed).await.expect("the next");
    assert_eq!(promoted.id, third);
}

pub async fn a_reset_into_an_empty_line_is_ready(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver_in(A, LINE).await;
    scene.turn(id, Turn::Exhaust).await;
    assert!(scene.ready(A).await.is_empty());
    scene.turn(id, Turn::Reset).await;
    assert_eq!(scene.ready(A).await, [id]);
    let behind = scene.deliver_in(A, LINE).await;
    assert!(is_parked(&scene, behind).await);
}

pub async fn a_head_with_a_time_holds_its_line(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let later = scene.now.plus(SECOND);
    let timed =
        edit(scene.event_to(vec![in_line(A, LINE)]), |event| event.deliver_at = Some(later));
    let first = scene.keep(timed).await[0];
    let second = scene.deliver_in(A, LINE).await;
    assert!(is_parked(&scene, second).await);
    assert!(scene.ready(A).await.is_empty());
    scene.pass(SECOND);
    assert_eq!(scene.ready(A).await, [first]);
}

pub async fn a_parked_one_with_a_time_becomes_timed(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = scene.deliver_in(A, LINE).await;
    let later = scene.now.plus(SECOND);
    let timed =
        edit(scene.event_to(vec![in_line(A, LINE)]), |event| event.deliver_at = Some(later));
    let second = scene.keep(timed).await[0];
    let promoted = scene.turn(first, Turn::Succeed).await.expect("the next");
    assert_eq!((promoted.id, promoted.delivery.due), (second, later));
    assert!(scene.ready(A).await.is_empty());
    assert_eq!(scene.store.next_due(A).await.expect("known"), Some(later));
    scene.pass(SECOND);
    assert_eq!(scene.ready(A).await, [second]);
}

pub async fn a_parked_one_says_what_it_waits_for(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let [first, second, third] = three(&mut scene).await;
    let free = scene.deliver(A).await;
    let ahead = |id| {
        let store = scene.store.clone();
        async move { store.ahead_of(id).await.expect("readable").map(|record| record.id) }
    };
    assert_eq!(ahead(first).await, None);
    assert_eq!(ahead(free).await, None);
    assert_eq!(ahead(third).await, Some(first));
    scene.turn(first, Turn::Fail).await;
    assert_eq!(ahead(third).await, Some(second));
    scene.turn(first, Turn::Reset).await;
    assert_eq!(ahead(first).await, Some(second), "an older one that came back waits too");
    assert_eq!(ahead(DeliveryId::from_i64(1)).await, None);
}

pub async fn a_parked_one_knows_its_place(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let [first, second, third] = three(&mut scene).await;
    let free = scene.deliver(A).await;
    let elsewhere = [scene.deliver_in(A, "other").await, scene.deliver_in(B, LINE).await];
    let ahead = |id, limit| {
        let store = scene.store.clone();
        async move { store.ahead_count(id, limit).await.expect("readable") }
    };
    assert_eq!(ahead(first, 9).await, 0);
    assert_eq!(ahead(second, 9).await, 1);
    assert_eq!(ahead(third, 9).await, 2);
    assert_eq!(ahead(third, 1).await, 1, "counting stops at the limit");
    assert_eq!(ahead(free, 9).await, 0);
    for id in elsewhere {
        assert_eq!(ahead(id, 9).await, 0, "other lines do not count");
    }
    assert_eq!(ahead(DeliveryId::from_i64(1), 9).await, 0);
    scene.turn(second, Turn::Cancel).await;
    assert_eq!(ahead(third, 9).await, 1, "whoever left the line is not ahead");
    scene.turn(first, Turn::Fail).await;
    assert_eq!(ahead(third, 9).await, 0);
}

pub async fn replays_stand_in_line_too(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let old = scene.event_to(vec![in_line(A, LINE)]);
    let event = old.event.id;
    let done = scene.keep(old).await[0];
    scene.turn(done, Turn::Succeed).await;
    let head = scene.deliver_in(A, LINE).await;
    let behind = scene.deliver_in(A, LINE).await;
    let replay = DeliveryId::from_i64(scene.take_ids(1));
    let made = scene
        .store
        .append_deliveries(event, replay, vec![in_line(A, LINE)], scene.now, None)
        .await
        .expect("stored");
    assert!(made.is_empty(), "it may not be tried yet");
    assert!(is_parked(&scene, replay).await);
    let promoted = scene.turn(head, Turn::Succeed).await.expect("the next");
    assert_eq!(promoted.id, replay, "its event is older");
    assert_eq!(scene.state(behind).await, State::Pending);
}
