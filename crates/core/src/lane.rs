//! Lanes: the fixed parts that endpoints are divided into, so that nodes can share them out.

use crate::id::EndpointId;

/// How many lanes a store has unless it was made with another number.
pub const DEFAULT_LANES: u16 = 64;

/// The most lanes a store can have.
pub const MAX_LANES: u16 = 4_096;

/// A part of all endpoints. One node at a time carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u16);

impl Lane {
    /// The lane of an endpoint, for as long as it lives. `lanes` is fixed when a store is made.
    pub fn of(endpoint: EndpointId, lanes: u16) -> Self {
        // Ids follow one another closely, and their low bits are often alike: the multiplication
        // (by 2^64 over the golden ratio) spreads them, and the high bits are the well mixed ones.
        let mixed = endpoint.as_i64().cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let lane = mixed % u64::from(lanes.max(1));
        Self(u16::try_from(lane).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::id::Sequence;

    #[test]
    fn an_endpoint_keeps_its_lane() {
        for (id, lane) in [(0, 0), (1, 57), (4_194_304, 31), (1 << 40, 0), (i64::MAX, 6)] {
            let found = Lane::of(EndpointId::from_i64(id), DEFAULT_LANES);
            assert_eq!(found, Lane(lane), "{id}: stores rely on it");
        }
    }

    #[test]
    fn endpoints_made_one_after_another_are_spread_evenly() {
        for gap_ms in [0, 1, 7, 1_000, 60_000] {
            let mut sequence = Sequence::after(0);
            let mut counts = vec![0_u32; usize::from(DEFAULT_LANES)];
            let mut now = Timestamp::from_millis(1_800_000_000_000);
            for _ in 0..6_400 {
                let id = EndpointId::from_i64(sequence.take(now, 1));
                counts[usize::from(Lane::of(id, DEFAULT_LANES).0)] += 1;
                now = now.plus(std::time::Duration::from_millis(gap_ms));
            }
            let (fewest, most) = (counts.iter().min(), counts.iter().max());
            assert!(fewest >= Some(&50) && most <= Some(&200), "{gap_ms}: {fewest:?} to {most:?}");
        }
    }

    #[test]
    fn every_number_of_lanes_is_kept_to() {
        for lanes in [0, 1, 2, 3, MAX_LANES] {
            for id in 0..1_000 {
                assert!(Lane::of(EndpointId::from_i64(id), lanes).0 < lanes.max(1));
            }
        }
    }
}
