//! A leased delivery is one worker's until the lease ends: found by nobody else, counted, at the head
//! of its line, and back in time when the worker is gone.

use std::time::Duration;

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, TenantId};

use super::Place;
use super::scene::{A, B, DAY, SECOND, Scene, TENANT, Turn, edit, to};
use crate::journal::Cutoffs;
use crate::ledger::{Count, DeliveryFilter};
use crate::record::{DeliveryRecord, LeaseIs, Leased, Settle, Settled};

pub(super) const LEASE: Duration = Duration::from_secs(30);

/// Leases a delivery that waits; returns it as the worker knows it.
pub(super) async fn lease(scene: &Scene, id: DeliveryId) -> DeliveryRecord {
    assert!(scene.turn(id, Turn::Lease(LEASE)).await.is_none());
    scene.record(id).await
}

/// What `turn` makes of a leased delivery, if the lease stands as it is said to.
pub(super) fn settle_if(
    scene: &Scene,
    record: &DeliveryRecord,
    turn: Turn,
    lease: LeaseIs,
) -> Settle {
    Settle { lease: Some(lease), ..scene.settle_of(record, turn) }
}

pub(super) async fn applies(scene: &Scene, settle: Settle) -> bool {
    match scene.settle(vec![settle]).await[..] {
        [Settled::Applied { .. }] => true,
        [Settled::Stale] => false,
        ref other => panic!("{other:?}"),
    }
}

pub(super) async fn leased(scene: &Scene, ids: &[DeliveryId]) -> Vec<Leased> {
    let mut found = scene.store.leased(ids.to_vec()).await.expect("readable");
    found.sort_unstable_by_key(|leased| leased.waiting.id);
    found
}

pub(super) async fn lapsed(scene: &Scene) -> Vec<DeliveryId> {
    let lapsed = scene.store.lapsed(scene.now, 100).await.expect("readable");
    lapsed.leased.iter().map(|leased| leased.waiting.id).collect()
}

pub async fn a_leased_delivery_is_found_by_nobody_else(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let (ready, timed, other) =
        (scene.deliver(A).await, scene.deliver(A).await, scene.deliver(A).await);
    scene.turn(timed, Turn::Retry(SECOND)).await;
    scene.pass(SECOND);
    assert_eq!(scene.ready(A).await, [ready, timed, other]);
    for id in [ready, timed] {
        let before = scene.record(id).await;
        let record = lease(&scene, id).await;
        let expected = DeliveryRecord {
            state: State::InFlight,
            fence: before.fence + 1,
            due: Some(scene.now.plus(LEASE)),
            last_attempt_at: Some(scene.now),
            ..before
        };
        assert_eq!(record, expected);
        assert!(scene.store.waiting(id).await.expect("readable").is_none());
    }
    for later in [Duration::ZERO, LEASE, DAY] {
        let mut page = scene.page_of(A);
        page.now = scene.now.plus(later);
        let paged = scene.page(page).await;
        let found: Vec<_> = paged.waiting.iter().map(|waiting| waiting.id).collect();
        assert_eq!((found, paged.next_due), (vec![other], None), "{later:?} later");
    }
    assert_eq!(scene.store.next_due(A).await.expect("known"), None);
}

pub async fn what_is_leased_is_known_by_its_id(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let foreign = edit(scene.event(&[B]), |event| event.tenant = TenantId(9));
    let foreign = scene.keep(foreign).await[0];
    let waits = scene.deliver(A).await;
    let (first, second) = (scene.deliver(A).await, scene.deliver_in(B, "").await);
    let began = scene.now;
    for id in [first, second] {
        lease(&scene, id).await;
    }
    let record = scene.store.delivery(TenantId(9), foreign).await.expect("readable");
    let settle = scene.settle_of(&record.expect("present"), Turn::Lease(LEASE));
    assert!(applies(&scene, settle).await);
    scene.pass(2 * LEASE);

    let unknown = DeliveryId::from_i64(1);
    let found = leased(&scene, &[second, waits, foreign, unknown, first, second]).await;
    let ids: Vec<_> = found.iter().map(|leased| leased.waiting.id).collect();
    assert_eq!(ids, [foreign, first, second], "also after they have ended, and each once");
    assert_eq!(leased(&scene, &[]).await.len(), 0);
    for Leased { waiting, leased_at } in &found[1..] {
        let record = scene.record(waiting.id).await;
        assert_eq!(*leased_at, began);
        assert_eq!(waiting.delivery, record.for_step());
        assert_eq!(waiting.delivery.due, began.plus(LEASE));
        assert_eq!((waiting.endpoint, waiting.fence), (record.endpoint, record.fence));
        assert_eq!((waiting.tries, waiting.in_line), (0, record.line.is_some()));
        let event = scene.store.event(TENANT, record.event).await.expect("readable");
        let mut event = event.expect("present");
        event.body.clear();
        assert_eq!(*waiting.event, event, "the event comes without its body");
    }
}

pub async fn an_ended_lease_is_tried_again(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let mut expected = Vec::new();
    for (turn, lease_is) in [
        (Turn::Retry(SECOND), LeaseIs::Lapsed),
        (Turn::Retry(Duration::ZERO), LeaseIs::Lapsed),
        (Turn::Succeed, LeaseIs::Live),
    ] {
        assert_eq!(scene.ready(A).await, [id]);
        let record = lease(&scene, id).await;
        scene.pass(if lease_is == LeaseIs::Live { SECOND } else { LEASE });
        let settle = settle_if(&scene, &record, turn, lease_is);
        expected.extend(settle.attempt.clone());
        assert!(applies(&scene, settle).await);
        assert!(leased(&scene, &[id]).await.is_empty() && lapsed(&scene).await.is_empty());
        if turn == Turn::Retry(SECOND) {
            assert!(scene.ready(A).await.is_empty(), "not before its time");
            let due = scene.now.plus(SECOND);
            assert_eq!(scene.store.next_due(A).await.expect("known"), Some(due));
            scene.pass(SECOND);
        }
    }
    assert_eq!(scene.store.attempts(id).await.expect("readable"), expected);
    let record = scene.record(id).await;
    assert_eq!((record.state, record.attempts, record.tries), (State::Delivered, 3, 3));
}

pub async fn ended_leases_come_in_the_order_they_ended(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let start = scene.now;
    let mut made = Vec::new();
    for (endpoint, seconds) in [(A, 4), (B, 2), (A, 3), (B, 1)] {
        let id = scene.deliver(endpoint).await;
        scene.turn(id, Turn::Lease(seconds * SECOND)).await;
        made.push(id);
    }
    let in_order = [made[3], made[1], made[2], made[0]];
    let nothing = DeliveryId::from_i64(0);
    for after in 0..=5_u32 {
        for limit in 0..=5 {
            let now = start.plus(after * SECOND);
            let found = scene.store.lapsed(now, limit).await.expect("readable");
            let ids: Vec<_> = found.leased.iter().map(|leased| leased.waiting.id).collect();
            let count = limit.min(after as usize).min(4);
            assert_eq!(ids, in_order[..count], "{limit} after {after} s");
            let next = in_order.get(count).copied().unwrap_or(nothing);
            let next = leased(&scene, &[next]).await.pop().map(|next| next.waiting.delivery.due);
            assert_eq!(found.next, next, "{limit} after {after} s");
            assert!(found.leased.iter().all(|leased| leased.leased_at == start));
        }
    }
}

pub async fn a_leased_head_holds_its_line(place: &dyn Place) {
    for line in ["", "a key"] {
        let mut scene = Scene::new(place).await;
        let ended = scene.deliver_in(A, line).await;
        scene.turn(ended, Turn::Fail).await;
        let head = scene.deliver_in(A, line).await;
        let middle = scene.deliver_in(A, line).await;
        let record = lease(&scene, head).await;
        // Nothing that comes into the line, or is taken out of it, lets another go.
        let last = scene.deliver_in(A, line).await;
        scene.turn(ended, Turn::Reset).await;
        assert!(scene.turn(middle, Turn::Cancel).await.is_none());
        for later in [Duration::ZERO, DAY] {
            let mut page = scene.page_of(A);
            page.now = scene.now.plus(later);
            assert!(scene.page(page).await.waiting.is_empty());
        }
        assert!(!scene.record(head).await.parked);
        for parked in [ended, last] {
            assert!(scene.record(parked).await.parked);
            let ahead = scene.store.ahead_of(parked).await.expect("readable");
            assert_eq!(ahead.map(|record| record.id), Some(head));
        }

        // A longer lease and another try change nothing of that.
        let extend = settle_if(&scene, &record, Turn::Lease(2 * LEASE), LeaseIs::Live);
        assert!(applies(&scene, extend).await);
        assert!(scene.ready(A).await.is_empty());
        scene.pass(2 * LEASE);
        for after in [SECOND, Duration::ZERO] {
            let record = scene.record(head).await;
            let retry = settle_if(&scene, &record, Turn::Retry(after), LeaseIs::Lapsed);
            assert!(applies(&scene, retry).await);
            if !after.is_zero() {
                assert!(scene.ready(A).await.is_empty());
                scene.pass(after);
            }
            assert_eq!(scene.ready(A).await, [head]);
            lease(&scene, head).await;
            scene.pass(LEASE);
        }

        // The end of it does, whichever way it comes.
        let promoted = scene.turn(head, Turn::Succeed).await.expect("the next");
        assert_eq!(promoted.id, ended, "the oldest event goes first");
        lease(&scene, ended).await;
        let promoted = scene.turn(ended, Turn::Cancel).await.expect("the next");
        assert_eq!(promoted.id, last);
        assert_eq!(scene.ready(A).await, [last]);
        scene.turn(last, Turn::Cancel).await;
        scene.store.close().await;
    }
}

pub async fn each_line_leases_its_own_head(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let (one, behind_one) = (scene.deliver_in(A, "one").await, scene.deliver_in(A, "one").await);
    let (two, behind_two) = (scene.deliver_in(A, "two").await, scene.deliver_in(A, "two").await);
    let free = scene.deliver(A).await;
    lease(&scene, one).await;
    assert_eq!(scene.ready(A).await, [two, free]);
    lease(&scene, two).await;
    lease(&scene, free).await;
    assert!(scene.turn(free, Turn::Succeed).await.is_none());
    let promoted = scene.turn(two, Turn::Succeed).await.expect("the next");
    assert_eq!(promoted.id, behind_two);
    assert_eq!(scene.ready(A).await, [behind_two]);
    assert!(scene.record(behind_one).await.parked);
}

pub async fn a_lease_that_comes_to_nothing_was_no_attempt(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let (new, tried) = (scene.deliver(A).await, scene.deliver(A).await);
    scene.turn(tried, Turn::Retry(Duration::ZERO)).await;
    for id in [new, tried] {
        let before = scene.record(id).await;
        scene.pass(SECOND);
        let record = lease(&scene, id).await;
        let release = settle_if(&scene, &record, Turn::Release, LeaseIs::Live);
        assert!(applies(&scene, release).await);
        let (fence, due) = (before.fence + 2, Some(scene.now));
        let released = DeliveryRecord { fence, due, ..before };
        assert_eq!(scene.record(id).await, released, "as it was, and due at once");
        assert!(scene.ready(A).await.contains(&id));

        lease(&scene, id).await;
        scene.turn(id, Turn::Cancel).await;
        let cancelled = scene.record(id).await;
        assert_eq!(cancelled.last_attempt_at, released.last_attempt_at);
        assert_eq!((cancelled.tries, cancelled.class), (released.tries, released.class));
    }
}

pub async fn a_leased_delivery_can_be_cancelled(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let record = lease(&scene, id).await;
    scene.pass(SECOND);
    scene.turn(id, Turn::Cancel).await;
    let cancelled = scene.record(id).await;
    assert_eq!((cancelled.state, cancelled.ended_at), (State::Cancelled, Some(scene.now)));
    assert_eq!(cancelled.due, None);
    for turn in [Turn::Succeed, Turn::Fail, Turn::Lease(LEASE)] {
        let settle = settle_if(&scene, &record, turn, LeaseIs::Live);
        assert!(!applies(&scene, settle).await, "{turn:?}");
    }
    scene.pass(LEASE);
    assert!(lapsed(&scene).await.is_empty() && scene.ready(A).await.is_empty());
    assert_eq!(scene.record(id).await, cancelled);
}

pub async fn leased_ones_are_counted_listed_and_kept(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let new = scene.event(&[A, A, B]);
    let event = new.event.id;
    let [first, second, other] = scene.keep(new).await[..] else { panic!("three deliveries") };
    let replay = DeliveryId::from_i64(scene.take_ids(1));
    let made = scene.store.append_deliveries(event, replay, vec![to(A)], scene.now, None).await;
    assert_eq!(made.expect("stored").len(), 1);
    let held = [lease(&scene, first).await, lease(&scene, replay).await];
    let count = |endpoint, state, deliveries| Count { endpoint, state, deliveries };
    let counts =
        [count(A, State::Pending, 1), count(A, State::InFlight, 2), count(B, State::Pending, 1)];
    assert_eq!(scene.store.counts(TENANT).await.expect("counted"), counts);

    let of = |states: &[State]| DeliveryFilter { states: states.to_vec(), ..Default::default() };
    assert_eq!(scene.all(of(&[State::InFlight])).await, held);
    let in_event = DeliveryFilter { event: Some(event), ..of(&[State::InFlight]) };
    assert_eq!(scene.all(in_event).await, held);
    let waiting: Vec<_> = scene.all(of(&[State::Pending])).await;
    assert_eq!(waiting.iter().map(|record| record.id).collect::<Vec<_>>(), [second, other]);

    let nothing = DeliveryId::from_i64(0);
    let unfinished = scene.store.unfinished(A, nothing, None, 100).await.expect("readable");
    assert_eq!(
        unfinished.iter().map(|row| row.id).collect::<Vec<_>>(),
        [first, second, replay],
        "in the order of their ids"
    );
    for (row, record) in [(&unfinished[0], &held[0]), (&unfinished[2], &held[1])] {
        assert_eq!(row.delivery, record.for_step());
        assert_eq!(row.delivery.state, State::InFlight);
        assert_eq!(row.delivery.due, scene.now.plus(LEASE));
    }

    scene.pass(400 * DAY);
    let now = scene.now;
    let cutoffs = Cutoffs { delivered: now, failed: now, dead: now, events: now };
    let none = postrider_core::EventId::from_i64(0);
    let swept = scene.store.sweep_retention(cutoffs, none, 100).await.expect("swept");
    assert_eq!((swept.deliveries_removed, swept.events_removed), (0, 0));
    let everything = DeliveryFilter { ids: Some(vec![first, replay]), ..Default::default() };
    let purged = scene.store.purge_dead_letters(TENANT, everything, 100, None).await;
    assert_eq!(purged.expect("purged"), 0);
    assert_eq!(scene.all(of(&[State::InFlight])).await, held);
    assert_eq!(scene.store.counts(TENANT).await.expect("counted"), counts);
}

pub async fn leases_survive_closing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let (free, head) = (scene.deliver(A).await, scene.deliver_in(A, "").await);
    let behind = scene.deliver_in(A, "").await;
    let taken = [lease(&scene, free).await, lease(&scene, head).await];
    scene.store.close().await;

    scene.store = place.open().await;
    assert_eq!([scene.record(free).await, scene.record(head).await], taken);
    assert!(scene.ready(A).await.is_empty());
    scene.pass(SECOND);
    let ack = settle_if(&scene, &taken[0], Turn::Succeed, LeaseIs::Live);
    assert!(applies(&scene, ack).await, "the worker's token still holds");
    scene.pass(LEASE);
    assert_eq!(lapsed(&scene).await, [head]);
    let expire = settle_if(&scene, &taken[1], Turn::Exhaust, LeaseIs::Lapsed);
    assert!(applies(&scene, expire).await);
    assert_eq!(scene.ready(A).await, [behind]);
}

pub async fn a_result_is_kept_until_a_reset(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let named = |settle: Settle, result: &str| Settle { result: Some(result.to_owned()), ..settle };
    let result = async |scene: &Scene, id| scene.record(id).await.result;

    let done = scene.deliver(A).await;
    let record = lease(&scene, done).await;
    assert_eq!(record.result, None);
    let ack = settle_if(&scene, &record, Turn::Succeed, LeaseIs::Live);
    let late = Settle { at: scene.now.plus(DAY), ..ack.clone() };
    assert!(!applies(&scene, named(late, "too late")).await);
    assert_eq!(result(&scene, done).await, None, "what is stale leaves nothing behind");
    assert!(applies(&scene, named(ack, "needs \u{fc}bersicht")).await);
    assert_eq!(result(&scene, done).await.as_deref(), Some("needs \u{fc}bersicht"));

    // Whatever carried it, and whatever became of it.
    let dead = scene.deliver(A).await;
    let retry = scene.settle_of(&scene.record(dead).await, Turn::Retry(Duration::ZERO));
    assert!(applies(&scene, named(retry, "first")).await);
    lease(&scene, dead).await;
    assert_eq!(result(&scene, dead).await.as_deref(), Some("first"));
    let end = scene.settle_of(&scene.record(dead).await, Turn::Exhaust);
    assert!(applies(&scene, named(end, "second")).await);
    assert_eq!(result(&scene, dead).await.as_deref(), Some("second"));
    scene.turn(dead, Turn::Reset).await;
    assert_eq!(result(&scene, dead).await, None);
    scene.turn(dead, Turn::Cancel).await;
    assert_eq!(result(&scene, dead).await, None);
}
