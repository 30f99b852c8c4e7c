//! `inbox`: a failed event waits twice as long each time and is given up at the fifth failure.

use std::time::Duration;

use postrider_core::delivery::Why;
use postrider_core::outcome::Sighting;
use postrider_core::policy::{InboxOverrides, Preset, Presets};
use postrider_core::{Class, Happening, Jitter, Outcome, Policy, Reason, State};

use crate::track::{
    MILLISECOND, Track, all_seconds, course, first_answers, is_exhausted_after, is_retrying,
    preset, retryable, seconds, statuses,
};

fn overridden(base: u64, max: u64, max_attempts: u32) -> Policy {
    let overrides =
        InboxOverrides { base_delay: seconds(base), max_delay: seconds(max), max_attempts };
    Presets::new(overrides).expect("valid").policy(Preset::Inbox)
}

#[test]
fn waits_10_20_40_80_s_and_is_dead_at_the_fifth_failure() {
    is_exhausted_after(&course(preset(Preset::Inbox), Jitter::MIDDLE), &[10, 20, 40, 80]);
}

#[test]
fn the_delay_is_the_base_doubled_per_attempt_up_to_300_s() {
    let policy = preset(Preset::Inbox);
    let expected = [10, 20, 40, 80, 160, 300, 300, 300];
    let delays: Vec<Duration> =
        (1..=8).map(|failures| policy.delay(failures, Jitter::MIDDLE)).collect();
    assert_eq!(delays, all_seconds(&expected));
    assert_eq!(policy.delay(u32::MAX, Jitter::MIDDLE), seconds(300));
}

#[test]
fn there_is_no_jitter() {
    for jitter in [Jitter::EARLIEST, Jitter::new(0.3), Jitter::LATEST] {
        is_exhausted_after(&course(preset(Preset::Inbox), jitter), &[10, 20, 40, 80]);
    }
}

#[test]
fn base_cap_and_attempts_can_be_changed() {
    let cases: [(Policy, &[u64]); 6] = [
        (overridden(5, 300, 5), &[10, 20, 40, 80]),
        (overridden(5, 300, 9), &[10, 20, 40, 80, 160, 300, 300, 300]),
        (overridden(1, 8, 7), &[2, 4, 8, 8, 8, 8]),
        (overridden(7, 50, 4), &[14, 28, 50]),
        (overridden(600, 300, 3), &[300, 300]),
        (overridden(5, 300, 1), &[]),
    ];
    for (policy, waits) in cases {
        is_exhausted_after(&course(policy, Jitter::MIDDLE), waits);
    }
}

#[test]
fn changes_that_make_no_policy_are_refused() {
    let sound = InboxOverrides::default();
    let cases = [
        (InboxOverrides { base_delay: Duration::ZERO, ..sound }, "schedule.exponential.initial"),
        (InboxOverrides { base_delay: Duration::MAX, ..sound }, "schedule.exponential.initial"),
        (InboxOverrides { max_delay: Duration::ZERO, ..sound }, "schedule.exponential.max_delay"),
        (InboxOverrides { max_attempts: 0, ..sound }, "max_attempts"),
    ];
    for (overrides, field) in cases {
        assert_eq!(Presets::new(overrides).expect_err(field).field, field);
    }
}

#[test]
fn a_change_of_inbox_leaves_the_other_presets_alone() {
    let presets = Presets::new(InboxOverrides { max_attempts: 2, ..InboxOverrides::default() })
        .expect("valid");
    for other in Preset::ALL.into_iter().filter(|preset| *preset != Preset::Inbox) {
        assert_eq!(presets.policy(other), preset(other), "{}", other.as_str());
    }
}

#[test]
fn each_failure_counts_and_schedules_the_next_try() {
    let mut track = Track::new(preset(Preset::Inbox));
    for (attempts, wait) in [(1, 10), (2, 20), (3, 40), (4, 80)] {
        let next = track.answered(500);
        is_retrying(&track, &next, attempts, seconds(wait));
        assert_eq!((next.class, next.counted), (Some(Class::Retryable), true));
    }
    let last = track.answered(500);
    assert_eq!((last.state, last.attempts, last.due), (State::Dead, 5, None));
    assert_eq!((last.reason, last.class), (Some(Reason::Exhausted), Some(Class::Retryable)));
    assert!(last.state.is_dead_letter());
}

#[test]
fn a_dead_event_is_never_tried_again_by_itself() {
    let mut track = Track::new(preset(Preset::Inbox));
    track.fail_for_good(retryable());
    track.is_left_alone();
    assert_eq!((track.delivery.state, track.delivery.attempts), (State::Dead, 5));
}

#[test]
fn every_failure_is_retryable_unless_the_worker_says_otherwise() {
    let policy = preset(Preset::Inbox);
    let failures = statuses(&[301, 400, 401, 404, 410, 422, 429, 500, 502, 503, 504])
        .chain([Sighting::Network, Sighting::Timeout]);
    first_answers(&policy, (State::Retrying, Some(Class::Retryable)), failures);

    let refused = Outcome::Failed { class: Class::Final, retry_after: None, disable: false };
    assert_eq!(Track::new(policy).attempt(refused).state, State::Failed);
}

/// What is stored is all that is known after a restart: the same fields, and no memory.
#[test]
fn a_backoff_outlives_a_restart() {
    let mut before = Track::new(preset(Preset::Inbox));
    before.answered(500);
    before.answered(500);
    let mut after = Track::new(preset(Preset::Inbox));
    after.delivery = before.delivery;

    after.now = before.delivery.due.minus(MILLISECOND);
    after.stays(Happening::Start, Why::NotDue);
    after.wait(MILLISECOND);
    assert_eq!(after.moves(Happening::Start).state, State::InFlight);
    assert_eq!(after.moves(Happening::Finish(retryable())).attempts, 3);
    assert_eq!(after.until_due(), seconds(40));
}

#[test]
fn an_event_whose_holder_went_away_counts_as_a_failure() {
    let mut track = Track::new(preset(Preset::Inbox));
    track.moves(Happening::Start);
    let next = track.moves(Happening::LeaseExpired);
    is_retrying(&track, &next, 1, seconds(0));
    assert_eq!(next.class, Some(Class::Retryable));
}

#[test]
fn a_success_after_failures_ends_it() {
    let mut track = Track::new(preset(Preset::Inbox));
    track.answered(500);
    track.answered(500);
    let next = track.answered(200);
    assert_eq!((next.state, next.attempts, next.due), (State::Delivered, 3, None));
    track.is_left_alone();
}
