//! Percentiles of measured times, and rates of counted events.

use std::time::Duration;

/// Times in order, for asking percentiles of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    sorted: Vec<Duration>,
}

impl Sample {
    pub(crate) fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self { sorted: times }
    }

    /// The smallest time that at least `percent` of all times do not exceed (nearest rank).
    pub(crate) fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.sorted.len() * percent.min(100)).div_ceil(100).max(1);
        self.sorted.get(rank - 1).copied()
    }
}

pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    whole(count) / time.as_secs_f64()
}

pub(crate) fn share(part: u64, of: u64) -> f64 {
    whole(part) / whole(of)
}

#[expect(clippy::cast_precision_loss, reason = "counts of events stay far below 2^52")]
fn whole(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(times: impl IntoIterator<Item = u64>) -> Sample {
        Sample::new(times.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let hundred = millis((1..=100).rev());
        for (percent, expected) in [(0, 1), (1, 1), (50, 50), (99, 99), (100, 100)] {
            assert_eq!(hundred.percentile(percent), Some(Duration::from_millis(expected)));
        }
        assert_eq!(millis([7]).percentile(99), Some(Duration::from_millis(7)));
        assert_eq!(millis([1, 2, 3]).percentile(50), Some(Duration::from_millis(2)));
        assert_eq!(millis([1, 2, 3, 4]).percentile(50), Some(Duration::from_millis(2)));
    }

    #[test]
    fn nothing_measured_has_no_percentile() {
        assert_eq!(millis([]).percentile(50), None);
    }
}
