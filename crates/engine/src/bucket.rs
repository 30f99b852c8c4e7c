//! A token bucket: how fast an endpoint may be sent to. Waiting for a token is never an attempt.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::endpoint::RateLimit;

#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Timestamp,
}

impl Bucket {
    pub(crate) fn full(limit: RateLimit, now: Timestamp) -> Self {
        let burst = f64::from(limit.burst.max(1));
        Self { per_second: limit.per_second, burst, tokens: burst, filled_at: now }
    }

    /// Takes all tokens.
    pub(crate) fn drain(&mut self, now: Timestamp) {
        (self.tokens, self.filled_at) = (0.0, now);
    }

    /// Takes a token, or says when there will be one.
    pub(crate) fn take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let gained = now.since(self.filled_at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.burst);
        // A clock that was set back must not stop the refill until it has caught up.
        self.filled_at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        let wait = Duration::try_from_secs_f64((1.0 - self.tokens) / self.per_second);
        // At least a millisecond: rounding must not make the wait end before the token is there.
        Err(now.plus(wait.unwrap_or(Duration::MAX).max(Duration::from_millis(1))))
    }

    /// Gives back a token that was taken for nothing.
    pub(crate) fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_then_the_rate_holds() {
        let mut now = Timestamp::from_millis(1_000_000);
        let mut bucket = Bucket::full(RateLimit { per_second: 10.0, burst: 3 }, now);
        for _ in 0..3 {
            assert_eq!(bucket.take(now), Ok(()));
        }
        let mut sent = 0;
        let end = now.plus(Duration::from_secs(10));
        while now < end {
            match bucket.take(now) {
                Ok(()) => sent += 1,
                Err(until) => {
                    assert!(until > now);
                    now = until;
                }
            }
        }
        assert!((99..=100).contains(&sent), "{sent}");
    }

    #[test]
    fn a_clock_set_back_does_not_stop_the_refill() {
        let now = Timestamp::from_millis(1_000_000_000);
        let mut bucket = Bucket::full(RateLimit { per_second: 1.0, burst: 1 }, now);
        assert_eq!(bucket.take(now), Ok(()));
        let back = now.minus(Duration::from_hours(24));
        let until = bucket.take(back).expect_err("empty");
        assert!(until <= back.plus(Duration::from_secs(1)));
        assert_eq!(bucket.take(until), Ok(()));
    }
}
