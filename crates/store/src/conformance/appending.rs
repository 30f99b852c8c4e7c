//! An event is stored whole, with one delivery for each endpoint, or not at all.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::delivery::State;
use postrider_core::{DeliveryId, EventId};

use super::Place;
use super::scene::{A, B, SECOND, Scene, TENANT, Turn, edit, ids, in_line, to};
use crate::error::Error;
use crate::journal::Appended;
use crate::ledger::EventQuery;

pub async fn what_is_stored_comes_back_exactly(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let large = vec![7; 70_000];
    let bodies: [&[u8]; 5] = [
        b"",
        b"\0",
        b"\xff\xfe not text \x80",
        "{\"gr\u{fc}\u{df}e\": \"\u{1f40e}\"}".as_bytes(),
        &large,
    ];
    for body in bodies {
        let soon = scene.now.plus(SECOND);
        let new = edit(scene.event(&[A]), |event| {
            "invoice.paid".clone_into(&mut event.kind);
            "application/x-thing; charset=\u{fc}".clone_into(&mut event.content_type);
            event.body = Bytes::copy_from_slice(body);
            event.idempotency_key = Some(format!("key \0 \u{1f511} {}", body.len()));
            event.ordering_key = Some("order'; --".to_owned());
            event.metadata = Some("{\"a\":[1,\"\u{e9}\"]}".to_owned());
            event.deliver_at = Some(soon);
        });
        let event = Arc::clone(&new.event);
        scene.keep(new).await;
        let stored = scene.store.event(TENANT, event.id).await.expect("readable");
        assert_eq!(stored.as_ref(), Some(&*event));
    }
}

pub async fn the_trace_of_an_event_goes_wherever_it_goes(place: &dyn Place) {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut scene = Scene::new(place).await;
    let large = Bytes::from(vec![7; 70_000]);
    let mut events = Vec::new();
    for (text, body) in [
        (Some(PARENT.to_owned()), Bytes::new()),
        (None, large.clone()),
        (Some(format!("{PARENT} rojo=1,congo=two words")), large),
    ] {
        events.push(edit(scene.event(&[A]), |event| {
            event.trace = text.map(|text| text.parse().expect("a trace"));
            event.body = body;
        }));
    }
    let traces: Vec<_> = events.iter().map(|new| new.event.trace.clone()).collect();
    let first = events[0].event.id;
    scene.append(events.clone()).await;
    for new in &events {
        let stored = scene.store.event(TENANT, new.event.id).await.expect("readable");
        assert_eq!(stored.expect("present").trace, new.event.trace);
    }
    let paged = scene.page(scene.page_of(A)).await.waiting;
    assert_eq!(paged.iter().map(|one| one.event.trace.clone()).collect::<Vec<_>>(), traces);
    let query = EventQuery { limit: 10, ..EventQuery::default() };
    let listed = scene.store.events(TENANT, query).await.expect("listed").rows;
    assert!(listed.iter().rev().map(|event| event.trace.clone()).eq(traces.iter().cloned()));
    let id = DeliveryId::from_i64(scene.take_ids(1));
    let replay = scene.store.append_deliveries(first, id, vec![to(B)], scene.now, None).await;
    assert_eq!(replay.expect("stored")[0].event.trace, traces[0]);
}

pub async fn each_endpoint_gets_exactly_one_delivery(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let new = scene.event(&[A, B]);
    let event = new.event.id;
    let made = scene.keep(new).await;
    assert_eq!(made, [1, 2].map(|offset| DeliveryId::from_i64(event.as_i64() + offset)));

    let stored = scene.store.event_deliveries(TENANT, event).await.expect("readable");
    assert_eq!(stored.iter().map(|record| record.endpoint).collect::<Vec<_>>(), [A, B]);
    for record in stored {
        assert_eq!(scene.record(record.id).await, record);
        assert_eq!((record.event, record.state), (event, State::Pending));
        assert_eq!((record.attempts, record.deferrals, record.tries, record.fence), (0, 0, 0, 0));
        assert_eq!((record.born, record.due), (scene.now, Some(scene.now)));
        assert_eq!((record.last_attempt_at, record.ended_at), (None, None));
        assert_eq!((record.reason, record.class, record.last_error), (None, None, None));
        assert!(!record.parked && !record.replay);
    }
}

pub async fn an_event_without_endpoints_is_kept(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let new = scene.event(&[]);
    let event = new.event.id;
    scene.keep(new).await;
    assert!(scene.store.event(TENANT, event).await.expect("readable").is_some());
    assert!(scene.store.event_deliveries(TENANT, event).await.expect("readable").is_empty());
    assert_eq!(scene.store.event_count(TENANT).await.expect("counted"), 1);
}

pub async fn an_id_is_not_stored_twice(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = scene.event(&[A]);
    scene.keep(first.clone()).await;
    let fresh = scene.event(&[A]);
    let other = edit(first.clone(), |event| "other".clone_into(&mut event.kind));
    let again = scene.store.append(vec![fresh.clone(), other]).await;
    assert!(matches!(again, Err(Error::Exists(_))), "{again:?}");

    let stored = scene.store.event(TENANT, first.event.id).await.expect("readable");
    assert_eq!(stored.as_ref(), Some(&*first.event));
    let absent = scene.store.event(TENANT, fresh.event.id).await.expect("readable");
    assert_eq!(absent, None, "a batch is stored whole or not at all");
    assert_eq!(scene.store.event_count(TENANT).await.expect("counted"), 1);
    assert_eq!(scene.ready(A).await, [first.delivery_id(0)]);
}

pub async fn appends_at_the_same_time_are_all_kept(place: &dyn Place) {
    const WRITERS: usize = 8;
    const EACH: usize = 25;
    let mut scene = Scene::new(place).await;
    let mut writers = Vec::new();
    let mut expected = Vec::new();
    for _ in 0..WRITERS {
        let events: Vec<_> = (0..EACH).map(|_| scene.event(&[A])).collect();
        expected.extend(events.iter().map(|new| new.delivery_id(0)));
        let store = Arc::clone(&scene.store);
        writers.push(tokio::spawn(async move {
            for new in events {
                store.append(vec![new]).await.expect("stored");
            }
        }));
    }
    for writer in writers {
        writer.await.expect("no panic");
    }
    let mut page = scene.page_of(A);
    page.limit = WRITERS * EACH;
    assert_eq!(ids(&scene.page(page).await.waiting), expected);
}

pub async fn more_deliveries_of_an_old_event(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let old = scene.event(&[A]);
    let event = old.event.id;
    let first = scene.keep(old.clone()).await[0];
    scene.turn(first, Turn::Succeed).await;
    scene.pass(SECOND);
    let from = DeliveryId::from_i64(scene.take_ids(2));
    let made = scene
        .store
        .append_deliveries(event, from, vec![to(A), in_line(B, "")], scene.now, None)
        .await
        .expect("stored");
    let second = DeliveryId::from_i64(from.as_i64() + 1);
    assert_eq!(ids(&made), [from, second]);
    assert_eq!(*made[0].event, *old.event);
    assert_eq!((made[0].in_line, made[1].in_line), (false, true));
    assert_eq!((made[0].delivery.born, made[0].delivery.due), (scene.now, scene.now));

    let all = scene.store.event_deliveries(TENANT, event).await.expect("readable");
    let shown: Vec<_> = all.iter().map(|record| (record.id, record.replay)).collect();
    assert_eq!(shown, [(first, false), (from, true), (second, true)]);
    assert_eq!(scene.ready(A).await, [from]);
}

pub async fn no_deliveries_of_an_event_that_is_gone(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let from = DeliveryId::from_i64(scene.take_ids(1));
    let gone = EventId::from_i64(77);
    let made = scene.store.append_deliveries(gone, from, vec![to(A)], scene.now, None).await;
    assert!(made.expect("answered").is_empty());
    assert_eq!(scene.store.delivery(TENANT, from).await.expect("readable"), None);
}

pub async fn the_highest_id_covers_every_kind(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    assert_eq!(scene.store.highest_id().await.expect("known"), 0);
    let new = scene.event(&[A, B]);
    let last = new.delivery_id(1);
    let appended = scene.append(vec![new]).await;
    assert_eq!(appended, [Appended::New { parked: Vec::new() }]);
    assert_eq!(scene.store.highest_id().await.expect("known"), last.as_i64());
    let bare = scene.event(&[]);
    let event = bare.event.id;
    scene.keep(bare).await;
    assert_eq!(scene.store.highest_id().await.expect("known"), event.as_i64());
}
