//! Whoever carried an endpoint until somebody else took it over changes nothing any more.

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, HubId, JobId, Lane};

use super::Place;
use super::auditing::audit;
use super::fleet::{LONG, lanes_of};
use super::scene::{A, B, SECOND, Scene, TENANT, Turn, in_line};
use crate::audit::AuditQuery;
use crate::fleet::{Charge, NodeId, Tenure};
use crate::ledger::DeliveryFilter;
use crate::record::{DeliveryRecord, Settle, Settled};
use crate::registry::{JobRecord, JobState};

const HUB: HubId = HubId::from_i64(70_001);
const LINE: &str = "";

/// Everything that can be made of a delivery: how it got where it is, and the change.
const CHANGES: [(&[Turn], Turn); 12] = [
    (&[], Turn::Succeed),
    (&[], Turn::Retry(SECOND)),
    (&[], Turn::Fail),
    (&[], Turn::Exhaust),
    (&[], Turn::Expire),
    (&[], Turn::Cancel),
    (&[], Turn::Lease(SECOND)),
    (&[Turn::Retry(SECOND)], Turn::Succeed),
    (&[Turn::Lease(SECOND)], Turn::Lease(SECOND)),
    (&[Turn::Lease(SECOND)], Turn::Succeed),
    (&[Turn::Lease(SECOND)], Turn::Release),
    (&[Turn::Fail], Turn::Reset),
];

/// Two nodes, of which the first has all lanes and the hub.
struct Carriers {
    first: NodeId,
    second: NodeId,
    lane: Tenure,
    hub: Tenure,
}

impl Carriers {
    async fn meet(scene: &Scene) -> Self {
        let first = scene.join(LONG, 4).await;
        let lane = lanes_of(&scene.beat(first).await, first)[2];
        let second = scene.join(LONG, 4).await;
        let hub = scene.fleet().seize(first, HUB).await.expect("seized");
        Self { first, second, lane, hub }
    }

    /// The second node takes over both.
    async fn hand_over(&self, scene: &Scene) -> [Tenure; 2] {
        scene.fleet().release(self.first, vec![self.lane]).await.expect("released");
        let taken = lanes_of(&scene.beat(self.second).await, self.second);
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].charge, taken[0].epoch), (self.lane.charge, self.lane.epoch + 1));
        [taken[0], scene.fleet().seize(self.second, HUB).await.expect("seized")]
    }
}

fn under(tenure: Tenure, settle: Settle) -> Settle {
    Settle { tenure: Some(tenure), ..settle }
}

fn is_applied(settled: &[Settled]) -> Vec<bool> {
    let applied = |settled: &Settled| match settled {
        Settled::Applied { .. } => true,
        Settled::Stale => false,
    };
    settled.iter().map(applied).collect()
}

async fn prepare(scene: &mut Scene, line: Option<&str>, before: &[Turn]) -> DeliveryRecord {
    let id = match line {
        Some(line) => scene.deliver_in(A, line).await,
        None => scene.deliver(A).await,
    };
    for turn in before {
        scene.turn(id, *turn).await;
    }
    scene.record(id).await
}

/// All that a settle could have changed.
async fn all_of(scene: &Scene, id: DeliveryId, behind: DeliveryId) -> String {
    let records = [scene.record(id).await, scene.record(behind).await];
    let attempts = scene.store.attempts(id).await.expect("readable");
    let counts = scene.store.counts(TENANT).await.expect("counted");
    format!("{records:#?} {attempts:#?} {counts:#?} {:?}", scene.ready(A).await)
}

pub async fn a_settle_under_a_tenure_that_holds_is_applied(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let carriers = Carriers::meet(&scene).await;
    for released in [false, true] {
        if released {
            // Nobody has taken it over, so nobody else has started anything.
            let given = vec![carriers.lane, carriers.hub];
            scene.fleet().release(carriers.first, given).await.expect("released");
        }
        for tenure in [carriers.lane, carriers.hub] {
            for (before, turn) in CHANGES {
                let record = prepare(&mut scene, None, before).await;
                let settle = under(tenure, scene.settle_of(&record, turn));
                let state = settle.next.state;
                let settled = scene.settle(vec![settle]).await;
                assert_eq!(is_applied(&settled), [true], "{before:?} {turn:?} {tenure:?}");
                assert_eq!(scene.state(record.id).await, state);
            }
        }
    }
}

pub async fn a_settle_under_a_tenure_that_has_passed_changes_nothing(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let carriers = Carriers::meet(&scene).await;
    let [lane, hub] = carriers.hand_over(&scene).await;
    let never = Tenure { charge: Charge::Lane(Lane(4_000)), epoch: 1 };
    let not_yet = Tenure { epoch: lane.epoch + 1, ..lane };
    for passed in [carriers.lane, carriers.hub, never, not_yet] {
        for (before, turn) in CHANGES {
            for line in [None, Some(LINE)] {
                let record = prepare(&mut scene, line, before).await;
                let behind = scene.deliver_in(A, LINE).await;
                let stands = all_of(&scene, record.id, behind).await;
                let right = scene.settle_of(&record, turn);
                let settled = scene.settle(vec![under(passed, right.clone())]).await;
                assert_eq!(is_applied(&settled), [false], "{before:?} {turn:?} {passed:?}");
                let found = all_of(&scene, record.id, behind).await;
                assert_eq!(found, stands, "{before:?} {turn:?}");

                // It was for the tenure alone; and what names none is nobody's but the row's affair.
                let now = match (passed.charge, line) {
                    (Charge::Lane(_), Some(_)) => under(lane, right),
                    (Charge::Hub(_), Some(_)) => under(hub, right),
                    (Charge::Lane(_) | Charge::Hub(_), None) => right,
                };
                let settled = scene.settle(vec![now]).await;
                assert_eq!(is_applied(&settled), [true], "{before:?} {turn:?} {passed:?}");
                clear(&scene, &[record.id, behind]).await;
            }
        }
    }
}

/// Ends what has not ended, so that the line is empty again.
async fn clear(scene: &Scene, ids: &[DeliveryId]) {
    for id in ids {
        if !scene.state(*id).await.is_terminal() {
            scene.turn(*id, Turn::Cancel).await;
        }
    }
}

pub async fn the_passed_ones_of_a_batch_leave_the_others(place: &dyn Place) {
    const COUNT: usize = 300;
    let mut scene = Scene::new(place).await;
    let carriers = Carriers::meet(&scene).await;
    let [lane, hub] = carriers.hand_over(&scene).await;
    let by_turns = [
        (Some(carriers.lane), false),
        (Some(lane), true),
        (None, true),
        (Some(carriers.hub), false),
        (Some(hub), true),
    ];
    let events: Vec<_> = (0..COUNT).map(|_| scene.event(&[A])).collect();
    let ids: Vec<_> = events.iter().map(|new| new.delivery_id(0)).collect();
    scene.append(events).await;
    let (mut settles, mut expected) = (Vec::new(), Vec::new());
    for (index, id) in ids.iter().enumerate() {
        let (tenure, holds) = by_turns[index % by_turns.len()];
        let turn = if index % 2 == 0 { Turn::Succeed } else { Turn::Retry(SECOND) };
        let settle = scene.settle_of(&scene.record(*id).await, turn);
        settles.push(Settle { tenure, ..settle });
        expected.push(holds);
    }
    let settled = scene.settle(settles).await;
    assert_eq!(is_applied(&settled), expected);
    for (id, applied) in ids.iter().zip(expected) {
        assert_eq!(scene.state(*id).await == State::Pending, !applied);
    }
    let counts = scene.store.counts(TENANT).await.expect("counted");
    let pending = counts.iter().find(|count| count.state == State::Pending);
    assert_eq!(pending.map(|count| count.deliveries), Some(COUNT as u64 * 2 / 5));
}

pub async fn a_passed_settle_does_not_keep_its_line_waiting(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let carriers = Carriers::meet(&scene).await;
    let head = scene.deliver_in(A, LINE).await;
    let tried = scene.settle_of(&scene.record(head).await, Turn::Succeed);
    let next = scene.deliver_in(A, LINE).await;
    let [lane, _] = carriers.hand_over(&scene).await;
    // While its first try was under way somebody ended it, and took it back behind the next.
    assert_eq!(scene.turn(head, Turn::Cancel).await.map(|waiting| waiting.id), Some(next));
    scene.turn(head, Turn::Reset).await;
    let done = scene.settle_of(&scene.record(next).await, Turn::Succeed);
    let settled = scene.settle(vec![under(carriers.lane, tried), under(lane, done)]).await;
    match &settled[..] {
        [Settled::Stale, Settled::Applied { promoted: Some(waiting) }] => {
            assert_eq!(waiting.id, head);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.ready(A).await, [head]);
}

pub async fn a_line_moves_under_a_tenure_that_holds(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let carriers = Carriers::meet(&scene).await;
    let [lane, _] = carriers.hand_over(&scene).await;
    let several = scene.event_to(vec![in_line(A, LINE), in_line(A, LINE), in_line(B, LINE)]);
    let ids = scene.keep(several).await;
    let mut settles = Vec::new();
    for (id, tenure) in [(ids[0], lane), (ids[2], carriers.lane)] {
        settles.push(under(tenure, scene.settle_of(&scene.record(id).await, Turn::Succeed)));
    }
    match &scene.settle(settles).await[..] {
        [Settled::Applied { promoted: Some(waiting) }, Settled::Stale] => {
            assert_eq!(waiting.id, ids[1]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(scene.ready(B).await, [ids[2]]);
}

pub async fn only_what_applies_under_its_tenure_is_audited(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let carriers = Carriers::meet(&scene).await;
    let [lane, _] = carriers.hand_over(&scene).await;
    let mut settles = Vec::new();
    for tenure in [carriers.lane, lane] {
        let id = scene.deliver(A).await;
        settles.push(under(tenure, scene.settle_of(&scene.record(id).await, Turn::Cancel)));
    }
    let made = settles[1].id;
    let settled = scene.store.settle_by(settles, audit(&scene, "delivery.cancel")).await;
    assert_eq!(is_applied(&settled.expect("settled")), [false, true]);
    let query = AuditQuery { limit: 50, ..AuditQuery::default() };
    let rows = scene.store.audit(query).await.expect("readable");
    let subjects: Vec<&str> = rows.iter().map(|row| &*row.subject).collect();
    assert_eq!(subjects, [made.to_string()]);
}

pub async fn a_job_is_put_only_under_a_tenure_that_holds(place: &dyn Place) {
    let scene = Scene::new(place).await;
    let carriers = Carriers::meet(&scene).await;
    let mut job = JobRecord {
        id: JobId::from_i64(31),
        tenant: TENANT,
        filter: DeliveryFilter::default(),
        rate_per_second: None,
        state: JobState::Running,
        matched: 10,
        replayed: 0,
        skipped: 0,
        position: None,
        created_at: scene.now,
        updated_at: scene.now,
    };
    let put = async |job: &JobRecord, tenure: Option<Tenure>| {
        let noted = audit(&scene, "job.note");
        scene.store.put_job(job.clone(), Some(noted), tenure).await.expect("answered")
    };
    let stored = async || scene.store.job(TENANT, JobId::from_i64(31)).await.expect("readable");
    let never = Tenure { charge: Charge::Lane(Lane(4_000)), epoch: 1 };
    assert!(!put(&job, Some(never)).await);
    assert_eq!(stored().await, None);
    assert!(put(&job, Some(carriers.lane)).await);
    assert_eq!(stored().await, Some(job.clone()));

    let [lane, hub] = carriers.hand_over(&scene).await;
    let kept = job.clone();
    job.replayed = 3;
    for passed in [carriers.lane, carriers.hub] {
        assert!(!put(&job, Some(passed)).await);
        assert_eq!(stored().await, Some(kept.clone()));
    }
    for (replayed, tenure) in [(4, Some(lane)), (5, Some(hub)), (6, None)] {
        job.replayed = replayed;
        assert!(put(&job, tenure).await);
        assert_eq!(stored().await, Some(job.clone()));
    }
    let query = AuditQuery { limit: 50, ..AuditQuery::default() };
    let rows = scene.store.audit(query).await.expect("readable");
    assert_eq!(rows.len(), 4, "what was not put is not audited");
}
