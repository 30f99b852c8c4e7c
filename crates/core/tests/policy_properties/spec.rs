//! Policies as JSON: what parses, what it means, what is refused, and that nothing is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::outcome::Sighting;
use postrider_core::policy::{
    ExponentialSpec, MAX_LIST, Preset, Presets, Rule, Rules, Schedule, ScheduleSpec, Spec,
};
use postrider_core::{Class, Outcome, Policy};
use proptest::prelude::*;

use crate::any;

fn parsed(json: &str) -> Spec {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn built(json: &str) -> Policy {
    parsed(json).build(&Presets::default()).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn preset(preset: Preset) -> Policy {
    Presets::default().policy(preset)
}

#[test]
fn a_name_alone_is_the_preset() {
    for known in Preset::ALL {
        let name = known.as_str();
        assert_eq!(built(&format!("\"{name}\"")), preset(known), "{name}");
        assert_eq!(built(&format!(r#"{{"preset":"{name}"}}"#)), preset(known), "{name}");
        assert_eq!(Preset::named(name), Some(known));
    }
    assert_eq!(Preset::named("Router"), None);
}

#[test]
fn the_documented_form_parses() {
    let policy = built(
        r#"{"preset":"router","schedule":{"list":["30s","2m"],"jitter":0.1},
            "max_attempts":5,"max_age":"7d",
            "classify":{"410":"final","4xx":"final","429":"rate_limited","5xx":"retryable",
                        "3xx":"final","network":"retryable","timeout":"retryable"}}"#,
    );
    let delays = vec![Duration::from_secs(30), Duration::from_mins(2)];
    assert_eq!(*policy.schedule(), Schedule::List { delays, jitter: 0.1 });
    assert_eq!(policy.max_attempts(), Some(5));
    assert_eq!(policy.max_age(), Some(Duration::from_hours(7 * 24)));
    let class = |status| match policy.classify(Sighting::Status(status), None) {
        Outcome::Failed { class, .. } => class,
        Outcome::Delivered => panic!("{status} delivered"),
    };
    assert_eq!([302, 404, 410].map(class), [Class::Final; 3]);
    assert_eq!([429, 500].map(class), [Class::RateLimited, Class::Retryable]);

    let policy = built(
        r#"{"schedule":{"exponential":{"initial":"1s","multiplier":2.0,"max_delay":"1h","jitter":0.1}},"max_attempts":null,"max_age":"7d"}"#,
    );
    let expected = Schedule::Exponential {
        initial: Duration::from_secs(1),
        multiplier: 2.0,
        max_delay: Duration::from_hours(1),
        jitter: 0.1,
    };
    assert_eq!(*policy.schedule(), expected);
    assert_eq!(policy.max_attempts(), None);
}

#[test]
fn what_is_left_out_comes_from_the_preset() {
    let router = preset(Preset::Router);
    let policy = built(r#"{"preset":"router","max_attempts":9}"#);
    assert_eq!((policy.schedule(), policy.rules()), (router.schedule(), router.rules()));
    assert_eq!((policy.max_attempts(), policy.max_age()), (Some(9), None));

    let policy = built(r#"{"preset":"edge","schedule":{"list":["1m"]}}"#);
    let edge = preset(Preset::Edge);
    assert_eq!((policy.max_attempts(), policy.max_age()), (None, edge.max_age()));
    assert_eq!(policy.rules(), edge.rules());

    let standard = preset(Preset::Standard);
    let policy = built(r#"{"max_age":"1d"}"#);
    assert_eq!((policy.schedule(), policy.rules()), (standard.schedule(), standard.rules()));
    assert_eq!(policy.max_attempts(), Some(10));
}

#[test]
fn null_takes_a_limit_away_and_absence_keeps_it() {
    let day = Some(Duration::from_hours(24));
    let week = Some(Duration::from_hours(7 * 24));
    let cases = [
        (r#"{"preset":"router","max_age":"1d"}"#, (Some(5), day)),
        (r#"{"preset":"router","max_attempts":null,"max_age":"1d"}"#, (None, day)),
        (r#"{"preset":"router","max_age":null}"#, (Some(5), None)),
        (r#"{"preset":"edge","max_attempts":3}"#, (Some(3), week)),
        (r#"{"preset":"edge","max_attempts":3,"max_age":null}"#, (Some(3), None)),
        (r#"{"preset":"edge","max_attempts":null}"#, (None, week)),
    ];
    for (json, limits) in cases {
        let policy = built(json);
        assert_eq!((policy.max_attempts(), policy.max_age()), limits, "{json}");
    }
}

#[test]
fn the_most_specific_key_wins_in_whatever_order() {
    let rate_limited =
        Outcome::Failed { class: Class::RateLimited, retry_after: None, disable: false };
    for json in [
        r#"{"classify":{"429":"rate_limited","4xx":"final"}}"#,
        r#"{"classify":{"4xx":"final","429":"rate_limited"}}"#,
    ] {
        let policy = built(json);
        assert_eq!(policy.classify(Sighting::Status(429), None), rate_limited, "{json}");
        for status in [400, 428, 430, 499] {
            let outcome = policy.classify(Sighting::Status(status), None);
            assert!(matches!(outcome, Outcome::Failed { class: Class::Final, .. }), "{status}");
        }
    }
}

/// The most specific key wins, whoever said it.
#[test]
fn a_class_that_is_said_leaves_the_statuses_the_preset_has_in_it() {
    let policy = built(r#"{"preset":"standard","classify":{"4xx":"retryable"}}"#);
    let cases = [
        (400, Class::Retryable, false),
        (410, Class::Final, true),
        (429, Class::RateLimited, false),
    ];
    for (status, class, disable) in cases {
        let expected = Outcome::Failed { class, retry_after: None, disable };
        assert_eq!(policy.classify(Sighting::Status(status), None), expected, "{status}");
    }
    let kept = policy.classify(Sighting::Status(503), Some(Duration::from_secs(9)));
    assert!(matches!(kept, Outcome::Failed { class: Class::RateLimited, .. }));
}

#[test]
fn network_and_timeout_are_told_apart() {
    let policy = built(r#"{"classify":{"network":"final","timeout":"rate_limited"}}"#);
    let class = |sighting| match policy.classify(sighting, None) {
        Outcome::Failed { class, .. } => class,
        Outcome::Delivered => panic!("{sighting:?} delivered"),
    };
    assert_eq!(class(Sighting::Network), Class::Final);
    assert_eq!(class(Sighting::Timeout), Class::RateLimited);
    assert_eq!(class(Sighting::Status(500)), Class::Retryable);
}

/// Every rule there is, turned against what it must not touch.
#[test]
fn what_whoever_took_it_says_stands_whatever_the_policy() {
    let hint = Some(Duration::from_secs(9));
    for rule in
        ["final", "final_and_disable", "retryable", "rate_limited", "rate_limited_if_hinted"]
    {
        let policy = built(&format!(
            r#"{{"classify":{{"network":"{rule}","timeout":"{rule}","4xx":"{rule}","5xx":"{rule}"}}}}"#
        ));
        for class in [Class::Final, Class::Retryable, Class::RateLimited] {
            for retry_after in [None, hint] {
                let expected = Outcome::Failed { class, retry_after, disable: false };
                assert_eq!(policy.classify(Sighting::Told(class), retry_after), expected, "{rule}");
            }
        }
        for retry_after in [None, hint] {
            let outcome = policy.classify(Sighting::Done, retry_after);
            assert_eq!(outcome, Outcome::Delivered, "{rule}");
        }
    }
}

#[test]
fn an_entry_for_every_status_or_none_a_success_stays_one() {
    let policy = built(
        r#"{"classify":{"1xx":"final","3xx":"final","4xx":"final","5xx":"final","6xx":"final"}}"#,
    );
    for status in 200..=299 {
        assert_eq!(policy.classify(Sighting::Status(status), None), Outcome::Delivered);
    }
    for status in [0, 99, 1_000, u16::MAX] {
        let outcome = policy.classify(Sighting::Status(status), None);
        assert!(matches!(outcome, Outcome::Failed { .. }), "{status}");
    }
}

#[test]
fn policies_that_cannot_be_are_refused_by_the_name_of_the_field() {
    let long_list = format!(r#"{{"schedule":{{"list":[{}"1s"]}}}}"#, "\"1s\",".repeat(MAX_LIST));
    let cases = [
        (r#"{"max_attempts":null}"#, "max_attempts"),
        (r#"{"preset":"edge","max_age":null}"#, "max_attempts"),
        (r#"{"preset":"edge","max_attempts":null,"max_age":null}"#, "max_attempts"),
        (r#"{"max_attempts":0}"#, "max_attempts"),
        (r#"{"max_age":"0s"}"#, "max_age"),
        (r#"{"max_age":"367d"}"#, "max_age"),
        (r#"{"schedule":{}}"#, "schedule"),
        (r#"{"schedule":{"jitter":0.1}}"#, "schedule"),
        (
            r#"{"schedule":{"list":["1s"],"exponential":{"initial":"1s","max_delay":"1h"}}}"#,
            "schedule",
        ),
        (r#"{"schedule":{"list":[]}}"#, "schedule.list"),
        (&long_list, "schedule.list"),
        (r#"{"schedule":{"list":["0s"]}}"#, "schedule.list[0]"),
        (r#"{"schedule":{"list":["1s","367d"]}}"#, "schedule.list[1]"),
        (r#"{"schedule":{"list":["1s"],"jitter":-0.1}}"#, "schedule.jitter"),
        (r#"{"schedule":{"list":["1s"],"jitter":1.1}}"#, "schedule.jitter"),
        (
            r#"{"schedule":{"exponential":{"initial":"1s","max_delay":"1h"},"jitter":0.1}}"#,
            "schedule.jitter",
        ),
        (
            r#"{"schedule":{"exponential":{"initial":"1s","max_delay":"1h","jitter":1.5}}}"#,
            "schedule.exponential.jitter",
        ),
        (
            r#"{"schedule":{"exponential":{"initial":"0s","max_delay":"1h"}}}"#,
            "schedule.exponential.initial",
        ),
        (
            r#"{"schedule":{"exponential":{"initial":"1s","max_delay":"0s"}}}"#,
            "schedule.exponential.max_delay",
        ),
        (
            r#"{"schedule":{"exponential":{"initial":"1s","max_delay":"3660d"}}}"#,
            "schedule.exponential.max_delay",
        ),
        (
            r#"{"schedule":{"exponential":{"initial":"1s","multiplier":0.5,"max_delay":"1h"}}}"#,
            "schedule.exponential.multiplier",
        ),
        (
            r#"{"schedule":{"exponential":{"initial":"1s","multiplier":-2,"max_delay":"1h"}}}"#,
            "schedule.exponential.multiplier",
        ),
        (
            r#"{"schedule":{"exponential":{"initial":"1s","multiplier":1e300,"max_delay":"1h"}}}"#,
            "schedule.exponential.multiplier",
        ),
        (r#"{"classify":{"200":"final"}}"#, "classify.200"),
        (r#"{"classify":{"2xx":"final"}}"#, "classify.2xx"),
        (r#"{"classify":{"xxx":"final"}}"#, "classify.xxx"),
        (r#"{"classify":{"0xx":"final"}}"#, "classify.0xx"),
        (r#"{"classify":{"4XX":"final"}}"#, "classify.4XX"),
        (r#"{"classify":{"99":"final"}}"#, "classify.99"),
        (r#"{"classify":{"+40":"final"}}"#, "classify.+40"),
        (r#"{"classify":{"+404":"final"}}"#, "classify.+404"),
        (r#"{"classify":{"0404":"final"}}"#, "classify.0404"),
        (r#"{"classify":{"1000":"final"}}"#, "classify.1000"),
        (r#"{"classify":{"":"final"}}"#, "classify."),
        (r#"{"classify":{"dns":"final"}}"#, "classify.dns"),
    ];
    for (json, field) in cases {
        let error = parsed(json).build(&Presets::default()).expect_err(json);
        assert_eq!(error.field, field, "{json}: {error}");
        assert!(error.to_string().starts_with(&format!("{field}: ")), "{json}: {error}");
    }
}

#[test]
fn numbers_no_json_can_hold_are_refused_too() {
    let span = Duration::from_secs(1);
    let cases = [
        (f64::NAN, 0.0, "schedule.exponential.multiplier"),
        (f64::INFINITY, 0.0, "schedule.exponential.multiplier"),
        (2.0, f64::NAN, "schedule.exponential.jitter"),
        (2.0, f64::INFINITY, "schedule.exponential.jitter"),
    ];
    for (multiplier, jitter, field) in cases {
        let schedule = Schedule::Exponential { initial: span, multiplier, max_delay: span, jitter };
        let error =
            Policy::new(schedule, Some(1), None, Rules::all(Rule::Retryable)).expect_err(field);
        assert_eq!(error.field, field);
    }
}

#[test]
fn text_that_is_no_policy_is_refused_with_what_was_wrong() {
    let cases = [
        ("\"nope\"", "no policy is called `nope`; there are standard, inbox, dispatch"),
        ("\"\"", "no policy is called ``"),
        (r#"{"preset":"nope"}"#, "unknown variant `nope`"),
        ("3", "expected a policy: a preset's name or an object"),
        ("[]", "expected a policy: a preset's name or an object"),
        ("null", "expected a policy: a preset's name or an object"),
        (r#"{"attempts":3}"#, "unknown field `attempts`"),
        (r#"{"schedule":{"list":["1s"],"cap":"1h"}}"#, "unknown field `cap`"),
        (
            r#"{"schedule":{"exponential":{"initial":"1s","max_delay":"1h","base":2}}}"#,
            "unknown field `base`",
        ),
        (r#"{"schedule":{"exponential":{"initial":"1s"}}}"#, "missing field `max_delay`"),
        (r#"{"schedule":{"exponential":{"max_delay":"1s"}}}"#, "missing field `initial`"),
        (r#"{"schedule":{"list":[30]}}"#, "expected a duration as text"),
        (r#"{"schedule":{"list":["-5s"]}}"#, "\"-5s\" is not a duration"),
        (r#"{"max_age":"7 days"}"#, "\"7 days\" is not a duration"),
        (r#"{"max_attempts":-1}"#, "integer `-1`, expected u32"),
        (r#"{"max_attempts":4294967296}"#, "integer `4294967296`, expected u32"),
        (r#"{"max_attempts":2.5}"#, "floating point `2.5`, expected u32"),
        (r#"{"max_attempts":"5"}"#, "string \"5\", expected u32"),
        (r#"{"max_attempts":3,"max_attempts":4}"#, "duplicate field `max_attempts`"),
        (r#"{"classify":{"410":"gone"}}"#, "unknown variant `gone`"),
        (r#"{"schedule":{"list":["1s"],"jitter":1e999}}"#, "number out of range"),
    ];
    for (json, part) in cases {
        let error = serde_json::from_str::<Spec>(json).expect_err(json).to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
}

#[test]
fn too_many_classes_are_refused() {
    let classify: BTreeMap<String, Rule> =
        (300..=400).map(|status: u16| (status.to_string(), Rule::Final)).collect();
    let spec = Spec { classify, ..Spec::default() };
    assert_eq!(spec.build(&Presets::default()).expect_err("too many").field, "classify");
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let schedule = any::schedule().prop_map(|schedule| match schedule {
        Schedule::Exponential { initial, multiplier, max_delay, jitter } => ScheduleSpec {
            exponential: Some(ExponentialSpec {
                initial,
                multiplier: thousandths(multiplier),
                max_delay,
                jitter: thousandths(jitter),
            }),
            ..ScheduleSpec::default()
        },
        Schedule::List { delays, jitter } => ScheduleSpec {
            list: Some(delays.into_iter().map(written).collect()),
            jitter: Some(thousandths(jitter)),
            ..ScheduleSpec::default()
        },
    });
    let rule = prop::sample::select(vec![
        Rule::Final,
        Rule::FinalAndDisable,
        Rule::Retryable,
        Rule::RateLimited,
        Rule::RateLimitedIfHinted,
    ]);
    let key = prop_oneof![
        (300..=999_u16).prop_map(|status| status.to_string()),
        "[13-9]xx",
        Just("network".to_owned()),
        Just("timeout".to_owned()),
    ];
    (
        prop::option::of(prop::sample::select(Preset::ALL.to_vec())),
        prop::option::of(schedule),
        prop::option::of(any::limits()),
        prop::collection::btree_map(key, rule, 0..6),
    )
        .prop_map(|(preset, schedule, limits, classify)| Spec {
            preset,
            schedule,
            max_attempts: limits.map(|(attempts, _)| attempts),
            max_age: limits.map(|(_, age)| age.map(written)),
            classify,
        })
}

/// As a person writes a fraction. JSON as it is read here may miss the last bit of a longer one.
fn thousandths(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// A duration the way a specification holds it: from its text.
fn written<T: serde::de::DeserializeOwned>(span: Duration) -> T {
    let text = postrider_core::span::format(span);
    serde_json::from_value(text.into()).expect("a duration")
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_as_the_same_policy(spec in any_spec()) {
        let json = serde_json::to_string(&spec).expect("written");
        let again: Spec = serde_json::from_str(&json).expect("read back");
        prop_assert_eq!(&again, &spec);
        let presets = Presets::default();
        prop_assert_eq!(
            again.build(&presets).expect("valid"),
            spec.build(&presets).expect("valid")
        );
    }
}
