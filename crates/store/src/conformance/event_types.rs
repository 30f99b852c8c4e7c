//! Pages of chosen event types: the same as any other, less what was not chosen.

use std::time::Duration;

use postrider_core::DeliveryId;
use postrider_core::pattern::Pattern;

use super::Place;
use super::scene::{A, B, DAY, SECOND, Scene, TENANT, Turn, edit, ids};
use crate::journal::Page;
use crate::record::NewEvent;

fn of_type(new: NewEvent, kind: &str) -> NewEvent {
    edit(new, |event| kind.clone_into(&mut event.kind))
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::parse(text).expect("a pattern")).collect()
}

const TYPES: [&str; 7] = [
    "order.created",
    "order.item.added",
    "order",
    "orders.created",
    "order.created",
    "postrider.delivery.dead",
    "invoice.paid",
];

/// Two deliveries of each type, a ready one and one whose time has come, in turn.
async fn of_each_type(scene: &mut Scene) -> Vec<DeliveryId> {
    let mut made = Vec::new();
    for kind in TYPES {
        let (ready, timed) = (scene.event(&[A, B]), scene.event(&[A]));
        made.push(scene.keep(of_type(ready, kind)).await[0]);
        made.push(scene.keep(of_type(timed, kind)).await[0]);
        scene.turn(made[made.len() - 1], Turn::Retry(SECOND)).await;
    }
    scene.pass(SECOND);
    made
}

/// Patterns, and the indexes of the types that they select.
const SELECTIONS: [(&[&str], &[usize]); 9] = [
    (&["order.created"], &[0, 4]),
    (&["order"], &[2]),
    (&["order.*"], &[0, 1, 4]),
    (&["order.item.*"], &[1]),
    (&["*"], &[0, 1, 2, 3, 4, 6]),
    (&["postrider.*"], &[5]),
    (&["invoice.paid", "orders.*"], &[3, 6]),
    (&["*", "postrider.delivery.dead", "order"], &[0, 1, 2, 3, 4, 5, 6]),
    (&["nothing", "nothing.*"], &[]),
];

pub async fn a_page_can_be_of_chosen_types(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let made = of_each_type(&mut scene).await;
    for (types, selected) in SELECTIONS {
        let ready: Vec<_> = selected.iter().map(|index| made[2 * index]).collect();
        let timed: Vec<_> = selected.iter().map(|index| made[2 * index + 1]).collect();
        for limit in 1..=8 {
            let page = Page { limit, event_types: patterns(types), ..scene.page_of(A) };
            let paged = scene.page(page).await;
            let count = limit.min(selected.len());
            let mut expected = [&ready[..count], &timed[..count]].concat();
            expected.sort_unstable();
            assert_eq!(ids(&paged.waiting), expected, "{limit} of {types:?}");
            assert_eq!(paged.more, limit < selected.len(), "{limit} of {types:?}");
            for waiting in &paged.waiting {
                let record = scene.record(waiting.id).await;
                assert_eq!(waiting.delivery, record.for_step());
                let event = scene.store.event(TENANT, record.event).await.expect("readable");
                assert_eq!(Some(&*waiting.event), event.as_ref(), "with its body");
            }
        }
    }
}

pub async fn a_page_of_chosen_types_keeps_to_its_bounds(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let made = of_each_type(&mut scene).await;
    let page = Page { event_types: patterns(&["order.*"]), ..scene.page_of(A) };
    let all = [made[0], made[1], made[2], made[3], made[8], made[9]];
    assert_eq!(ids(&scene.page(page.clone()).await.waiting), all);

    let held = Page { held: vec![made[0], made[3], made[4]], limit: 2, ..page.clone() };
    let paged = scene.page(held.clone()).await;
    assert_eq!(ids(&paged.waiting), [made[1], made[2], made[8], made[9]]);
    assert!(!paged.more, "what is held is not more");
    let paged = scene.page(Page { limit: 1, ..held }).await;
    assert_eq!((ids(&paged.waiting), paged.more), (vec![made[1], made[2]], true));

    let paged = scene.page(Page { max_bytes: 0, ..page.clone() }).await;
    assert_eq!((ids(&paged.waiting), paged.more), (vec![made[0]], true), "never at nothing");

    // A leased one is nobody else's, and one whose time has not come is not there yet.
    scene.turn(made[0], Turn::Lease(DAY)).await;
    scene.turn(made[3], Turn::Lease(SECOND)).await;
    scene.turn(made[2], Turn::Retry(2 * SECOND)).await;
    scene.pass(SECOND);
    let page = Page { now: scene.now, ..page };
    let paged = scene.page(page.clone()).await;
    assert_eq!(ids(&paged.waiting), [made[1], made[8], made[9]]);
    assert_eq!(paged.next_due, Some(scene.now.plus(SECOND)));
    scene.turn(made[3], Turn::Retry(Duration::ZERO)).await;
    let paged = scene.page(page).await;
    assert_eq!(ids(&paged.waiting), [made[1], made[3], made[8], made[9]]);
}

/// More than are looked at in one go.
const MANY: usize = 5_000;

pub async fn a_rare_type_is_found_among_many_others(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let later = scene.now.plus(SECOND);
    let mut events = Vec::with_capacity(2 * MANY);
    let mut rare = Vec::new();
    for index in 0..MANY {
        for due in [None, Some(later)] {
            let kind = if [700, 2_500, 4_999].contains(&index) { "rare" } else { "often" };
            let new = edit(of_type(scene.event(&[A]), kind), |event| event.deliver_at = due);
            if kind == "rare" {
                rare.push(new.delivery_id(0));
            }
            events.push(new);
        }
    }
    scene.append(events).await;
    scene.pass(SECOND);
    let page = Page { event_types: patterns(&["rare"]), ..scene.page_of(A) };
    for (limit, count) in [(100, 6), (3, 6), (2, 4), (1, 2)] {
        let paged = scene.page(Page { limit, ..page.clone() }).await;
        assert_eq!(ids(&paged.waiting), rare[..count], "{limit}");
        assert_eq!(paged.more, limit < 3);
    }
    let none = Page { event_types: patterns(&["none"]), ..page };
    let paged = scene.page(none).await;
    assert!(paged.waiting.is_empty() && !paged.more && paged.next_due.is_none());
}
