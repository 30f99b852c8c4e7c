//! `standard`, the default: ten attempts over three days, as Standard Webhooks advises.

use std::time::Duration;

use postrider_core::outcome::Sighting;
use postrider_core::policy::{Preset, Presets, Spec};
use postrider_core::{Class, Jitter, Reason, State};

use crate::track::{
    Track, course, first_answers, is_exhausted_after, is_retrying, preset, seconds, statuses,
};

const SECOND: u64 = 1;
const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;

const WAITS: [u64; 9] = [
    5 * SECOND,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
];

fn standard() -> Track {
    Track::new(preset(Preset::Standard))
}

#[test]
fn is_what_a_policy_without_a_preset_is() {
    assert_eq!(Preset::default(), Preset::Standard);
    let said_nothing: Spec = serde_json::from_str("{}").expect("a policy");
    let built = said_nothing.build(&Presets::default()).expect("valid");
    assert_eq!(built, preset(Preset::Standard));
}

#[test]
fn waits_from_5_s_to_24_h_and_is_dead_at_the_tenth_failure() {
    is_exhausted_after(&course(preset(Preset::Standard), Jitter::MIDDLE), &WAITS);
}

#[test]
fn each_wait_is_spread_by_a_tenth_either_way() {
    for (jitter, tenths) in [(Jitter::EARLIEST, 9), (Jitter::LATEST, 11)] {
        let course = course(preset(Preset::Standard), jitter);
        let expected: Vec<Duration> =
            WAITS.iter().map(|wait| Duration::from_millis(wait * 100 * tenths)).collect();
        assert_eq!(course.waits, expected);
        assert_eq!(course.attempts, 10);
    }
}

#[test]
fn a_410_fails_at_once_and_disables_the_endpoint() {
    for hint in [None, Some(seconds(60))] {
        let next = standard().sees(Sighting::Status(410), hint);
        assert_eq!((next.state, next.reason), (State::Failed, Some(Reason::Rejected)));
        assert_eq!((next.class, next.due), (Some(Class::Final), None));
        assert!(next.disable_endpoint);
    }
}

#[test]
fn what_is_neither_410_nor_429_is_retried() {
    let failures =
        statuses(&[199, 301, 304, 400, 401, 404, 409, 411, 422, 428, 500, 502, 503, 504])
            .chain([Sighting::Network, Sighting::Timeout]);
    let retried = (State::Retrying, Some(Class::Retryable));
    first_answers(&preset(Preset::Standard), retried, failures);
}

#[test]
fn a_429_is_rate_limited_with_a_hint_or_without() {
    let mut hinted = standard().with_jitter(Jitter::EARLIEST);
    let next = hinted.sees(Sighting::Status(429), Some(seconds(77)));
    is_retrying(&hinted, &next, 0, seconds(77));
    assert_eq!((next.class, next.deferrals), (Some(Class::RateLimited), 1));
    assert_eq!(next.hold_endpoint_until, next.due);

    let mut unhinted = standard();
    let next = unhinted.answered(429);
    is_retrying(&unhinted, &next, 1, seconds(5));
    assert_eq!((next.class, next.deferrals), (Some(Class::RateLimited), 0));
    assert_eq!(next.hold_endpoint_until, None);
}

#[test]
fn a_503_is_rate_limited_only_with_a_hint() {
    let mut hinted = standard().with_jitter(Jitter::EARLIEST);
    let next = hinted.sees(Sighting::Status(503), Some(seconds(77)));
    is_retrying(&hinted, &next, 0, seconds(77));
    assert_eq!(next.class, Some(Class::RateLimited));

    let mut unhinted = standard();
    let next = unhinted.answered(503);
    is_retrying(&unhinted, &next, 1, seconds(5));
    assert_eq!(next.class, Some(Class::Retryable));
}

#[test]
fn jitter_on_a_long_hint_adds_at_most_30_s() {
    let mut track = standard().with_jitter(Jitter::LATEST);
    let next = track.sees(Sighting::Status(429), Some(seconds(10 * HOUR)));
    is_retrying(&track, &next, 0, seconds(10 * HOUR + 30));
}
