//! Hubs come back as they were put, and a token is one hub's.

use postrider_core::{HubId, TenantId};

use super::Place;
use super::auditing::audit;
use super::scene::{SECOND, Scene, TENANT};
use crate::audit::AuditQuery;
use crate::error::Error;
use crate::registry::HubRecord;

async fn hubs(scene: &Scene) -> Vec<HubRecord> {
    scene.store.hubs().await.expect("readable")
}

async fn actions(scene: &Scene) -> Vec<String> {
    let query = AuditQuery { limit: 50, ..AuditQuery::default() };
    let rows = scene.store.audit(query).await.expect("readable");
    rows.into_iter().rev().map(|row| row.action).collect()
}

pub async fn hubs_come_back_and_are_unique(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    assert_eq!(hubs(&scene).await, []);
    let mut home = HubRecord {
        id: HubId::from_i64(61),
        tenant: TENANT,
        name: "b\u{fc}ro".to_owned(),
        sha256: [0xa5; 32],
        created_at: scene.now,
    };
    let other = HubRecord {
        id: HubId::from_i64(62),
        tenant: TenantId(9),
        sha256: [0; 32],
        created_at: scene.now.plus(SECOND),
        ..home.clone()
    };
    let put = async |hub: &HubRecord, action| {
        scene.store.put_hub(hub.clone(), audit(&scene, action)).await
    };
    put(&other, "hub.create").await.expect("stored");
    put(&home, "hub.create").await.expect("stored");
    assert_eq!(hubs(&scene).await, [home.clone(), other.clone()]);
    assert_eq!(scene.store.highest_id().await.expect("known"), 62);

    // The token of another is refused, whether the hub is new or was there before.
    let copy = HubRecord { id: HubId::from_i64(63), ..home.clone() };
    let turned = HubRecord { sha256: home.sha256, ..other.clone() };
    for taken in [copy, turned] {
        let refused = put(&taken, "hub.refused").await;
        assert!(matches!(refused, Err(Error::Exists(_))), "{refused:?}");
    }
    assert_eq!(hubs(&scene).await, [home.clone(), other.clone()]);

    home.name = String::from("elsewhere");
    home.sha256 = [7; 32];
    put(&home, "hub.update").await.expect("stored");
    assert_eq!(hubs(&scene).await, [home.clone(), other.clone()]);
    let delete = scene.store.delete_hub(home.id, audit(&scene, "hub.delete"));
    delete.await.expect("deleted");
    assert_eq!(hubs(&scene).await, std::slice::from_ref(&other));
    let expected = ["hub.create", "hub.create", "hub.update", "hub.delete"];
    assert_eq!(actions(&scene).await, expected, "only what was changed is audited");

    scene.store.close().await;
    scene.store = place.open().await;
    assert_eq!(hubs(&scene).await, [other]);
}
