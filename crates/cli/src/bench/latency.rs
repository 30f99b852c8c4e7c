//! How long things took: counted in buckets, so that any number of them costs the same memory.

use std::time::Duration;

/// How many buckets there are from one power of two to the next: what is said of a time is wrong by
/// three parts in a hundred at most.
const PARTS: u64 = 32;
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Enough for any number of microseconds.
const BUCKETS: usize = 60 * 32;

#[derive(Debug, Clone)]
pub(super) struct Times {
    /// By microseconds.
    buckets: Vec<u64>,
    count: u64,
    longest: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, longest: 0 }
    }
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(micros)] += 1;
        self.count += 1;
        self.longest = self.longest.max(micros);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// What so many of a thousand did not exceed; none if there are none at all.
    pub(super) fn within(&self, thousandths: u64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let wanted = u128::from(self.count) * u128::from(thousandths.min(1_000));
        let mut below = 0_u128;
        for (index, count) in self.buckets.iter().enumerate() {
            below += u128::from(*count) * 1_000;
            if below >= wanted && below > 0 {
                return Some(Duration::from_micros(upper(index).min(self.longest)));
            }
        }
        Some(Duration::from_micros(self.longest))
    }
}

fn bucket(micros: u64) -> usize {
    let shift = micros.checked_ilog2().unwrap_or(0).saturating_sub(PART_BITS);
    let index = u64::from(shift) * PARTS + (micros >> shift);
    usize::try_from(index).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The longest time in a bucket.
fn upper(index: usize) -> u64 {
    let index = u64::try_from(index).unwrap_or(u64::MAX);
    // The first two rows of buckets hold one number each.
    if index < 2 * PARTS {
        return index;
    }
    let shift = index / PARTS - 1;
    let part = index % PARTS + PARTS;
    (part << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_bucket_that_is_little_wider_than_it() {
        let mut last = 0;
        for exponent in 0..58 {
            for part in 0..7 {
                let micros = (1_u64 << exponent) + part * (1 << exponent) / 8;
                let bucket = bucket(micros);
                assert!(bucket >= last, "{micros}");
                last = bucket;
                let upper = upper(bucket);
                assert!(upper >= micros && upper - micros <= micros / 32, "{micros}: {upper}");
            }
        }
        assert_eq!(bucket(0), 0);
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn shares_are_of_what_was_added() {
        assert_eq!(Times::default().within(500), None);
        let mut times = Times::default();
        for millis in 1..=1_000 {
            times.add(Duration::from_millis(millis));
        }
        let mut both = Times::default();
        both.merge(&times);
        both.merge(&times);
        for (times, count) in [(times, 1_000), (both, 2_000)] {
            assert_eq!(times.count(), count);
            for (thousandths, millis) in
                [(0, 1), (500, 500), (950, 950), (990, 990), (1_000, 1_000)]
            {
                let found = times.within(thousandths).expect("there are some").as_millis();
                assert!(found.abs_diff(millis) <= millis / 32 + 1, "{thousandths}: {found}");
            }
        }
    }

    #[test]
    fn no_share_is_longer_than_the_longest() {
        let mut times = Times::default();
        times.add(Duration::from_micros(1_000_001));
        assert_eq!(times.within(500), Some(Duration::from_micros(1_000_001)));
        times.add(Duration::MAX);
        assert!(times.within(1_000).is_some());
    }
}
