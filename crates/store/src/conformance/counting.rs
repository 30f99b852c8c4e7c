//! Whatever happens in whatever order: the counts are exact, and nothing is stranded.

use std::collections::{BTreeMap, HashMap};

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, EndpointId, EventId, Timestamp};

use super::Place;
use super::scene::{A, B, DAY, SECOND, Scene, TENANT, Turn, edit, ids, in_line, to};
use crate::journal::Cutoffs;
use crate::ledger::{DeliveryFilter, EventQuery};
use crate::meter::Histogram;
use crate::record::{DeliveryRecord, LeaseIs, NewDelivery, Settle, Settled};

const SEEDS: [u64; 4] = [1, 20_260_101, 0x5eed, 0xdead_beef_cafe];
const OPERATIONS: usize = 150;
const CHECK_EVERY: usize = 30;
/// So far ahead no fence comes within one batch.
const UNKNOWN: u32 = 100;

pub async fn counts_are_exact_whatever_happens(place: &dyn Place) {
    for seed in SEEDS {
        println!("seed {seed}");
        let mut scene = Scene::new(place).await;
        let mut draw = Draw(seed);
        for operation in 1..=OPERATIONS {
            operate(&mut scene, &mut draw).await;
            if operation % CHECK_EVERY == 0 {
                check(&scene).await;
            }
        }
        clear(&mut scene).await;
        scene.store.close().await;
    }
}

/// Every commit is counted with what is in it.
pub async fn commits_are_counted_with_what_is_in_them(place: &dyn Place) {
    let mut scene = Scene::new(place).await;
    let mut events = Vec::new();
    for _ in 0..3 {
        events.push(scene.event_to(vec![to(A)]));
    }
    scene.append(events).await;
    let vitals = scene.store.vitals();
    let count = |histogram: &Histogram| histogram.read().counts.iter().sum::<u64>();
    assert_eq!((vitals.append.sizes.read().sum, count(&vitals.append.sizes)), (3, 1));
    assert_eq!(count(&vitals.append.spans), 1);
    assert_eq!(count(&vitals.settle.sizes), 0);
    let settles = scene.all(DeliveryFilter::default()).await;
    let settles = settles[..2].iter().map(|record| scene.settle_of(record, Turn::Succeed));
    scene.settle(settles.collect()).await;
    assert_eq!((vitals.settle.sizes.read().sum, count(&vitals.settle.spans)), (2, 1));
    assert_eq!(count(&vitals.append.sizes), 1);
    scene.store.close().await;
}

async fn operate(scene: &mut Scene, draw: &mut Draw) {
    scene.pass(SECOND * draw.below(4));
    match draw.below(10) {
        0..=3 => append(scene, draw).await,
        4..=7 => settle(scene, draw).await,
        8 => replay(scene, draw).await,
        _ => {
            if draw.below(2) == 0 {
                let limit = 1 + draw.below(3) as usize;
                let purged = scene
                    .store
                    .purge_dead_letters(TENANT, DeliveryFilter::default(), limit, None)
                    .await;
                assert!(purged.expect("purged") <= limit as u64);
            } else {
                sweep(scene, scene.now.minus(SECOND * 30)).await;
            }
        }
    }
}

fn some_delivery(draw: &mut Draw) -> NewDelivery {
    let endpoint = if draw.below(2) == 0 { A } else { B };
    match draw.below(4) {
        0 | 1 => to(endpoint),
        2 => in_line(endpoint, ""),
        _ => in_line(endpoint, "key"),
    }
}

async fn append(scene: &mut Scene, draw: &mut Draw) {
    let mut events = Vec::new();
    for _ in 0..=draw.below(4) {
        let deliveries = (0..draw.below(4)).map(|_| some_delivery(draw)).collect();
        let later = scene.now.plus(SECOND * draw.below(20));
        let timed = draw.below(4) == 0;
        let key = (draw.below(3) == 0).then(|| format!("k{}", draw.below(5)));
        events.push(edit(scene.event_to(deliveries), |event| {
            event.deliver_at = timed.then_some(later);
            event.idempotency_key = key;
        }));
    }
    scene.append(events).await;
}

async fn settle(scene: &mut Scene, draw: &mut Draw) {
    let all = scene.all(DeliveryFilter::default()).await;
    if all.is_empty() {
        return;
    }
    let mut settles = Vec::new();
    for _ in 0..=draw.below(5) {
        let record = &all[draw.below(u32::try_from(all.len()).expect("few")) as usize];
        if let Some(turn) = possible_turn(record, draw) {
            let mut settle = scene.settle_of(record, turn);
            settle.fence += UNKNOWN * u32::from(draw.below(8) == 0);
            settle.lease = possible_lease(record, draw);
            settles.push(settle);
        }
    }
    let settled = scene.settle(settles.clone()).await;
    // The same delivery may be drawn twice: what applies is what agrees with how it stands by then.
    let mut standing: HashMap<DeliveryId, DeliveryRecord> =
        all.into_iter().map(|record| (record.id, record)).collect();
    for (settle, settled) in settles.iter().zip(settled) {
        let applied = match settled {
            Settled::Applied { .. } => true,
            Settled::Stale => false,
        };
        let record = standing.get_mut(&settle.id).expect("drawn from them");
        let agrees = settle.fence == record.fence && settle.from == record.state;
        assert_eq!(applied, agrees && stands(settle, record.due), "{settle:?}");
        if applied {
            let extended = [settle.from, settle.next.state] == [State::InFlight; 2];
            record.fence += u32::from(!extended);
            (record.state, record.due) = (settle.next.state, settle.next.due);
        }
    }
}

/// Whoever settles what is leased says how the lease stands, except who cancels it.
fn possible_lease(record: &DeliveryRecord, draw: &mut Draw) -> Option<LeaseIs> {
    let leases = [None, Some(LeaseIs::Live), Some(LeaseIs::Lapsed)];
    match record.state {
        State::InFlight => leases[draw.below(3) as usize],
        State::Pending
        | State::Retrying
        | State::Delivered
        | State::Failed
        | State::Dead
        | State::Cancelled => None,
    }
}

fn stands(settle: &Settle, ends_at: Option<Timestamp>) -> bool {
    match settle.lease {
        None => true,
        Some(LeaseIs::Live) => ends_at.is_some_and(|ends| ends > settle.at),
        Some(LeaseIs::Lapsed) => ends_at.is_some_and(|ends| ends <= settle.at),
    }
}

/// What may happen to it, by `step`.
fn possible_turn(record: &DeliveryRecord, draw: &mut Draw) -> Option<Turn> {
    let retry = Turn::Retry(SECOND * draw.below(10));
    let lease = Turn::Lease(SECOND * draw.below(10));
    match record.state {
        State::Pending | State::Retrying if record.parked => {
            [Turn::Reset, Turn::Cancel, Turn::Expire].get(draw.below(3) as usize).copied()
        }
        State::Pending | State::Retrying => {
            let turns = [Turn::Succeed, Turn::Succeed, retry, retry, Turn::Fail, Turn::Exhaust];
            let more = [Turn::Expire, Turn::Reset, Turn::Cancel, lease, lease, lease];
            turns.iter().chain(&more).nth(draw.below(12) as usize).copied()
        }
        State::InFlight => {
            let turns = [Turn::Succeed, retry, lease, lease, Turn::Fail, Turn::Exhaust];
            let more = [Turn::Release, Turn::Cancel];
            turns.iter().chain(&more).nth(draw.below(8) as usize).copied()
        }
        State::Failed | State::Dead | State::Cancelled => Some(Turn::Reset),
        State::Delivered => None,
    }
}

async fn replay(scene: &mut Scene, draw: &mut Draw) {
    let listed = scene
        .store
        .events(TENANT, EventQuery { limit: 50, ..EventQuery::default() })
        .await
        .expect("a list");
    let Some(count) = u32::try_from(listed.rows.len()).ok().filter(|count| *count > 0) else {
        return;
    };
    let event = listed.rows[draw.below(count) as usize].id;
    let new: Vec<_> = (0..=draw.below(2)).map(|_| some_delivery(draw)).collect();
    let first = DeliveryId::from_i64(scene.take_ids(new.len()));
    scene.store.append_deliveries(event, first, new, scene.now, None).await.expect("stored");
}

async fn sweep(scene: &Scene, cutoff: Timestamp) {
    let cutoffs = Cutoffs { delivered: cutoff, failed: cutoff, dead: cutoff, events: cutoff };
    let mut after = EventId::from_i64(0);
    while let Some(next) = scene.store.sweep_retention(cutoffs, after, 3).await.expect("swept").next
    {
        after = next;
    }
}

async fn check(scene: &Scene) {
    let all = scene.all(DeliveryFilter::default()).await;
    let mut recount: BTreeMap<(EndpointId, &str), u64> = BTreeMap::new();
    for record in &all {
        *recount.entry((record.endpoint, record.state.as_str())).or_default() += 1;
    }
    let counts = scene.store.counts(TENANT).await.expect("counted");
    let counts: BTreeMap<_, _> = counts
        .into_iter()
        .map(|count| ((count.endpoint, count.state.as_str()), count.deliveries))
        .collect();
    assert_eq!(counts, recount);
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for ((_, state), deliveries) in &recount {
        *sums.entry(state).or_default() += deliveries;
    }
    let totals = scene.store.totals().await.expect("counted");
    let totals: BTreeMap<&str, u64> =
        totals.into_iter().map(|(state, deliveries)| (state.as_str(), deliveries)).collect();
    assert_eq!(totals, sums);

    let mut events = 0;
    let mut query = EventQuery { limit: 50, ..EventQuery::default() };
    loop {
        let listed = scene.store.events(TENANT, query.clone()).await.expect("a list");
        events += listed.rows.len() as u64;
        match listed.next {
            Some(next) => query.before = Some(next.event),
            None => break,
        }
    }
    assert_eq!(scene.store.event_count(TENANT).await.expect("counted"), events);

    check_lines(&all);
    check_leases(scene, &all).await;
    for endpoint in [A, B] {
        check_reachable(scene, endpoint, &all).await;
    }
}

/// A line with anything unfinished has exactly one head.
fn check_lines(all: &[DeliveryRecord]) {
    let mut heads: HashMap<(EndpointId, &str), usize> = HashMap::new();
    for record in all.iter().filter(|record| !record.state.is_terminal()) {
        if let Some(line) = &record.line {
            *heads.entry((record.endpoint, line)).or_default() += usize::from(!record.parked);
        } else {
            assert!(!record.parked, "{} has no line to wait in", record.id);
        }
    }
    for (line, heads) in heads {
        assert_eq!(heads, 1, "{line:?}");
    }
}

/// Everything that is leased is known, and found when its lease ends.
async fn check_leases(scene: &Scene, all: &[DeliveryRecord]) {
    let leased = scene.store.leased(all.iter().map(|record| record.id).collect()).await;
    let mut leased: Vec<_> = leased
        .expect("readable")
        .iter()
        .map(|leased| (leased.waiting.id, leased.waiting.delivery, leased.waiting.fence))
        .collect();
    leased.sort_unstable_by_key(|(id, ..)| *id);
    let held: Vec<_> = all.iter().filter(|record| record.state == State::InFlight).collect();
    let expected: Vec<_> =
        held.iter().map(|record| (record.id, record.for_step(), record.fence)).collect();
    assert_eq!(leased, expected);

    let lapsed = scene.store.lapsed(scene.now, 1_000).await.expect("readable");
    let mut ended: Vec<_> = lapsed.leased.iter().map(|leased| leased.waiting.id).collect();
    ended.sort_unstable();
    let is_past = |record: &&&DeliveryRecord| record.due.is_some_and(|due| due <= scene.now);
    assert_eq!(ended, held.iter().filter(is_past).map(|record| record.id).collect::<Vec<_>>());
    let to_come = held.iter().filter(|record| !is_past(record));
    assert_eq!(lapsed.next, to_come.filter_map(|record| record.due).min());
}

/// Everything unfinished is found by the walk, and everything that may be tried is in a page, now or
/// when its time comes.
async fn check_reachable(scene: &Scene, endpoint: EndpointId, all: &[DeliveryRecord]) {
    let unfinished: Vec<&DeliveryRecord> = all
        .iter()
        .filter(|record| record.endpoint == endpoint && !record.state.is_terminal())
        .collect();
    let walked = scene
        .store
        .unfinished(endpoint, DeliveryId::from_i64(0), None, 1_000)
        .await
        .expect("readable");
    let expected: Vec<_> = unfinished.iter().map(|record| record.id).collect();
    assert_eq!(walked.iter().map(|row| row.id).collect::<Vec<_>>(), expected);

    let waiting = |record: &&&DeliveryRecord| !record.parked && record.state != State::InFlight;
    for now in [scene.now, scene.now.plus(DAY)] {
        let mut page = scene.page_of(endpoint);
        page.now = now;
        page.limit = 1_000;
        let paged = scene.page(page).await;
        let mut expected: Vec<_> = unfinished
            .iter()
            .filter(waiting)
            .filter(|record| record.due.is_some_and(|due| due <= now))
            .map(|record| (record.event, record.id))
            .collect();
        expected.sort_unstable();
        let expected: Vec<_> = expected.into_iter().map(|(_, id)| id).collect();
        assert_eq!(ids(&paged.waiting), expected);
        let next = unfinished
            .iter()
            .filter(waiting)
            .filter_map(|record| record.due.filter(|due| *due > now))
            .min();
        assert_eq!(paged.next_due, next);
    }
}

/// Ends and removes everything, which brings every count to nothing.
async fn clear(scene: &mut Scene) {
    let all = scene.all(DeliveryFilter::default()).await;
    let unfinished = all.iter().filter(|record| !record.state.is_terminal());
    let cancels = unfinished.map(|record| scene.settle_of(record, Turn::Cancel)).collect();
    for settled in scene.settle(cancels).await {
        assert!(matches!(settled, Settled::Applied { .. }));
    }
    scene.pass(DAY);
    sweep(scene, scene.now).await;
    assert!(scene.all(DeliveryFilter::default()).await.is_empty());
    assert!(scene.store.counts(TENANT).await.expect("counted").is_empty());
    assert_eq!(scene.store.event_count(TENANT).await.expect("counted"), 0);
}

/// A small generator (`SplitMix64`), so that a seed gives the same run everywhere.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((mixed ^ (mixed >> 31)) >> 32).expect("32 bits");
        high % bound
    }
}
