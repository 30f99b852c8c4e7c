//! What is shown of events, deliveries and attempts.

use postrider_core::delivery::{Reason, State};
use postrider_core::outcome::Class;
use postrider_core::{DeliveryId, EndpointId, EventId, TenantId};

use super::Place;
use super::scene::{A, B, SECOND, Scene, TENANT, Turn, edit};
use crate::ledger::{DeliveryFilter, DeliveryQuery, Direction, EventQuery};
use crate::record::DeliveryRecord;

pub async fn a_success_at_the_first_try_is_an_attempt(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    assert!(scene.store.attempts(id).await.expect("readable").is_empty());
    scene.pass(SECOND);
    let mut settle = scene.settle_of(&scene.record(id).await, Turn::Succeed);
    let expected = settle.attempt.clone().expect("an attempt");
    scene.settle(vec![settle.clone()]).await;
    assert_eq!(scene.store.attempts(id).await.expect("readable"), std::slice::from_ref(&expected));
    let record = scene.record(id).await;
    assert_eq!((record.state, record.attempts, record.tries), (State::Delivered, 1, 1));
    assert_eq!((record.due, record.ended_at), (None, Some(scene.now)));
    assert_eq!(record.last_attempt_at, Some(expected.started_at));

    // Without an answer to keep.
    let bare = scene.deliver(A).await;
    settle.id = bare;
    let attempt = settle.attempt.as_mut().expect("an attempt");
    (attempt.response, attempt.status) = (None, None);
    let expected = attempt.clone();
    scene.settle(vec![settle]).await;
    assert_eq!(scene.store.attempts(bare).await.expect("readable"), [expected]);
}

pub async fn attempts_are_numbered_over_all_lives(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let turns =
        [Turn::Retry(SECOND), Turn::Exhaust, Turn::Reset, Turn::Retry(SECOND), Turn::Succeed];
    let mut expected = Vec::new();
    for turn in turns {
        let settle = scene.settle_of(&scene.record(id).await, turn);
        expected.extend(settle.attempt.clone());
        scene.settle(vec![settle]).await;
        scene.pass(SECOND);
    }
    let attempts = scene.store.attempts(id).await.expect("readable");
    assert_eq!(attempts, expected);
    assert_eq!(attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let record = scene.record(id).await;
    assert_eq!((record.attempts, record.tries), (2, 4), "a reset counts from zero again");
}

pub async fn a_success_clears_the_class_and_keeps_the_last_error(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    scene.turn(id, Turn::Retry(SECOND)).await;
    let record = scene.record(id).await;
    assert_eq!(record.state, State::Retrying);
    assert_eq!(record.due, Some(scene.now.plus(SECOND)));
    assert_eq!(record.class, Some(Class::Retryable));
    assert_eq!(record.last_error.as_deref(), Some("retryable at try 1"));
    scene.pass(SECOND);
    scene.turn(id, Turn::Succeed).await;
    let record = scene.record(id).await;
    assert_eq!((record.class, record.reason, record.due), (None, None, None));
    assert_eq!(record.last_error.as_deref(), Some("retryable at try 1"));
}

pub async fn an_end_without_an_attempt_keeps_what_the_last_one_said(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    scene.turn(id, Turn::Retry(SECOND)).await;
    let tried = scene.record(id).await;
    scene.pass(SECOND);
    for (turn, state, reason) in [
        (Turn::Expire, State::Dead, Some(Reason::Expired)),
        (Turn::Reset, State::Pending, None),
        (Turn::Cancel, State::Cancelled, None),
    ] {
        scene.turn(id, turn).await;
        let record = scene.record(id).await;
        assert_eq!((record.state, record.reason), (state, reason));
        assert_eq!(record.last_error, tried.last_error);
        assert_eq!((record.last_attempt_at, record.tries), (tried.last_attempt_at, 1));
        let (due, ended) =
            if state.is_terminal() { (None, Some(scene.now)) } else { (Some(scene.now), None) };
        assert_eq!((record.due, record.ended_at), (due, ended));
    }
    assert_eq!(scene.record(id).await.born, scene.now, "a reset is a new life");
}

pub async fn events_are_listed_newest_first(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mut made = Vec::new();
    for _ in 0..7 {
        let new = scene.event(&[A]);
        made.push(new.event.id);
        scene.keep(new).await;
        scene.pass(SECOND);
    }
    made.reverse();
    for limit in [1, 3, 7, 50] {
        let mut query = EventQuery { limit, ..EventQuery::default() };
        let mut listed = Vec::new();
        loop {
            let page = scene.store.events(TENANT, query.clone()).await.expect("a list");
            assert!(page.rows.len() <= limit);
            assert!(page.rows.iter().all(|event| event.body.is_empty()), "bodies are left out");
            listed.extend(page.rows.iter().map(|event| event.id));
            match page.next {
                Some(next) => query.before = Some(next.event),
                None => break,
            }
        }
        assert_eq!(listed, made, "in pages of {limit}");
    }
}

pub async fn events_are_found_by_what_they_are(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let start = scene.now;
    let mut made: Vec<EventId> = Vec::new();
    for index in 0..6 {
        let new = edit(scene.event(&[]), |event| {
            if index % 2 == 0 { "even" } else { "odd" }.clone_into(&mut event.kind);
            event.idempotency_key = (index < 3).then(|| format!("k{index}"));
        });
        made.push(new.event.id);
        scene.keep(new).await;
        scene.pass(SECOND);
    }
    let any = EventQuery { limit: 10, ..EventQuery::default() };
    let kind = |kind: &str| Some(kind.to_owned());
    let second = |count: u32| Some(start.plus(count * SECOND));
    let cases = [
        (EventQuery { kind: kind("odd"), ..any.clone() }, vec![5, 3, 1]),
        (EventQuery { kind: kind("none"), ..any.clone() }, vec![]),
        (EventQuery { idempotency_key: kind("k1"), ..any.clone() }, vec![1]),
        (EventQuery { idempotency_key: kind("k1"), kind: kind("even"), ..any.clone() }, vec![]),
        (EventQuery { since: second(4), ..any.clone() }, vec![5, 4]),
        (EventQuery { until: second(2), ..any.clone() }, vec![1, 0]),
        (
            EventQuery { since: second(1), until: second(3), kind: kind("even"), ..any.clone() },
            vec![2],
        ),
        (EventQuery { before: Some(made[2]), ..any }, vec![1, 0]),
    ];
    for (query, expected) in cases {
        let listed = scene.store.events(TENANT, query.clone()).await.expect("a list");
        let found: Vec<_> = listed.rows.iter().map(|event| event.id).collect();
        let expected: Vec<_> = expected.into_iter().map(|index: usize| made[index]).collect();
        assert_eq!(found, expected, "{query:?}");
    }
}

/// One delivery in each state, a second apart, at alternating endpoints.
pub(super) async fn one_of_each(scene: &mut Scene) -> Vec<DeliveryRecord> {
    let turns = [
        None,
        Some(Turn::Succeed),
        Some(Turn::Retry(SECOND)),
        Some(Turn::Fail),
        Some(Turn::Exhaust),
        Some(Turn::Expire),
        Some(Turn::Cancel),
    ];
    let mut made = Vec::new();
    for (index, turn) in turns.into_iter().enumerate() {
        let id = scene.deliver(if index % 2 == 0 { A } else { B }).await;
        if let Some(turn) = turn {
            scene.turn(id, turn).await;
        }
        made.push(scene.record(id).await);
        scene.pass(SECOND);
    }
    made
}

pub async fn deliveries_are_found_by_the_type_of_their_event(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mut made = Vec::new();
    for (index, kind) in ["one", "two", "one", "two"].into_iter().enumerate() {
        let new = edit(scene.event(&[A]), |event| event.kind = kind.into());
        let id = scene.keep(new).await[0];
        if index > 1 {
            scene.turn(id, Turn::Exhaust).await;
        }
        made.push(id);
    }
    let of = |kind: &str| DeliveryFilter { kind: Some(kind.into()), ..DeliveryFilter::default() };
    let dead = vec![State::Dead];
    let event = scene.record(made[1]).await.event;
    for (filter, expected) in [
        (of("one"), vec![made[0], made[2]]),
        (of("two"), vec![made[1], made[3]]),
        (of("three"), vec![]),
        (DeliveryFilter { states: dead.clone(), ..of("two") }, vec![made[3]]),
        (DeliveryFilter { ids: Some(made.clone()), ..of("one") }, vec![made[0], made[2]]),
        (DeliveryFilter { event: Some(event), ..of("two") }, vec![made[1]]),
        (DeliveryFilter { event: Some(event), ..of("one") }, vec![]),
    ] {
        let found: Vec<_> = scene.all(filter.clone()).await.iter().map(|found| found.id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let counted = |kind: &str| DeliveryFilter { states: dead.clone(), ..of(kind) };
    assert_eq!(scene.store.count_dead_letters(TENANT, counted("one")).await.expect("counted"), 1);
    let removed = scene.store.purge_dead_letters(TENANT, counted("one"), 10, None).await;
    assert_eq!(removed.expect("purged"), 1);
    assert_eq!(scene.all(of("one")).await.len(), 1);
    assert_eq!(scene.all(of("two")).await.len(), 2);
}

pub async fn deliveries_are_found_by_what_they_are(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let start = scene.now;
    let made = one_of_each(&mut scene).await;
    let any = DeliveryFilter::default;
    let of = |indexes: &[usize]| Some(indexes.iter().map(|index| made[*index].id).collect());
    let second = |count: u32| Some(start.plus(count * SECOND));
    let cases: Vec<(DeliveryFilter, Vec<usize>)> = vec![
        (any(), vec![0, 1, 2, 3, 4, 5, 6]),
        (DeliveryFilter { states: vec![State::Delivered], ..any() }, vec![1]),
        (DeliveryFilter { states: vec![State::Dead], ..any() }, vec![4, 5]),
        (DeliveryFilter { states: vec![State::Failed, State::Pending], ..any() }, vec![0, 3]),
        (DeliveryFilter { states: vec![State::InFlight], ..any() }, vec![]),
        (DeliveryFilter { endpoint: Some(B), ..any() }, vec![1, 3, 5]),
        (DeliveryFilter { endpoint: Some(EndpointId::from_i64(9)), ..any() }, vec![]),
        (DeliveryFilter { event: Some(made[2].event), ..any() }, vec![2]),
        (DeliveryFilter { event: Some(made[2].event), states: vec![State::Dead], ..any() }, vec![]),
        (DeliveryFilter { event: Some(EventId::from_i64(4)), ..any() }, vec![]),
        (DeliveryFilter { ids: of(&[5, 1, 5]), ..any() }, vec![1, 5]),
        (DeliveryFilter { ids: of(&[5, 1]), states: vec![State::Dead], ..any() }, vec![5]),
        (DeliveryFilter { ids: Some(vec![DeliveryId::from_i64(4)]), ..any() }, vec![]),
        (DeliveryFilter { class: Some(Class::Retryable), ..any() }, vec![2, 4]),
        (DeliveryFilter { reason: Some(Reason::Expired), ..any() }, vec![5]),
        (DeliveryFilter { since: second(5), ..any() }, vec![5, 6]),
        (DeliveryFilter { until: second(2), ..any() }, vec![0, 1]),
        (
            DeliveryFilter { since: second(2), until: second(5), endpoint: Some(A), ..any() },
            vec![2, 4],
        ),
    ];
    for (filter, expected) in cases {
        let expected: Vec<_> = expected.into_iter().map(|index| made[index].clone()).collect();
        assert_eq!(scene.all(filter.clone()).await, expected, "{filter:?}");
    }
}

pub async fn a_list_of_deliveries_goes_both_ways(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mut made: Vec<_> =
        one_of_each(&mut scene).await.into_iter().map(|record| record.id).collect();
    let neighbours = scene.event(&[A, B, A]);
    made.extend(scene.keep(neighbours).await);
    let backwards: Vec<_> = made.iter().rev().copied().collect();
    for (direction, expected) in
        [(Direction::OldestFirst, made.clone()), (Direction::NewestFirst, backwards)]
    {
        for ids in [None, Some(made.clone())] {
            for limit in [1, 2, 10, 11] {
                let filter = DeliveryFilter { ids: ids.clone(), ..DeliveryFilter::default() };
                let mut query = DeliveryQuery { filter, after: None, direction, limit };
                let mut listed = Vec::new();
                loop {
                    let page = scene.store.deliveries(TENANT, query.clone()).await.expect("a list");
                    assert!(page.rows.len() <= limit);
                    listed.extend(page.rows.iter().map(|record| record.id));
                    match page.next {
                        Some(next) => query.after = Some(next),
                        None => break,
                    }
                }
                assert_eq!(listed, expected, "{direction:?} by {limit}");
            }
        }
    }
}

pub async fn another_tenants_rows_are_not_seen(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let new = scene.event(&[A]);
    let event = new.event.id;
    let id = scene.keep(new).await[0];
    scene.turn(id, Turn::Fail).await;
    let (store, other) = (&scene.store, TenantId(2));
    assert_eq!(store.event(other, event).await.expect("readable"), None);
    assert_eq!(store.delivery(other, id).await.expect("readable"), None);
    assert!(store.event_deliveries(other, event).await.expect("readable").is_empty());
    let query = EventQuery { limit: 10, ..EventQuery::default() };
    assert!(store.events(other, query).await.expect("a list").rows.is_empty());
    let filters = [
        DeliveryFilter::default(),
        DeliveryFilter { ids: Some(vec![id]), ..DeliveryFilter::default() },
        DeliveryFilter { event: Some(event), ..DeliveryFilter::default() },
        DeliveryFilter { states: vec![State::Failed], ..DeliveryFilter::default() },
    ];
    for filter in filters {
        let query = DeliveryQuery { filter: filter.clone(), limit: 10, ..DeliveryQuery::default() };
        assert!(store.deliveries(other, query).await.expect("a list").rows.is_empty());
        assert_eq!(store.count_dead_letters(other, filter.clone()).await.expect("counted"), 0);
        assert_eq!(store.purge_dead_letters(other, filter, 10, None).await.expect("purged"), 0);
    }
    assert!(store.counts(other).await.expect("counted").is_empty());
    assert_eq!(store.event_count(other).await.expect("counted"), 0);
    assert_eq!(scene.state(id).await, State::Failed);
}
