//! The plans that `policy show` and the preview print: each attempt, its bounds, the giving up.

use std::time::Duration;

use postrider_core::policy::{
    Attempt, GivesUp, MAX_PLANNED_ATTEMPTS, Plan, Preset, Presets, Rule, Rules, Schedule, Spec,
};
use postrider_core::{Policy, Reason};

const WEEK: u64 = 7 * 24 * 3_600;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn plan(preset: Preset) -> Plan {
    Presets::default().policy(preset).plan()
}

fn planned(json: &str) -> Plan {
    let spec: Spec = serde_json::from_str(json).expect(json);
    spec.build(&Presets::default()).expect(json).plan()
}

/// The plan of a policy without jitter, from the times of its attempts alone.
#[track_caller]
fn is_exact(plan: &Plan, times: &[u64], reason: Reason) {
    let mut before = 0;
    let mut attempts = Vec::new();
    for (number, &time) in (1..).zip(times) {
        let at = seconds(time);
        attempts.push(Attempt { number, delay: seconds(time - before), earliest: at, latest: at });
        before = time;
    }
    assert_eq!(plan.attempts, attempts);
    assert_eq!(plan.gives_up, Some(GivesUp { reason, after: seconds(before) }));
}

#[test]
fn router_tries_at_0_30_150_750_4350_s_and_gives_up() {
    is_exact(&plan(Preset::Router), &[0, 30, 150, 750, 4_350], Reason::Exhausted);
}

#[test]
fn inbox_tries_at_0_10_30_70_150_s_and_gives_up() {
    is_exact(&plan(Preset::Inbox), &[0, 10, 30, 70, 150], Reason::Exhausted);
}

#[test]
fn runs_tries_eight_times_within_7380_s() {
    let times = [0, 60, 180, 420, 900, 1_860, 3_780, 7_380];
    is_exact(&plan(Preset::Runs), &times, Reason::Exhausted);
}

#[test]
fn edge_tries_until_another_hour_would_pass_seven_days() {
    // Twelve doublings from 1 s to 2048 s, then as many whole hours as the week has left.
    let doublings: u64 = (0..12).map(|power| 1 << power).sum();
    assert_eq!(doublings, 4_095);
    let hours = (WEEK - doublings) / 3_600;
    let last = doublings + hours * 3_600;

    let plan = plan(Preset::Edge);
    assert_eq!(u64::try_from(plan.attempts.len()), Ok(1 + 12 + hours));
    assert_eq!(plan.attempts.len(), 179);
    let final_attempt = plan.attempts.last().expect("attempts");
    assert_eq!(final_attempt.number, 179);
    assert_eq!((final_attempt.earliest, final_attempt.latest), (seconds(last), seconds(last)));
    assert_eq!(plan.gives_up, Some(GivesUp { reason: Reason::Expired, after: seconds(last) }));
    assert!(last <= WEEK && last + 3_600 > WEEK);
}

#[test]
fn dispatch_tries_five_times_a_tenth_early_or_late() {
    let plan = plan(Preset::Dispatch);
    let expected = [
        (0, 0, 0),
        (1_000, 900, 1_100),
        (2_000, 2_700, 3_300),
        (4_000, 6_300, 7_700),
        (8_000, 13_500, 16_500),
    ];
    let attempts: Vec<Attempt> = (1..)
        .zip(expected)
        .map(|(number, (delay, earliest, latest))| Attempt {
            number,
            delay: Duration::from_millis(delay),
            earliest: Duration::from_millis(earliest),
            latest: Duration::from_millis(latest),
        })
        .collect();
    assert_eq!(plan.attempts, attempts);
    assert_eq!(plan.gives_up, Some(GivesUp { reason: Reason::Exhausted, after: seconds(15) }));
}

#[test]
fn standard_tries_ten_times_a_tenth_early_or_late() {
    let waits = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
    let plan = plan(Preset::Standard);
    assert_eq!(plan.attempts.len(), 10);
    let mut sum = 0;
    for (attempt, wait) in plan.attempts.iter().skip(1).zip(waits) {
        sum += wait;
        assert_eq!(attempt.delay, seconds(wait), "{attempt:?}");
        assert_eq!(attempt.earliest, Duration::from_millis(sum * 900), "{attempt:?}");
        assert_eq!(attempt.latest, Duration::from_millis(sum * 1_100), "{attempt:?}");
    }
    assert_eq!(sum, 272_105);
    let gives_up = GivesUp { reason: Reason::Exhausted, after: seconds(272_105) };
    assert_eq!(plan.gives_up, Some(gives_up));
}

#[test]
fn one_attempt_is_a_plan() {
    is_exact(&planned(r#"{"preset":"router","max_attempts":1}"#), &[0], Reason::Exhausted);
}

#[test]
fn an_age_shorter_than_the_first_wait_leaves_one_attempt() {
    is_exact(&planned(r#"{"preset":"router","max_age":"29s"}"#), &[0], Reason::Expired);
    is_exact(&planned(r#"{"preset":"router","max_age":"30s"}"#), &[0, 30], Reason::Expired);
}

#[test]
fn whichever_limit_comes_first_ends_the_plan() {
    let both = r#"{"preset":"router","max_attempts":3,"max_age":"1h"}"#;
    is_exact(&planned(both), &[0, 30, 150], Reason::Exhausted);
    let both = r#"{"preset":"router","max_attempts":5,"max_age":"1h"}"#;
    is_exact(&planned(both), &[0, 30, 150, 750], Reason::Expired);
}

#[test]
fn no_attempt_is_planned_past_the_age_jitter_included() {
    let plan =
        planned(r#"{"schedule":{"list":["1h"],"jitter":0.5},"max_attempts":null,"max_age":"5h"}"#);
    let hours = |count: u64| seconds(count * 3_600);
    let bounds: Vec<(Duration, Duration)> =
        plan.attempts.iter().map(|attempt| (attempt.earliest, attempt.latest)).collect();
    let expected: Vec<(Duration, Duration)> = [(0, 0), (1, 3), (2, 6), (3, 9), (4, 10), (5, 10)]
        .map(|(early, late)| (hours(early) / 2, hours(late) / 2))
        .to_vec();
    assert_eq!(bounds, expected);
    assert_eq!(plan.gives_up, Some(GivesUp { reason: Reason::Expired, after: hours(5) }));
}

#[test]
fn a_very_long_plan_is_cut() {
    let schedule = Schedule::List { delays: vec![seconds(1)], jitter: 0.0 };
    let policy = |max_attempts| {
        Policy::new(schedule.clone(), Some(max_attempts), None, Rules::all(Rule::Retryable))
            .expect("valid")
    };
    let longest = u32::try_from(MAX_PLANNED_ATTEMPTS).expect("small");
    let whole = policy(longest).plan();
    assert_eq!(whole.attempts.len(), MAX_PLANNED_ATTEMPTS);
    assert!(whole.gives_up.is_some());
    for more in [longest + 1, u32::MAX] {
        let cut = policy(more).plan();
        assert_eq!((cut.attempts.len(), cut.gives_up), (MAX_PLANNED_ATTEMPTS, None));
    }
}
