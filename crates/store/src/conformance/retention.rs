//! What is past its time goes, in small steps; what is not stays.

use postrider_core::{DeliveryId, EventId};

use super::Place;
use super::scene::{A, B, DAY, SECOND, Scene, TENANT, Turn, edit, to};
use crate::journal::{Appended, Cutoffs};
use crate::ledger::DeliveryFilter;

/// Delivered 7 days after the end, failed 7 after the last attempt, dead 14 after receipt.
fn cutoffs(scene: &Scene) -> Cutoffs {
    let (week, fortnight) = (scene.now.minus(7 * DAY), scene.now.minus(14 * DAY));
    Cutoffs { delivered: week, failed: week, dead: fortnight, events: week }
}

/// Sweeps everything in steps of `limit`; returns how many deliveries and events went.
async fn sweep(scene: &Scene, limit: usize) -> (u64, u64) {
    let mut after = EventId::from_i64(0);
    let (mut deliveries, mut events) = (0, 0);
    loop {
        let step = scene.store.sweep_retention(cutoffs(scene), after, limit).await.expect("swept");
        deliveries += step.deliveries_removed;
        events += step.events_removed;
        match step.next {
            Some(next) => {
                assert!(next > after, "the walk goes on");
                after = next;
            }
            None => return (deliveries, events),
        }
    }
}

async fn left(scene: &Scene) -> Vec<DeliveryId> {
    scene.all(DeliveryFilter::default()).await.into_iter().map(|record| record.id).collect()
}

async fn is_kept(scene: &Scene, event: EventId) -> bool {
    scene.store.event(TENANT, event).await.expect("readable").is_some()
}

pub async fn each_kind_goes_at_its_age(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mut made = Vec::new();
    for _ in 0..6 {
        made.push(scene.deliver(A).await);
    }
    let [pending, retrying, delivered, failed, dead, cancelled] = made[..] else {
        panic!("six deliveries")
    };
    scene.turn(retrying, Turn::Retry(SECOND)).await;
    scene.pass(DAY);
    scene.turn(delivered, Turn::Succeed).await;
    scene.pass(DAY);
    scene.turn(failed, Turn::Fail).await;
    scene.pass(DAY);
    scene.turn(dead, Turn::Expire).await;
    scene.turn(cancelled, Turn::Cancel).await;

    scene.pass(5 * DAY); // day 8
    assert_eq!(sweep(&scene, 100).await, (0, 0), "nothing goes at its exact age");
    scene.pass(SECOND);
    assert_eq!(sweep(&scene, 100).await, (1, 1));
    assert_eq!(left(&scene).await, [pending, retrying, failed, dead, cancelled]);
    scene.pass(DAY); // day 9
    assert_eq!(sweep(&scene, 100).await, (1, 1));
    assert_eq!(left(&scene).await, [pending, retrying, dead, cancelled]);
    scene.pass(DAY); // day 10
    assert_eq!(sweep(&scene, 100).await, (1, 1));
    assert_eq!(left(&scene).await, [pending, retrying, dead]);
    scene.pass(4 * DAY); // day 14
    assert_eq!(sweep(&scene, 100).await, (1, 1));
    assert_eq!(left(&scene).await, [pending, retrying]);
    scene.pass(400 * DAY);
    assert_eq!(sweep(&scene, 100).await, (0, 0), "what is unfinished never goes");
    assert!(scene.store.attempts(failed).await.expect("readable").is_empty());
    assert_eq!(scene.store.attempts(retrying).await.expect("readable").len(), 1);
    assert_eq!(scene.store.event_count(TENANT).await.expect("counted"), 2);
}

pub async fn an_event_goes_after_its_last_delivery(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let both = scene.event(&[A, B]);
    let event = both.event.id;
    let bare = scene.event(&[]);
    let pair = scene.keep(both).await;
    let none = bare.event.id;
    scene.keep(bare).await;
    scene.turn(pair[0], Turn::Succeed).await;
    scene.pass(8 * DAY);
    assert_eq!(sweep(&scene, 100).await, (1, 1), "the event that nobody wanted goes by its age");
    assert!(is_kept(&scene, event).await && !is_kept(&scene, none).await);
    scene.turn(pair[1], Turn::Succeed).await;
    scene.pass(8 * DAY);
    assert_eq!(sweep(&scene, 100).await, (1, 1));
    assert!(!is_kept(&scene, event).await);
    assert!(scene.store.counts(TENANT).await.expect("counted").is_empty());
}

pub async fn a_replay_keeps_its_event(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let old = scene.event(&[A]);
    let event = old.event.id;
    let first = scene.keep(old).await[0];
    scene.turn(first, Turn::Succeed).await;
    scene.pass(6 * DAY);
    let replay = DeliveryId::from_i64(scene.take_ids(1));
    let made = scene.store.append_deliveries(event, replay, vec![to(A)], scene.now, None).await;
    assert_eq!(made.expect("stored").len(), 1);
    scene.turn(replay, Turn::Succeed).await;
    scene.pass(2 * DAY);
    assert_eq!(sweep(&scene, 100).await, (1, 0));
    assert!(is_kept(&scene, event).await);
    assert_eq!(left(&scene).await, [replay]);
    scene.pass(6 * DAY);
    assert_eq!(sweep(&scene, 100).await, (1, 1), "the event goes with the replay");
    assert!(!is_kept(&scene, event).await);
}

pub async fn small_steps_reach_everything(place: &dyn Place) {
    for limit in [1, 2, 3, 7] {
        let mut scene = Scene::new(place).await;
        let mut kept = Vec::new();
        let mut expected = (0, 0);
        for index in 0..20 {
            let endpoints: &[_] = [&[A, B][..], &[A], &[]][index % 3];
            let new = scene.event(endpoints);
            let made = scene.keep(new).await;
            let waits = index % 7 == 1;
            for id in &made {
                if waits {
                    kept.push(*id);
                } else {
                    scene.turn(*id, Turn::Succeed).await;
                    expected.0 += 1;
                }
            }
            expected.1 += u64::from(!waits || made.is_empty());
        }
        scene.pass(8 * DAY);
        assert_eq!(sweep(&scene, limit).await, expected, "in steps of {limit}");
        assert_eq!(left(&scene).await, kept);
        for id in kept {
            scene.turn(id, Turn::Cancel).await;
        }
        scene.pass(8 * DAY);
        sweep(&scene, limit).await;
        assert_eq!(scene.store.event_count(TENANT).await.expect("counted"), 0);
        scene.store.close().await;
    }
}

pub async fn a_freed_key_can_be_used_again(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let keyed = |scene: &mut Scene| {
        edit(scene.event(&[]), |event| event.idempotency_key = Some("once".to_owned()))
    };
    let first = keyed(&mut scene);
    scene.keep(first).await;
    scene.pass(7 * DAY);
    sweep(&scene, 10).await;
    let early = keyed(&mut scene);
    assert!(!matches!(scene.append(vec![early]).await[..], [Appended::New { .. }]));
    scene.pass(SECOND);
    sweep(&scene, 10).await;
    let late = keyed(&mut scene);
    scene.keep(late).await;
}
