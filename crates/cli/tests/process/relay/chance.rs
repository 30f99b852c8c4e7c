//! Chance that can be had again: the same from the same seed.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug)]
pub(super) struct Chance {
    seed: u64,
    drawn: u64,
}

impl Chance {
    /// From `POSTRIDER_TEST_SEED`, or from the clock. The seed is printed.
    pub(super) fn seeded() -> Self {
        let given = std::env::var("POSTRIDER_TEST_SEED").ok();
        let seed = given.map_or_else(
            || {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
                u64::from(since.subsec_nanos()) | (since.as_secs() << 32)
            },
            |text| text.parse().expect("POSTRIDER_TEST_SEED is a number"),
        );
        println!("POSTRIDER_TEST_SEED={seed}");
        Self { seed, drawn: 0 }
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        let mut hasher = DefaultHasher::new();
        (self.seed, self.drawn).hash(&mut hasher);
        usize::try_from(hasher.finish() % bound as u64).expect("it is below a usize")
    }
}
