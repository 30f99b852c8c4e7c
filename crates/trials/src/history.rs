//! A week that did not happen: what a gateway remembers of a busy one, for what shows it.

use postrider_core::{EndpointId, TenantId, Timestamp};
use postrider_store::measures::{Grain, Measure, Tallies};

/// One part of the traffic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) endpoint: EndpointId,
    /// Deliveries a minute at the middle of the day's swing.
    pub(crate) per_minute: u64,
    /// Of a thousand deliveries, how many fail at first, and how many are given up.
    pub(crate) failing: u64,
    pub(crate) dying: u64,
    /// What a delivery usually takes.
    pub(crate) millis: u64,
}

/// How many stretches of each grain a chart shows.
const fn shown(grain: Grain) -> i64 {
    match grain {
        Grain::Minute => 60,
        Grain::QuarterHour => 96,
        Grain::TwoHours => 84,
    }
}

/// What is remembered of these endpoints and of the tenant as a whole, up to `now`.
pub(crate) fn measures(shares: &[Share], now: Timestamp) -> Vec<Measure> {
    let mut measures = Vec::new();
    for grain in Grain::ALL {
        let last = grain.start_of(now).as_millis();
        for index in 0..shown(grain) {
            let start = Timestamp::from_millis(last - index * grain.millis());
            let minutes = grain.millis().unsigned_abs() / 60_000;
            let mut whole = Tallies::default();
            let measure = |endpoint, tallies| Measure {
                grain,
                start,
                tenant: TenantId::DEFAULT,
                endpoint,
                tallies,
            };
            for (place, share) in shares.iter().enumerate() {
                let tallies = share.tallies(minutes, index.unsigned_abs() + 7 * place as u64);
                whole.add(&tallies);
                measures.push(measure(Some(share.endpoint), tallies));
            }
            measures.push(measure(None, whole));
        }
    }
    measures
}

impl Share {
    /// Up and down by a wave that has no round period, so that it looks like traffic.
    fn tallies(&self, minutes: u64, phase: u64) -> Tallies {
        let swing = 70 + (phase * phase * 13 + phase * 29) % 61;
        let received = self.per_minute * minutes * swing / 100;
        let rough = if phase.is_multiple_of(11) { 4 } else { 1 };
        let dead = (received * self.dying * rough / 1_000).min(received);
        let mut tallies = Tallies {
            received,
            delivered: received - dead,
            failures: received * self.failing * rough / 1_000 + dead,
            dead,
            ..Tallies::default()
        };
        // Most take what is usual, a tenth three times that, a hundredth twenty times.
        for (times, part) in [(1, 900), (3, 90), (20, 10)] {
            for _ in 0..(tallies.delivered * part / 1_000).min(1_000) {
                tallies.note_latency(self.millis * times);
            }
        }
        tallies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_is_the_sum_of_the_endpoints_in_every_stretch() {
        let share = |id, dying| Share {
            endpoint: EndpointId::from_i64(id),
            per_minute: 100,
            failing: 20,
            dying,
            millis: 12,
        };
        let measures =
            measures(&[share(1, 0), share(2, 50)], Timestamp::from_millis(1_767_225_600_000));
        for whole in measures.iter().filter(|measure| measure.endpoint.is_none()) {
            let mut sum = Tallies::default();
            let parts = measures.iter().filter(|part| {
                part.endpoint.is_some() && part.grain == whole.grain && part.start == whole.start
            });
            parts.for_each(|part| sum.add(&part.tallies));
            assert_eq!(sum, whole.tallies);
            assert!(whole.tallies.delivered > whole.tallies.dead);
            assert!(whole.tallies.quantile(0.5).is_some());
        }
    }
}
