//! Every change that somebody asked for leaves a row, in the same commit or not at all.

use postrider_core::{KeyId, TenantId};

use super::Place;
use super::scene::{A, Scene, TENANT, Turn};
use crate::audit::{Actor, Audit, AuditQuery, AuditRecord};
use crate::error::Error;
use crate::record::Settled;

const KEY: Actor = Actor::Key(KeyId::from_i64(3));

pub(super) fn audit(scene: &Scene, action: &'static str) -> Audit {
    Audit {
        at: scene.now,
        tenant: Some(TENANT),
        actor: KEY,
        action,
        subject: "something".to_owned(),
        detail: Some("{\"why\":\"a test\"}".to_owned()),
    }
}

async fn rows(scene: &Scene, query: AuditQuery) -> Vec<AuditRecord> {
    scene.store.audit(AuditQuery { limit: 50, ..query }).await.expect("readable")
}

pub async fn a_change_is_audited_newest_first(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let acme =
        scene.store.make_tenant("acme".to_owned(), scene.now, audit(&scene, "tenant.create"));
    let acme = acme.await.expect("made");
    assert_ne!(acme.id, TENANT);
    let of_none = Audit { tenant: None, actor: Actor::Gateway, ..audit(&scene, "tenant.create") };
    let other =
        scene.store.make_tenant("other".to_owned(), scene.now, of_none).await.expect("made");
    let all = rows(&scene, AuditQuery::default()).await;
    assert_eq!(all.len(), 2);
    assert!(all[0].id > all[1].id);
    assert_eq!((all[0].tenant, all[0].actor), (None, Actor::Gateway));
    assert_eq!(
        all[1],
        AuditRecord {
            id: all[1].id,
            at: scene.now,
            tenant: Some(TENANT),
            actor: KEY,
            action: "tenant.create".to_owned(),
            subject: "something".to_owned(),
            detail: Some("{\"why\":\"a test\"}".to_owned()),
        }
    );
    let query = |tenant| AuditQuery { tenant: Some(tenant), ..AuditQuery::default() };
    assert_eq!(rows(&scene, query(TENANT)).await, all[1..]);
    assert_eq!(rows(&scene, query(TenantId(99))).await, []);
    let before = AuditQuery { before: Some(all[0].id), ..AuditQuery::default() };
    assert_eq!(rows(&scene, before).await, all[1..]);
    let elsewhere = AuditQuery { action: Some("key.create".to_owned()), ..AuditQuery::default() };
    assert_eq!(rows(&scene, elsewhere).await, []);
    let by_file = Audit { actor: Actor::File, ..audit(&scene, "tenant.create") };
    scene.store.make_tenant("filed".to_owned(), scene.now, by_file).await.expect("made");
    assert_eq!(rows(&scene, AuditQuery::default()).await[0].actor, Actor::File);
    let names: Vec<_> = scene.store.tenants().await.expect("readable");
    let names: Vec<_> = names.iter().map(|tenant| (tenant.id, tenant.name.as_str())).collect();
    assert_eq!(names[..3], [(TENANT, "default"), (acme.id, "acme"), (other.id, "other")]);
}

pub async fn a_change_that_is_refused_leaves_no_row(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let taken = scene.store.make_tenant("default".to_owned(), scene.now, audit(&scene, "x"));
    assert!(matches!(taken.await, Err(Error::Exists(_))));
    assert_eq!(rows(&scene, AuditQuery::default()).await, []);
}

pub async fn only_settles_that_apply_are_audited(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let (one, two) = (scene.deliver(A).await, scene.deliver(A).await);
    let first = scene.settle_of(&scene.record(one).await, Turn::Cancel);
    let mut stale = scene.settle_of(&scene.record(two).await, Turn::Cancel);
    stale.fence += 1;
    let by = audit(&scene, "delivery.cancel");
    let answers = scene.store.settle_by(vec![first, stale], by).await.expect("answered");
    assert!(matches!(answers[..], [Settled::Applied { .. }, Settled::Stale]), "{answers:?}");
    let all = rows(&scene, AuditQuery::default()).await;
    let subjects: Vec<_> = all.iter().map(|row| row.subject.clone()).collect();
    assert_eq!(subjects, [one.to_string()]);
}

pub async fn a_store_has_one_name_for_ever(place: &dyn Place) {
    let scene = Scene::new(place).await;
    assert_eq!(scene.store.instance([1; 16]).await.expect("named"), [1; 16]);
    assert_eq!(scene.store.instance([2; 16]).await.expect("named"), [1; 16]);
}

pub async fn the_last_use_of_a_key_only_moves_forward(place: &dyn Place) {
    use crate::registry::{KeyRecord, Role};

    let scene = Scene::new(place).await;
    let key = KeyRecord {
        id: KeyId::from_i64(3),
        name: "a key".to_owned(),
        sha256: [1; 32],
        role: Role::Admin,
        created_at: scene.now,
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    };
    scene.store.put_key(key.clone(), None).await.expect("stored");
    let later = scene.now.plus(super::scene::SECOND);
    for at in [later, scene.now] {
        scene.store.touch_keys(vec![(key.id, at)]).await.expect("noted");
        let keys = scene.store.keys().await.expect("readable");
        assert_eq!(keys[0].last_used_at, Some(later));
    }
    // Putting the key again, renamed, does not forget it.
    scene.store.put_key(KeyRecord { name: "b".into(), ..key }, None).await.expect("stored");
    assert_eq!(scene.store.keys().await.expect("readable")[0].last_used_at, Some(later));
}
