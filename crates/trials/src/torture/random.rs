//! Chance from a seed: enough to choose faults and moments, and the same from the same seed.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `SplitMix64`.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The chance of one round, which does not depend on the rounds before it: so that one can be
    /// played again alone.
    pub(crate) fn of_round(seed: u64, round: u64) -> Self {
        let start = Self::new(seed).next() ^ Self::new(round).next();
        Self::new(start)
    }

    /// Another one, for somebody who draws at his own time.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length.max(1) as u64)).unwrap_or(0)
    }

    pub(crate) fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// To the millisecond.
    pub(crate) fn span(&mut self, range: Range<Duration>) -> Duration {
        let width = range.end.saturating_sub(range.start).as_millis();
        let width = u64::try_from(width).unwrap_or(u64::MAX).max(1);
        range.start + Duration::from_millis(self.below(width))
    }

    pub(crate) fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for piece in bytes.chunks_exact_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes());
        }
        bytes
    }
}

/// For whoever names no seed.
pub(crate) fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Random::new(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)).next() >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_the_same_again_and_unlike_others() {
        let draw = |seed, round| Random::of_round(seed, round).bytes();
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3), draw(7, 4));
        assert_ne!(draw(7, 3), draw(8, 3));
        assert_ne!(draw(7, 3), draw(3, 7 + 1));
    }

    #[test]
    fn what_is_drawn_stays_within_its_bounds() {
        let mut random = Random::new(1);
        let (from, to) = (Duration::from_millis(20), Duration::from_millis(25));
        for _ in 0..1_000 {
            assert!(random.below(3) < 3);
            assert!(random.index(2) < 2);
            assert!((from..to).contains(&random.span(from..to)));
        }
        assert_eq!(random.index(0), 0);
        assert_eq!(random.span(to..from), to);
    }
}
