//! What comes in from outside: sources come back, their secrets too, and a webhook sent twice is
//! kept once.

use bytes::Bytes;
use postrider_core::source::{KeepHeaders, OnInvalid, Place as Where, Secrets, Spec, TypeFrom};
use postrider_core::verification::Scheme;
use postrider_core::{Source, SourceId, TenantId};

use super::Place;
use super::auditing::audit;
use super::scene::{A, SECOND, Scene, TENANT, edit};
use crate::journal::Appended;
use crate::ledger::EventQuery;
use crate::record::NewEvent;

const SOURCE: SourceId = SourceId::from_i64(41);
const OTHER: SourceId = SourceId::from_i64(42);

pub(super) fn source(scene: &Scene) -> Source {
    Source {
        id: SOURCE,
        tenant: TENANT,
        spec: Spec {
            name: "shop".to_owned(),
            verify: Scheme::None,
            on_invalid: OnInvalid::Mark,
            type_from: TypeFrom::JsonPointer("/type".to_owned()),
            dedup_from: Some(Where::Header("x-id".to_owned())),
            keep_headers: KeepHeaders::Named(vec!["x-id".to_owned()]),
        },
        secrets: Secrets {
            token: "a token nobody knows".to_owned(),
            signing: vec!["new".to_owned(), "old".to_owned()],
        },
        created_at: scene.now,
        updated_at: scene.now,
    }
}

pub async fn sources_come_back_as_they_were(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mut first = source(&scene);
    let second = Source { id: OTHER, tenant: TenantId(2), ..first.clone() };
    for source in [&first, &second] {
        scene
            .store
            .put_source(source.clone(), audit(&scene, "source.create"))
            .await
            .expect("stored");
    }
    assert_eq!(scene.store.sources().await.expect("readable"), [first.clone(), second.clone()]);
    scene.pass(SECOND);
    first.secrets = Secrets { token: "another".to_owned(), ..first.secrets };
    first.updated_at = scene.now;
    scene.store.put_source(first.clone(), audit(&scene, "source.update")).await.expect("stored");
    assert_eq!(scene.store.sources().await.expect("readable"), [first, second.clone()]);
    scene.store.delete_source(SOURCE, audit(&scene, "source.delete")).await.expect("deleted");
    assert_eq!(scene.store.sources().await.expect("readable"), [second]);
    assert!(scene.store.highest_id().await.expect("known") >= OTHER.as_i64());
}

fn received(
    scene: &mut Scene,
    source: SourceId,
    key: Option<&str>,
    body: &'static str,
) -> NewEvent {
    let new = scene.event(&[A]);
    edit(new, |event| {
        event.source = Some(source);
        event.verified = Some(true);
        event.idempotency_key = key.map(str::to_owned);
        event.body = Bytes::from_static(body.as_bytes());
    })
}

pub async fn what_a_source_received_comes_back_exactly(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let new = received(&mut scene, SOURCE, Some("k"), "{}");
    let new = edit(new, |event| {
        event.verified = Some(false);
        event.filter_errors = Some("{\"ep_1\":\"no such key\"}".to_owned());
        event.headers = vec![
            ("x-a".to_owned(), Bytes::from_static(b"1")),
            ("x-a".to_owned(), Bytes::from_static(b"\xff\xfe")),
            ("stripe-signature".to_owned(), Bytes::new()),
        ];
    });
    let stored = (*new.event).clone();
    scene.keep(new).await;
    let found = scene.store.event(TENANT, stored.id).await.expect("readable").expect("present");
    assert_eq!(found, stored);
    let page = scene.page(scene.page_of(A)).await;
    assert_eq!(*page.waiting[0].event, stored, "what is carried has all of it");
}

pub async fn a_webhook_sent_twice_is_kept_once(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let first = received(&mut scene, SOURCE, Some("evt-1"), "{\"n\":1}");
    let (id, received_at) = (first.event.id, first.event.received_at);
    scene.keep(first).await;
    scene.pass(SECOND);
    // Another body under the same key is the same webhook, sent again.
    let again = received(&mut scene, SOURCE, Some("evt-1"), "{\"n\":2}");
    let duplicate =
        Appended::Duplicate { id, kind: "order.created".to_owned(), received_at, deliveries: 1 };
    assert_eq!(scene.append(vec![again]).await, [duplicate]);
    assert_eq!(scene.store.event_count(TENANT).await.expect("counted"), 1);
}

pub async fn sources_and_producers_have_keys_of_their_own(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mine = source(&scene);
    scene.store.put_source(mine, audit(&scene, "source.create")).await.expect("stored");
    let by_source = received(&mut scene, SOURCE, Some("same"), "{}");
    let by_another = received(&mut scene, OTHER, Some("same"), "{}");
    let by_producer = edit(scene.event(&[A]), |event| event.idempotency_key = Some("same".into()));
    let ids = [by_source.event.id, by_producer.event.id];
    for new in [by_source, by_another, by_producer] {
        scene.keep(new).await;
    }
    let query = |source| EventQuery {
        idempotency_key: Some("same".to_owned()),
        source,
        limit: 10,
        ..EventQuery::default()
    };
    let found = scene.store.events(TENANT, query(None)).await.expect("listed").rows;
    let found: Vec<_> = found.iter().map(|event| event.id).collect();
    assert_eq!(found, [ids[1], ids[0]], "newest first, of the sources that are the tenant's");
    let found = scene.store.events(TENANT, query(Some(SOURCE))).await.expect("listed").rows;
    assert_eq!(found.iter().map(|event| event.id).collect::<Vec<_>>(), [ids[0]]);
}

pub async fn events_are_found_by_their_source(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let new = received(&mut scene, SOURCE, None, "{}");
    let id = new.event.id;
    scene.keep(new).await;
    scene.deliver(A).await;
    let query = EventQuery { source: Some(SOURCE), limit: 10, ..EventQuery::default() };
    let found = scene.store.events(TENANT, query).await.expect("listed").rows;
    assert_eq!(found.iter().map(|event| event.id).collect::<Vec<_>>(), [id]);
}
