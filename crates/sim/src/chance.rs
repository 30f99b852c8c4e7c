//! Chance: everything that is drawn in a world comes from its seed, by a way of its own for each purpose,
//! so that drawing more for one leaves the others as they were.

use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;
use postrider_core::Jitter;
use postrider_engine::ports::Entropy;

#[derive(Debug, Clone)]
pub(crate) struct Chance {
    rng: Arc<Mutex<Rng>>,
}

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Self { rng: Arc::new(Mutex::new(Rng::with_seed(seed))) }
    }

    /// Chance for another purpose.
    pub(crate) fn apart(&self) -> Self {
        Self::of(self.rng.lock().u64(..))
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.rng.lock().u64(..bound.max(1))
    }

    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        self.rng.lock().u64(least..=most.max(least))
    }

    /// True once in `times`.
    pub(crate) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Some part of 1, below 1.
    pub(crate) fn share(&self) -> f64 {
        self.rng.lock().f64()
    }

    pub(crate) fn choose<'a, T>(&self, of: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.below(of.len() as u64)).unwrap_or(0);
        of.get(index)
    }
}

impl Entropy for Chance {
    fn jitter(&self) -> Jitter {
        Jitter::new(self.rng.lock().f64())
    }

    fn number(&self) -> u64 {
        self.rng.lock().u64(..)
    }

    fn secret_bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.rng.lock().fill(&mut bytes);
        bytes
    }
}
