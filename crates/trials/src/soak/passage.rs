//! When each event of a stream left and when it arrived.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::bench::sample::Sample;
use crate::bench::sink::Arrivals;

/// The events of one stream, by number.
#[derive(Debug)]
pub(crate) struct Passage {
    departures: Arrivals,
    departed: AtomicU64,
    accepted: AtomicU64,
    pub(crate) arrivals: Arc<Arrivals>,
}

impl Passage {
    /// `capacity` is how many events it can tell apart.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            departures: Arrivals::new(capacity),
            departed: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            arrivals: Arc::new(Arrivals::new(capacity)),
        }
    }

    /// The number of an event that is leaving; none once all are used.
    pub(crate) fn depart(&self) -> Option<u64> {
        let number = self.departures.take_number()?;
        self.departures.note(number);
        self.departed.fetch_max(number + 1, Ordering::AcqRel);
        Some(number)
    }

    pub(crate) fn note_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    /// How many have left.
    pub(crate) fn departed(&self) -> u64 {
        self.departed.load(Ordering::Acquire)
    }

    /// How long these took; one that has not arrived has taken until `now`, at least.
    pub(crate) fn times(&self, numbers: Range<u64>, now: Instant) -> Sample {
        let times = numbers.filter_map(|number| {
            let left = self.departures.at(number)?;
            let arrived = self.arrivals.at(number).unwrap_or(now);
            Some(arrived.saturating_duration_since(left))
        });
        Sample::new(times.collect::<Vec<Duration>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_not_arrived_takes_until_now() {
        let passage = Passage::new(2);
        assert_eq!(
            (passage.depart(), passage.depart(), passage.depart()),
            (Some(0), Some(1), None)
        );
        passage.arrivals.note(0);
        let later = Instant::now() + Duration::from_hours(1);
        let times = passage.times(0..passage.departed(), later);
        assert!(times.percentile(50).expect("two") < Duration::from_mins(1));
        assert!(times.percentile(100).expect("two") > Duration::from_mins(59));
        assert_eq!(passage.times(2..9, later).percentile(50), None);
    }
}
