//! `runs`: eight attempts from a minute to an hour apart; the worker says what a failure means.

use postrider_core::delivery::{MAX_DEFERRALS, Why};
use postrider_core::policy::Preset;
use postrider_core::{Class, Happening, Jitter, Outcome, Reason, State};

use crate::track::{
    MILLISECOND, Track, course, failed, is_exhausted_after, is_retrying, preset, retryable,
    seconds, written,
};

const WAITS: [u64; 7] = [60, 120, 240, 480, 960, 1_920, 3_600];

fn limited(hint_seconds: u64) -> Outcome {
    failed(Class::RateLimited, Some(seconds(hint_seconds)))
}

#[test]
fn waits_from_60_s_to_3600_s_and_is_dead_at_the_eighth_failure() {
    is_exhausted_after(&course(preset(Preset::Runs), Jitter::MIDDLE), &WAITS);
}

#[test]
fn there_is_no_jitter() {
    for jitter in [Jitter::EARLIEST, Jitter::new(0.7), Jitter::LATEST] {
        is_exhausted_after(&course(preset(Preset::Runs), jitter), &WAITS);
    }
}

#[test]
fn the_backoff_stops_growing_at_3600_s() {
    let policy = preset(Preset::Runs);
    for failures in [7, 8, 9, 100, u32::MAX] {
        assert_eq!(policy.delay(failures, Jitter::MIDDLE), seconds(3_600), "{failures}");
    }
}

#[test]
fn a_final_error_is_never_retried() {
    for earlier in [0, 1, 7] {
        let mut track = Track::new(preset(Preset::Runs)).after_failures(earlier);
        let next = track.attempt(failed(Class::Final, None));
        assert_eq!((next.state, next.due), (State::Failed, None));
        assert_eq!((next.reason, next.class), (Some(Reason::Rejected), Some(Class::Final)));
        assert_eq!(next.attempts, earlier + 1);
        track.is_left_alone();
    }
}

#[test]
fn a_final_error_with_a_hint_is_still_final() {
    let mut track = Track::new(preset(Preset::Runs));
    let next = track.attempt(failed(Class::Final, Some(seconds(30))));
    assert_eq!((next.state, next.due, next.hold_endpoint_until), (State::Failed, None, None));
}

#[test]
fn a_retryable_error_is_scheduled_with_its_class() {
    let mut track = Track::new(preset(Preset::Runs));
    let next = track.attempt(retryable());
    is_retrying(&track, &next, 1, seconds(60));
    assert_eq!(next.class, Some(Class::Retryable));
}

#[test]
fn a_retryable_error_with_a_hint_backs_off_all_the_same() {
    let mut track = Track::new(preset(Preset::Runs));
    let next = track.attempt(failed(Class::Retryable, Some(seconds(5))));
    is_retrying(&track, &next, 1, seconds(60));
    assert_eq!(next.hold_endpoint_until, None);
}

#[test]
fn rate_limited_with_a_hint_waits_as_asked_and_does_not_count() {
    for hint in [1, 45, 3_600, 7_200, 86_400] {
        let mut track = Track::new(preset(Preset::Runs));
        let next = track.attempt(limited(hint));
        is_retrying(&track, &next, 0, seconds(hint));
        assert_eq!((next.deferrals, next.counted), (1, false), "{hint}");
        assert_eq!(next.class, Some(Class::RateLimited), "{hint}");
        assert_eq!(next.hold_endpoint_until, next.due, "{hint}");
    }
}

#[test]
fn rate_limited_with_a_hint_past_a_day_waits_a_day() {
    let mut track = Track::new(preset(Preset::Runs));
    let next = track.attempt(limited(86_401));
    is_retrying(&track, &next, 0, seconds(86_400));
}

#[test]
fn rate_limited_without_a_hint_backs_off_and_counts() {
    let mut track = Track::new(preset(Preset::Runs));
    is_exhausted_after(&track.fail_for_good(failed(Class::RateLimited, None)), &WAITS);

    let mut once = Track::new(preset(Preset::Runs));
    let next = once.attempt(failed(Class::RateLimited, None));
    assert_eq!((next.attempts, next.deferrals, next.counted), (1, 0, true));
    assert_eq!((next.class, next.hold_endpoint_until), (Some(Class::RateLimited), None));
}

#[test]
fn a_hint_of_no_time_is_no_hint() {
    let mut track = Track::new(preset(Preset::Runs));
    is_exhausted_after(&track.fail_for_good(limited(0)), &WAITS);
}

#[test]
fn a_hinted_wait_does_not_move_the_backoff_on() {
    let mut track = Track::new(preset(Preset::Runs));
    for (outcome, attempts, wait) in [
        (retryable(), 1, 60),
        (limited(7), 1, 7),
        (limited(9), 1, 9),
        (retryable(), 2, 120),
        (failed(Class::RateLimited, None), 3, 240),
        (limited(11), 3, 11),
        (retryable(), 4, 480),
    ] {
        let next = track.attempt(outcome);
        is_retrying(&track, &next, attempts, seconds(wait));
    }
    assert_eq!(track.delivery.deferrals, 3);
}

#[test]
fn the_last_attempt_is_kept_when_it_is_rate_limited_with_a_hint() {
    let mut track = Track::new(preset(Preset::Runs)).after_failures(7);
    let next = track.attempt(limited(30));
    is_retrying(&track, &next, 7, seconds(30));
    assert_eq!(track.attempt(retryable()).reason, Some(Reason::Exhausted));
}

#[test]
fn a_receiver_that_always_asks_for_more_time_comes_to_an_end() {
    let mut track = Track::new(preset(Preset::Runs));
    for deferral in 1..=MAX_DEFERRALS {
        let next = track.attempt(limited(1));
        assert_eq!((next.attempts, next.deferrals), (0, deferral));
    }
    let rest = track.fail_for_good(limited(1));
    assert_eq!((rest.state, rest.attempts), (State::Dead, 8));
    assert_eq!(rest.waits, [seconds(1); 7]);
}

#[test]
fn starting_clears_the_next_attempt_and_keeps_the_count() {
    let mut track = Track::new(preset(Preset::Runs)).after_failures(3);
    let next = track.moves(Happening::Start);
    assert_eq!((next.state, next.due, next.attempts), (State::InFlight, None, 3));
}

#[test]
fn a_run_is_not_picked_up_before_its_next_attempt() {
    let mut track = Track::new(preset(Preset::Runs));
    track.attempt(retryable());
    track.wait(seconds(60).saturating_sub(MILLISECOND));
    track.stays(Happening::Start, Why::NotDue);
    track.wait(MILLISECOND);
    assert_eq!(track.moves(Happening::Start).state, State::InFlight);
}

#[test]
fn success_clears_the_retry_fields() {
    for earlier in 0..8 {
        let mut track = Track::new(preset(Preset::Runs)).after_failures(earlier);
        let next = track.attempt(Outcome::Delivered);
        assert_eq!((next.state, next.attempts), (State::Delivered, earlier + 1));
        assert_eq!((next.due, next.class, next.reason), (None, None, None));
        assert_eq!((next.hold_endpoint_until, next.disable_endpoint), (None, false));
        track.is_left_alone();
    }
}

#[test]
fn classes_are_stored_under_their_names() {
    let names = [Class::Final, Class::Retryable, Class::RateLimited].map(Class::as_str);
    assert_eq!(names, ["final", "retryable", "rate_limited"]);
}

#[test]
fn the_numbers_can_be_configured() {
    let policy = written(
        r#"{"preset":"runs","max_attempts":4,"schedule":{"exponential":{"initial":"20s","multiplier":1.5,"max_delay":"40s"}}}"#,
    );
    is_exhausted_after(&course(policy, Jitter::MIDDLE), &[20, 30, 40]);
}
