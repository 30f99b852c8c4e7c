//! What a policy will do if every attempt fails at once: the picture behind a policy.

use std::time::Duration;

use super::{Jitter, Policy};
use crate::delivery::Reason;

/// Policies that go on for very long are shown this far.
pub const MAX_PLANNED_ATTEMPTS: usize = 1_000;

/// One attempt of a plan. Times count from the event's arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub number: u32,
    /// The nominal wait before this attempt.
    pub delay: Duration,
    pub earliest: Duration,
    /// Never past the policy's age, because no attempt is.
    pub latest: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivesUp {
    pub reason: Reason,
    /// The nominal time of the failure after which there is no other attempt.
    pub after: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub attempts: Vec<Attempt>,
    /// None when the plan was cut at [`MAX_PLANNED_ATTEMPTS`].
    pub gives_up: Option<GivesUp>,
}

impl Policy {
    pub fn plan(&self) -> Plan {
        let mut attempts = vec![Attempt {
            number: 1,
            delay: Duration::ZERO,
            earliest: Duration::ZERO,
            latest: Duration::ZERO,
        }];
        let mut nominal = Duration::ZERO;
        while let Some(&last) = attempts.last() {
            if self.max_attempts.is_some_and(|max| last.number >= max) {
                return Plan {
                    attempts,
                    gives_up: Some(GivesUp { reason: Reason::Exhausted, after: nominal }),
                };
            }
            let delay = self.delay(last.number, Jitter::MIDDLE);
            if self.max_age.is_some_and(|age| nominal.saturating_add(delay) > age) {
                return Plan {
                    attempts,
                    gives_up: Some(GivesUp { reason: Reason::Expired, after: nominal }),
                };
            }
            if attempts.len() >= MAX_PLANNED_ATTEMPTS {
                break;
            }
            nominal = nominal.saturating_add(delay);
            attempts.push(Attempt {
                number: last.number + 1,
                delay,
                earliest: last.earliest.saturating_add(self.delay(last.number, Jitter::EARLIEST)),
                latest: last
                    .latest
                    .saturating_add(self.delay(last.number, Jitter::LATEST))
                    .min(self.max_age.unwrap_or(Duration::MAX)),
            });
        }
        Plan { attempts, gives_up: None }
    }
}
