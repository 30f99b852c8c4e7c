//! What a backend counts of its own work, for whoever watches it: how large commits are, how long
//! they take, and what could not be done.

use std::time::Duration;

use crate::error::Error;
use crate::meter::{Counter, Histogram};

/// Events, or changes, in one commit.
const SIZES: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 4_096];
/// Microseconds that a commit takes, until it is on disk.
const SPANS: &[u64] =
    &[500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000];

/// Since the store was opened.
#[derive(Debug, Default)]
pub struct Vitals {
    /// Commits with events in them.
    pub append: Commits,
    /// Commits with changes of deliveries in them; one commit may have both.
    pub settle: Commits,
    pub failures: Failures,
}

/// Commits of one kind.
#[derive(Debug)]
pub struct Commits {
    pub sizes: Histogram,
    /// In microseconds.
    pub spans: Histogram,
}

/// What the store was asked to do and did not do, by why.
#[derive(Debug, Default)]
pub struct Failures {
    /// It could not be written to or read, or not be reached.
    pub unavailable: Counter,
    /// Too much was waiting already.
    pub overloaded: Counter,
    /// What is in it makes no sense.
    pub damaged: Counter,
}

/// How much of what is in a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) appended: usize,
    pub(crate) settled: usize,
}

impl Load {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { appended: self.appended + other.appended, settled: self.settled + other.settled }
    }
}

impl Default for Commits {
    fn default() -> Self {
        Self { sizes: Histogram::new(SIZES), spans: Histogram::new(SPANS) }
    }
}

impl Vitals {
    /// Counts a commit that is on disk.
    pub(crate) fn committed(&self, load: Load, took: Duration) {
        for (commits, size) in [(&self.append, load.appended), (&self.settle, load.settled)] {
            if size > 0 {
                commits.sizes.observe(size as u64);
                commits.spans.observe_span(took);
            }
        }
    }

    /// Passes an answer on, and counts it if it is a failure of the store.
    pub(crate) fn watch<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &answer {
            self.failures.note(error);
        }
        answer
    }
}

impl Failures {
    fn note(&self, error: &Error) {
        match error {
            Error::Unavailable(_) => self.unavailable.one(),
            Error::Overloaded => self.overloaded.one(),
            Error::Damaged(_) => self.damaged.one(),
            // What was asked for was wrong, or came after the end.
            Error::Refused(_) | Error::Exists(_) | Error::Closed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_counts_for_each_kind_that_is_in_it() {
        let vitals = Vitals::default();
        let took = Duration::from_millis(1);
        vitals.committed(Load { appended: 3, settled: 0 }, took);
        vitals.committed(Load { appended: 1, settled: 5 }, took);
        vitals.committed(Load::default(), took);
        let sums = [&vitals.append, &vitals.settle].map(|commits| {
            let (sizes, spans) = (commits.sizes.read(), commits.spans.read());
            (sizes.sum, spans.counts.iter().sum::<u64>())
        });
        assert_eq!(sums, [(4, 2), (5, 1)]);
    }

    #[test]
    fn only_what_the_store_failed_at_counts_as_a_failure() {
        let vitals = Vitals::default();
        for error in [
            Error::Unavailable("gone".into()),
            Error::Overloaded,
            Error::Overloaded,
            Error::Damaged("odd".into()),
            Error::Refused("no".into()),
            Error::Exists("it".into()),
            Error::Closed,
        ] {
            drop(vitals.watch(Err::<(), _>(error)));
        }
        drop(vitals.watch(Ok(())));
        let Failures { unavailable, overloaded, damaged } = &vitals.failures;
        assert_eq!([unavailable, overloaded, damaged].map(Counter::get), [1, 2, 1]);
    }
}
