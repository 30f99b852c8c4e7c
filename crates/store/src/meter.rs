//! What is counted while a program runs: numbers that threads add to without waiting for one another,
//! and that anybody can read. Nothing of it is stored.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn one(&self) {
        self.add(1);
    }

    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often something was how large, in steps that are fixed when it is made: it takes the same place
/// however much is counted.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what is larger than all of them.
    counts: Box<[Counter]>,
    sum: Counter,
}

/// What a [`Histogram`] has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// The largest that is counted in each step, ascending.
    pub bounds: &'static [u64],
    /// One more than there are bounds: the last is of what is larger than all of them.
    pub counts: Vec<u64>,
    pub sum: u64,
}

impl Histogram {
    /// `bounds` ascend, and each is the largest that is counted in its step.
    pub fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.is_sorted_by(|a, b| a < b), "the bounds of a histogram ascend");
        let counts = std::iter::repeat_with(Counter::new).take(bounds.len() + 1).collect();
        Self { bounds, counts, sum: Counter::new() }
    }

    pub fn observe(&self, size: u64) {
        let step = self.bounds.partition_point(|bound| *bound < size);
        self.counts[step].one();
        self.sum.add(size);
    }

    /// Counts a span of time, in microseconds.
    pub fn observe_span(&self, span: Duration) {
        self.observe(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// Read while others add: the steps may be of slightly different moments.
    pub fn read(&self) -> Distribution {
        Distribution {
            bounds: self.bounds,
            counts: self.counts.iter().map(Counter::get).collect(),
            sum: self.sum.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_counts_in_the_first_step_that_holds_it() {
        let histogram = Histogram::new(&[1, 10, 100]);
        for size in [0, 1, 2, 10, 11, 100, 101, 5_000] {
            histogram.observe(size);
        }
        let read = histogram.read();
        assert_eq!(read.counts, [2, 2, 2, 2]);
        assert_eq!(read.sum, 5_225);
    }

    #[test]
    fn spans_count_in_microseconds() {
        let histogram = Histogram::new(&[1_000]);
        histogram.observe_span(Duration::from_millis(1));
        histogram.observe_span(Duration::from_micros(1_001));
        assert_eq!(histogram.read().counts, [1, 1]);
    }

    #[test]
    fn what_many_threads_add_is_all_there() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| counter.one()));
            }
        });
        assert_eq!(counter.get(), 4_000);
    }
}
