//! Any policy that can exist, any delivery, anything that can happen to it, at any time.

use std::time::Duration;

use postrider_core::policy::{MAX_DELAY, MAX_LIST, MIN_DELAY, Rule, Rules, Schedule};
use postrider_core::{Class, Delivery, Happening, Jitter, Outcome, Policy, State, Timestamp};
use proptest::prelude::*;

/// Of every order of magnitude, the limits included.
pub(crate) fn span() -> impl Strategy<Value = Duration> {
    let (min, max) = (milliseconds(MIN_DELAY), milliseconds(MAX_DELAY));
    prop_oneof![
        1 => Just(MIN_DELAY),
        1 => Just(MAX_DELAY),
        4 => (min..=10_000).prop_map(Duration::from_millis),
        4 => (10_000..=86_400_000_u64).prop_map(Duration::from_millis),
        2 => (86_400_000..=max).prop_map(Duration::from_millis),
    ]
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).expect("the limits are small")
}

pub(crate) fn share() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1.0), Just(0.1), 0.0..=1.0]
}

pub(crate) fn multiplier() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), Just(2.0), Just(1_000.0), 1.0..=3.0, 1.0..=1_000.0]
}

pub(crate) fn list() -> impl Strategy<Value = Vec<Duration>> {
    prop_oneof![
        9 => prop::collection::vec(span(), 1..=8),
        1 => prop::collection::vec(span(), MAX_LIST),
    ]
}

pub(crate) fn schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        (span(), multiplier(), span(), share()).prop_map(
            |(initial, multiplier, max_delay, jitter)| {
                Schedule::Exponential { initial, multiplier, max_delay, jitter }
            }
        ),
        (list(), share()).prop_map(|(delays, jitter)| Schedule::List { delays, jitter }),
    ]
}

/// Attempts, age, or both.
pub(crate) fn limits() -> impl Strategy<Value = (Option<u32>, Option<Duration>)> {
    let attempts = || prop_oneof![Just(1), Just(u32::MAX), 1..=20_u32, 1..=u32::MAX];
    prop_oneof![
        attempts().prop_map(|attempts| (Some(attempts), None)),
        span().prop_map(|age| (None, Some(age))),
        (attempts(), span()).prop_map(|(attempts, age)| (Some(attempts), Some(age))),
    ]
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    (schedule(), limits()).prop_map(|(schedule, (max_attempts, max_age))| {
        Policy::new(schedule, max_attempts, max_age, Rules::all(Rule::Retryable)).expect("valid")
    })
}

/// Small numbers, where schedules differ, and all the others.
pub(crate) fn failures() -> impl Strategy<Value = u32> {
    prop_oneof![0..=64_u32, any::<u32>(), Just(u32::MAX)]
}

pub(crate) fn jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::EARLIEST),
        Just(Jitter::MIDDLE),
        Just(Jitter::LATEST),
        (0.0..1.0).prop_map(Jitter::new),
        any::<f64>().prop_map(Jitter::new),
    ]
}

pub(crate) fn hint() -> impl Strategy<Value = Option<Duration>> {
    prop::option::of(prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::from_nanos(1)),
        Just(Duration::MAX),
        span(),
    ])
}

pub(crate) fn outcome() -> impl Strategy<Value = Outcome> {
    let class = prop::sample::select(vec![Class::Final, Class::Retryable, Class::RateLimited]);
    prop_oneof![
        1 => Just(Outcome::Delivered),
        4 => (class, hint(), any::<bool>()).prop_map(|(class, retry_after, disable)| {
            Outcome::Failed { class, retry_after, disable }
        }),
    ]
}

pub(crate) fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => Just(Happening::Start),
        6 => outcome().prop_map(Happening::Finish),
        1 => Just(Happening::LeaseExpired),
        1 => Just(Happening::Release),
        1 => Just(Happening::Sweep),
        1 => Just(Happening::Reset),
        1 => Just(Happening::Cancel),
    ]
}

/// Any time, the ends of time, and times near one another.
pub(crate) fn time() -> impl Strategy<Value = Timestamp> {
    let (min, max) = (Timestamp::MIN.as_millis(), Timestamp::MAX.as_millis());
    prop_oneof![
        1 => Just(Timestamp::MIN),
        1 => Just(Timestamp::MAX),
        2 => (min..=max).prop_map(Timestamp::from_millis),
        6 => near_time(),
    ]
}

/// Within two years of one another: as far apart as policies reach.
pub(crate) fn near_time() -> impl Strategy<Value = Timestamp> {
    (1_700_000_000_000..=1_763_000_000_000_i64).prop_map(Timestamp::from_millis)
}

pub(crate) fn delivery() -> impl Strategy<Value = Delivery> {
    let state = prop::sample::select(State::ALL.to_vec());
    (state, failures(), failures(), time(), time()).prop_map(
        |(state, attempts, deferrals, due, born)| Delivery {
            state,
            attempts,
            deferrals,
            due,
            born,
        },
    )
}
