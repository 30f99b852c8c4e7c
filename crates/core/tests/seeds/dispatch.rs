//! `dispatch`: five attempts, doubling from a second, spread by a tenth either way.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::outcome::Sighting;
use postrider_core::policy::Preset;
use postrider_core::{Class, Jitter, State};

use crate::track::{
    Track, course, first_answers, is_exhausted_after, is_retrying, preset, retryable, seconds,
    statuses, written,
};

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn waits_1_2_4_8_s_and_is_dead_at_the_fifth_failure() {
    is_exhausted_after(&course(preset(Preset::Dispatch), Jitter::MIDDLE), &[1, 2, 4, 8]);
}

#[test]
fn each_delay_is_spread_by_a_tenth_either_way() {
    let policy = preset(Preset::Dispatch);
    let bounds = [
        (1, 900, 1_000, 1_100),
        (2, 1_800, 2_000, 2_200),
        (3, 3_600, 4_000, 4_400),
        (4, 7_200, 8_000, 8_800),
        (5, 14_400, 16_000, 17_600),
    ];
    for (failures, earliest, nominal, latest) in bounds {
        assert_eq!(policy.delay(failures, Jitter::EARLIEST), milliseconds(earliest), "{failures}");
        assert_eq!(policy.delay(failures, Jitter::MIDDLE), milliseconds(nominal), "{failures}");
        assert_eq!(policy.delay(failures, Jitter::LATEST), milliseconds(latest), "{failures}");
    }
}

#[test]
fn the_sample_places_a_delay_evenly_between_its_bounds() {
    let policy = preset(Preset::Dispatch);
    for (sample, first, third) in
        [(0.0, 900, 3_600), (0.25, 950, 3_800), (0.5, 1_000, 4_000), (0.75, 1_050, 4_200)]
    {
        assert_eq!(policy.delay(1, Jitter::new(sample)), milliseconds(first), "{sample}");
        assert_eq!(policy.delay(3, Jitter::new(sample)), milliseconds(third), "{sample}");
    }
}

#[test]
fn events_that_fail_together_do_not_return_together() {
    let policy = preset(Preset::Dispatch);
    let delays: BTreeSet<Duration> =
        (0..100).map(|tick| policy.delay(1, Jitter::new(f64::from(tick) / 100.0))).collect();
    assert_eq!(delays.len(), 100);
}

#[test]
fn no_delay_passes_an_hour_jitter_included() {
    let policy = preset(Preset::Dispatch);
    assert_eq!(policy.delay(12, Jitter::MIDDLE), seconds(2_048));
    for failures in [13, 14, 32, 33, 64, 1_000, u32::MAX] {
        assert_eq!(policy.delay(failures, Jitter::EARLIEST), seconds(3_240), "{failures}");
        assert_eq!(policy.delay(failures, Jitter::MIDDLE), seconds(3_600), "{failures}");
        assert_eq!(policy.delay(failures, Jitter::LATEST), seconds(3_600), "{failures}");
    }
}

/// The sixteen seconds that would follow the fifth failure are not waited for.
#[test]
fn the_fifth_attempt_comes_15_s_after_the_first_give_or_take_a_tenth() {
    for (jitter, total) in
        [(Jitter::EARLIEST, 13_500), (Jitter::MIDDLE, 15_000), (Jitter::LATEST, 16_500)]
    {
        let course = course(preset(Preset::Dispatch), jitter);
        assert_eq!(course.waits.iter().sum::<Duration>(), milliseconds(total));
    }
}

#[test]
fn a_2xx_delivers() {
    let successes = statuses(&[200, 201, 202, 204, 226, 299]);
    first_answers(&preset(Preset::Dispatch), (State::Delivered, None), successes);
}

#[test]
fn whatever_is_no_2xx_is_retried() {
    let failures = statuses(&[100, 199, 300, 301, 308, 400, 404, 410, 429, 499, 500, 503, 599])
        .chain([Sighting::Network, Sighting::Timeout]);
    let retried = (State::Retrying, Some(Class::Retryable));
    first_answers(&preset(Preset::Dispatch), retried, failures);
}

#[test]
fn a_429_or_503_that_says_how_long_is_waited_for_and_does_not_count() {
    for status in [429, 503] {
        let mut track = Track::new(preset(Preset::Dispatch)).with_jitter(Jitter::EARLIEST);
        let next = track.sees(Sighting::Status(status), Some(seconds(90)));
        is_retrying(&track, &next, 0, seconds(90));
        assert_eq!((next.class, next.counted), (Some(Class::RateLimited), false), "{status}");
        assert_eq!(next.deferrals, 1, "{status}");
        assert_eq!(next.hold_endpoint_until, next.due, "{status}");
    }
}

#[test]
fn jitter_makes_a_hinted_wait_longer_and_never_shorter() {
    for (jitter, wait) in [
        (Jitter::EARLIEST, milliseconds(90_000)),
        (Jitter::MIDDLE, milliseconds(94_500)),
        (Jitter::LATEST, milliseconds(99_000)),
    ] {
        let mut track = Track::new(preset(Preset::Dispatch)).with_jitter(jitter);
        let next = track.sees(Sighting::Status(429), Some(seconds(90)));
        is_retrying(&track, &next, 0, wait);
    }
}

#[test]
fn a_hint_on_any_other_status_is_not_used() {
    for status in [301, 404, 500, 502] {
        let mut track = Track::new(preset(Preset::Dispatch));
        let next = track.sees(Sighting::Status(status), Some(seconds(90)));
        is_retrying(&track, &next, 1, seconds(1));
        assert_eq!(next.hold_endpoint_until, None, "{status}");
    }
}

#[test]
fn an_endpoint_can_have_its_own_numbers() {
    let fewer = written(r#"{"preset":"dispatch","max_attempts":3}"#);
    is_exhausted_after(&course(fewer, Jitter::MIDDLE), &[1, 2]);
    let gentler = written(
        r#"{"preset":"dispatch","schedule":{"exponential":{"initial":"10s","multiplier":3.0,"max_delay":"2m"}}}"#,
    );
    is_exhausted_after(&course(gentler, Jitter::LATEST), &[10, 30, 90, 120]);
}

#[test]
fn there_is_no_sixth_attempt() {
    let mut track = Track::new(preset(Preset::Dispatch));
    assert_eq!(track.fail_for_good(retryable()).attempts, 5);
    track.is_left_alone();
}
