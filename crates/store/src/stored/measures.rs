//! The stored form of a measure: the code of its grain, whose it is, and how long deliveries took.
//!
//! Counts are kept without the zeros at their end. Most deliveries take a few milliseconds, so that is
//! much shorter than the whole.

use postrider_core::EndpointId;

use super::words::{stored_count, to_json};
use crate::error::Error;
use crate::measures::{Grain, LATENCIES};

/// Stands where the id of an endpoint would, for the tenant as a whole.
pub(crate) const WHOLE: i64 = 0;

/// Like all codes, these never change their meaning.
pub(crate) const fn grain(grain: Grain) -> i16 {
    match grain {
        Grain::Minute => 1,
        Grain::QuarterHour => 2,
        Grain::TwoHours => 3,
    }
}

pub(crate) fn endpoint(endpoint: Option<EndpointId>) -> i64 {
    endpoint.map_or(WHOLE, EndpointId::as_i64)
}

pub(crate) fn decode_endpoint(stored: i64) -> Option<EndpointId> {
    (stored != WHOLE).then(|| EndpointId::from_i64(stored))
}

pub(crate) fn counts(latency: &[u64; LATENCIES]) -> Vec<i64> {
    let used = latency.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    latency[..used].iter().map(|count| stored_count(*count)).collect()
}

/// The inverse of [`counts`]; anything else is damage.
pub(crate) fn latency(counts: &[i64]) -> Result<[u64; LATENCIES], Error> {
    let mut latency = [0; LATENCIES];
    if counts.len() > LATENCIES {
        return Err(damaged());
    }
    for (entry, count) in latency.iter_mut().zip(counts) {
        *entry = u64::try_from(*count).map_err(|_| damaged())?;
    }
    Ok(latency)
}

/// Counts as text, where they cannot be a list.
pub(crate) fn text(counts: &[i64]) -> Result<String, Error> {
    to_json(&counts)
}

/// The inverse of [`text`].
pub(crate) fn decode_text(stored: &str) -> Result<Vec<i64>, Error> {
    serde_json::from_str(stored).map_err(|_| damaged())
}

fn damaged() -> Error {
    Error::Damaged("a stored measure cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_both_stored_forms() {
        let mut middle = [0; LATENCIES];
        (middle[3], middle[9]) = (7, u64::from(u32::MAX) + 1);
        let mut last = [0; LATENCIES];
        last[LATENCIES - 1] = 1;
        for (whole, length) in [([0; LATENCIES], 0), (middle, 10), (last, LATENCIES)] {
            let stored = counts(&whole);
            assert_eq!(stored.len(), length);
            assert_eq!(latency(&stored).expect("its own"), whole);
            let text = text(&stored).expect("numbers");
            assert_eq!(decode_text(&text).expect("its own"), stored);
        }
        assert_eq!(text(&counts(&middle)).expect("numbers"), "[0,0,0,7,0,0,0,0,0,4294967296]");
    }

    #[test]
    fn what_is_no_list_of_counts_is_damage() {
        for text in ["", "[1,", "{}", "[1.5]", "[\"1\"]"] {
            assert!(matches!(decode_text(text), Err(Error::Damaged(_))), "{text}");
        }
        for counts in [&[-1][..], &[0; LATENCIES + 1]] {
            assert!(matches!(latency(counts), Err(Error::Damaged(_))), "{counts:?}");
        }
    }
}
