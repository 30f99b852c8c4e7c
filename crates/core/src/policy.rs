//! When to try again and when to give up.
//!
//! A [`Policy`] exists only once it has been validated: it cannot overflow, wait a negative time or
//! go on for ever. [`spec`](crate::policy::Spec) is its JSON form, the presets are in
//! [`preset`](crate::policy::Preset), and [`plan`](crate::policy::Plan) shows what one will do.

use std::time::Duration;

use crate::outcome::{Class, Outcome, Sighting};
use crate::time::Timestamp;

mod plan;
mod preset;
mod spec;

pub use plan::{Attempt, GivesUp, MAX_PLANNED_ATTEMPTS, Plan};
pub use preset::{InboxOverrides, Preset, Presets};
pub use spec::{ExponentialSpec, ScheduleSpec, Spec};

/// Where there is no `max_age`, a receiver cannot ask for a longer wait than this.
pub const MAX_HINT_WITHOUT_AGE: Duration = Duration::from_hours(24);
/// Jitter on top of a receiver's hint never adds more than this.
const MAX_HINT_JITTER: Duration = Duration::from_secs(30);

pub const MIN_DELAY: Duration = Duration::from_millis(1);
pub const MAX_DELAY: Duration = Duration::from_hours(24 * 366);
pub const MAX_LIST: usize = 100;
pub const MAX_MULTIPLIER: f64 = 1_000.0;

/// Why a policy cannot exist: the field, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Invalid {
    pub field: String,
    pub message: String,
}

impl Invalid {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// A random sample from `[0, 1)`, drawn by the caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter(f64);

impl Jitter {
    /// No deviation: the nominal delay.
    pub const MIDDLE: Self = Self(0.5);
    /// The shortest delay.
    pub const EARLIEST: Self = Self(0.0);
    /// As good as the longest delay.
    pub const LATEST: Self = Self(1.0 - f64::EPSILON);

    pub fn new(sample: f64) -> Self {
        Self(if sample.is_nan() { 0.5 } else { sample.clamp(0.0, Self::LATEST.0) })
    }
}

/// How long to wait after each counted failure.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    Exponential {
        initial: Duration,
        multiplier: f64,
        max_delay: Duration,
        jitter: f64,
    },
    /// The last delay repeats when attempts outrun the list.
    List {
        delays: Vec<Duration>,
        jitter: f64,
    },
}

/// A validated policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    schedule: Schedule,
    max_attempts: Option<u32>,
    max_age: Option<Duration>,
    rules: Rules,
}

impl Policy {
    pub fn new(
        schedule: Schedule,
        max_attempts: Option<u32>,
        max_age: Option<Duration>,
        rules: Rules,
    ) -> Result<Self, Invalid> {
        schedule.validate()?;
        if max_attempts == Some(0) {
            return Err(Invalid::new("max_attempts", "must be at least 1"));
        }
        if let Some(age) = max_age {
            check_span("max_age", age)?;
        }
        if max_attempts.is_none() && max_age.is_none() {
            return Err(Invalid::new(
                "max_attempts",
                "a policy needs max_attempts or max_age, or it would never give up",
            ));
        }
        Ok(Self { schedule, max_attempts, max_age, rules })
    }

    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    pub fn max_age(&self) -> Option<Duration> {
        self.max_age
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The last moment at which a delivery born at `born` may be tried.
    pub fn expires(&self, born: Timestamp) -> Option<Timestamp> {
        self.max_age.map(|age| born.plus(age))
    }

    /// The wait after the `failures`-th counted failure (1, 2, …).
    pub fn delay(&self, failures: u32, jitter: Jitter) -> Duration {
        self.schedule.delay(failures, jitter)
    }

    /// When to try again after a rate limit with a hint: never earlier than asked, unless that is
    /// past what the policy's age, or a day where it has none, allows.
    pub fn deferred(
        &self,
        hint: Duration,
        now: Timestamp,
        expires: Option<Timestamp>,
        jitter: Jitter,
    ) -> Timestamp {
        // Bounded before it is multiplied, because a hint of any length may come here.
        let share = hint.min(MAX_DELAY).mul_f64(self.schedule.jitter());
        let spread = share.min(MAX_HINT_JITTER).mul_f64(jitter.0);
        let latest = expires.unwrap_or_else(|| now.plus(MAX_HINT_WITHOUT_AGE));
        now.plus(hint.saturating_add(spread)).min(latest).max(now)
    }

    /// What a sighting means under this policy.
    pub fn classify(&self, sighting: Sighting, retry_after: Option<Duration>) -> Outcome {
        let Some(rule) = self.rules.of(sighting) else { return Outcome::Delivered };
        let (class, disable) = match rule {
            Rule::Final => (Class::Final, false),
            Rule::FinalAndDisable => (Class::Final, true),
            Rule::RateLimited => (Class::RateLimited, false),
            Rule::RateLimitedIfHinted if retry_after.is_some() => (Class::RateLimited, false),
            Rule::Retryable | Rule::RateLimitedIfHinted => (Class::Retryable, false),
        };
        Outcome::Failed { class, retry_after, disable }
    }
}

impl Schedule {
    pub fn jitter(&self) -> f64 {
        match self {
            Self::Exponential { jitter, .. } | Self::List { jitter, .. } => *jitter,
        }
    }

    /// Defined for every `u32`; saturates; never past `max_delay`. At least [`MIN_DELAY`] whatever
    /// the jitter: without a wait, a delivery that is limited by age alone would be tried again and
    /// again at one moment.
    fn delay(&self, failures: u32, sample: Jitter) -> Duration {
        let (nominal, cap) = match self {
            Self::Exponential { initial, multiplier, max_delay, .. } => {
                let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
                let seconds = initial.as_secs_f64() * multiplier.powi(exponent);
                (seconds.min(max_delay.as_secs_f64()), *max_delay)
            }
            Self::List { delays, .. } => {
                let index = (failures.saturating_sub(1) as usize).min(delays.len() - 1);
                (delays[index].as_secs_f64(), MAX_DELAY)
            }
        };
        let factor = 1.0 + self.jitter() * (2.0 * sample.0 - 1.0);
        // Rounded to the millisecond, so that exact schedules come out exactly.
        let millis = (nominal * factor * 1_000.0).round();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        Duration::from_millis(millis as u64).clamp(MIN_DELAY, cap)
    }

    fn validate(&self) -> Result<(), Invalid> {
        match self {
            Self::Exponential { initial, multiplier, max_delay, jitter } => {
                check_jitter("schedule.exponential.jitter", *jitter)?;
                check_span("schedule.exponential.initial", *initial)?;
                check_span("schedule.exponential.max_delay", *max_delay)?;
                if !(1.0..=MAX_MULTIPLIER).contains(multiplier) {
                    return Err(Invalid::new(
                        "schedule.exponential.multiplier",
                        format!("must be between 1 and {MAX_MULTIPLIER}"),
                    ));
                }
                Ok(())
            }
            Self::List { delays, jitter } => {
                check_jitter("schedule.jitter", *jitter)?;
                if delays.is_empty() || delays.len() > MAX_LIST {
                    return Err(Invalid::new(
                        "schedule.list",
                        format!("must have between 1 and {MAX_LIST} delays"),
                    ));
                }
                delays.iter().enumerate().try_for_each(|(index, delay)| {
                    check_span(&format!("schedule.list[{index}]"), *delay)
                })
            }
        }
    }
}

fn check_jitter(field: &str, jitter: f64) -> Result<(), Invalid> {
    if (0.0..=1.0).contains(&jitter) {
        Ok(())
    } else {
        Err(Invalid::new(field, "must be between 0 and 1"))
    }
}

fn check_span(field: &str, span: Duration) -> Result<(), Invalid> {
    if (MIN_DELAY..=MAX_DELAY).contains(&span) {
        Ok(())
    } else {
        Err(Invalid::new(field, "must be between 1ms and 366d"))
    }
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    Final,
    /// Final, and the endpoint is switched off.
    FinalAndDisable,
    Retryable,
    RateLimited,
    /// Rate limited when the answer says how long to wait, else retryable.
    RateLimitedIfHinted,
}

/// What somebody said outright.
impl From<Class> for Rule {
    fn from(class: Class) -> Self {
        match class {
            Class::Final => Self::Final,
            Class::Retryable => Self::Retryable,
            Class::RateLimited => Self::RateLimited,
        }
    }
}

/// The classification table. The most specific entry wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    statuses: Vec<(u16, Rule)>,
    /// 1xx, 3xx, 4xx, 5xx; a success needs no rule.
    hundreds: [Option<Rule>; 10],
    network: Rule,
    timeout: Rule,
    otherwise: Rule,
}

impl Rules {
    pub const fn all(rule: Rule) -> Self {
        Self {
            statuses: Vec::new(),
            hundreds: [None; 10],
            network: rule,
            timeout: rule,
            otherwise: rule,
        }
    }

    #[must_use]
    pub fn status(mut self, status: u16, rule: Rule) -> Self {
        self.statuses.retain(|(known, _)| *known != status);
        self.statuses.push((status, rule));
        self
    }

    /// All of `hundred`00 to `hundred`99.
    #[must_use]
    pub fn hundred(mut self, hundred: u8, rule: Rule) -> Self {
        self.hundreds[usize::from(hundred % 10)] = Some(rule);
        self
    }

    #[must_use]
    pub fn network(mut self, rule: Rule) -> Self {
        self.network = rule;
        self
    }

    #[must_use]
    pub fn timeout(mut self, rule: Rule) -> Self {
        self.timeout = rule;
        self
    }

    /// None for a success, which needs no rule.
    fn of(&self, sighting: Sighting) -> Option<Rule> {
        Some(match sighting {
            Sighting::Status(200..=299) | Sighting::Exit(0) | Sighting::Done => return None,
            Sighting::Told(class) => Rule::from(class),
            Sighting::Status(status) => self
                .statuses
                .iter()
                .find(|(known, _)| *known == status)
                .map(|(_, rule)| *rule)
                .or(self.hundreds.get(usize::from(status / 100)).copied().flatten())
                .unwrap_or(self.otherwise),
            // What sysexits.h means by its codes: these four may pass, the others of its range are
            // said of the input or the set-up and will be said again.
            Sighting::Exit(69 | 71 | 74 | 75) => Rule::Retryable,
            Sighting::Exit(64..=78) => Rule::Final,
            Sighting::Exit(_) | Sighting::Network => self.network,
            Sighting::Timeout => self.timeout,
        })
    }

    /// The table as the keys of API.md's `classify`, most specific first.
    pub fn entries(&self) -> Vec<(String, Rule)> {
        let mut entries: Vec<(String, Rule)> =
            self.statuses.iter().map(|(status, rule)| (status.to_string(), *rule)).collect();
        entries.sort_by(|left, right| left.0.cmp(&right.0));
        for (hundred, rule) in self.hundreds.iter().enumerate() {
            if let Some(rule) = rule {
                entries.push((format!("{hundred}xx"), *rule));
            }
        }
        entries.push(("network".into(), self.network));
        entries.push(("timeout".into(), self.timeout));
        entries
    }
}
