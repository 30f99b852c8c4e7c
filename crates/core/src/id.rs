//! Typed ids: 63-bit integers that sort by time, and their text form.
//!
//! An id is `[41 bits milliseconds since 2024][22 bits sequence]`. As text it is a kind prefix and
//! thirteen lower-case Crockford base-32 digits, so that text sorts as the integer does.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::time::Timestamp;

/// 2024-01-01T00:00:00Z in Unix milliseconds: the zero of the time part.
const EPOCH_MS: i64 = 1_704_067_200_000;
const SEQUENCE_BITS: u32 = 22;
const DIGITS: usize = 13;
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The text was not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected an id like {prefix}{example}", example = "0".repeat(DIGITS))]
pub struct ParseError {
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(i64);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            pub const fn from_i64(raw: i64) -> Self {
                Self(raw)
            }

            pub const fn as_i64(self) -> i64 {
                self.0
            }

            /// The smallest id that can have been made at `time`: a bound for time ranges.
            pub fn floor(time: Timestamp) -> Self {
                Self(floor(time))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_id(f, $prefix, self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<Self, ParseError> {
                parse_id($prefix, text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

id!(
    /// One immutable message.
    EventId,
    "evt_"
);
id!(
    /// One event on its way to one endpoint.
    DeliveryId,
    "dlv_"
);
id!(
    /// A subscription.
    EndpointId,
    "ep_"
);
id!(
    /// An inbound URL.
    SourceId,
    "src_"
);
id!(
    /// An agent behind NAT.
    HubId,
    "hub_"
);
id!(
    /// A long piece of work, such as a replay.
    JobId,
    "job_"
);
id!(
    /// An API key (not its secret).
    KeyId,
    "key_"
);

/// A name space. Tenants are few and named; the number is only their key in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TenantId(pub i64);

impl TenantId {
    /// The tenant that exists from the start.
    pub const DEFAULT: Self = Self(1);
}

/// An attempt has no stored id of its own: it is named by its delivery and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptId {
    pub delivery: DeliveryId,
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_id(f, "att_", self.delivery.0)?;
        write!(f, "{:04}", self.number)
    }
}

/// Hands out ids that only ever grow, whatever the clock does.
#[derive(Debug)]
pub struct Sequence {
    last: i64,
    /// The part of every millisecond that is this node's alone.
    node: Option<u8>,
}

/// The ids that each of several nodes has in every millisecond; the most that can be taken at once.
pub const NODE_IDS: u32 = 1 << (SEQUENCE_BITS - u8::BITS);

impl Sequence {
    /// `last` is the highest id already in use (0 if none): a clock that was set back between two
    /// runs must not lead to an id being given twice.
    pub const fn after(last: i64) -> Self {
        Self { last, node: None }
    }

    /// The same for one of several nodes that hand out ids at the same time: with another `number`
    /// there are other ids.
    pub const fn of_node(number: u8, last: i64) -> Self {
        Self { last, node: Some(number) }
    }

    /// Goes on under another number, after `last`.
    pub fn renumber(&mut self, number: u8, last: i64) {
        *self = Self::of_node(number, self.last.max(last));
    }

    /// Reserves `count` consecutive ids and returns the first. A node takes at most [`NODE_IDS`].
    pub fn take(&mut self, now: Timestamp, count: u32) -> i64 {
        let count = i64::from(count.max(1));
        let first = match self.node {
            None => floor(now).max(self.last + 1),
            Some(number) => self.first_of_node(number, floor(now), count),
        };
        self.last = first + count - 1;
        first
    }

    fn first_of_node(&self, number: u8, now: i64, count: i64) -> i64 {
        let own = i64::from(number) * i64::from(NODE_IDS);
        let begins = |millisecond: i64| (millisecond << SEQUENCE_BITS) + own;
        let earliest = begins(now >> SEQUENCE_BITS);
        if self.last < earliest {
            return earliest;
        }
        // Ahead of the clock: go on in the millisecond of the last one, if there is room.
        let current = begins(self.last >> SEQUENCE_BITS);
        let next = current.max(self.last + 1);
        if next + count <= current + i64::from(NODE_IDS) {
            return next;
        }
        begins((self.last >> SEQUENCE_BITS) + 1)
    }
}

fn floor(time: Timestamp) -> i64 {
    let since_epoch = (time.as_millis() - EPOCH_MS).max(0);
    since_epoch.min(i64::MAX >> SEQUENCE_BITS) << SEQUENCE_BITS
}

fn write_id(f: &mut fmt::Formatter<'_>, prefix: &str, raw: i64) -> fmt::Result {
    let mut digits = [0_u8; DIGITS];
    let mut rest = raw.cast_unsigned();
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(rest & 31) as usize];
        rest >>= 5;
    }
    f.write_str(prefix)?;
    f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
}

fn parse_id(prefix: &'static str, text: &str) -> Result<i64, ParseError> {
    let error = ParseError { prefix };
    let digits = text.strip_prefix(prefix).ok_or_else(|| error.clone())?;
    if digits.len() != DIGITS {
        return Err(error);
    }
    let mut raw: u128 = 0;
    for byte in digits.bytes() {
        let value =
            ALPHABET.iter().position(|&known| known == byte).ok_or_else(|| error.clone())?;
        raw = raw << 5 | value as u128;
    }
    i64::try_from(raw).map_err(|_| error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(EPOCH_MS + ms)
    }

    #[test]
    fn ids_survive_their_text_form() {
        for raw in [0, 1, 31, 32, i64::MAX, floor(at(86_400_000)) + 17] {
            let id = EventId::from_i64(raw);
            assert_eq!(id.to_string().parse::<EventId>(), Ok(id));
        }
    }

    #[test]
    fn text_sorts_as_time_does() {
        let mut sequence = Sequence::after(0);
        let ids: Vec<String> = [0, 0, 1, 1_000, 999, 90_000_000]
            .map(|ms| EventId::from_i64(sequence.take(at(ms), 3)).to_string())
            .to_vec();
        let mut sorted = ids.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(ids, sorted);
    }

    #[test]
    fn ids_of_another_kind_or_shape_are_refused() {
        let delivery = DeliveryId::from_i64(7).to_string();
        let long = format!("{}0", EventId::from_i64(7));
        for text in
            ["", "evt_", "evt_zz", &delivery, &long, "evt_zzzzzzzzzzzzz", "evt_000000000000U"]
        {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_clock_set_back_gives_no_id_twice() {
        let mut sequence = Sequence::after(0);
        let first = sequence.take(at(1_000), 10);
        let second = sequence.take(at(0), 1);
        assert!(second >= first + 10);
        let mut restarted = Sequence::after(second);
        assert!(restarted.take(at(0), 1) > second);
    }

    #[test]
    fn nodes_that_hand_out_ids_at_the_same_time_never_meet() {
        let mut given = std::collections::BTreeSet::new();
        let mut nodes = [0, 1, 7, u8::MAX].map(|number| Sequence::of_node(number, 0));
        let counts = [1, 2, 3, NODE_IDS / 2, NODE_IDS, 1, 1, NODE_IDS - 1, 2, 10_001, 10_001, 1];
        for (turn, count) in (0..).zip(counts.into_iter().cycle().take(600)) {
            for node in &mut nodes {
                let before = node.last;
                // Three in each millisecond, and now and then the clock goes back.
                let ms = if turn % 50 == 49 { 0 } else { turn / 3 };
                let first = node.take(at(1_000 + ms), count);
                assert!(first > before, "they only grow");
                for id in first..first + i64::from(count) {
                    assert!(given.insert(id), "{id} was given twice");
                }
                let number = |id: i64| (id >> 14) & 0xff;
                let last = first + i64::from(count) - 1;
                assert_eq!(Some(number(first)), node.node.map(i64::from));
                assert_eq!((number(first), first >> 22), (number(last), last >> 22));
            }
        }
    }

    #[test]
    fn a_node_begins_after_whatever_is_in_use() {
        for last in [0, 5, floor(at(1_000)), floor(at(1_000)) + (200 << 14), floor(at(9_000)) - 1] {
            for number in [0, 3, 200, u8::MAX] {
                let first = Sequence::of_node(number, last).take(at(1_000), 10_001);
                assert!(first > last && first >= floor(at(1_000)), "{last} {number}");
                assert!(first <= last.max(floor(at(1_000))) + (1 << SEQUENCE_BITS), "and not far");
            }
        }
    }

    #[test]
    fn the_floor_of_a_time_bounds_the_ids_made_then() {
        let mut sequence = Sequence::after(0);
        let id = EventId::from_i64(sequence.take(at(5_000), 1));
        assert!(EventId::floor(at(5_000)) <= id);
        assert!(id < EventId::floor(at(5_001)));
    }
}
