//! Delays: defined for every number of failures and every sample, and never out of bounds.

use std::time::Duration;

use postrider_core::policy::{MAX_DELAY, MIN_DELAY, Rule, Rules, Schedule};
use postrider_core::{Jitter, Policy};
use proptest::prelude::*;

use crate::any;

/// Delays are whole milliseconds; a share of one is rounded away.
const ROUNDING: Duration = Duration::from_millis(1);

fn unlimited(schedule: Schedule) -> Policy {
    Policy::new(schedule, Some(u32::MAX), None, Rules::all(Rule::Retryable)).expect("valid")
}

/// The longest wait a schedule may ever come to.
fn cap(schedule: &Schedule) -> Duration {
    match schedule {
        Schedule::Exponential { max_delay, .. } => *max_delay,
        Schedule::List { .. } => MAX_DELAY,
    }
}

proptest! {
    #[test]
    fn a_delay_is_positive_and_never_past_its_cap_jitter_included(
        policy in any::policy(),
        failures in any::failures(),
        jitter in any::jitter(),
    ) {
        let delay = policy.delay(failures, jitter);
        prop_assert!(delay >= MIN_DELAY);
        prop_assert!(delay <= cap(policy.schedule()), "{delay:?}");
    }

    #[test]
    fn every_sample_lies_between_the_earliest_and_the_latest(
        policy in any::policy(),
        failures in any::failures(),
        jitter in any::jitter(),
    ) {
        let delay = policy.delay(failures, jitter);
        prop_assert!(policy.delay(failures, Jitter::EARLIEST) <= delay);
        prop_assert!(delay <= policy.delay(failures, Jitter::LATEST));
    }

    #[test]
    fn a_larger_sample_never_waits_less(
        policy in any::policy(),
        failures in any::failures(),
        samples in (0.0..1.0_f64, 0.0..1.0_f64),
    ) {
        let (less, more) = (samples.0.min(samples.1), samples.0.max(samples.1));
        let shorter = policy.delay(failures, Jitter::new(less));
        prop_assert!(shorter <= policy.delay(failures, Jitter::new(more)));
    }

    #[test]
    fn jitter_deviates_by_no_more_than_its_share(
        policy in any::policy(),
        failures in any::failures(),
        jitter in any::jitter(),
    ) {
        let nominal = policy.delay(failures, Jitter::MIDDLE);
        let deviation = nominal.abs_diff(policy.delay(failures, jitter));
        let share = nominal.mul_f64(policy.schedule().jitter());
        prop_assert!(deviation <= share + ROUNDING, "{deviation:?} of {nominal:?}");
    }

    /// Against whole numbers of any size, where nothing can be rounded or overflow.
    #[test]
    fn a_whole_multiplier_gives_exact_powers(
        initial in any::span(),
        multiplier in 1..=1_000_u16,
        max_delay in any::span(),
        failures in any::failures(),
    ) {
        let policy = unlimited(Schedule::Exponential {
            initial,
            multiplier: f64::from(multiplier),
            max_delay,
            jitter: 0.0,
        });
        let mut expected = initial.as_millis();
        for _ in 1..failures.min(64) {
            expected = (expected * u128::from(multiplier)).min(max_delay.as_millis());
        }
        // Past this many failures nothing grows any more, or it never grew at all.
        if failures > 64 && multiplier > 1 {
            expected = max_delay.as_millis();
        }
        let expected = expected.min(max_delay.as_millis());
        prop_assert_eq!(policy.delay(failures, Jitter::MIDDLE).as_millis(), expected);
    }

    #[test]
    fn a_list_is_followed_and_its_last_delay_repeats(
        delays in any::list(),
        failures in any::failures(),
    ) {
        let place = usize::try_from(failures.max(1) - 1).expect("fits").min(delays.len() - 1);
        let expected = delays[place];
        let policy = unlimited(Schedule::List { delays, jitter: 0.0 });
        prop_assert_eq!(policy.delay(failures, Jitter::LATEST), expected);
    }

    #[test]
    fn a_hint_is_never_cut_short_but_by_age_or_a_day(
        policy in any::policy(),
        hint in any::span(),
        now in any::near_time(),
        left in prop::option::of(any::span()),
        jitter in any::jitter(),
    ) {
        let expires = left.map(|left| now.plus(left));
        let limit = expires.unwrap_or(now.plus(Duration::from_hours(24)));
        let due = policy.deferred(hint, now, expires, jitter);
        prop_assert!(due >= now.plus(hint).min(limit));
        prop_assert!(due <= limit);
        prop_assert!(due <= now.plus(hint + Duration::from_secs(30)));
    }
}

#[test]
fn samples_outside_the_unit_range_are_brought_into_it() {
    for (sample, same_as) in [
        (-1.0, Jitter::EARLIEST),
        (f64::NEG_INFINITY, Jitter::EARLIEST),
        (1.0, Jitter::LATEST),
        (f64::INFINITY, Jitter::LATEST),
        (f64::NAN, Jitter::MIDDLE),
    ] {
        assert_eq!(Jitter::new(sample), same_as, "{sample}");
    }
}

/// Without a floor, full jitter could wait no time at all, again and again.
#[test]
fn full_jitter_still_waits() {
    let schedule = Schedule::List { delays: vec![MIN_DELAY], jitter: 1.0 };
    assert_eq!(unlimited(schedule).delay(1, Jitter::EARLIEST), MIN_DELAY);
}

#[test]
fn the_longest_list_delay_takes_no_jitter_past_the_limit() {
    let schedule = Schedule::List { delays: vec![MAX_DELAY], jitter: 1.0 };
    assert_eq!(unlimited(schedule).delay(u32::MAX, Jitter::LATEST), MAX_DELAY);
}
