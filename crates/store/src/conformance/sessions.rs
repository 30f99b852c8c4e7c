//! Sessions come back as they were put, and one that has ended stays ended.

use postrider_core::{KeyId, TenantId};

use super::Place;
use super::scene::{SECOND, Scene, TENANT};
use crate::sessions::SessionRecord;

/// A session that begins now; `number` tells it from others.
fn begun(scene: &Scene, number: u8) -> SessionRecord {
    SessionRecord {
        sha256: [number; 32],
        key: KeyId::from_i64(31),
        tenant: TENANT,
        begun_at: scene.now,
        seen_at: scene.now,
    }
}

async fn put(scene: &Scene, session: &SessionRecord) {
    scene.store.put_session(session.clone()).await.expect("stored");
}

async fn found(scene: &Scene, number: u8) -> Option<SessionRecord> {
    scene.store.session([number; 32]).await.expect("readable")
}

pub async fn sessions_come_back_as_they_were(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    assert_eq!(found(&scene, 1).await, None);
    let (mut one, other) = (begun(&scene, 1), begun(&scene, 2));
    put(&scene, &one).await;
    put(&scene, &other).await;
    assert_eq!(found(&scene, 1).await.as_ref(), Some(&one));

    // Its owner looks at another tenant.
    one.tenant = TenantId(9);
    one.key = KeyId::from_i64(32);
    one.begun_at = scene.now.plus(SECOND);
    one.seen_at = scene.now.plus(2 * SECOND);
    put(&scene, &one).await;
    assert_eq!(found(&scene, 1).await.as_ref(), Some(&one));
    assert_eq!(found(&scene, 2).await.as_ref(), Some(&other));

    scene.store.close().await;
    scene.store = place.open().await;
    assert_eq!(found(&scene, 1).await, Some(one));
    assert_eq!(found(&scene, 2).await, Some(other));
}

pub async fn a_use_only_moves_forward(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let (mut one, other) = (begun(&scene, 1), begun(&scene, 2));
    put(&scene, &one).await;
    put(&scene, &other).await;
    let start = scene.now;
    scene.pass(60 * SECOND);
    for (seen_at, expected) in [
        (scene.now, scene.now),
        (start, scene.now),
        (scene.now.plus(SECOND), scene.now.plus(SECOND)),
    ] {
        scene.store.touch_session(one.sha256, seen_at).await.expect("noted");
        one.seen_at = expected;
        assert_eq!(found(&scene, 1).await.as_ref(), Some(&one));
    }
    assert_eq!(found(&scene, 2).await, Some(other), "it was not used");
}

pub async fn a_session_that_has_ended_stays_so(place: &dyn Place) {
    let scene = Scene::new(place).await;
    put(&scene, &begun(&scene, 1)).await;
    put(&scene, &begun(&scene, 2)).await;
    for _ in 0..2 {
        scene.store.end_session([1; 32]).await.expect("ended, or not there");
        scene.store.touch_session([1; 32], scene.now.plus(SECOND)).await.expect("nothing to note");
        assert_eq!(found(&scene, 1).await, None);
    }
    assert_eq!(found(&scene, 2).await, Some(begun(&scene, 2)));
}

pub async fn old_and_idle_sessions_end(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let start = scene.now;
    // Three that were used until the end, and three that were not.
    for number in 0..6 {
        put(&scene, &begun(&scene, number)).await;
        scene.pass(SECOND);
    }
    for number in 0..3 {
        scene.store.touch_session([number; 32], scene.now).await.expect("noted");
    }
    let end = async |begun: u32, seen: u32, limit| {
        let (begun, seen) = (start.plus(begun * SECOND), start.plus(seen * SECOND));
        scene.store.end_old_sessions(begun, seen, limit).await.expect("ended")
    };
    let left = async || {
        let mut left = Vec::new();
        for number in 0..6 {
            if found(&scene, number).await.is_some() {
                left.push(number);
            }
        }
        left
    };
    assert_eq!(end(0, 0, 10).await, 0, "none is older than the first");
    assert_eq!(end(1, 0, 10).await, 1);
    assert_eq!(left().await, [1, 2, 3, 4, 5], "it was begun too long ago, however it was used");
    assert_eq!(end(0, 5, 1).await, 1, "no more than asked");
    assert_eq!(left().await.len(), 4);
    assert_eq!(end(0, 5, 10).await, 1);
    assert_eq!(left().await, [1, 2, 5], "the idle ones are gone");
    assert_eq!(end(6, 7, 0).await, 0);
    assert_eq!(end(6, 7, 10).await, 3);
    assert_eq!(left().await, [0; 0]);
}
