//! What holds after every step, of every delivery, under every policy.

use std::time::Duration;

use postrider_core::delivery::{MAX_DEFERRALS, Next, Transition, Why};
use postrider_core::policy::{MAX_HINT_WITHOUT_AGE, Rule, Rules, Schedule};
use postrider_core::{
    Class, Delivery, Happening, Jitter, Outcome, Policy, Reason, State, Timestamp, step,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::any;

/// How many tries a walk follows; policies with more attempts are followed this far.
const MAX_WALK: u32 = 3_000;
/// The most a jittered hint is late by.
const MAX_HINT_JITTER: Duration = Duration::from_secs(30);

type Checked = Result<(), TestCaseError>;

fn apply(before: &Delivery, next: &Next) -> Delivery {
    Delivery {
        state: next.state,
        attempts: next.attempts,
        deferrals: next.deferrals,
        due: next.due.unwrap_or(before.due),
        born: next.born,
    }
}

fn pending(now: Timestamp) -> Delivery {
    Delivery { state: State::Pending, attempts: 0, deferrals: 0, due: now, born: now }
}

fn check_shape(next: &Next) -> Checked {
    let waits = matches!(next.state, State::Pending | State::Retrying);
    prop_assert_eq!(next.due.is_some(), waits, "due exactly while it waits");
    match next.state {
        State::Failed => prop_assert_eq!(next.reason, Some(Reason::Rejected)),
        State::Dead => {
            prop_assert!(matches!(next.reason, Some(Reason::Exhausted | Reason::Expired)));
        }
        State::Pending
        | State::InFlight
        | State::Retrying
        | State::Delivered
        | State::Cancelled => prop_assert_eq!(next.reason, None),
    }
    if next.state == State::Delivered {
        prop_assert_eq!(next.class, None);
    }
    prop_assert!(!next.disable_endpoint || next.state == State::Failed);
    if let Some(hold) = next.hold_endpoint_until {
        prop_assert_eq!(next.class, Some(Class::RateLimited));
        prop_assert!(next.due.is_none_or(|due| due <= hold), "due before the hold ends");
    }
    Ok(())
}

fn check_counters(
    before: &Delivery,
    happening: Happening,
    policy: &Policy,
    next: &Next,
) -> Checked {
    if happening == Happening::Reset {
        prop_assert_eq!((next.attempts, next.deferrals, next.counted), (0, 0, false));
        return Ok(());
    }
    prop_assert_eq!(next.born, before.born);
    prop_assert_eq!(next.attempts, before.attempts.saturating_add(u32::from(next.counted)));
    if let Some(max) = policy.max_attempts()
        && before.attempts < max
    {
        prop_assert!(next.attempts <= max, "{} of {max} attempts", next.attempts);
    }
    prop_assert!(next.deferrals <= before.deferrals.max(MAX_DEFERRALS));
    Ok(())
}

fn check_times(
    before: &Delivery,
    happening: Happening,
    policy: &Policy,
    now: Timestamp,
    jitter: Jitter,
    next: &Next,
) -> Checked {
    let expires = policy.expires(before.born);
    if next.state == State::InFlight {
        prop_assert!(now >= before.due, "started early");
        prop_assert!(expires.is_none_or(|expires| now <= expires), "started late");
        prop_assert!(policy.max_attempts().is_none_or(|max| before.attempts < max));
    }
    let Some(due) = next.due else { return Ok(()) };
    prop_assert!(due >= now);
    if next.state != State::Retrying {
        return Ok(());
    }
    // One that is given back is as old as it was.
    let aged = happening == Happening::Release;
    prop_assert!(aged || expires.is_none_or(|expires| due <= expires), "a retry past the age");
    let hint = match happening {
        Happening::Finish(Outcome::Failed {
            class: Class::RateLimited,
            retry_after: Some(hint),
            ..
        }) if !hint.is_zero() => Some(hint),
        Happening::Start
        | Happening::Finish(_)
        | Happening::LeaseExpired
        | Happening::Release
        | Happening::Sweep
        | Happening::Reset
        | Happening::Cancel => None,
    };
    if happening == Happening::Release {
        prop_assert!(!next.counted);
        prop_assert_eq!(due, now);
    } else if happening == Happening::LeaseExpired {
        prop_assert!(next.counted);
        prop_assert_eq!(due, now);
    } else if let Some(hint) = hint {
        let limit = expires.unwrap_or(now.plus(MAX_HINT_WITHOUT_AGE));
        prop_assert!(due >= now.plus(hint).min(limit), "a hint honoured early");
        prop_assert!(due <= now.plus(hint.saturating_add(MAX_HINT_JITTER)));
        prop_assert_eq!(next.counted, before.deferrals >= MAX_DEFERRALS);
        prop_assert!(next.hold_endpoint_until.is_some_and(|hold| hold >= due));
    } else {
        prop_assert!(next.counted);
        prop_assert_eq!(due, now.plus(policy.delay(next.attempts, jitter)));
        prop_assert_eq!(next.hold_endpoint_until, None);
    }
    Ok(())
}

/// Who may leave which state.
fn check_move(before: &Delivery, happening: Happening, next: &Next) -> Checked {
    let allowed = match happening {
        Happening::Start => matches!(before.state, State::Pending | State::Retrying),
        Happening::Finish(_) | Happening::LeaseExpired => before.state == State::InFlight,
        Happening::Release => {
            before.state == State::InFlight
                && matches!(next.state, State::Pending | State::Retrying)
        }
        Happening::Sweep => {
            matches!(before.state, State::Pending | State::Retrying) && next.state == State::Dead
        }
        Happening::Reset => {
            !matches!(before.state, State::InFlight | State::Delivered)
                && next.state == State::Pending
        }
        Happening::Cancel => !before.state.is_terminal() && next.state == State::Cancelled,
    };
    prop_assert!(allowed, "{happening:?} took {:?} to {:?}", before.state, next.state);
    Ok(())
}

/// A happening anywhere in the life of a delivery, and when.
fn story() -> impl Strategy<Value = Vec<(Happening, Duration, Jitter)>> {
    let pause = prop_oneof![3 => Just(Duration::ZERO), 1 => any::span()];
    prop::collection::vec((any::happening(), pause, any::jitter()), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_step_has_an_answer_that_keeps_the_invariants(
        before in any::delivery(),
        happening in any::happening(),
        policy in any::policy(),
        now in any::time(),
        jitter in any::jitter(),
    ) {
        if let Transition::Moves(next) = step(&before, happening, &policy, now, jitter) {
            check_shape(&next)?;
            check_counters(&before, happening, &policy, &next)?;
            check_times(&before, happening, &policy, now, jitter, &next)?;
            check_move(&before, happening, &next)?;
        }
    }

    #[test]
    fn delivered_is_never_left(
        before in any::delivery(),
        happening in any::happening(),
        policy in any::policy(),
        now in any::time(),
        jitter in any::jitter(),
    ) {
        let delivered = Delivery { state: State::Delivered, ..before };
        let transition = step(&delivered, happening, &policy, now, jitter);
        prop_assert!(matches!(transition, Transition::Stays(_)), "{transition:?}");
    }
}

proptest! {
    /// Whatever happens in whatever order, a delivery stays within its policy.
    #[test]
    fn a_whole_life_keeps_the_invariants(
        policy in any::policy(),
        born in any::near_time(),
        story in story(),
    ) {
        let mut delivery = pending(born);
        let mut now = born;
        for (happening, pause, jitter) in story {
            now = now.plus(pause);
            if happening == Happening::Start {
                now = now.max(delivery.due);
            }
            if let Transition::Moves(next) = step(&delivery, happening, &policy, now, jitter) {
                check_shape(&next)?;
                check_counters(&delivery, happening, &policy, &next)?;
                check_times(&delivery, happening, &policy, now, jitter, &next)?;
                delivery = apply(&delivery, &next);
            }
            prop_assert!(policy.max_attempts().is_none_or(|max| delivery.attempts <= max));
            prop_assert!(delivery.deferrals <= MAX_DEFERRALS);
            prop_assert!(delivery.state != State::Pending || delivery.attempts == 0);
        }
    }

    /// By count where attempts are limited; by time, which moves on with every retry, where age is.
    #[test]
    fn failing_always_comes_to_an_end(
        policy in any::policy(),
        born in any::near_time(),
        outcome in any::outcome().prop_filter("a failure", |it| *it != Outcome::Delivered),
        jitter in any::jitter(),
    ) {
        let mut delivery = pending(born);
        let mut now = born;
        let mut tries = 0;
        while !delivery.state.is_terminal() && tries < MAX_WALK {
            now = now.max(delivery.due);
            for happening in [Happening::Start, Happening::Finish(outcome)] {
                let Transition::Moves(next) = step(&delivery, happening, &policy, now, jitter) else {
                    return Err(TestCaseError::fail(format!("stuck: {delivery:?} at {now}")));
                };
                delivery = apply(&delivery, &next);
            }
            tries += 1;
            if delivery.state == State::Retrying {
                prop_assert!(delivery.due > now, "a retry without a wait");
            }
        }
        let most = policy.max_attempts().map(|max| max.saturating_add(MAX_DEFERRALS));
        prop_assert!(most.is_none_or(|most| tries <= most));
        if most.is_some_and(|most| most < MAX_WALK) {
            prop_assert!(delivery.state.is_dead_letter(), "{delivery:?} after {tries} tries");
        }
    }

    #[test]
    fn a_reset_makes_it_as_new(
        before in any::delivery(),
        policy in any::policy(),
        now in any::time(),
        jitter in any::jitter(),
    ) {
        match step(&before, Happening::Reset, &policy, now, jitter) {
            Transition::Moves(next) => {
                prop_assert_eq!(apply(&before, &next), pending(now));
                prop_assert_eq!(next.class, None);
            }
            Transition::Stays(why) => {
                let refused = matches!(
                    (before.state, why),
                    (State::InFlight, Why::InFlight) | (State::Delivered, Why::AlreadyDelivered)
                );
                prop_assert!(refused, "{before:?}: {why:?}");
            }
        }
    }

    #[test]
    fn a_lapsed_lease_is_a_retryable_failure_that_waits_no_longer(
        before in any::delivery(),
        policy in any::policy(),
        now in any::time(),
        jitter in any::jitter(),
    ) {
        let failure =
            Outcome::Failed { class: Class::Retryable, retry_after: None, disable: false };
        let failed = step(&before, Happening::Finish(failure), &policy, now, jitter);
        match (step(&before, Happening::LeaseExpired, &policy, now, jitter), failed) {
            (Transition::Moves(lapsed), Transition::Moves(failed)) => {
                prop_assert_eq!(lapsed.attempts, failed.attempts);
                prop_assert_eq!(lapsed.class, failed.class);
                // What a backoff takes past its age, a try at once need not.
                let alive = lapsed.state == State::Retrying;
                prop_assert!(alive || (lapsed.state, lapsed.reason) == (failed.state, failed.reason));
                prop_assert_eq!(lapsed.due, alive.then_some(now));
            }
            (lapsed, failed) => prop_assert_eq!(lapsed, failed),
        }
    }
}

fn limited_by_age(age: Duration) -> Policy {
    let schedule = Schedule::List { delays: vec![Duration::from_secs(1)], jitter: 1.0 };
    Policy::new(schedule, None, Some(age), Rules::all(Rule::Retryable)).expect("valid")
}

fn finish(delivery: &Delivery, outcome: Outcome, policy: &Policy, now: Timestamp) -> Next {
    let in_flight = Delivery { state: State::InFlight, ..*delivery };
    match step(&in_flight, Happening::Finish(outcome), policy, now, Jitter::LATEST) {
        Transition::Moves(next) => next,
        Transition::Stays(why) => panic!("{why:?}"),
    }
}

fn limited(hint: Duration) -> Outcome {
    Outcome::Failed { class: Class::RateLimited, retry_after: Some(hint), disable: false }
}

#[test]
fn a_hint_past_the_age_is_shortened_to_it_and_at_its_end_there_is_no_other() {
    let age = Duration::from_hours(1);
    let policy = limited_by_age(age);
    let born = Timestamp::from_millis(1_700_000_000_000);
    let expires = born.plus(age);
    let hint = limited(Duration::from_hours(2));

    let next = finish(&pending(born), hint, &policy, born);
    assert_eq!((next.state, next.due), (State::Retrying, Some(expires)));
    let next = finish(&pending(born), hint, &policy, expires);
    assert_eq!((next.state, next.reason), (State::Dead, Some(Reason::Expired)));
}

#[test]
fn a_hint_of_any_length_is_survived() {
    let policy = limited_by_age(Duration::from_hours(1));
    let born = Timestamp::from_millis(1_700_000_000_000);
    let next = finish(&pending(born), limited(Duration::MAX), &policy, born);
    assert_eq!(next.due, policy.expires(born));
}

#[test]
fn a_policy_made_shorter_ends_what_has_had_its_attempts() {
    let schedule = Schedule::List { delays: vec![Duration::from_secs(1)], jitter: 0.0 };
    let policy = Policy::new(schedule, Some(3), None, Rules::all(Rule::Retryable)).expect("valid");
    let now = Timestamp::from_millis(1_700_000_000_000);
    for (attempts, state) in [(2, State::InFlight), (3, State::Dead), (7, State::Dead)] {
        let waiting = Delivery { state: State::Retrying, attempts, ..pending(now) };
        let Transition::Moves(next) =
            step(&waiting, Happening::Start, &policy, now, Jitter::MIDDLE)
        else {
            panic!("nothing happened to {waiting:?}");
        };
        assert_eq!((next.state, next.attempts), (state, attempts));
        assert_eq!(next.reason, (state == State::Dead).then_some(Reason::Exhausted));
    }
}
