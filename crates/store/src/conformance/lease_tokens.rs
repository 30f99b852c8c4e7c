//! Only whoever holds a lease changes what is leased, and only for as long as it lives.

use std::time::Duration;

use postrider_core::delivery::State;

use super::Place;
use super::leasing::{LEASE, applies, lapsed, lease, leased, settle_if};
use super::scene::{A, B, DAY, SECOND, Scene, TENANT, Turn};
use crate::ledger::Count;
use crate::record::{DeliveryRecord, LeaseIs, Settle, Settled};

const MILLISECOND: Duration = Duration::from_millis(1);
/// The last moment of a lease.
const JUST_BEFORE: Duration = LEASE.saturating_sub(MILLISECOND);

const ENDS: [Turn; 5] =
    [Turn::Succeed, Turn::Retry(SECOND), Turn::Fail, Turn::Exhaust, Turn::Cancel];

pub async fn an_answer_in_time_settles_it(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    for turn in ENDS {
        let id = scene.deliver(A).await;
        let record = lease(&scene, id).await;
        scene.pass(SECOND);
        let settle = settle_if(&scene, &record, turn, LeaseIs::Live);
        let attempt = settle.attempt.clone();
        let expected = settle.next;
        assert!(applies(&scene, settle.clone()).await, "{turn:?}");
        let after = scene.record(id).await;
        assert_eq!((after.state, after.fence), (expected.state, record.fence + 1));
        assert_eq!(after.attempts, expected.attempts);
        let attempts = scene.store.attempts(id).await.expect("readable");
        assert_eq!(attempts, attempt.into_iter().collect::<Vec<_>>(), "{turn:?}");
        assert!(leased(&scene, &[id]).await.is_empty());
        assert!(!applies(&scene, settle).await, "it is answered once");
        assert_eq!(scene.record(id).await, after);
    }
}

pub async fn a_token_of_an_earlier_lease_changes_nothing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let first = lease(&scene, id).await;
    scene.pass(LEASE);
    assert!(applies(&scene, settle_if(&scene, &first, Turn::Retry(SECOND), LeaseIs::Lapsed)).await);
    scene.pass(SECOND);
    let current = lease(&scene, id).await;
    assert!(current.fence > first.fence);
    let attempts = scene.store.attempts(id).await.expect("readable");
    let counts = scene.store.counts(TENANT).await.expect("counted");
    for turn in ENDS.into_iter().chain([Turn::Lease(LEASE)]) {
        for lease in [None, Some(LeaseIs::Live), Some(LeaseIs::Lapsed)] {
            let stale = Settle { lease, ..scene.settle_of(&first, turn) };
            assert!(!applies(&scene, stale).await, "{turn:?} {lease:?}");
        }
    }
    assert_eq!(scene.record(id).await, current);
    assert_eq!(scene.store.attempts(id).await.expect("readable"), attempts);
    assert_eq!(scene.store.counts(TENANT).await.expect("counted"), counts);
}

pub async fn an_extended_lease_keeps_its_fence(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let record = lease(&scene, id).await;
    scene.pass(JUST_BEFORE);
    for span in [2 * LEASE, SECOND, LEASE] {
        let extend = settle_if(&scene, &record, Turn::Lease(span), LeaseIs::Live);
        assert!(applies(&scene, extend).await);
        let expected = DeliveryRecord { due: Some(scene.now.plus(span)), ..record.clone() };
        assert_eq!(scene.record(id).await, expected, "only its end moves");
    }
    let count = Count { endpoint: A, state: State::InFlight, deliveries: 1 };
    assert_eq!(scene.store.counts(TENANT).await.expect("counted"), [count]);
    scene.pass(LEASE);
    let late = settle_if(&scene, &record, Turn::Lease(LEASE), LeaseIs::Live);
    assert!(!applies(&scene, late).await, "what has ended is not made longer");
    let ack = Settle {
        at: scene.now.minus(MILLISECOND),
        ..settle_if(&scene, &record, Turn::Succeed, LeaseIs::Live)
    };
    assert!(applies(&scene, ack).await, "the first token still holds");
}

pub async fn a_lease_lives_until_its_end_and_not_longer(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    for (after, lease_is, expected) in [
        (JUST_BEFORE, LeaseIs::Live, true),
        (JUST_BEFORE, LeaseIs::Lapsed, false),
        (LEASE, LeaseIs::Live, false),
        (LEASE, LeaseIs::Lapsed, true),
        (DAY, LeaseIs::Live, false),
        (DAY, LeaseIs::Lapsed, true),
    ] {
        let id = scene.deliver(A).await;
        let record = lease(&scene, id).await;
        scene.pass(after);
        let is_listed = lapsed(&scene).await.contains(&id);
        assert_eq!(is_listed, after >= LEASE, "{after:?}");
        let settle = settle_if(&scene, &record, Turn::Fail, lease_is);
        assert_eq!(applies(&scene, settle).await, expected, "{lease_is:?} after {after:?}");
        let state = if expected { State::Failed } else { State::InFlight };
        assert_eq!(scene.state(id).await, state);
        if !expected {
            scene.turn(id, Turn::Cancel).await;
        }
    }
}

/// Whoever looks for ended leases may be overtaken by the worker.
pub async fn a_lease_that_was_extended_meanwhile_has_not_lapsed(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    let record = lease(&scene, id).await;
    let extend = settle_if(&scene, &record, Turn::Lease(2 * LEASE), LeaseIs::Live);
    scene.pass(LEASE);
    assert_eq!(lapsed(&scene).await, [id]);
    let expire = settle_if(&scene, &record, Turn::Retry(SECOND), LeaseIs::Lapsed);
    assert!(applies(&scene, extend).await, "asked for in time, but stored late");
    assert!(lapsed(&scene).await.is_empty());
    assert!(!applies(&scene, expire).await);
    assert_eq!(scene.state(id).await, State::InFlight);

    // An answer given in time and the end of the lease: whichever is stored first.
    for order in [[0, 1], [1, 0]] {
        let id = scene.deliver(A).await;
        let record = lease(&scene, id).await;
        let ack = settle_if(&scene, &record, Turn::Succeed, LeaseIs::Live);
        scene.pass(LEASE);
        let expire = settle_if(&scene, &record, Turn::Retry(SECOND), LeaseIs::Lapsed);
        let both = [ack, expire];
        let settled = scene.settle(order.map(|index: usize| both[index].clone()).to_vec()).await;
        assert!(matches!(settled[..], [Settled::Applied { .. }, Settled::Stale]), "{settled:?}");
        assert_eq!(scene.state(id).await, both[order[0]].next.state);
    }
}

pub async fn only_what_may_be_tried_can_be_leased(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let _head = scene.deliver_in(A, "").await;
    let parked = scene.deliver_in(A, "").await;
    let ended = scene.deliver(A).await;
    scene.turn(ended, Turn::Fail).await;
    let taken = scene.deliver(A).await;
    lease(&scene, taken).await;
    for id in [parked, ended, taken] {
        let record = scene.record(id).await;
        for from in [State::Pending, State::Retrying, State::Failed] {
            let settle = Settle { from, ..scene.settle_of(&record, Turn::Lease(LEASE)) };
            assert!(!applies(&scene, settle).await, "{from:?} {record:?}");
        }
        assert_eq!(scene.record(id).await, record);
    }

    // What is not leased has no lease, neither a live one nor one that lapsed.
    let waits = scene.deliver(A).await;
    let record = scene.record(waits).await;
    for lease in [LeaseIs::Live, LeaseIs::Lapsed] {
        for turn in ENDS.into_iter().chain([Turn::Lease(LEASE)]) {
            for from in [State::Pending, State::InFlight] {
                let settle = Settle { from, ..settle_if(&scene, &record, turn, lease) };
                assert!(!applies(&scene, settle).await, "{turn:?} of {from:?} if {lease:?}");
            }
        }
    }
    let extend = Settle { from: State::InFlight, ..scene.settle_of(&record, Turn::Lease(LEASE)) };
    assert!(!applies(&scene, extend).await);
    assert_eq!(scene.record(waits).await, record);
}

pub async fn a_settle_that_believes_something_else_of_a_lease_changes_nothing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let id = scene.deliver(A).await;
    for turn in [Turn::Lease(LEASE), Turn::Lease(2 * LEASE)] {
        let record = scene.record(id).await;
        let right = scene.settle_of(&record, turn);
        let wrong = [
            Settle { endpoint: B, ..right.clone() },
            Settle { in_line: true, ..right.clone() },
            Settle { fence: right.fence + 1, ..right.clone() },
            Settle { from: State::Retrying, ..right.clone() },
        ];
        for settle in wrong {
            assert!(!applies(&scene, settle).await);
            assert_eq!(scene.record(id).await, record);
        }
        assert!(applies(&scene, right).await);
    }
}
