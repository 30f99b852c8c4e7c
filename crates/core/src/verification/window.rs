//! The time a request says it was signed at, and whether that is near enough.

use std::time::Duration;

use super::Refusal;
use crate::time::Timestamp;

/// Enough for every second up to the year 9999, and few enough never to overflow in milliseconds.
const MAX_SECONDS_DIGITS: usize = 12;
const MAX_MILLIS_DIGITS: usize = MAX_SECONDS_DIGITS + 3;

/// Reads whole seconds since 1970 as milliseconds.
pub(super) fn seconds(text: &str) -> Option<i64> {
    digits(text, MAX_SECONDS_DIGITS).map(|seconds| seconds * 1_000)
}

/// Reads whole milliseconds since 1970.
pub(super) fn millis(text: &str) -> Option<i64> {
    digits(text, MAX_MILLIS_DIGITS)
}

/// Digits alone: the sign and the leading zeros that other parsers take would give one time more
/// than one spelling, and the spelling is what was signed.
fn digits(text: &str, max: usize) -> Option<i64> {
    let plain = text.len() <= max && text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if plain && !leading_zero { text.parse().ok() } else { None }
}

/// Refuses a time further from `now` than the tolerance, in either direction.
pub(super) fn check(signed_at_ms: i64, tolerance: Duration, now: Timestamp) -> Result<(), Refusal> {
    let age_ms = now.as_millis().saturating_sub(signed_at_ms);
    let distance = Duration::from_millis(age_ms.unsigned_abs());
    if distance <= tolerance {
        Ok(())
    } else if age_ms > 0 {
        Err(Refusal::TooOld { age: distance, tolerance })
    } else {
        Err(Refusal::InFuture { ahead: distance, tolerance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_plain_digits() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("1700000000", Some(1_700_000_000_000)),
            ("999999999999", Some(999_999_999_999_000)),
            ("1000000000000", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("01", None),
            ("1.5", None),
            ("1e9", None),
            (" 1", None),
            ("١", None),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
        assert_eq!(millis("1700000000123"), Some(1_700_000_000_123));
        assert_eq!(millis("1000000000000000"), None);
    }

    #[test]
    fn the_window_is_closed_at_both_ends() {
        let tolerance = Duration::from_mins(5);
        let now = Timestamp::from_millis(1_700_000_000_000);
        let at = |offset_ms: i64| check(now.as_millis() + offset_ms, tolerance, now);
        let over = Duration::from_millis(300_001);
        assert_eq!(at(0), Ok(()));
        assert_eq!(at(-300_000), Ok(()));
        assert_eq!(at(300_000), Ok(()));
        assert_eq!(at(-300_001), Err(Refusal::TooOld { age: over, tolerance }));
        assert_eq!(at(300_001), Err(Refusal::InFuture { ahead: over, tolerance }));
        assert!(check(i64::MAX, tolerance, now).is_err());
        assert!(check(i64::MIN, tolerance, now).is_err());
    }
}
