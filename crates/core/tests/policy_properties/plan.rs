//! A plan shows what `step` does: the same attempts at the same times, and the same end.

use std::time::Duration;

use postrider_core::delivery::Transition;
use postrider_core::policy::{GivesUp, MAX_PLANNED_ATTEMPTS};
use postrider_core::{Class, Delivery, Happening, Jitter, Outcome, Policy, State, Timestamp, step};
use proptest::prelude::*;

use crate::any;

/// When each attempt starts if all fail at once with the nominal wait, and how that ends.
fn walked(policy: &Policy) -> (Vec<Duration>, Option<GivesUp>) {
    let born = Timestamp::from_millis(1_700_000_000_000);
    let failure = Outcome::Failed { class: Class::Retryable, retry_after: None, disable: false };
    let mut delivery =
        Delivery { state: State::InFlight, attempts: 0, deferrals: 0, due: born, born };
    let mut times = Vec::new();
    while times.len() < MAX_PLANNED_ATTEMPTS {
        let now = delivery.due;
        times.push(now.since(born));
        match step(&delivery, Happening::Finish(failure), policy, now, Jitter::MIDDLE) {
            Transition::Moves(next) => match (next.due, next.reason) {
                (Some(due), None) => {
                    delivery = Delivery { attempts: next.attempts, due, ..delivery }
                }
                (None, Some(reason)) => {
                    return (times, Some(GivesUp { reason, after: now.since(born) }));
                }
                impossible => panic!("{impossible:?}"),
            },
            Transition::Stays(why) => panic!("{why:?}"),
        }
    }
    (times, None)
}

proptest! {
    #[test]
    fn a_plan_is_what_step_does(policy in any::policy()) {
        let plan = policy.plan();
        let (times, gives_up) = walked(&policy);
        let mut nominal = Duration::ZERO;
        let planned: Vec<Duration> = plan
            .attempts
            .iter()
            .map(|attempt| {
                nominal += attempt.delay;
                nominal
            })
            .collect();
        prop_assert_eq!(planned, times);
        prop_assert_eq!(plan.gives_up, gives_up);
    }

    #[test]
    fn a_plan_is_numbered_and_bounded(policy in any::policy()) {
        let plan = policy.plan();
        prop_assert!((1..=MAX_PLANNED_ATTEMPTS).contains(&plan.attempts.len()));
        let mut nominal = Duration::ZERO;
        for (number, attempt) in (1..).zip(&plan.attempts) {
            nominal += attempt.delay;
            prop_assert_eq!(attempt.number, number);
            prop_assert!(attempt.earliest <= nominal && nominal <= attempt.latest);
            prop_assert!(policy.max_age().is_none_or(|age| attempt.latest <= age));
            prop_assert!(policy.max_attempts().is_none_or(|max| number <= max));
        }
    }
}
