//! What holds an endpoint up is kept apart from its configuration, for whoever carries it next; and
//! changes of configuration are counted.

use postrider_core::endpoint::{Endpoint, EndpointState};
use postrider_core::{EndpointId, HubId, JobId, KeyId, Timestamp};

use super::Place;
use super::auditing::audit;
use super::configuration::endpoint;
use super::fleet::{LONG, lanes_of};
use super::scene::{A, B, SECOND, Scene, TENANT, Turn};
use super::sources::source;
use crate::fleet::Tenure;
use crate::ledger::DeliveryFilter;
use crate::record::{Settle, Settled};
use crate::registry::{HubRecord, JobRecord, JobState, KeyRecord, Role, Standing};

const LINE: &str = "";

async fn put_endpoints(scene: &Scene) {
    for id in [A, B] {
        scene.store.put_endpoint(Endpoint { id, ..endpoint(scene) }, None).await.expect("stored");
    }
}

async fn standings(scene: &Scene) -> Vec<Standing> {
    let mut standings = scene.store.standings().await.expect("readable");
    standings.sort_unstable_by_key(|standing| standing.endpoint);
    standings
}

fn held(endpoint: EndpointId, until: Timestamp) -> Standing {
    Standing { endpoint, hold_until: Some(until), breaker: None }
}

/// A new delivery is settled by a turn that holds its endpoint.
async fn holding(scene: &mut Scene, endpoint: EndpointId, turn: Turn, until: Timestamp) -> Settle {
    let id = scene.deliver(endpoint).await;
    let mut settle = scene.settle_of(&scene.record(id).await, turn);
    settle.next.hold_endpoint_until = Some(until);
    settle
}

async fn apply(scene: &Scene, settles: Vec<Settle>) {
    for settled in scene.settle(settles).await {
        assert!(matches!(settled, Settled::Applied { .. }), "{settled:?}");
    }
}

pub async fn a_hold_is_kept_with_the_settle_that_made_it(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    put_endpoints(&scene).await;
    assert_eq!(standings(&scene).await, []);
    let after = |seconds| scene.now.plus(SECOND * seconds);
    let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(after);

    // Whatever became of the delivery, the longest is kept.
    let turns = [
        (Turn::Retry(SECOND), two, two),
        (Turn::Exhaust, one, two),
        (Turn::Exhaust, three, three),
        (Turn::Retry(SECOND), two, three),
        (Turn::Succeed, four, four),
    ];
    for (turn, until, kept) in turns {
        let settle = holding(&mut scene, A, turn, until).await;
        apply(&scene, vec![settle]).await;
        assert_eq!(standings(&scene).await, [held(A, kept)], "{turn:?}");
    }

    // So it is among several of one batch, in whatever order they come.
    let mut batch = Vec::new();
    for (endpoint, turn, until) in [
        (B, Turn::Retry(SECOND), two),
        (A, Turn::Retry(SECOND), five),
        (B, Turn::Retry(SECOND), three),
        (A, Turn::Exhaust, one),
        (B, Turn::Exhaust, one),
        (EndpointId::from_i64(99), Turn::Retry(SECOND), one),
    ] {
        batch.push(holding(&mut scene, endpoint, turn, until).await);
    }
    let free = scene.deliver(A).await;
    batch.push(scene.settle_of(&scene.record(free).await, Turn::Succeed));
    apply(&scene, batch).await;
    assert_eq!(standings(&scene).await, [held(A, five), held(B, three)]);
}

pub async fn a_hold_outlives_changes_and_closing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    put_endpoints(&scene).await;
    let until = scene.now.plus(SECOND);
    let settle = holding(&mut scene, A, Turn::Exhaust, until).await;
    apply(&scene, vec![settle]).await;
    let failing = vec![(A, Some(scene.now))];
    scene.store.note_failing(failing.clone()).await.expect("noted");
    let open = Standing { breaker: Some("open".to_owned()), ..held(A, until) };
    scene.store.note_breakers(vec![(A, open.breaker.clone())]).await.expect("noted");

    let changed = Endpoint {
        state: EndpointState::Deleted,
        updated_at: scene.now.plus(SECOND),
        ..endpoint(&scene)
    };
    scene.store.put_endpoint(changed, None).await.expect("stored");
    assert_eq!(standings(&scene).await, std::slice::from_ref(&open));
    scene.store.close().await;
    scene.store = place.open().await;
    assert_eq!(standings(&scene).await, [open]);
    assert_eq!(scene.store.failing().await.expect("readable"), [(A, scene.now)]);

    // It ends with the endpoint.
    scene.store.forget_endpoint(A).await.expect("forgotten");
    assert_eq!(standings(&scene).await, []);
    put_endpoints(&scene).await;
    assert_eq!(standings(&scene).await, []);
}

pub async fn a_stale_settle_holds_nothing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    put_endpoints(&scene).await;
    let node = scene.join(LONG, 4).await;
    let lane = lanes_of(&scene.beat(node).await, node)[0];
    let passed = Tenure { epoch: lane.epoch - 1, ..lane };
    let until = scene.now.plus(SECOND);
    for turn in [Turn::Retry(SECOND), Turn::Exhaust] {
        let right = holding(&mut scene, A, turn, until).await;
        let other_fence = Settle { fence: right.fence + 1, ..right.clone() };
        let other_tenure = Settle { tenure: Some(passed), ..right.clone() };
        // One that is applied holds nothing in the place of the others.
        let applied = holding(&mut scene, B, turn, until).await;
        let settled = scene.settle(vec![other_fence, applied, other_tenure]).await;
        let expected = [Settled::Stale, Settled::Applied { promoted: None }, Settled::Stale];
        assert_eq!(format!("{settled:?}"), format!("{expected:?}"), "{turn:?}");
        assert_eq!(standings(&scene).await, [held(B, until)], "{turn:?}");
    }
    let right = holding(&mut scene, A, Turn::Exhaust, until).await;
    apply(&scene, vec![Settle { tenure: Some(lane), ..right }]).await;
    assert_eq!(standings(&scene).await, [held(A, until), held(B, until)]);
}

pub async fn a_head_that_ends_with_a_hold_lets_its_line_move_on(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    put_endpoints(&scene).await;
    let until = scene.now.plus(SECOND);
    let [head, next, last] = [
        scene.deliver_in(A, LINE).await,
        scene.deliver_in(A, LINE).await,
        scene.deliver_in(A, LINE).await,
    ];
    let mut waits = scene.settle_of(&scene.record(head).await, Turn::Retry(SECOND));
    waits.next.hold_endpoint_until = Some(until);
    apply(&scene, vec![waits]).await;
    assert!(scene.ready(A).await.is_empty(), "a retry keeps its line waiting");
    scene.pass(SECOND);
    for (id, promoted) in [(head, Some(next)), (next, Some(last)), (last, None)] {
        let mut ends = scene.settle_of(&scene.record(id).await, Turn::Exhaust);
        ends.next.hold_endpoint_until = Some(until);
        match &scene.settle(vec![ends]).await[..] {
            [Settled::Applied { promoted: found }] => {
                assert_eq!(found.as_ref().map(|waiting| waiting.id), promoted);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(standings(&scene).await, [held(A, until)]);
}

pub async fn breakers_are_noted_until_they_close(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    put_endpoints(&scene).await;
    let note = async |scene: &Scene, breakers: &[(EndpointId, Option<&str>)]| {
        let owned = |(id, text): &(EndpointId, Option<&str>)| (*id, text.map(str::to_owned));
        let breakers = breakers.iter().map(owned).collect();
        scene.store.note_breakers(breakers).await.expect("noted");
    };
    let standing = |endpoint, breaker: &str| Standing {
        endpoint,
        hold_until: None,
        breaker: Some(breaker.to_owned()),
    };
    let gone = EndpointId::from_i64(99);
    note(&scene, &[(B, Some("half")), (gone, Some("open")), (A, Some("{\"\u{fc}\":\u{0}}"))]).await;
    let both = [standing(A, "{\"\u{fc}\":\u{0}}"), standing(B, "half")];
    assert_eq!(standings(&scene).await, both);
    note(&scene, &[]).await;
    assert_eq!(standings(&scene).await, both);

    // Of one that is named twice the last is so.
    note(&scene, &[(A, Some("open")), (B, Some("open")), (A, None)]).await;
    assert_eq!(standings(&scene).await, [standing(B, "open")]);
    let until = scene.now.plus(SECOND);
    let settle = holding(&mut scene, B, Turn::Retry(SECOND), until).await;
    apply(&scene, vec![settle]).await;
    let both = Standing { hold_until: Some(until), ..standing(B, "open") };
    assert_eq!(standings(&scene).await, [both]);
    note(&scene, &[(B, None)]).await;
    assert_eq!(standings(&scene).await, [held(B, until)]);
}

pub async fn the_revision_grows_with_each_change_of_configuration(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mut last = revision(&scene).await;
    let key = KeyRecord {
        id: KeyId::from_i64(1),
        name: "first".to_owned(),
        sha256: [1; 32],
        role: Role::Admin,
        created_at: scene.now,
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    };
    let hub = HubRecord {
        id: HubId::from_i64(61),
        tenant: TENANT,
        name: "home".to_owned(),
        sha256: [2; 32],
        created_at: scene.now,
    };
    let (source, deleted) =
        (source(&scene), Endpoint { state: EndpointState::Deleted, ..endpoint(&scene) });
    for round in 0..2 {
        let store = &scene.store;
        let by = |action| audit(&scene, action);
        store.put_endpoint(endpoint(&scene), None).await.expect("stored");
        last = grown(&scene, last, "an endpoint").await;
        store.put_endpoint(deleted.clone(), Some(by("endpoint.delete"))).await.expect("stored");
        last = grown(&scene, last, "a deleted endpoint").await;
        store.forget_endpoint(A).await.expect("forgotten");
        last = grown(&scene, last, "a forgotten endpoint").await;
        store.put_source(source.clone(), by("source.create")).await.expect("stored");
        last = grown(&scene, last, "a source").await;
        store.delete_source(source.id, by("source.delete")).await.expect("deleted");
        last = grown(&scene, last, "a deleted source").await;
        store.put_hub(hub.clone(), by("hub.create")).await.expect("stored");
        last = grown(&scene, last, "a hub").await;
        store.delete_hub(hub.id, by("hub.delete")).await.expect("deleted");
        last = grown(&scene, last, "a deleted hub").await;
        store.put_key(key.clone(), None).await.expect("stored");
        last = grown(&scene, last, "a key").await;
        let tenant = store.make_tenant(format!("acme-{round}"), scene.now, by("tenant.create"));
        tenant.await.expect("made");
        last = grown(&scene, last, "a tenant").await;
    }

    // What was refused is no change, and what is not configuration is none of it.
    let copy = KeyRecord { id: KeyId::from_i64(2), ..key.clone() };
    scene.store.put_key(copy, None).await.expect_err("a copy");
    let taken = scene.store.make_tenant("acme-0".to_owned(), scene.now, audit(&scene, "again"));
    taken.await.expect_err("taken");
    put_endpoints(&scene).await;
    let last = revision(&scene).await;
    scene.store.forget_endpoint(A).await.expect("it stays");
    scene.store.delete_hub(hub.id, audit(&scene, "hub.delete")).await.expect("answered");
    scene.store.touch_keys(vec![(key.id, scene.now)]).await.expect("noted");
    scene.store.note_failing(vec![(A, Some(scene.now))]).await.expect("noted");
    scene.store.note_breakers(vec![(A, Some("open".to_owned()))]).await.expect("noted");
    scene.store.reseal().await.expect("sealed");
    let job = JobRecord {
        id: JobId::from_i64(31),
        tenant: TENANT,
        filter: DeliveryFilter::default(),
        rate_per_second: None,
        state: JobState::Running,
        matched: 0,
        replayed: 0,
        skipped: 0,
        position: None,
        created_at: scene.now,
        updated_at: scene.now,
    };
    scene.store.put_job(job, None, None).await.expect("stored");
    let until = scene.now.plus(SECOND);
    let settle = holding(&mut scene, A, Turn::Retry(SECOND), until).await;
    apply(&scene, vec![settle]).await;
    assert_eq!(revision(&scene).await, last);

    scene.store.close().await;
    scene.store = place.open().await;
    assert_eq!(revision(&scene).await, last, "it never begins anew");
}

async fn revision(scene: &Scene) -> i64 {
    scene.fleet().look(Vec::new()).await.expect("seen").revision
}

async fn grown(scene: &Scene, last: i64, what: &str) -> i64 {
    let now = revision(scene).await;
    assert!(now > last, "{what}: {now} is not above {last}");
    now
}
