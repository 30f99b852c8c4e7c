//! The JSON form of a policy: a preset's name, or a preset with some things said otherwise.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::{Invalid, Policy, Preset, Presets, Rule, Rules, Schedule};
use crate::span;

const MAX_RULES: usize = 100;

/// What a user wrote. [`Spec::build`] turns it into a policy, or says why it cannot be one.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSpec>,
    /// Outer `None`: as the preset has it. Inner `None`: written as `null`, no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Option<SpanText>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub classify: BTreeMap<String, Rule>,
}

/// A duration that is written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpanText(#[serde(with = "span::serde_span")] pub Duration);

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Vec<SpanText>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponential: Option<ExponentialSpec>,
    /// For `list`; an exponential schedule has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExponentialSpec {
    #[serde(with = "span::serde_span")]
    pub initial: Duration,
    #[serde(default = "two")]
    pub multiplier: f64,
    #[serde(with = "span::serde_span")]
    pub max_delay: Duration,
    #[serde(default)]
    pub jitter: f64,
}

fn two() -> f64 {
    2.0
}

impl From<Preset> for Spec {
    fn from(preset: Preset) -> Self {
        Self { preset: Some(preset), ..Self::default() }
    }
}

impl Spec {
    pub fn build(&self, presets: &Presets) -> Result<Policy, Invalid> {
        let base = presets.policy(self.preset.unwrap_or_default());
        let schedule = match &self.schedule {
            None => base.schedule().clone(),
            Some(spec) => spec.build()?,
        };
        let max_attempts = self.max_attempts.unwrap_or(base.max_attempts());
        let max_age = match self.max_age {
            None => base.max_age(),
            Some(age) => age.map(|SpanText(span)| span),
        };
        let rules = self.overlay(base.rules().clone())?;
        Policy::new(schedule, max_attempts, max_age, rules)
    }

    fn overlay(&self, mut rules: Rules) -> Result<Rules, Invalid> {
        if self.classify.len() > MAX_RULES {
            return Err(Invalid::new("classify", format!("has more than {MAX_RULES} entries")));
        }
        for (key, rule) in &self.classify {
            rules = match key.as_str() {
                "network" => rules.network(*rule),
                "timeout" => rules.timeout(*rule),
                _ => match (parse_hundred(key), key.parse::<u16>()) {
                    (Some(hundred), _) => rules.hundred(hundred, *rule),
                    (None, Ok(status)) if key.len() == 3 && is_failure(status) => {
                        rules.status(status, *rule)
                    }
                    (None, _) => {
                        return Err(Invalid::new(
                            format!("classify.{key}"),
                            "expected a failing status such as 410, a class such as 4xx, network or timeout",
                        ));
                    }
                },
            };
        }
        Ok(rules)
    }
}

impl ScheduleSpec {
    fn build(&self) -> Result<Schedule, Invalid> {
        match (&self.list, &self.exponential) {
            (Some(delays), None) => Ok(Schedule::List {
                delays: delays.iter().map(|SpanText(span)| *span).collect(),
                jitter: self.jitter.unwrap_or(0.0),
            }),
            (None, Some(spec)) => {
                if self.jitter.is_some() {
                    return Err(Invalid::new(
                        "schedule.jitter",
                        "belongs inside exponential, as exponential.jitter",
                    ));
                }
                Ok(Schedule::Exponential {
                    initial: spec.initial,
                    multiplier: spec.multiplier,
                    max_delay: spec.max_delay,
                    jitter: spec.jitter,
                })
            }
            (Some(_), Some(_)) | (None, None) => {
                Err(Invalid::new("schedule", "needs either list or exponential"))
            }
        }
    }
}

/// `4xx` → 4. Success has no class to be given: 2xx is not a failure.
fn parse_hundred(key: &str) -> Option<u8> {
    match key.as_bytes() {
        [digit @ (b'1' | b'3'..=b'9'), b'x', b'x'] => Some(digit - b'0'),
        _ => None,
    }
}

fn is_failure(status: u16) -> bool {
    (100..=999).contains(&status) && !(200..=299).contains(&status)
}

impl<'de> Deserialize<'de> for Spec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Spec;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a policy: a preset's name or an object")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Spec, E> {
                Preset::named(name).map(Spec::from).ok_or_else(|| {
                    let known: Vec<&str> =
                        Preset::ALL.iter().map(|preset| preset.as_str()).collect();
                    E::custom(format!(
                        "no policy is called `{name}`; there are {}",
                        known.join(", ")
                    ))
                })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Spec, A::Error> {
                Fields::deserialize(de::value::MapAccessDeserializer::new(map)).map(Spec::from)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::option_option, reason = "a field that is null differs from one that is left out")]
struct Fields {
    preset: Option<Preset>,
    schedule: Option<ScheduleSpec>,
    #[serde(default, deserialize_with = "present")]
    max_attempts: Option<Option<u32>>,
    #[serde(default, deserialize_with = "present")]
    max_age: Option<Option<SpanText>>,
    #[serde(default)]
    classify: BTreeMap<String, Rule>,
}

/// Tells a field that is `null` from one that is not there.
#[expect(clippy::option_option, reason = "the outer one is presence, the inner one is null")]
fn present<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

impl From<Fields> for Spec {
    fn from(fields: Fields) -> Self {
        let Fields { preset, schedule, max_attempts, max_age, classify } = fields;
        Self { preset, schedule, max_attempts, max_age, classify }
    }
}
