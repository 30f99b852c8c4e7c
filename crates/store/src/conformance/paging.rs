//! Finding what may be tried, what is due next, and what is unfinished.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::{DeliveryId, EndpointId, Timestamp};

use super::Place;
use super::scene::{A, B, DAY, SECOND, Scene, TENANT, Turn, edit, ids, to};
use crate::journal::{Page, Paged, Pages};
use crate::record::NewEvent;

fn at(new: NewEvent, time: Timestamp) -> NewEvent {
    edit(new, |event| event.deliver_at = Some(time))
}

async fn several(scene: &mut Scene, count: usize) -> Vec<DeliveryId> {
    let events: Vec<_> = (0..count).map(|_| scene.event(&[A])).collect();
    let ids = events.iter().map(|new| new.delivery_id(0)).collect();
    scene.append(events).await;
    ids
}

pub async fn ready_ones_come_oldest_event_first(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let old = scene.event(&[A]);
    let event = old.event.id;
    let first = scene.keep(old).await[0];
    scene.turn(first, Turn::Succeed).await;
    let made = several(&mut scene, 4).await;
    scene.deliver(B).await;
    let replay = DeliveryId::from_i64(scene.take_ids(1));
    let again = scene.store.append_deliveries(event, replay, vec![to(A)], scene.now, None).await;
    assert_eq!(again.expect("stored").len(), 1);

    let everything = [&[replay][..], &made].concat();
    for limit in 1..=6 {
        let mut page = scene.page_of(A);
        page.limit = limit;
        let paged = scene.page(page).await;
        assert_eq!(ids(&paged.waiting), everything[..limit.min(5)]);
        assert_eq!(paged.more, limit < 5, "limit {limit}");
    }
    let empty = scene.page(scene.page_of(EndpointId::from_i64(99))).await;
    assert!(empty.waiting.is_empty() && !empty.more && empty.next_due.is_none());
}

pub async fn held_ones_are_passed_over(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let made = several(&mut scene, 6).await;
    for id in &made[4..] {
        scene.turn(*id, Turn::Retry(SECOND)).await;
    }
    scene.pass(SECOND);
    let mut page = scene.page_of(A);
    page.held = vec![made[0], made[2], made[4], DeliveryId::from_i64(3)];
    let paged = scene.page(page.clone()).await;
    assert_eq!(ids(&paged.waiting), [made[1], made[3], made[5]]);
    assert!(!paged.more);

    page.limit = 1;
    let paged = scene.page(page.clone()).await;
    assert_eq!(ids(&paged.waiting), [made[1], made[5]], "one ready and one whose time came");
    assert!(paged.more);

    page.held = made;
    let paged = scene.page(page).await;
    assert!(paged.waiting.is_empty() && !paged.more);
}

pub async fn pages_of_several_endpoints_are_as_if_each_was_asked_for_alone(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let nobody = EndpointId::from_i64(99);
    let events: Vec<_> = (0..6)
        .map(|_| edit(scene.event(&[A, B]), |event| event.body = Bytes::from(vec![b'.'; 100])))
        .collect();
    let made: Vec<[DeliveryId; 2]> =
        events.iter().map(|new| [new.delivery_id(0), new.delivery_id(1)]).collect();
    scene.append(events).await;
    scene.turn(made[0][0], Turn::Retry(SECOND)).await;
    scene.turn(made[1][0], Turn::Retry(9 * SECOND)).await;
    scene.turn(made[5][1], Turn::Retry(5 * SECOND)).await;
    scene.pass(SECOND);
    let held = vec![made[2][0], made[0][1]];
    for (limit, max_bytes) in [(100, 1 << 20), (2, 1 << 20), (100, 250), (1, 1)] {
        let endpoints = vec![B, nobody, A];
        let wanted = Pages {
            endpoints: endpoints.clone(),
            now: scene.now,
            limit,
            max_bytes,
            held: held.clone(),
        };
        let together = scene.store.pages(wanted).await.expect("pages");
        assert_eq!(together.len(), 3);
        for (endpoint, paged) in endpoints.into_iter().zip(together) {
            let page = Page { limit, max_bytes, held: held.clone(), ..scene.page_of(endpoint) };
            let alone = scene.page(page).await;
            let of = |paged: &Paged| (ids(&paged.waiting), paged.more, paged.next_due);
            assert_eq!(of(&paged), of(&alone), "{endpoint}: {limit} of {max_bytes} bytes");
            assert!(paged.waiting.iter().all(|waiting| waiting.event.body.len() == 100));
        }
    }
    let wanted = Pages { endpoints: vec![B, A], now: scene.now, limit: 100, max_bytes: 250, held };
    let paged = scene.store.pages(wanted).await.expect("pages");
    assert_eq!(ids(&paged[0].waiting), [made[1][1], made[2][1]]);
    assert_eq!(ids(&paged[1].waiting), [made[0][0], made[3][0]]);
}

pub async fn bodies_are_bounded_but_never_to_nothing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let events: Vec<_> = (0..4)
        .map(|_| edit(scene.event(&[A]), |event| event.body = Bytes::from(vec![b'.'; 1_000])))
        .collect();
    let all: Vec<_> = events.iter().map(|new| new.delivery_id(0)).collect();
    scene.append(events).await;
    for (max_bytes, count) in [(0, 1), (999, 1), (1_000, 1), (2_999, 2), (3_000, 3), (4_000, 4)] {
        let mut page = scene.page_of(A);
        page.max_bytes = max_bytes;
        let paged = scene.page(page).await;
        assert_eq!(ids(&paged.waiting), all[..count], "{max_bytes} bytes");
        assert_eq!(paged.more, count < 4);
    }
}

pub async fn timed_ones_come_when_they_are_due(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let made = several(&mut scene, 4).await;
    scene.turn(made[0], Turn::Retry(3 * SECOND)).await;
    scene.turn(made[1], Turn::Retry(SECOND)).await;
    scene.turn(made[2], Turn::Retry(2 * SECOND)).await;
    let start = scene.now;
    let mut page = scene.page_of(A);
    let expected: [&[usize]; 4] = [&[3], &[1, 3], &[1, 2, 3], &[0, 1, 2, 3]];
    for (seconds, indexes) in (0_u32..).zip(expected) {
        page.now = start.plus(seconds * SECOND);
        let expected: Vec<_> = indexes.iter().map(|index| made[*index]).collect();
        assert_eq!(ids(&scene.page(page.clone()).await.waiting), expected, "after {seconds} s");
    }
    page.now = start.plus(Duration::from_millis(999));
    assert_eq!(ids(&scene.page(page.clone()).await.waiting), [made[3]], "never early");

    // With less room than there are due, the oldest events come first, whenever their time came.
    page.now = start.plus(10 * SECOND);
    page.limit = 2;
    let paged = scene.page(page).await;
    assert_eq!(ids(&paged.waiting), [made[0], made[1], made[3]]);
    assert!(paged.more);
}

pub async fn the_next_due_time_is_known(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    assert_eq!(scene.store.next_due(A).await.expect("known"), None);
    let made = several(&mut scene, 2).await;
    let [one, two, three] = [1, 2, 3].map(|count| scene.now.plus(count * SECOND));
    scene.turn(made[0], Turn::Retry(2 * SECOND)).await;
    scene.turn(made[1], Turn::Retry(SECOND)).await;
    let timed = at(scene.event(&[A, B]), three);
    scene.keep(timed).await;
    assert_eq!(scene.store.next_due(A).await.expect("known"), Some(one));
    assert_eq!(scene.store.next_due(B).await.expect("known"), Some(three));

    let mut page = scene.page_of(A);
    assert_eq!(scene.page(page.clone()).await.next_due, Some(one));
    page.held = vec![made[1]];
    assert_eq!(scene.page(page.clone()).await.next_due, Some(two), "what is held is known");
    page.held.clear();
    page.now = one;
    let paged = scene.page(page).await;
    assert_eq!((ids(&paged.waiting), paged.next_due), (vec![made[1]], Some(two)));
}

pub async fn deliveries_of_one_event_share_it(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let new = scene.event(&[A, A, A]);
    scene.keep(new).await;
    let waiting = scene.page(scene.page_of(A)).await.waiting;
    assert_eq!(waiting.len(), 3);
    assert!(waiting.iter().all(|other| Arc::ptr_eq(&other.event, &waiting[0].event)));
}

pub async fn only_what_may_be_tried_is_waiting(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let head = scene.deliver_in(A, "").await;
    let parked = scene.deliver_in(A, "").await;
    scene.turn(id, Turn::Retry(SECOND)).await;
    let waiting = scene.store.waiting(id).await.expect("readable").expect("waiting");
    let record = scene.record(id).await;
    assert_eq!(waiting.delivery, record.for_step());
    assert_eq!((waiting.id, waiting.endpoint), (id, A));
    assert_eq!((waiting.tries, waiting.fence, waiting.in_line), (1, 1, false));
    let event = scene.store.event(TENANT, record.event).await.expect("readable");
    assert_eq!(Some(&*waiting.event), event.as_ref());

    assert!(scene.store.waiting(head).await.expect("readable").is_some());
    assert!(scene.store.waiting(parked).await.expect("readable").is_none());
    scene.turn(id, Turn::Cancel).await;
    assert!(scene.store.waiting(id).await.expect("readable").is_none());
    assert!(scene.store.waiting(DeliveryId::from_i64(5)).await.expect("readable").is_none());
}

/// Walks in pages of `limit` and checks that each page is in order and goes on where the last ended.
async fn walk(scene: &Scene, born_before: Option<Timestamp>, limit: usize) -> Vec<DeliveryId> {
    let mut after = DeliveryId::from_i64(0);
    let mut walked = Vec::new();
    loop {
        let page = scene.store.unfinished(A, after, born_before, limit).await.expect("readable");
        assert!(page.len() <= limit);
        for row in &page {
            assert!(row.id > after);
            after = row.id;
            let record = scene.record(row.id).await;
            assert_eq!(row.delivery, record.for_step());
            assert_eq!((row.event, row.fence), (record.event, record.fence));
            assert_eq!((row.tenant, row.in_line), (record.tenant, record.line.is_some()));
        }
        walked.extend(page.iter().map(|row| row.id));
        if page.len() < limit {
            return walked;
        }
    }
}

pub async fn the_unfinished_are_walked_completely(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let old = scene.event(&[A, A, A, B]);
    let event = old.event.id;
    let mut expected = scene.keep(old).await[..3].to_vec();
    for index in 0..12 {
        let id = match index % 4 {
            0 => scene.deliver(A).await,
            1 => scene.deliver_in(A, "").await,
            2 => {
                let new = at(scene.event(&[A]), scene.now.plus(DAY));
                scene.keep(new).await[0]
            }
            _ => {
                let replay = DeliveryId::from_i64(scene.take_ids(1));
                let made =
                    scene.store.append_deliveries(event, replay, vec![to(A)], scene.now, None);
                made.await.expect("stored");
                replay
            }
        };
        if index % 5 == 4 {
            scene.turn(id, Turn::Cancel).await;
        } else {
            expected.push(id);
        }
        if index == 7 {
            scene.turn(id, Turn::Retry(SECOND)).await;
        }
        scene.deliver(B).await;
        scene.pass(SECOND);
    }
    for limit in [1, 2, 3, 5, 100] {
        assert_eq!(walk(&scene, None, limit).await, expected, "in pages of {limit}");
    }
}

pub async fn the_unfinished_by_age(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let start = scene.now;
    let old = scene.deliver(A).await;
    let retried = scene.deliver(A).await;
    scene.turn(retried, Turn::Retry(DAY)).await;
    let reset = scene.deliver(A).await;
    let timed = at(scene.event(&[A]), start.plus(3 * DAY));
    let timed = scene.keep(timed).await[0];
    scene.pass(2 * DAY);
    scene.turn(reset, Turn::Reset).await;
    let young = scene.deliver(A).await;

    assert_eq!(walk(&scene, Some(start), 10).await, []);
    assert_eq!(walk(&scene, Some(start.plus(DAY)), 1).await, [old, retried]);
    let later = start.plus(2 * DAY + SECOND);
    assert_eq!(walk(&scene, Some(later), 2).await, [old, retried, reset, young]);
    let latest = start.plus(4 * DAY);
    assert_eq!(walk(&scene, Some(latest), 10).await, [old, retried, reset, timed, young]);
}
