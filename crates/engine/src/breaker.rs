//! Stops sending to an endpoint that keeps failing, probes it, and ramps up gently when it is back.
//!
//! An open breaker consumes no attempt: deliveries wait. It opens only after many failures in a row
//! over some time, so that the schedule of a single delivery is never bent by it.

use std::time::Duration;

use postrider_core::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Failures in a row, and …
    pub failures: u32,
    /// … since the first of them, before it opens.
    pub failing_for: Duration,
    /// The first wait before a probe; doubles with each probe that fails …
    pub first_probe: Duration,
    /// … up to this.
    pub max_probe: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            failures: 50,
            failing_for: Duration::from_secs(10),
            first_probe: Duration::from_secs(1),
            max_probe: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// All is well.
    Closed,
    /// Nothing is sent.
    Open,
    /// One probe is on its way.
    HalfOpen,
    /// It answers again; the number in flight grows with each success.
    Ramping,
}

impl BreakerState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::Ramping => "ramping",
        }
    }
}

/// A change that is worth a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Opened,
    Closed,
}

#[derive(Debug, Clone)]
pub(crate) struct Breaker {
    options: BreakerOptions,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Closed { failures: u32, failing_since: Option<Timestamp> },
    Open { probe_at: Timestamp, wait: Duration },
    HalfOpen { wait: Duration },
    Ramping { allowance: u32, wait: Duration },
}

const HEALTHY: Phase = Phase::Closed { failures: 0, failing_since: None };

impl Breaker {
    pub(crate) const fn new(options: BreakerOptions) -> Self {
        Self { options, phase: HEALTHY }
    }

    /// As [`Breaker::note`] told. A note that makes no sense is taken for none: at worst the endpoint
    /// has to fail as often again.
    pub(crate) fn restored(options: BreakerOptions, note: Option<&str>, now: Timestamp) -> Self {
        let phase = note.and_then(|note| serde_json::from_str(note).ok()).unwrap_or(HEALTHY);
        let phase = match phase {
            // The probe is not under way any more.
            Phase::HalfOpen { wait } => Phase::Open { probe_at: now, wait },
            Phase::Closed { .. } | Phase::Open { .. } | Phase::Ramping { .. } => phase,
        };
        Self { options, phase }
    }

    /// What the next one to carry the endpoint has to know; none while all is well.
    pub(crate) fn note(&self) -> Option<String> {
        match self.phase {
            Phase::Closed { .. } => None,
            Phase::Open { .. } | Phase::HalfOpen { .. } | Phase::Ramping { .. } => {
                serde_json::to_string(&self.phase).ok()
            }
        }
    }

    pub(crate) const fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
            Phase::Ramping { .. } => BreakerState::Ramping,
        }
    }

    /// When the next probe may go, while it is open.
    pub(crate) const fn probe_at(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Open { probe_at, .. } => Some(probe_at),
            Phase::Closed { .. } | Phase::HalfOpen { .. } | Phase::Ramping { .. } => None,
        }
    }

    /// How many may be in flight at `now`.
    pub(crate) fn allowance(&self, now: Timestamp) -> u32 {
        match self.phase {
            Phase::Closed { .. } => u32::MAX,
            // A probe further away than its wait: the clock was set back.
            Phase::Open { probe_at, wait } => {
                u32::from(now >= probe_at || probe_at.since(now) > wait)
            }
            Phase::HalfOpen { .. } => 1,
            Phase::Ramping { allowance, .. } => allowance,
        }
    }

    /// Something is being sent.
    pub(crate) fn sent(&mut self) {
        match self.phase {
            Phase::Open { wait, .. } => self.phase = Phase::HalfOpen { wait },
            Phase::Closed { .. } | Phase::HalfOpen { .. } | Phase::Ramping { .. } => {}
        }
    }

    /// The endpoint answered well; `cap` is how many it may have in flight when healthy.
    pub(crate) fn succeeded(&mut self, cap: u32) -> Option<Change> {
        match self.phase {
            Phase::Closed { .. } => self.phase = HEALTHY,
            Phase::HalfOpen { wait } | Phase::Open { wait, .. } => {
                self.phase = Phase::Ramping { allowance: 2, wait };
            }
            Phase::Ramping { allowance, .. } if allowance >= cap => {
                self.phase = HEALTHY;
                return Some(Change::Closed);
            }
            Phase::Ramping { allowance, wait } => {
                self.phase = Phase::Ramping { allowance: allowance.saturating_add(1), wait };
            }
        }
        None
    }

    pub(crate) fn failed(&mut self, now: Timestamp) -> Option<Change> {
        match self.phase {
            Phase::Closed { failures, failing_since } => {
                let since = failing_since.unwrap_or(now);
                let failures = failures.saturating_add(1);
                if failures >= self.options.failures && now.since(since) >= self.options.failing_for
                {
                    let wait = self.options.first_probe;
                    self.phase = Phase::Open { probe_at: now.plus(wait), wait };
                    return Some(Change::Opened);
                }
                self.phase = Phase::Closed { failures, failing_since: Some(since) };
            }
            Phase::HalfOpen { wait } | Phase::Ramping { wait, .. } => {
                let wait = wait.saturating_mul(2).min(self.options.max_probe);
                self.phase = Phase::Open { probe_at: now.plus(wait), wait };
            }
            // A straggler from before it opened tells nothing new.
            Phase::Open { .. } => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> BreakerOptions {
        BreakerOptions {
            failures: 3,
            failing_for: Duration::from_secs(10),
            ..BreakerOptions::default()
        }
    }

    fn open_one(start: Timestamp) -> Breaker {
        let mut breaker = Breaker::new(options());
        assert_eq!(breaker.failed(start), None);
        assert_eq!(breaker.failed(start), None);
        assert_eq!(breaker.failed(start.plus(Duration::from_secs(10))), Some(Change::Opened));
        breaker
    }

    #[test]
    fn it_opens_only_after_many_failures_over_some_time() {
        let start = Timestamp::from_millis(1_000_000);
        let mut breaker = Breaker::new(options());
        for _ in 0..100 {
            assert_eq!(breaker.failed(start), None, "no time has passed");
        }
        breaker.succeeded(8);
        assert_eq!(
            breaker.failed(start.plus(Duration::from_mins(1))),
            None,
            "a success starts anew"
        );
        assert_eq!(open_one(start).state(), BreakerState::Open);
    }

    #[test]
    fn one_probe_at_a_time_and_each_failed_one_doubles_the_wait() {
        let start = Timestamp::from_millis(1_000_000);
        let mut breaker = open_one(start);
        let mut waits = Vec::new();
        let mut now = start.plus(Duration::from_secs(10));
        for _ in 0..7 {
            let probe_at = breaker.probe_at().expect("open");
            waits.push(probe_at.since(now).as_secs());
            assert_eq!(breaker.allowance(now), 0);
            now = probe_at;
            assert_eq!(breaker.allowance(now), 1);
            breaker.sent();
            assert_eq!(breaker.state(), BreakerState::HalfOpen);
            breaker.failed(now);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn what_is_noted_of_it_is_restored() {
        let start = Timestamp::from_millis(1_000_000);
        let restored =
            |breaker: &Breaker, now| Breaker::restored(options(), breaker.note().as_deref(), now);
        let mut breaker = Breaker::new(options());
        assert_eq!(breaker.note(), None);
        assert_eq!(restored(&breaker, start).state(), BreakerState::Closed);
        breaker = open_one(start);
        let open = restored(&breaker, start);
        assert_eq!((open.state(), open.probe_at()), (BreakerState::Open, breaker.probe_at()));
        breaker.sent();
        let later = start.plus(Duration::from_mins(1));
        let probed = restored(&breaker, later);
        assert_eq!((probed.state(), probed.allowance(later)), (BreakerState::Open, 1));
        breaker.succeeded(8);
        breaker.succeeded(8);
        let ramping = restored(&breaker, later);
        assert_eq!((ramping.state(), ramping.allowance(later)), (BreakerState::Ramping, 3));
        for nonsense in ["", "{}", "null", "{\"open\":{}}", "{\"melted\":{\"wait\":1}}"] {
            let state = Breaker::restored(options(), Some(nonsense), start).state();
            assert_eq!(state, BreakerState::Closed, "{nonsense}");
        }
    }

    #[test]
    fn it_ramps_up_one_by_one_and_then_closes() {
        let start = Timestamp::from_millis(1_000_000);
        let mut breaker = open_one(start);
        breaker.sent();
        let mut allowances = Vec::new();
        let mut change = None;
        while change.is_none() {
            change = breaker.succeeded(5);
            allowances.push(breaker.allowance(start));
        }
        assert_eq!(allowances, [2, 3, 4, 5, u32::MAX]);
        assert_eq!(change, Some(Change::Closed));
    }
}
