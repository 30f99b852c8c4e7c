//! Declarations come back as they were put, and files are made something of one at a time.

use std::time::Duration;

use postrider_core::TenantId;

use super::Place;
use super::scene::{Scene, TENANT};
use crate::declarations::{Applied, Declaration, DeclaredKind};

/// Long enough for one who does not wait.
const A_WHILE: Duration = Duration::from_millis(300);

fn declared(kind: DeclaredKind, name: &str, object: i64) -> Declaration {
    let applied = Applied([object.to_le_bytes()[0]; 32]);
    Declaration { tenant: TENANT, kind, name: name.to_owned(), object, applied }
}

async fn put(scene: &Scene, declaration: &Declaration) {
    scene.store.put_declaration(declaration.clone()).await.expect("stored");
}

async fn found(scene: &Scene) -> Vec<Declaration> {
    scene.store.declarations().await.expect("readable")
}

pub async fn declarations_come_back_as_they_were(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    assert_eq!(found(&scene).await, []);
    let hub = declared(DeclaredKind::Hub, "b\u{fc}ro", 61);
    let source = declared(DeclaredKind::Source, "same", 41);
    let mut endpoint = declared(DeclaredKind::Endpoint, "same", 11);
    let theirs =
        Declaration { tenant: TenantId(9), ..declared(DeclaredKind::Endpoint, "same", 12) };
    for declaration in [&theirs, &endpoint, &source, &hub] {
        put(&scene, declaration).await;
    }
    let all = [hub.clone(), source.clone(), endpoint.clone(), theirs.clone()];
    assert_eq!(found(&scene).await, all, "by tenant, kind and name");

    endpoint.applied = Applied([0xa5; 32]);
    put(&scene, &endpoint).await;
    endpoint.object = 13;
    put(&scene, &endpoint).await;
    for _ in 0..2 {
        let removed =
            scene.store.remove_declaration(TENANT, DeclaredKind::Source, "same".to_owned());
        removed.await.expect("removed, or not there");
    }
    let left = [hub, endpoint, theirs];
    assert_eq!(found(&scene).await, left);

    scene.store.close().await;
    scene.store = place.open().await;
    assert_eq!(found(&scene).await, left);
}

pub async fn a_thing_has_one_name(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let before = declared(DeclaredKind::Source, "old name", 41);
    let other = declared(DeclaredKind::Source, "other", 42);
    put(&scene, &before).await;
    put(&scene, &other).await;
    let after = declared(DeclaredKind::Source, "new name", 41);
    put(&scene, &after).await;
    assert_eq!(found(&scene).await, [after, other]);
}

pub async fn a_turn_waits_for_the_one_before(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let first = scene.store.declaring().await.expect("nobody else");
    assert!(first.is_held());
    let mut second = scene.store.declaring();
    let early = tokio::time::timeout(A_WHILE, &mut second).await;
    assert!(early.is_err(), "it did not wait");
    // What is changed meanwhile needs no turn.
    put(&scene, &declared(DeclaredKind::Hub, "hub", 61)).await;
    drop(first);
    assert!(second.await.expect("its turn").is_held());
}
