//! Dead letters by where they were to go and why they did not.

use postrider_core::delivery::{Reason, State};
use postrider_core::outcome::Class;
use postrider_core::{EndpointId, TenantId};

use super::Place;
use super::dead_letters::filters;
use super::history::one_of_each;
use super::scene::{A, B, SECOND, Scene, TENANT, Turn, edit};
use crate::ledger::{DeliveryFilter, Group, Groups, MAX_GROUPED};
use crate::record::Settled;

async fn groups(scene: &Scene, filter: DeliveryFilter) -> Groups {
    scene.store.dead_letter_groups(TENANT, filter).await.expect("grouped")
}

pub async fn dead_letters_are_grouped_by_where_and_why(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    assert_eq!(
        groups(&scene, DeliveryFilter::default()).await,
        Groups { groups: Vec::new(), looked_at: 0, complete: true }
    );
    let turns: &[(EndpointId, &[Turn])] = &[
        (A, &[Turn::Exhaust]),
        (A, &[Turn::Retry(SECOND), Turn::Exhaust]),
        (A, &[Turn::Fail]),
        (B, &[Turn::Exhaust]),
        (B, &[Turn::Expire]),
        (B, &[Turn::Succeed]),
        (A, &[Turn::Cancel]),
        (A, &[]),
    ];
    let mut made = Vec::new();
    for (endpoint, turns) in turns {
        let id = scene.deliver(*endpoint).await;
        for turn in *turns {
            scene.turn(id, *turn).await;
        }
        made.push(id);
        scene.pass(SECOND);
    }
    // One that is older than the others of its group ends last, after more tries.
    scene.turn(made[0], Turn::Reset).await;
    scene.turn(made[0], Turn::Exhaust).await;
    let ended = async |index: usize| scene.record(made[index]).await.ended_at;
    let group = |endpoint, state, class, reason| Group {
        endpoint,
        state,
        class,
        reason: Some(reason),
        deliveries: 1,
        newest_at: None,
        last_error: None,
    };
    let (dead, exhausted) = (State::Dead, Reason::Exhausted);
    let expected = [
        Group {
            deliveries: 2,
            newest_at: Some(scene.now),
            last_error: Some("retryable at try 2".to_owned()),
            ..group(A, dead, Some(Class::Retryable), exhausted)
        },
        // Of those with as many, the one with the newest comes first.
        Group { newest_at: ended(4).await, ..group(B, dead, None, Reason::Expired) },
        Group {
            newest_at: ended(3).await,
            last_error: Some("retryable at try 1".to_owned()),
            ..group(B, dead, Some(Class::Retryable), exhausted)
        },
        Group {
            newest_at: ended(2).await,
            last_error: Some("final at try 1".to_owned()),
            ..group(A, State::Failed, Some(Class::Final), Reason::Rejected)
        },
    ];
    let found = groups(&scene, DeliveryFilter::default()).await;
    assert_eq!(found.groups, expected);
    assert_eq!((found.looked_at, found.complete), (5, true));
}

pub async fn groups_are_of_what_the_filter_selects(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let start = scene.now;
    let made = one_of_each(&mut scene).await;
    for (filter, expected) in filters(start, &made) {
        let found = groups(&scene, filter.clone()).await;
        assert_eq!((found.looked_at, found.complete), (expected.len() as u64, true), "{filter:?}");
        // Each of them is a group of its own.
        let mut grouped: Vec<_> =
            found.groups.iter().map(|group| (group.endpoint, group.state, group.reason)).collect();
        let mut expected: Vec<_> = expected
            .into_iter()
            .map(|index| (made[index].endpoint, made[index].state, made[index].reason))
            .collect();
        grouped.sort_by_key(|(endpoint, _, reason)| (*endpoint, reason.map(Reason::as_str)));
        expected.sort_by_key(|(endpoint, _, reason)| (*endpoint, reason.map(Reason::as_str)));
        assert_eq!(grouped, expected, "{filter:?}");
    }
}

pub async fn another_tenants_dead_letters_are_in_no_group(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mine = scene.deliver(A).await;
    scene.turn(mine, Turn::Fail).await;
    let other = TenantId(9);
    let new = edit(scene.event(&[B]), |event| event.tenant = other);
    let theirs = scene.keep(new).await[0];
    let record = scene.store.delivery(other, theirs).await.expect("readable").expect("present");
    let settled = scene.settle(vec![scene.settle_of(&record, Turn::Fail)]).await;
    assert!(matches!(settled[..], [Settled::Applied { .. }]), "{settled:?}");
    for (tenant, endpoint) in [(TENANT, Some(A)), (other, Some(B)), (TenantId(10), None)] {
        let found = scene.store.dead_letter_groups(tenant, DeliveryFilter::default()).await;
        let found = found.expect("grouped").groups;
        assert_eq!(found.iter().map(|group| group.endpoint).next(), endpoint);
        assert!(found.len() <= 1, "{found:?}");
    }
}

/// The two oldest go to B: when there is one more than is looked at, one of them is missing.
pub async fn only_the_newest_are_grouped(place: &dyn Place) {
    const PER_EVENT: usize = 1_000;
    let mut scene = Scene::new(place).await;
    let first = scene.deliver(B).await;
    let second = scene.deliver(B).await;
    for id in [first, second] {
        scene.turn(id, Turn::Exhaust).await;
    }
    // All of an event's are settled alike: only the ids differ.
    let bulk = EndpointId::from_i64(13);
    let mut left = MAX_GROUPED - 2;
    while left > 0 {
        let count = left.min(PER_EVENT);
        left -= count;
        let new = scene.event(&vec![bulk; count]);
        let ids = scene.keep(new).await;
        let record = scene.record(ids[0]).await;
        let settles = ids.into_iter().map(|id| {
            let mut settle = scene.settle_of(&record, Turn::Expire);
            settle.id = id;
            settle
        });
        scene.settle(settles.collect()).await;
    }
    for (more, expected) in [(false, 2), (true, 1)] {
        if more {
            let id = scene.deliver(A).await;
            scene.turn(id, Turn::Fail).await;
        }
        let found = groups(&scene, DeliveryFilter::default()).await;
        assert_eq!((found.looked_at, found.complete), (MAX_GROUPED as u64, !more));
        let to_b = found.groups.iter().find(|group| group.endpoint == B);
        assert_eq!(to_b.map(|group| group.deliveries), Some(expected));
    }
}
