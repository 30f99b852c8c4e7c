//! The same key is the same event, for as long as it is kept.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::{EventId, TenantId};

use super::Place;
use super::scene::{A, B, SECOND, Scene, TENANT, edit};
use crate::journal::Appended;
use crate::record::{Event, NewEvent};

fn keyed(scene: &mut Scene, change: impl FnOnce(&mut Event)) -> NewEvent {
    edit(scene.event(&[A, B]), |event| {
        event.idempotency_key = Some("k1".to_owned());
        event.body = Bytes::from_static(b"{\"a\": 1, \"b\": [true]}");
        event.metadata = Some("{\"x\":1,\"y\":2}".to_owned());
        change(event);
    })
}

fn duplicate(of: &NewEvent) -> Appended {
    Appended::Duplicate {
        id: of.event.id,
        kind: of.event.kind.clone(),
        received_at: of.event.received_at,
        deliveries: u32::try_from(of.deliveries.len()).expect("few"),
    }
}

type Change = Box<dyn Fn(&mut Event)>;

async fn count(scene: &Scene) -> u64 {
    scene.store.event_count(TENANT).await.expect("counted")
}

pub async fn the_same_event_again_is_a_duplicate(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = keyed(&mut scene, |_| ());
    scene.keep(first.clone()).await;
    scene.pass(SECOND);
    let again = keyed(&mut scene, |_| ());
    assert_eq!(scene.append(vec![again.clone()]).await, [duplicate(&first)]);
    let stored = scene.store.event(TENANT, again.event.id).await.expect("readable");
    assert_eq!(stored, None, "nothing of it is stored");
    assert_eq!((count(&scene).await, scene.ready(A).await.len()), (1, 1));
}

pub async fn a_duplicate_leaves_the_first_events_trace(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let traced = |trace: Option<&str>| {
        let trace = trace.map(|text| text.parse().expect("a trace"));
        move |event: &mut Event| event.trace = trace
    };
    let first =
        keyed(&mut scene, traced(Some("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01")));
    scene.keep(first.clone()).await;
    for trace in [Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), None] {
        let again = keyed(&mut scene, traced(trace));
        assert_eq!(scene.append(vec![again]).await, [duplicate(&first)]);
    }
    let stored = scene.store.event(TENANT, first.event.id).await.expect("readable");
    assert_eq!(stored.expect("present").trace, first.event.trace);
}

pub async fn json_written_otherwise_is_the_same(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = keyed(&mut scene, |_| ());
    scene.keep(first.clone()).await;
    let again = keyed(&mut scene, |event| {
        event.body = Bytes::from_static(b"{\"b\":[true],\"a\":1}");
        event.metadata = Some("{ \"y\": 2, \"x\": 1 }".to_owned());
    });
    assert_eq!(scene.append(vec![again]).await, [duplicate(&first)]);
}

pub async fn other_content_is_a_conflict(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = keyed(&mut scene, |_| ());
    scene.keep(first.clone()).await;
    let later = scene.now.plus(SECOND);
    let changes: [Change; 7] = [
        Box::new(|event| "order.deleted".clone_into(&mut event.kind)),
        Box::new(|event| "text/plain".clone_into(&mut event.content_type)),
        Box::new(|event| event.body = Bytes::from_static(b"{\"a\": 2, \"b\": [true]}")),
        Box::new(|event| event.body = Bytes::from_static(b"{\"a\": 1, \"b\": [true]")),
        Box::new(|event| event.ordering_key = Some(String::new())),
        Box::new(|event| event.metadata = None),
        Box::new(move |event| event.deliver_at = Some(later)),
    ];
    for (index, change) in changes.iter().enumerate() {
        let other = keyed(&mut scene, change);
        let appended = scene.append(vec![other]).await;
        assert_eq!(appended, [Appended::Conflict { id: first.event.id }], "change {index}");
    }
    assert_eq!(count(&scene).await, 1);

    // Bytes that are not JSON are compared as they are.
    let text = |body: &'static [u8]| {
        move |event: &mut Event| {
            event.idempotency_key = Some("k2".to_owned());
            "text/plain".clone_into(&mut event.content_type);
            event.body = Bytes::from_static(body);
        }
    };
    let plain = keyed(&mut scene, text(b"1"));
    scene.keep(plain.clone()).await;
    let spaced = keyed(&mut scene, text(b"1 "));
    assert_eq!(scene.append(vec![spaced]).await, [Appended::Conflict { id: plain.event.id }]);
}

pub async fn duplicates_within_one_batch_are_seen(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = keyed(&mut scene, |_| ());
    let again = keyed(&mut scene, |_| ());
    let other = keyed(&mut scene, |event| "other".clone_into(&mut event.kind));
    let apart = scene.event(&[A]);
    let appended = scene.append(vec![first.clone(), again, other, apart]).await;
    let new = Appended::New { parked: Vec::new() };
    let conflict = Appended::Conflict { id: first.event.id };
    assert_eq!(appended, [new.clone(), duplicate(&first), conflict, new]);
    assert_eq!(count(&scene).await, 2);
}

pub async fn of_many_at_once_exactly_one_is_new(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let new = keyed(&mut scene, |_| ());
            let store = Arc::clone(&scene.store);
            tokio::spawn(async move {
                (new.event.id, store.append(vec![new]).await.expect("answered").remove(0))
            })
        })
        .collect();
    let mut winners: Vec<EventId> = Vec::new();
    let mut named: Vec<EventId> = Vec::new();
    for task in tasks {
        match task.await.expect("no panic") {
            (id, Appended::New { .. }) => winners.push(id),
            (_, Appended::Duplicate { id, .. }) => named.push(id),
            (_, Appended::Conflict { id }) => panic!("a conflict with {id}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(named, [winners[0]; 15]);
    assert_eq!(count(&scene).await, 1);
}

pub async fn keys_belong_to_their_tenant(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = keyed(&mut scene, |_| ());
    let other = keyed(&mut scene, |event| event.tenant = TenantId(2));
    let new = Appended::New { parked: Vec::new() };
    assert_eq!(scene.append(vec![first, other]).await, [new.clone(), new]);
}
