//! A row on its way from one backend to the other, and what rows come to when they are added up.

use std::hash::{DefaultHasher, Hasher};

/// A value, whatever its type is called where it is kept.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Whole(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

pub(crate) type Row = Vec<Value>;

/// What a value takes beside its content.
const VALUE_BYTES: usize = size_of::<Value>();

impl Value {
    /// How much memory it takes, about.
    pub(crate) fn size(&self) -> usize {
        VALUE_BYTES
            + match self {
                Self::Null | Self::Whole(_) | Self::Real(_) => 0,
                Self::Text(text) => text.len(),
                Self::Bytes(bytes) => bytes.len(),
            }
    }

    /// Writes it so that no two values, and no two lists of values, are written alike.
    pub(crate) fn spell(&self, mut write: impl FnMut(&[u8])) {
        let mut sized = |tag: u8, content: &[u8]| {
            write(&[tag]);
            write(&(content.len() as u64).to_le_bytes());
            write(content);
        };
        match self {
            Self::Null => sized(0, &[]),
            Self::Whole(number) => sized(1, &number.to_le_bytes()),
            Self::Real(number) => sized(2, &number.to_bits().to_le_bytes()),
            Self::Text(text) => sized(3, text.as_bytes()),
            Self::Bytes(bytes) => sized(4, bytes),
        }
    }
}

/// How many rows there are, and the sum of their hashes: the same in whatever order they come.
/// Compared within one process only, so the hash may be any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) rows: u64,
    sum: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, row: &[Value]) {
        let mut hasher = DefaultHasher::new();
        for value in row {
            value.spell(|bytes| hasher.write(bytes));
        }
        self.rows += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(rows: &[&[Value]]) -> Tally {
        let mut tally = Tally::default();
        for row in rows {
            tally.add(row);
        }
        tally
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn the_order_of_rows_does_not_matter_and_everything_else_does() {
        let (one, two) = ([Value::Whole(1), text("ab")], [Value::Whole(2), Value::Null]);
        assert_eq!(tally(&[&one, &two]), tally(&[&two, &one]));
        assert_ne!(tally(&[&one, &two]), tally(&[&one, &one]));
        let all: [&[Value]; 12] = [
            &[],
            &[Value::Null],
            &[Value::Null, Value::Null],
            &[Value::Whole(0)],
            &[Value::Real(0.0)],
            &[Value::Real(-0.0)],
            &[text("")],
            &[Value::Bytes(Vec::new())],
            &[text("ab"), text("c")],
            &[text("a"), text("bc")],
            &[text("abc")],
            &[Value::Bytes(b"abc".to_vec())],
        ];
        for (index, row) in all.iter().enumerate() {
            for other in &all[..index] {
                assert_ne!(tally(&[row]), tally(&[other]), "row {index}");
            }
        }
    }
}
