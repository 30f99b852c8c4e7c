//! Changes of bytes, drawn from a seed: the same in every run, on every machine.

/// The longest piece that is cut, copied or repeated.
const MAX_PIECE: usize = 32;
/// The most changes that are made of one file at once.
const MAX_CHANGES: usize = 4;
/// What bytes may grow to.
const MAX_BYTES: usize = 8 << 10;
/// Bytes at which readers of numbers, texts and lengths do something else.
const EDGES: [u8; 16] = *b"\0\x01\x7f\x80\xff \n\r\t\"'\\09-{";

pub(crate) struct Mutator {
    state: u64,
}

impl Mutator {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// `bytes` with a few changes, some of which come from `other`.
    pub(crate) fn change(&mut self, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        for _ in 0..=self.below(MAX_CHANGES) {
            self.change_once(&mut changed, other);
            changed.truncate(MAX_BYTES);
        }
        changed
    }

    fn change_once(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        let end = (at + 1 + self.below(MAX_PIECE)).min(bytes.len());
        match self.below(7) {
            // A flipped bit.
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            // A byte of another meaning, instead of one or between two.
            1 if at < bytes.len() => bytes[at] = EDGES[self.below(EDGES.len())],
            0..=2 => bytes.insert(at, EDGES[self.below(EDGES.len())]),
            // A cut, in the middle or to the end.
            3 => drop(bytes.drain(at..end)),
            4 => bytes.truncate(at),
            // A repeated piece.
            5 => {
                let piece = bytes[at..end].to_vec();
                for _ in 0..=self.below(8) {
                    bytes.splice(at..at, piece.iter().copied());
                }
            }
            // A piece of another file.
            _ => {
                let from = self.below(other.len() + 1);
                let to = (from + 1 + self.below(MAX_PIECE)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
    }

    /// A number below `bound`, or zero if there is none.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound.max(1) as u64)).unwrap_or(0)
    }

    /// `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[test]
fn the_same_seed_makes_the_same_changes_and_most_change_something() {
    let bytes = b"{\"type\":\"order.created\",\"payload\":{}}";
    let all = |seed: u64| -> Vec<Vec<u8>> {
        let mut mutator = Mutator::seeded(seed);
        (0..200).map(|_| mutator.change(bytes, b"other bytes")).collect()
    };
    assert_eq!(all(1), all(1));
    assert_ne!(all(1), all(2));
    let changed = all(1).iter().filter(|changed| changed.as_slice() != bytes).count();
    assert!(changed > 150, "{changed} of 200");
    let mut mutator = Mutator::seeded(3);
    for _ in 0..200 {
        mutator.change(b"", b"");
    }
}
