//! Endpoints, keys, tenants and jobs come back as they were put.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::delivery::{Reason, State};
use postrider_core::endpoint::{
    Destination, Endpoint, EndpointState, Format, Ordering, RateLimit, Spec, StoredSecret, Tls,
};
use postrider_core::outcome::Class;
use postrider_core::pattern::Pattern;
use postrider_core::policy::{self, Preset};
use postrider_core::signing::Scheme;
use postrider_core::{
    DeliveryId, EndpointId, EventId, JobId, KeyId, SourceId, TenantId, Timestamp,
};

use super::Place;
use super::scene::{A, B, SECOND, Scene, TENANT, Turn};
use crate::error::Error;
use crate::ledger::{DeliveryFilter, Position};
use crate::registry::{JobRecord, JobState, KeyRecord, Role, TenantRecord};

pub(super) fn endpoint(scene: &Scene) -> Endpoint {
    Endpoint {
        id: A,
        tenant: TENANT,
        state: EndpointState::Active,
        spec: Spec {
            name: Some("b\u{fc}ro".to_owned()),
            destination: Destination::Url("https://example.com/hook?a=1".to_owned()),
            event_types: vec![Pattern::Any, Pattern::Prefix("order.".to_owned())],
            sources: vec![SourceId::from_i64(5)],
            filter: Some("payload.total > 10".to_owned()),
            policy: policy::Spec::from(Preset::Edge),
            ordering: Ordering::FifoByKey,
            rate_limit: Some(RateLimit { per_second: 0.5, burst: 3 }),
            max_in_flight: Some(7),
            timeout: Some(Duration::from_millis(1_500)),
            headers: BTreeMap::from([("x-a".to_owned(), "1".to_owned())]),
            signing: Scheme::None,
            format: Some(Format::Telegram { chat_id: "-100".to_owned() }),
            metadata: serde_json::Map::from_iter([("k".to_owned(), serde_json::json!([1, null]))]),
        },
        secrets: vec![
            StoredSecret { text: "whsec_new".to_owned(), expires_at: None },
            StoredSecret { text: "whsec_old".to_owned(), expires_at: Some(scene.now) },
        ],
        tls: Some(Tls { client_key: Some("a key".to_owned()), ..Tls::default() }),
        created_at: scene.now,
        updated_at: scene.now,
    }
}

async fn endpoints(scene: &Scene) -> Vec<Endpoint> {
    scene.store.endpoints().await.expect("readable")
}

pub async fn endpoints_come_back_as_they_were(place: &dyn Place) {
    let scene = Scene::new(place).await;
    assert_eq!(endpoints(&scene).await, []);
    let mut first = endpoint(&scene);
    let bare = Endpoint {
        id: B,
        tenant: TenantId(2),
        spec: Spec {
            name: None,
            sources: Vec::new(),
            filter: None,
            rate_limit: None,
            max_in_flight: None,
            timeout: None,
            headers: BTreeMap::new(),
            format: None,
            metadata: serde_json::Map::new(),
            ..first.spec.clone()
        },
        secrets: Vec::new(),
        tls: None,
        ..first.clone()
    };
    scene.store.put_endpoint(first.clone(), None).await.expect("stored");
    scene.store.put_endpoint(bare.clone(), None).await.expect("stored");
    assert_eq!(endpoints(&scene).await, [first.clone(), bare.clone()]);
    for state in EndpointState::ALL {
        first.state = state;
        first.updated_at = first.updated_at.plus(SECOND);
        scene.store.put_endpoint(first.clone(), None).await.expect("stored");
        assert_eq!(endpoints(&scene).await, [first.clone(), bare.clone()]);
    }
}

pub async fn an_endpoint_is_forgotten_when_nothing_waits(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mut kept = endpoint(&scene);
    scene.store.put_endpoint(kept.clone(), None).await.expect("stored");
    scene.store.forget_endpoint(A).await.expect("answered");
    assert_eq!(endpoints(&scene).await, [kept.clone()], "it is not deleted");

    kept.state = EndpointState::Deleted;
    scene.store.put_endpoint(kept.clone(), None).await.expect("stored");
    let ready = scene.deliver(A).await;
    scene.deliver(B).await;
    scene.store.forget_endpoint(A).await.expect("answered");
    assert_eq!(endpoints(&scene).await, [kept.clone()], "one is ready");
    scene.turn(ready, Turn::Retry(SECOND)).await;
    scene.store.forget_endpoint(A).await.expect("answered");
    assert_eq!(endpoints(&scene).await, [kept.clone()], "one waits for its time");
    scene.turn(ready, Turn::Lease(SECOND)).await;
    scene.store.forget_endpoint(A).await.expect("answered");
    assert_eq!(endpoints(&scene).await, [kept], "a worker has one");
    scene.turn(ready, Turn::Cancel).await;
    scene.store.forget_endpoint(A).await.expect("answered");
    assert_eq!(endpoints(&scene).await, []);
    assert_eq!(scene.state(ready).await, State::Cancelled, "its history stays");
}

pub async fn since_when_an_endpoint_fails_is_kept_apart_from_its_configuration(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let first = endpoint(&scene);
    let second = Endpoint { id: B, ..first.clone() };
    for one in [&first, &second] {
        scene.store.put_endpoint(one.clone(), None).await.expect("stored");
    }
    let failing = async || scene.store.failing().await.expect("readable");
    let note = async |since| scene.store.note_failing(since).await.expect("noted");
    assert_eq!(failing().await, []);
    let (earlier, later) = (scene.now, scene.now.plus(SECOND));
    let gone = EndpointId::from_i64(99);
    note(vec![(B, Some(later)), (gone, Some(later)), (A, Some(earlier))]).await;
    assert_eq!(failing().await, [(A, earlier), (B, later)]);
    scene.store.put_endpoint(Endpoint { updated_at: later, ..first }, None).await.expect("stored");
    assert_eq!(failing().await, [(A, earlier), (B, later)], "a change does not forget it");
    note(vec![(A, None)]).await;
    assert_eq!(failing().await, [(B, later)]);
}

pub async fn keys_come_back_and_are_unique(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let admin = KeyRecord {
        id: KeyId::from_i64(1),
        name: "first".to_owned(),
        sha256: [0xa5; 32],
        role: Role::Admin,
        created_at: scene.now,
        expires_at: Some(scene.now.plus(SECOND)),
        revoked_at: None,
        last_used_at: None,
    };
    let tenant = KeyRecord {
        id: KeyId::from_i64(2),
        sha256: [0; 32],
        role: Role::Tenant(TenantId(9)),
        expires_at: None,
        revoked_at: Some(scene.now),
        ..admin.clone()
    };
    scene.store.put_key(admin.clone(), None).await.expect("stored");
    scene.store.put_key(tenant.clone(), None).await.expect("stored");
    assert_eq!(scene.store.keys().await.expect("readable"), [admin.clone(), tenant.clone()]);
    let copy = KeyRecord { id: KeyId::from_i64(3), ..admin.clone() };
    let refused = scene.store.put_key(copy, None).await;
    assert!(matches!(refused, Err(Error::Exists(_))), "{refused:?}");
    let renamed = KeyRecord { name: "other".to_owned(), ..admin };
    scene.store.put_key(renamed.clone(), None).await.expect("stored");
    assert_eq!(scene.store.keys().await.expect("readable"), [renamed, tenant]);
}

pub async fn the_default_tenant_exists(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let expected = TenantRecord {
        id: TenantId::DEFAULT,
        name: "default".to_owned(),
        created_at: Timestamp::from_millis(0),
    };
    assert_eq!(scene.store.tenants().await.expect("readable"), [expected]);
    scene.store.ping().await.expect("it answers");
}

pub async fn jobs_come_back_as_they_were(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let mut full = JobRecord {
        id: JobId::from_i64(31),
        tenant: TENANT,
        filter: DeliveryFilter {
            states: vec![State::Failed, State::Dead],
            ids: Some(vec![DeliveryId::from_i64(1), DeliveryId::from_i64(2)]),
            endpoint: Some(A),
            event: Some(EventId::from_i64(8)),
            kind: Some("order.created".into()),
            class: Some(Class::RateLimited),
            reason: Some(Reason::Expired),
            since: Some(scene.now),
            until: Some(scene.now.plus(SECOND)),
        },
        rate_per_second: Some(0.1 + 0.2),
        state: JobState::Running,
        matched: 10,
        replayed: 3,
        skipped: 1,
        position: Some(Position { event: EventId::from_i64(8), delivery: DeliveryId::from_i64(9) }),
        created_at: scene.now,
        updated_at: scene.now.plus(SECOND),
    };
    let bare = JobRecord {
        id: JobId::from_i64(32),
        tenant: TenantId(2),
        filter: DeliveryFilter::default(),
        rate_per_second: None,
        position: None,
        ..full.clone()
    };
    scene.store.put_job(full.clone(), None, None).await.expect("stored");
    scene.store.put_job(bare.clone(), None, None).await.expect("stored");
    let job = |tenant, id| scene.store.job(tenant, id);
    assert_eq!(job(TENANT, full.id).await.expect("readable"), Some(full.clone()));
    assert_eq!(job(TenantId(2), full.id).await.expect("readable"), None);
    let open = scene.store.open_jobs().await.expect("readable");
    assert_eq!(open, [full.clone(), bare.clone()]);
    full.state = JobState::Finished;
    full.replayed = 9;
    scene.store.put_job(full.clone(), None, None).await.expect("stored");
    assert_eq!(scene.store.open_jobs().await.expect("readable"), [bare]);
    assert_eq!(job(TENANT, full.id).await.expect("readable"), Some(full));
}
