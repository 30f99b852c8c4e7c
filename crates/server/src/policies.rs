//! `/v1/policies`: the named policies, and what any policy would do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use postrider_core::policy::{self, Plan, Policy, Preset, Rule, Schedule};
use postrider_core::{EventId, Reason, span};
use serde::{Deserialize, Serialize};

use crate::App;
use crate::answer::{self, Answer, json};
use crate::auth::Caller;
use crate::extract::{Json, Query};
use crate::problem::Problem;

pub(crate) async fn list(State(app): State<Arc<App>>, _: Caller, query: Query) -> Answer {
    query.finish()?;
    let data = Preset::ALL.map(|preset| {
        let policy = app.engine.presets().policy(preset);
        PresetView {
            name: preset.as_str(),
            about: preset.about(),
            default: preset == Preset::default(),
            policy: PolicyView::of(&policy),
            plan: PlanView::of(&policy.plan()),
        }
    });
    answer::list(&data, None::<&EventId>)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preview {
    pub(crate) policy: policy::Spec,
}

pub(crate) async fn preview(
    State(app): State<Arc<App>>,
    _: Caller,
    Json(preview): Json<Preview>,
) -> Answer {
    let policy = build(&preview.policy, &app)?;
    json(StatusCode::OK, &PlanView::of(&policy.plan()))
}

fn build(spec: &policy::Spec, app: &App) -> Result<Policy, Problem> {
    spec.build(app.engine.presets())
        .map_err(|invalid| Problem::invalid(format!("policy.{}", invalid.field), invalid.message))
}

#[derive(Serialize)]
struct PresetView {
    name: &'static str,
    about: &'static str,
    default: bool,
    policy: PolicyView,
    plan: PlanView,
}

/// A policy spelled out, in the form in which the API takes it.
#[derive(Serialize)]
struct PolicyView {
    schedule: ScheduleView,
    max_attempts: Option<u32>,
    #[serde(with = "span::serde_option")]
    max_age: Option<Duration>,
    classify: BTreeMap<String, Rule>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ScheduleView {
    List { list: Vec<String>, jitter: f64 },
    Exponential { exponential: ExponentialView },
}

#[derive(Serialize)]
struct ExponentialView {
    #[serde(with = "span::serde_span")]
    initial: Duration,
    multiplier: f64,
    #[serde(with = "span::serde_span")]
    max_delay: Duration,
    jitter: f64,
}

impl PolicyView {
    fn of(policy: &Policy) -> Self {
        let schedule = match *policy.schedule() {
            Schedule::List { ref delays, jitter } => ScheduleView::List {
                list: delays.iter().copied().map(span::format).collect(),
                jitter,
            },
            Schedule::Exponential { initial, multiplier, max_delay, jitter } => {
                let exponential = ExponentialView { initial, multiplier, max_delay, jitter };
                ScheduleView::Exponential { exponential }
            }
        };
        Self {
            schedule,
            max_attempts: policy.max_attempts(),
            max_age: policy.max_age(),
            classify: policy.rules().entries().into_iter().collect(),
        }
    }
}

#[derive(Serialize)]
struct PlanView {
    attempts: Vec<AttemptView>,
    /// None when the plan is longer than is shown.
    gives_up: Option<GivesUpView>,
}

#[derive(Serialize)]
struct AttemptView {
    number: u32,
    delay_seconds: f64,
    earliest_seconds: f64,
    latest_seconds: f64,
}

#[derive(Serialize)]
struct GivesUpView {
    reason: Reason,
    after_seconds: f64,
}

impl PlanView {
    fn of(plan: &Plan) -> Self {
        let attempts = plan.attempts.iter().map(|attempt| AttemptView {
            number: attempt.number,
            delay_seconds: attempt.delay.as_secs_f64(),
            earliest_seconds: attempt.earliest.as_secs_f64(),
            latest_seconds: attempt.latest.as_secs_f64(),
        });
        let gives_up = plan.gives_up.map(|gives_up| GivesUpView {
            reason: gives_up.reason,
            after_seconds: gives_up.after.as_secs_f64(),
        });
        Self { attempts: attempts.collect(), gives_up }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::policy::Presets;

    use super::*;

    #[test]
    fn a_policy_spelled_out_is_taken_back_as_the_same_policy() {
        let presets = Presets::default();
        for preset in Preset::ALL {
            let policy = presets.policy(preset);
            let text = serde_json::to_string(&PolicyView::of(&policy)).expect("JSON");
            let spec: policy::Spec = serde_json::from_str(&text).expect(&text);
            let again = spec.build(&presets).expect(&text);
            assert_eq!(again.plan(), policy.plan(), "{text}");
            assert_eq!(again.max_age(), policy.max_age());
        }
    }
}
