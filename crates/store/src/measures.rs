//! What charts need of a store: how much happened, by time, tenant and endpoint.

use async_trait::async_trait;
use postrider_core::{EndpointId, TenantId, Timestamp};

use crate::error::Error;

/// How many spans of time to deliver are told apart: see [`Tallies::latency`].
pub const LATENCIES: usize = 48;

#[async_trait]
pub trait Measures: Send + Sync + 'static {
    /// Adds to what is there: several nodes tell of the same minute. All of it or nothing.
    async fn add_measures(&self, measures: Vec<Measure>) -> Result<(), Error>;

    /// What happened from `since` on (a measure belongs to its start), by start, then by endpoint.
    async fn measures(
        &self,
        tenant: TenantId,
        of: Of,
        grain: Grain,
        since: Timestamp,
    ) -> Result<Vec<Measure>, Error>;

    /// Removes up to `limit` measures of this grain that start before `before`; returns how many.
    async fn forget_measures(
        &self,
        grain: Grain,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error>;
}

/// How long a measure is about. Each is kept for long enough to draw one chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Grain {
    /// For the last hour.
    Minute,
    /// For the last day.
    QuarterHour,
    /// For the last week.
    TwoHours,
}

/// Whose measures are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The tenant's as a whole.
    Tenant,
    Endpoint(EndpointId),
    /// Those of each of the tenant's endpoints.
    EachEndpoint,
}

/// What happened in one stretch of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    pub grain: Grain,
    /// A multiple of the grain since the epoch.
    pub start: Timestamp,
    pub tenant: TenantId,
    /// None is the tenant as a whole.
    pub endpoint: Option<EndpointId>,
    pub tallies: Tallies,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tallies {
    /// Deliveries made: by events that came in, and by replays.
    pub received: u64,
    pub delivered: u64,
    /// Attempts that were not a success.
    pub failures: u64,
    /// Deliveries that became dead letters.
    pub dead: u64,
    /// How long deliveries took from their event to success: entry i counts those below
    /// [`latency_bound`]`(i)` milliseconds that are not in an entry before it; the last one has no
    /// bound.
    pub latency: [u64; LATENCIES],
}

impl Grain {
    pub const ALL: [Self; 3] = [Self::Minute, Self::QuarterHour, Self::TwoHours];

    pub const fn millis(self) -> i64 {
        match self {
            Self::Minute => 60_000,
            Self::QuarterHour => 15 * 60_000,
            Self::TwoHours => 2 * 60 * 60_000,
        }
    }

    /// The start of the stretch that `at` lies in.
    pub const fn start_of(self, at: Timestamp) -> Timestamp {
        let millis = at.as_millis();
        Timestamp::from_millis(millis - millis.rem_euclid(self.millis()))
    }

    /// How long measures of it are kept: twice what a chart shows.
    pub const fn kept_millis(self) -> i64 {
        match self {
            Self::Minute => 2 * 60 * 60_000,
            Self::QuarterHour => 2 * 24 * 60 * 60_000,
            Self::TwoHours => 14 * 24 * 60 * 60_000,
        }
    }
}

impl Default for Tallies {
    fn default() -> Self {
        Self { received: 0, delivered: 0, failures: 0, dead: 0, latency: [0; LATENCIES] }
    }
}

impl Tallies {
    pub fn add(&mut self, other: &Self) {
        let Self { received, delivered, failures, dead, latency } = other;
        self.received += received;
        self.delivered += delivered;
        self.failures += failures;
        self.dead += dead;
        for (mine, others) in self.latency.iter_mut().zip(latency) {
            *mine += others;
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Notes a delivery that took this long.
    pub fn note_latency(&mut self, millis: u64) {
        let entry = (0..LATENCIES - 1).find(|entry| millis < latency_bound(*entry));
        self.latency[entry.unwrap_or(LATENCIES - 1)] += 1;
    }

    /// The time within which this share of deliveries was done, in milliseconds: the bound of the
    /// entry it falls into. None where nothing was delivered.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let all: u64 = self.latency.iter().sum();
        if all == 0 {
            return None;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts"
        )]
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all);
        let mut seen = 0;
        let entry = self.latency.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(latency_bound(entry.min(LATENCIES - 2)))
    }
}

/// 1, 2, 3, 4, 6, 8, 12, 16 … milliseconds, up to three and a half hours: each power of two and what
/// lies half-way to the next.
pub const fn latency_bound(entry: usize) -> u64 {
    let power = 1 << entry.div_ceil(2);
    if entry % 2 == 1 || entry == 0 { power } else { power + power / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_by_half_and_by_a_third_in_turn() {
        let bounds: Vec<u64> = (0..10).map(latency_bound).collect();
        assert_eq!(bounds, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]);
        assert!((1..LATENCIES).all(|entry| latency_bound(entry - 1) < latency_bound(entry)));
        assert_eq!(latency_bound(LATENCIES - 2), 3 << 22, "three and a half hours");
    }

    #[test]
    fn a_latency_is_counted_below_the_first_bound_that_it_does_not_reach() {
        let cases =
            [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 4), (6, 5), (12, 7), (u64::MAX, 47)];
        for (millis, entry) in cases {
            let mut tallies = Tallies::default();
            tallies.note_latency(millis);
            assert_eq!(
                tallies.latency.iter().position(|count| *count == 1),
                Some(entry),
                "{millis}"
            );
            assert_eq!(tallies.latency.iter().sum::<u64>(), 1);
        }
        for entry in 0..LATENCIES - 1 {
            let mut tallies = Tallies::default();
            tallies.note_latency(latency_bound(entry) - 1);
            tallies.note_latency(latency_bound(entry));
            assert_eq!(tallies.latency[entry..][..2], [1, 1], "{entry}");
        }
    }

    #[test]
    fn a_quantile_is_the_bound_that_so_many_are_below() {
        let of = |latencies: &[(u64, u64)]| {
            let mut tallies = Tallies::default();
            for (millis, times) in latencies {
                (0..*times).for_each(|_| tallies.note_latency(*millis));
            }
            tallies
        };
        let one = [(7, 1)];
        let spread = [(0, 50), (5, 45), (100, 4), (1_000, 1)];
        // What has no bound is at least as long as the last one.
        let endless = [(1, 1), (u64::MAX, 1)];
        let cases = [
            (&[][..], 0.5, None),
            (&one, 0.0, Some(8)),
            (&one, 0.5, Some(8)),
            (&one, 1.0, Some(8)),
            (&spread, 0.5, Some(1)),
            (&spread, 0.51, Some(6)),
            (&spread, 0.95, Some(6)),
            (&spread, 0.99, Some(128)),
            (&spread, 1.0, Some(1_024)),
            (&endless, 0.5, Some(2)),
            (&endless, 0.99, Some(3 << 22)),
        ];
        for (latencies, share, expected) in cases {
            assert_eq!(of(latencies).quantile(share), expected, "{share} of {latencies:?}");
        }
    }

    #[test]
    fn tallies_add_up_entry_by_entry() {
        let mut sum = Tallies::default();
        assert!(sum.is_empty());
        let mut one = Tallies { received: 1, delivered: 2, failures: 3, dead: 4, ..sum };
        one.note_latency(5);
        sum.add(&one);
        assert_eq!(sum, one);
        sum.add(&one);
        assert_eq!((sum.received, sum.delivered, sum.failures, sum.dead), (2, 4, 6, 8));
        assert_eq!(sum.latency[4], 2);
        assert!(!sum.is_empty());
    }

    #[test]
    fn a_stretch_begins_at_a_multiple_of_its_length() {
        for grain in Grain::ALL {
            let length = grain.millis();
            for (at, start) in [(0, 0), (1, 0), (length - 1, 0), (length, length)] {
                let found = grain.start_of(Timestamp::from_millis(at));
                assert_eq!(found.as_millis(), start, "{grain:?} {at}");
            }
            assert!(grain.kept_millis() % length == 0);
        }
    }
}
