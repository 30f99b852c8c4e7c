//! Deliveries that ended in `failed` or `dead`: found, counted, removed.

use postrider_core::delivery::{Reason, State};
use postrider_core::outcome::Class;
use postrider_core::{DeliveryId, Timestamp};

use super::Place;
use super::history::one_of_each;
use super::scene::{A, B, SECOND, Scene, TENANT, Turn, to};
use crate::ledger::{DeliveryFilter, DeliveryQuery, Direction, Listed, Position};
use crate::record::DeliveryRecord;

fn all() -> DeliveryFilter {
    DeliveryFilter { states: vec![State::Failed, State::Dead], ..DeliveryFilter::default() }
}

async fn list(
    scene: &Scene,
    direction: Direction,
    after: Option<Position>,
    limit: usize,
) -> Listed<DeliveryRecord> {
    let query = DeliveryQuery { filter: all(), after, direction, limit };
    scene.store.deliveries(TENANT, query).await.expect("a list")
}

async fn several(scene: &mut Scene, count: usize) -> Vec<DeliveryId> {
    let mut made = Vec::new();
    for _ in 0..count {
        let id = scene.deliver(A).await;
        scene.turn(id, Turn::Fail).await;
        made.push(id);
    }
    made
}

pub async fn they_come_in_the_order_of_events(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let old = scene.event(&[A, B]);
    let event = old.event.id;
    let pair = scene.keep(old).await;
    let others = several(&mut scene, 3).await;
    let replay = DeliveryId::from_i64(scene.take_ids(1));
    let made = scene.store.append_deliveries(event, replay, vec![to(A)], scene.now, None).await;
    assert_eq!(made.expect("stored").len(), 1);
    scene.turn(replay, Turn::Exhaust).await;
    scene.turn(pair[1], Turn::Fail).await;

    let expected = [&[pair[1], replay][..], &others].concat();
    let backwards: Vec<_> = expected.iter().rev().copied().collect();
    for (direction, expected) in
        [(Direction::OldestFirst, expected), (Direction::NewestFirst, backwards)]
    {
        for limit in [1, 2, 4, 5] {
            let mut listed = Vec::new();
            let mut after = None;
            loop {
                let page = list(&scene, direction, after, limit).await;
                listed.extend(page.rows.iter().map(|record| record.id));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(listed, expected, "{direction:?} by {limit}");
        }
    }
}

/// Filters over [`one_of_each`], and which of its rows they select as dead letters.
pub(super) fn filters(
    start: Timestamp,
    made: &[DeliveryRecord],
) -> Vec<(DeliveryFilter, Vec<usize>)> {
    let any = DeliveryFilter::default;
    let second = |count: u32| Some(start.plus(count * SECOND));
    vec![
        (any(), vec![3, 4, 5]),
        (all(), vec![3, 4, 5]),
        (DeliveryFilter { states: vec![State::Failed], ..any() }, vec![3]),
        (DeliveryFilter { states: vec![State::Dead, State::Delivered], ..any() }, vec![4, 5]),
        (DeliveryFilter { states: vec![State::Delivered], ..any() }, vec![]),
        (DeliveryFilter { endpoint: Some(A), ..all() }, vec![4]),
        (DeliveryFilter { endpoint: Some(B), reason: Some(Reason::Expired), ..all() }, vec![5]),
        (DeliveryFilter { class: Some(Class::Final), ..all() }, vec![3]),
        (DeliveryFilter { reason: Some(Reason::Exhausted), ..all() }, vec![4]),
        (DeliveryFilter { since: second(4), ..all() }, vec![4, 5]),
        (DeliveryFilter { until: second(4), ..all() }, vec![3]),
        (DeliveryFilter { event: Some(made[4].event), ..any() }, vec![4]),
        (DeliveryFilter { event: Some(made[1].event), ..any() }, vec![]),
        (DeliveryFilter { ids: Some(made.iter().map(|r| r.id).collect()), ..any() }, vec![3, 4, 5]),
        (DeliveryFilter { ids: Some(vec![made[3].id, made[6].id]), ..any() }, vec![3]),
    ]
}

pub async fn each_filter_selects(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let start = scene.now;
    let made = one_of_each(&mut scene).await;
    for (mut filter, expected) in filters(start, &made) {
        if filter.states.is_empty() {
            filter.states = all().states;
        }
        filter.states.retain(|state| state.is_dead_letter());
        if filter.states.is_empty() {
            continue;
        }
        let expected: Vec<_> = expected.into_iter().map(|index| made[index].clone()).collect();
        assert_eq!(scene.all(filter.clone()).await, expected, "{filter:?}");
    }
}

pub async fn a_cursor_stays_valid_while_rows_come_and_go(place: &dyn Place) {
    for direction in [Direction::OldestFirst, Direction::NewestFirst] {
        let mut scene = Scene::new(place).await;
        let mut expected = several(&mut scene, 9).await;
        if direction == Direction::NewestFirst {
            expected.reverse();
        }
        let first = list(&scene, direction, None, 3).await;
        assert_eq!(ids(&first), expected[..3]);
        // The row that the cursor names goes, and so does the next one; new ones come at the end.
        let gone = vec![expected[2], expected[3]];
        let filter = DeliveryFilter { ids: Some(gone), ..DeliveryFilter::default() };
        let purged =
            scene.store.purge_dead_letters(TENANT, filter, 10, None).await.expect("purged");
        assert_eq!(purged, 2);
        let new = several(&mut scene, 2).await;

        let second = list(&scene, direction, first.next, 3).await;
        assert_eq!(ids(&second), expected[4..7], "{direction:?}");
        scene.turn(expected[7], Turn::Reset).await;
        let third = list(&scene, direction, second.next, 10).await;
        let rest = match direction {
            Direction::OldestFirst => [&expected[8..], &new[..]].concat(),
            Direction::NewestFirst => expected[8..].to_vec(),
        };
        assert_eq!(ids(&third), rest, "{direction:?}");
        assert_eq!(third.next, None);

        let purged =
            scene.store.purge_dead_letters(TENANT, all(), 100, None).await.expect("purged");
        assert!(purged > 0);
        scene.store.close().await;
    }
}

fn ids(listed: &Listed<DeliveryRecord>) -> Vec<DeliveryId> {
    listed.rows.iter().map(|record| record.id).collect()
}

pub async fn they_are_counted(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let start = scene.now;
    let made = one_of_each(&mut scene).await;
    for (filter, expected) in filters(start, &made) {
        let count = scene.store.count_dead_letters(TENANT, filter.clone()).await.expect("counted");
        assert_eq!(count, expected.len() as u64, "{filter:?}");
    }
}

pub async fn purging_removes_only_what_matches(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let start = scene.now;
    let made = one_of_each(&mut scene).await;
    let none = DeliveryFilter { states: vec![State::Pending], ..DeliveryFilter::default() };
    assert_eq!(scene.store.purge_dead_letters(TENANT, none, 10, None).await.expect("purged"), 0);
    let late = DeliveryFilter { since: Some(start.plus(4 * SECOND)), ..all() };
    let purged =
        scene.store.purge_dead_letters(TENANT, late.clone(), 1, None).await.expect("purged");
    assert_eq!(purged, 1, "no more than asked");
    assert_eq!(scene.store.delivery(TENANT, made[4].id).await.expect("readable"), None);
    assert!(scene.store.attempts(made[4].id).await.expect("readable").is_empty());
    let purged = scene.store.purge_dead_letters(TENANT, late, 10, None).await.expect("purged");
    assert_eq!(purged, 1);
    let left: Vec<_> = [0, 1, 2, 3, 6].map(|index| made[index].clone()).to_vec();
    assert_eq!(scene.all(DeliveryFilter::default()).await, left);
    assert!(scene.store.event(TENANT, made[4].event).await.expect("readable").is_some());
}
