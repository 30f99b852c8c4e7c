//! The six policies that have names.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Invalid, Policy, Rule, Rules, Schedule};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// The advice of Standard Webhooks.
    #[default]
    Standard,
    Inbox,
    Dispatch,
    Runs,
    Edge,
    Router,
}

/// The presets as this process has them: `inbox` can be changed from the environment.
#[derive(Debug, Clone, PartialEq)]
pub struct Presets {
    inbox: Policy,
}

/// What `RETRY_BASE_DELAY`, `RETRY_MAX_DELAY` and `MAX_ATTEMPTS` change of `inbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxOverrides {
    pub base_delay: Duration,
    pub max_delay: Duration,
    pub max_attempts: u32,
}

impl Default for InboxOverrides {
    fn default() -> Self {
        Self {
            base_delay: Duration::from_secs(5),
            max_delay: Duration::from_mins(5),
            max_attempts: 5,
        }
    }
}

impl Preset {
    pub const ALL: [Self; 6] =
        [Self::Standard, Self::Inbox, Self::Dispatch, Self::Runs, Self::Edge, Self::Router];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Inbox => "inbox",
            Self::Dispatch => "dispatch",
            Self::Runs => "runs",
            Self::Edge => "edge",
            Self::Router => "router",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.as_str() == name)
    }

    pub const fn about(self) -> &'static str {
        match self {
            Self::Standard => {
                "the default: ten attempts over three days, as Standard Webhooks advises"
            }
            Self::Inbox => "five quick attempts for an inbox that processes what it receives",
            Self::Dispatch => {
                "five attempts within seconds, with jitter, for service-to-service calls"
            }
            Self::Runs => "eight attempts from a minute to an hour, for long jobs run by workers",
            Self::Edge => "up to an hour apart for seven days, for a receiver that may be away",
            Self::Router => "five attempts, 30 s, 2 min, 10 min and 1 h apart",
        }
    }
}

impl Default for Presets {
    fn default() -> Self {
        Self::new(InboxOverrides::default()).expect("the built-in inbox policy is valid")
    }
}

impl Presets {
    pub fn new(inbox: InboxOverrides) -> Result<Self, Invalid> {
        // The n-th failure waits base × 2^n, so the first waits twice the base.
        let schedule = Schedule::Exponential {
            initial: inbox.base_delay.saturating_mul(2),
            multiplier: 2.0,
            max_delay: inbox.max_delay,
            jitter: 0.0,
        };
        let rules = Rules::all(Rule::Retryable);
        Ok(Self { inbox: Policy::new(schedule, Some(inbox.max_attempts), None, rules)? })
    }

    pub fn policy(&self, preset: Preset) -> Policy {
        let retryable = Rules::all(Rule::Retryable);
        let hinted =
            retryable.clone().status(429, Rule::RateLimited).status(503, Rule::RateLimitedIfHinted);
        let built = match preset {
            Preset::Inbox => return self.inbox.clone(),
            Preset::Standard => Policy::new(
                list(&[5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400], 0.1),
                Some(10),
                None,
                hinted.status(410, Rule::FinalAndDisable),
            ),
            Preset::Dispatch => Policy::new(
                doubling(1, 0.1),
                Some(5),
                None,
                hinted.status(429, Rule::RateLimitedIfHinted),
            ),
            Preset::Runs => Policy::new(doubling(60, 0.0), Some(8), None, hinted),
            Preset::Edge => Policy::new(
                doubling(1, 0.0),
                None,
                Some(Duration::from_hours(7 * 24)),
                retryable.hundred(4, Rule::Final),
            ),
            Preset::Router => {
                Policy::new(list(&[30, 120, 600, 3_600, 21_600], 0.0), Some(5), None, retryable)
            }
        };
        built.expect("the built-in policies are valid")
    }
}

/// From `initial` seconds, doubling up to an hour.
fn doubling(initial: u64, jitter: f64) -> Schedule {
    Schedule::Exponential {
        initial: Duration::from_secs(initial),
        multiplier: 2.0,
        max_delay: Duration::from_hours(1),
        jitter,
    }
}

fn list(seconds: &[u64], jitter: f64) -> Schedule {
    Schedule::List { delays: seconds.iter().copied().map(Duration::from_secs).collect(), jitter }
}
