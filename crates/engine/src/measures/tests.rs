//! Counting without an engine, into a store that can fail.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;

const TENANT: TenantId = TenantId::DEFAULT;
const OTHER: TenantId = TenantId(2);
/// The start of a day, and so of every grain.
const START: Timestamp = Timestamp::from_millis(1_800_057_600_000);

/// Keeps what it is given, unless it is to fail.
#[derive(Default)]
struct Kept {
    measures: Mutex<Vec<Measure>>,
    /// After so many more calls it fails, once.
    fails_after: Mutex<Option<usize>>,
    calls: AtomicUsize,
}

impl Kept {
    fn fail_after(&self, calls: usize) {
        *self.fails_after.lock() = Some(calls);
    }
}

#[async_trait]
impl Measures for Kept {
    async fn add_measures(&self, measures: Vec<Measure>) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let left = self.fails_after.lock().take();
        match left {
            Some(0) => return Err(StoreError::Unavailable("as told".into())),
            Some(more) => *self.fails_after.lock() = Some(more - 1),
            None => {}
        }
        self.measures.lock().extend(measures);
        Ok(())
    }

    async fn measures(
        &self,
        tenant: TenantId,
        of: Of,
        grain: Grain,
        since: Timestamp,
    ) -> Result<Vec<Measure>, StoreError> {
        let wanted = |measure: &&Measure| {
            let belongs = match of {
                Of::Tenant => measure.endpoint.is_none(),
                Of::Endpoint(endpoint) => measure.endpoint == Some(endpoint),
                Of::EachEndpoint => measure.endpoint.is_some(),
            };
            belongs && measure.tenant == tenant && measure.grain == grain && measure.start >= since
        };
        Ok(self.measures.lock().iter().filter(wanted).cloned().collect())
    }

    async fn forget_measures(&self, _: Grain, _: Timestamp, _: usize) -> Result<u64, StoreError> {
        Ok(0)
    }
}

fn at(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

fn endpoint(number: usize) -> EndpointId {
    EndpointId::from_i64(i64::try_from(number).expect("a small number"))
}

fn change(state: State) -> Change {
    let (tenant, endpoint) = (TENANT, endpoint(1));
    Change { at: at(5), tenant, endpoint, born: START, state, failed: false }
}

/// What was received, in the order of the answer.
async fn received(measuring: &Measuring, store: &Kept, wanted: Wanted) -> Vec<(Timestamp, u64)> {
    let read = measuring.read(store, wanted).await.expect("readable");
    read.iter().map(|measure| (measure.start, measure.tallies.received)).collect()
}

fn wanted(of: Of, grain: Grain) -> Wanted {
    Wanted { tenant: TENANT, of, grain, since: START }
}

#[test]
fn a_change_counts_for_what_it_is() {
    let delivered = {
        let mut tallies = Tallies { delivered: 1, ..Tallies::default() };
        tallies.note_latency(5_000);
        tallies
    };
    let dead = Tallies { dead: 1, ..Tallies::default() };
    let nothing = Tallies::default();
    for (state, expected) in [
        (State::Pending, nothing),
        (State::Retrying, nothing),
        (State::InFlight, nothing),
        (State::Cancelled, nothing),
        (State::Delivered, delivered),
        (State::Failed, dead),
        (State::Dead, dead),
    ] {
        for failed in [false, true] {
            let measuring = Measuring::default();
            measuring.settled([Change { failed, ..change(state) }].into_iter());
            let expected = Tallies { failures: u64::from(failed), ..expected };
            let open = measuring.open.lock();
            let counted = open.by.values().next().copied().unwrap_or_default();
            assert_eq!(counted, expected, "{state:?}, failed: {failed}");
            assert_eq!(open.by.is_empty(), expected.is_empty(), "nothing is kept of nothing");
        }
    }
}

#[tokio::test]
async fn what_is_read_is_the_same_before_and_after_it_was_written() {
    let (measuring, store) = (Measuring::default(), Kept::default());
    let one = endpoint(1);
    measuring.made(TENANT, [(at(59), one), (at(60), one), (at(60), endpoint(2))].into_iter());
    measuring.made(OTHER, [(at(60), endpoint(3))].into_iter());
    // Another minute of the same quarter of an hour, and the next one.
    measuring.made(TENANT, [(at(899), one), (at(900), one)].into_iter());
    let later = Wanted { since: at(60), ..wanted(Of::Tenant, Grain::Minute) };
    let theirs = Wanted { tenant: OTHER, ..wanted(Of::EachEndpoint, Grain::TwoHours) };
    let minutes = |counts: &[(u64, u64)]| -> Vec<(Timestamp, u64)> {
        counts.iter().map(|(start, count)| (at(*start), *count)).collect()
    };
    let cases = [
        (wanted(Of::Tenant, Grain::Minute), minutes(&[(0, 1), (60, 2), (840, 1), (900, 1)])),
        (wanted(Of::Endpoint(one), Grain::Minute), minutes(&[(0, 1), (60, 1), (840, 1), (900, 1)])),
        (wanted(Of::EachEndpoint, Grain::QuarterHour), minutes(&[(0, 3), (0, 1), (900, 1)])),
        (wanted(Of::Tenant, Grain::TwoHours), minutes(&[(0, 5)])),
        (wanted(Of::Endpoint(endpoint(3)), Grain::TwoHours), Vec::new()),
        (later, minutes(&[(60, 2), (840, 1), (900, 1)])),
        (theirs, minutes(&[(0, 1)])),
    ];
    for (wanted, expected) in &cases {
        assert_eq!(received(&measuring, &store, *wanted).await, *expected, "{wanted:?}");
    }
    measuring.flush(&store).await.expect("written");
    for (wanted, expected) in &cases {
        assert_eq!(received(&measuring, &store, *wanted).await, *expected, "{wanted:?}");
    }
    assert!(measuring.open.lock().by.is_empty());
    measuring.made(TENANT, [(at(1), one)].into_iter());
    let hour = wanted(Of::Endpoint(one), Grain::TwoHours);
    assert_eq!(received(&measuring, &store, hour).await, minutes(&[(0, 5)]), "both together");
}

#[tokio::test]
async fn a_failed_write_loses_nothing_and_repeats_nothing() {
    let (measuring, store) = (Measuring::default(), Kept::default());
    let endpoints = STEP * 2 + 1;
    measuring.made(TENANT, (0..endpoints).map(|number| (START, endpoint(number))));
    let all = wanted(Of::Tenant, Grain::Minute);
    let total = async || received(&measuring, &store, all).await[0].1;
    store.fail_after(1);
    measuring.flush(&store).await.expect_err("it fails half-way");
    assert_eq!(total().await, endpoints as u64);
    measuring.made(TENANT, [(START, endpoint(0))].into_iter());
    store.fail_after(0);
    measuring.flush(&store).await.expect_err("it fails at once");
    assert_eq!(total().await, endpoints as u64 + 1);
    measuring.flush(&store).await.expect("written");
    assert_eq!(total().await, endpoints as u64 + 1);
    let each = received(&measuring, &store, wanted(Of::EachEndpoint, Grain::Minute)).await;
    assert_eq!((each.len(), each[0].1), (endpoints, 2));
    assert!(measuring.leaving.read().await.is_empty());
    let calls = store.calls.load(Ordering::Relaxed);
    measuring.flush(&store).await.expect("nothing to write");
    assert_eq!(store.calls.load(Ordering::Relaxed), calls, "the store is left alone");
}

#[tokio::test]
async fn beyond_the_bound_only_tenants_are_told_apart() {
    let (measuring, store) = (Measuring::default(), Kept::default());
    let beyond = 3;
    let endpoints = MAX_OPEN + beyond;
    measuring.made(TENANT, (0..endpoints).map(|number| (START, endpoint(number))));
    assert_eq!(measuring.open.lock().by.len(), MAX_OPEN + 1);
    // One that has a place goes on counting.
    measuring.made(TENANT, [(START, endpoint(0))].into_iter());
    measuring.flush(&store).await.expect("written");
    let each = received(&measuring, &store, wanted(Of::EachEndpoint, Grain::Minute)).await;
    assert_eq!((each.len(), each[0].1), (MAX_OPEN, 2));
    let all = received(&measuring, &store, wanted(Of::Tenant, Grain::Minute)).await;
    assert_eq!(all, [(START, endpoints as u64 + 1)]);
}

#[test]
fn memory_is_bounded_whatever_happens() {
    let measuring = Measuring::default();
    for tenant in 0..2 * MAX_BEYOND {
        let tenant = TenantId(i64::try_from(tenant).expect("a small number"));
        measuring.made(tenant, (0..MAX_OPEN / 64).map(|number| (START, endpoint(number))));
    }
    let open = measuring.open.lock();
    assert_eq!(open.by.len(), MAX_OPEN + MAX_BEYOND);
    assert!(open.missed > 0);
}

#[tokio::test]
async fn a_crowd_is_written_before_its_time() {
    let measuring = Measuring::default();
    let told = async || {
        let told = measuring.crowded.notified();
        futures_util::future::poll_immediate(std::pin::pin!(told)).await.is_some()
    };
    measuring.made(TENANT, (1..CROWDED).map(|number| (START, endpoint(number))));
    assert!(!told().await);
    measuring.made(TENANT, [(START, endpoint(CROWDED))].into_iter());
    assert!(told().await);
}
