//! How long to wait after trouble: longer each time, and never the same for two who wait.

use std::time::Duration;

use crate::ports;

/// Doublings beyond this change nothing: every wait is at its longest by then.
const MAX_DOUBLINGS: u32 = 16;

#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    shortest: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) const fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, failures: 0 }
    }

    /// The wait after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.after(self.failures, ports::sample());
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Forgets the failures, and says whether there were any.
    pub(crate) fn reset(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// Half of it is chance, so that many who lost one gateway do not come back as one.
    fn after(&self, failures: u32, sample: f64) -> Duration {
        let doubled = self.shortest.saturating_mul(1 << failures.min(MAX_DOUBLINGS));
        doubled.min(self.longest).mul_f64(0.5 + 0.5 * sample.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_half_of_each_is_chance() {
        let (shortest, longest) = (Duration::from_millis(500), Duration::from_secs(30));
        let backoff = Backoff::new(shortest, longest);
        for (failures, full_ms) in
            [(0, 500), (1, 1_000), (2, 2_000), (5, 16_000), (6, 30_000), (u32::MAX, 30_000)]
        {
            let full = Duration::from_millis(full_ms);
            assert_eq!(backoff.after(failures, 1.0), full, "{failures}");
            assert_eq!(backoff.after(failures, 0.0), full / 2, "{failures}");
        }
    }

    #[test]
    fn a_success_begins_anew() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        for _ in 0..10 {
            backoff.next();
        }
        assert!(backoff.next() > Duration::from_secs(2));
        assert!(backoff.reset());
        assert!(!backoff.reset());
        assert!(backoff.next() <= Duration::from_secs(1));
    }
}
