//! `router`: a fixed ladder of waits, dead at the fifth failure, a whole ladder again after a reset.

use postrider_core::delivery::Why;
use postrider_core::outcome::Sighting;
use postrider_core::policy::Preset;
use postrider_core::{Class, Happening, Jitter, Reason, State};

use crate::track::{
    MILLISECOND, Track, course, first_answers, is_exhausted_after, is_retrying, preset, retryable,
    seconds, statuses, written,
};

fn router() -> Track {
    Track::new(preset(Preset::Router))
}

#[test]
fn waits_30_120_600_3600_s_and_is_dead_at_the_fifth_failure() {
    for jitter in [Jitter::EARLIEST, Jitter::MIDDLE, Jitter::LATEST] {
        is_exhausted_after(&course(preset(Preset::Router), jitter), &[30, 120, 600, 3_600]);
    }
}

#[test]
fn the_fifth_step_of_the_ladder_is_there_for_longer_policies_and_repeats() {
    let policy = preset(Preset::Router);
    for (failures, delay) in
        [(1, 30), (2, 120), (3, 600), (4, 3_600), (5, 21_600), (6, 21_600), (u32::MAX, 21_600)]
    {
        assert_eq!(policy.delay(failures, Jitter::MIDDLE), seconds(delay), "{failures}");
    }
    let longer = written(r#"{"preset":"router","max_attempts":8}"#);
    is_exhausted_after(
        &course(longer, Jitter::MIDDLE),
        &[30, 120, 600, 3_600, 21_600, 21_600, 21_600],
    );
}

/// Scenario S1.
#[test]
fn the_first_failure_of_a_pending_delivery_schedules_a_retry_in_30_s() {
    let mut track = router();
    assert_eq!((track.delivery.state, track.delivery.attempts), (State::Pending, 0));
    let next = track.answered(500);
    is_retrying(&track, &next, 1, seconds(30));
    assert_eq!((next.class, next.counted), (Some(Class::Retryable), true));
}

/// Scenario S2.
#[test]
fn the_fifth_failure_makes_it_dead_with_no_next_attempt() {
    let mut track = router().after_failures(4);
    assert_eq!(track.delivery.state, State::Retrying);
    let next = track.answered(500);
    assert_eq!((next.state, next.attempts), (State::Dead, 5));
    assert_eq!((next.due, next.reason), (None, Some(Reason::Exhausted)));
}

#[test]
fn each_failure_leads_one_step_down_the_ladder() {
    for (earlier, wait) in [(0, 30), (1, 120), (2, 600), (3, 3_600)] {
        for failure in [Sighting::Status(500), Sighting::Network] {
            let mut track = router().after_failures(earlier);
            let next = track.sees(failure, None);
            is_retrying(&track, &next, earlier + 1, seconds(wait));
        }
    }
}

#[test]
fn any_failure_is_retried_hint_or_not() {
    let failures = statuses(&[199, 301, 400, 404, 410, 422, 429, 500, 503])
        .chain([Sighting::Network, Sighting::Timeout]);
    let retried = (State::Retrying, Some(Class::Retryable));
    first_answers(&preset(Preset::Router), retried, failures);

    for status in [429, 503] {
        let mut track = router();
        let next = track.sees(Sighting::Status(status), Some(seconds(5)));
        is_retrying(&track, &next, 1, seconds(30));
    }
}

#[test]
fn it_is_picked_up_when_due_and_not_before() {
    let mut track = router();
    track.answered(500);
    track.wait(seconds(30).saturating_sub(MILLISECOND));
    track.stays(Happening::Start, Why::NotDue);
    track.wait(MILLISECOND);
    assert_eq!(track.moves(Happening::Start).state, State::InFlight);
}

/// Alternate flow A1.
#[test]
fn a_2xx_delivers_and_schedules_nothing_more() {
    for earlier in 0..=4 {
        let mut track = router().after_failures(earlier);
        let next = track.answered(204);
        assert_eq!((next.state, next.due), (State::Delivered, None));
        assert_eq!(next.attempts, earlier + 1);
        track.is_left_alone();
    }
}

/// Failure flow F1.
#[test]
fn a_dead_delivery_is_left_alone_until_an_operator_resets_it() {
    let mut track = router();
    track.fail_for_good(retryable());
    track.is_left_alone();
    track.stays(Happening::Cancel, Why::AlreadyEnded);

    let next = track.moves(Happening::Reset);
    assert_eq!((next.state, next.attempts, next.deferrals), (State::Pending, 0, 0));
    assert_eq!((next.due, next.reason, next.class), (Some(track.now), None, None));
}

#[test]
fn a_reset_gives_the_whole_ladder_again() {
    let mut track = router();
    for _ in 0..3 {
        is_exhausted_after(&track.fail_for_good(retryable()), &[30, 120, 600, 3_600]);
        track.wait(seconds(1_000_000));
        track.moves(Happening::Reset);
    }
}

#[test]
fn a_reset_in_the_middle_starts_the_ladder_over() {
    let mut track = router();
    track.answered(500);
    track.answered(500);
    track.moves(Happening::Reset);
    is_exhausted_after(&track.fail_for_good(retryable()), &[30, 120, 600, 3_600]);
}
