//! Where each connection counts: in rows that no other one writes, so that nobody waits for another.
//!
//! Two that share a slot only wait for each other; the sum is right all the same.

use std::sync::atomic::{AtomicI16, Ordering};

/// How many slots a node has: one for each writer, and before them one for all other changes.
const SLOTS: i16 = 65;

/// The slots of this process: those of the node that it is, once it has joined others.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    first: AtomicI16,
}

impl Slots {
    /// Takes the slots that belong to a node's number.
    pub(crate) fn belong_to(&self, number: u8) {
        self.first.store(SLOTS * i16::from(number), Ordering::Relaxed);
    }

    /// Where changes that are neither appended nor settled by the engine are counted.
    pub(crate) fn changes(&self) -> i16 {
        self.first.load(Ordering::Relaxed)
    }

    /// Where the `index`-th writer counts.
    pub(crate) fn writer(&self, index: i16) -> i16 {
        self.changes() + 1 + index.rem_euclid(SLOTS - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::postgres::config::MAX_CONNECTIONS;

    #[test]
    fn no_two_connections_of_any_nodes_share_a_slot() {
        let slots = Slots::default();
        let mut seen = HashSet::new();
        for number in 0..=u8::MAX {
            slots.belong_to(number);
            assert!(seen.insert(slots.changes()), "{number}");
            for index in (0..).take(MAX_CONNECTIONS) {
                assert!(seen.insert(slots.writer(index)), "{number}, {index}");
            }
        }
        assert!(seen.iter().all(|slot| *slot >= 0));
    }
}
