//! `edge`: a receiver that may be away is tried for seven days; what it refuses is refused for good.

use std::time::Duration;

use postrider_core::delivery::Why;
use postrider_core::endpoint::Ordering;
use postrider_core::outcome::Sighting;
use postrider_core::policy::Preset;
use postrider_core::{Class, Happening, Jitter, Outcome, Reason, State};

use crate::track::{
    MILLISECOND, Track, all_seconds, days, first_answers, is_retrying, preset, retryable, seconds,
    statuses,
};

const LADDER: [u64; 15] =
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 3_600, 3_600, 3_600];

fn edge() -> Track {
    Track::new(preset(Preset::Edge))
}

#[test]
fn waits_double_from_1_s_to_an_hour() {
    let policy = preset(Preset::Edge);
    let delays: Vec<Duration> =
        (1..=15).map(|failures| policy.delay(failures, Jitter::MIDDLE)).collect();
    assert_eq!(delays, all_seconds(&LADDER));
    for failures in [31, 32, 33, 63, 64, 65, 1_000, u32::MAX] {
        assert_eq!(policy.delay(failures, Jitter::LATEST), seconds(3_600), "{failures}");
    }
}

#[test]
fn a_5xx_waits_and_counts_each_time() {
    let mut track = edge();
    for (attempts, wait) in (1..).zip(LADDER) {
        let next = track.answered(503);
        is_retrying(&track, &next, attempts, seconds(wait));
        assert_eq!(next.class, Some(Class::Retryable));
    }
}

#[test]
fn a_2xx_delivers() {
    first_answers(&preset(Preset::Edge), (State::Delivered, None), statuses(&[200, 202, 204]));
}

#[test]
fn any_4xx_fails_at_once_429_included() {
    let refused = (State::Failed, Some(Class::Final));
    let every_4xx = (400..=499).map(Sighting::Status);
    first_answers(&preset(Preset::Edge), refused, every_4xx);
}

#[test]
fn a_4xx_stops_the_retries_even_with_a_hint() {
    for status in [400, 404, 410, 429] {
        let mut track = edge();
        track.answered(500);
        track.answered(500);
        let next = track.sees(Sighting::Status(status), Some(seconds(60)));
        assert_eq!((next.state, next.due, next.attempts), (State::Failed, None, 3), "{status}");
        assert_eq!(next.reason, Some(Reason::Rejected), "{status}");
        assert_eq!(next.hold_endpoint_until, None, "{status}");
        track.is_left_alone();
    }
}

#[test]
fn any_5xx_and_any_network_error_is_retried() {
    let failures = (500..=599).map(Sighting::Status).chain([Sighting::Network, Sighting::Timeout]);
    let retried = (State::Retrying, Some(Class::Retryable));
    first_answers(&preset(Preset::Edge), retried, failures);
}

#[test]
fn it_is_not_tried_before_its_wait_is_over() {
    let mut track = edge();
    track.answered(500);
    track.stays(Happening::Start, Why::NotDue);
    track.wait(seconds(1).saturating_sub(MILLISECOND));
    track.stays(Happening::Start, Why::NotDue);
    track.wait(MILLISECOND);
    assert_eq!(track.moves(Happening::Start).state, State::InFlight);
}

#[test]
fn the_sweep_ends_what_waits_longer_than_seven_days() {
    for failures in [0, 1, 40] {
        let mut track = edge().after_failures(failures);
        track.wait(days(7));
        track.stays(Happening::Sweep, Why::WithinAge);
        track.wait(MILLISECOND);
        let next = track.moves(Happening::Sweep);
        assert_eq!((next.state, next.reason), (State::Dead, Some(Reason::Expired)));
        assert_eq!((next.attempts, next.due), (failures, None), "age costs no attempt");
        track.is_left_alone();
    }
}

#[test]
fn an_attempt_past_seven_days_is_not_started() {
    for failures in [0, 1, 40] {
        let mut track = edge().after_failures(failures);
        track.wait(days(7).saturating_add(MILLISECOND));
        let next = track.moves(Happening::Start);
        assert_eq!((next.state, next.reason), (State::Dead, Some(Reason::Expired)));
        assert_eq!((next.attempts, next.due), (failures, None));

        let mut in_time = edge().after_failures(failures);
        in_time.wait(days(7));
        assert_eq!(in_time.moves(Happening::Start).state, State::InFlight);
    }
}

#[test]
fn a_retry_that_would_come_after_seven_days_is_not_scheduled() {
    let hour = seconds(3_600);
    for (left, state) in [
        (hour.saturating_add(MILLISECOND), State::Retrying),
        (hour, State::Retrying),
        (hour.saturating_sub(MILLISECOND), State::Dead),
        (Duration::ZERO, State::Dead),
    ] {
        let mut track = edge().after_failures(20);
        track.wait(days(7).saturating_sub(left));
        let next = track.answered(500);
        assert_eq!(next.state, state, "{left:?} left");
        assert_eq!(next.attempts, 21);
        assert_eq!(next.due.is_some(), state == State::Retrying);
        assert_eq!(next.reason, (state == State::Dead).then_some(Reason::Expired));
    }
}

#[test]
fn what_is_in_flight_is_not_swept() {
    let mut track = edge();
    track.moves(Happening::Start);
    track.wait(days(8));
    track.stays(Happening::Sweep, Why::InFlight);
    assert_eq!(track.moves(Happening::Finish(Outcome::Delivered)).state, State::Delivered);

    let mut failing = edge();
    failing.moves(Happening::Start);
    failing.wait(days(8));
    let next = failing.moves(Happening::Finish(retryable()));
    assert_eq!((next.state, next.reason), (State::Dead, Some(Reason::Expired)));
}

#[test]
fn what_has_ended_is_not_swept() {
    for (outcome, state) in [
        (Outcome::Delivered, State::Delivered),
        (Outcome::Failed { class: Class::Final, retry_after: None, disable: false }, State::Failed),
    ] {
        let mut track = edge();
        track.attempt(outcome);
        track.wait(days(30));
        track.stays(Happening::Sweep, Why::AlreadyEnded);
        assert_eq!(track.delivery.state, state);
    }
}

#[test]
fn only_age_limits_the_attempts() {
    let mut track = edge();
    let arrival = track.now;
    let course = track.fail_for_good(retryable());
    assert_eq!((course.state, course.reason), (State::Dead, Some(Reason::Expired)));
    assert!(course.attempts > 100, "{course:?}");
    assert!(track.now.since(arrival) <= days(7));
    assert!(track.now.since(arrival).saturating_add(seconds(3_600)) > days(7));
}

#[test]
fn a_reset_of_an_expired_one_gives_seven_more_days() {
    let mut track = edge().after_failures(30);
    track.wait(days(9));
    track.moves(Happening::Sweep);
    let next = track.moves(Happening::Reset);
    assert_eq!((next.state, next.attempts), (State::Pending, 0));
    assert_eq!((next.due, next.born), (Some(track.now), track.now));
    let next = track.answered(500);
    is_retrying(&track, &next, 1, seconds(1));
    track.wait(days(7));
    track.stays(Happening::Sweep, Why::WithinAge);
}

#[test]
fn one_that_was_to_go_later_is_as_old_as_the_time_since() {
    let mut track = edge();
    track.delivery.born = track.now.plus(days(10));
    track.delivery.due = track.delivery.born;
    track.wait(days(9));
    track.stays(Happening::Sweep, Why::WithinAge);
    track.stays(Happening::Start, Why::NotDue);
    track.wait(days(2));
    assert_eq!(track.moves(Happening::Start).state, State::InFlight);
}

#[test]
fn edge_alone_keeps_the_order_of_events_unless_told() {
    assert_eq!(Ordering::default_for(Some(Preset::Edge)), Ordering::Fifo);
    for preset in Preset::ALL.into_iter().filter(|preset| *preset != Preset::Edge) {
        assert_eq!(Ordering::default_for(Some(preset)), Ordering::None, "{}", preset.as_str());
    }
}
