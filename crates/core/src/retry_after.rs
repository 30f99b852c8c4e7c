//! The `Retry-After` header: how long a receiver asks to be left alone.
//!
//! A hint that cannot be understood is no hint: it must never shorten, stretch or break a retry.

use std::time::{Duration, UNIX_EPOCH};

/// The longest wait a hint can stand for; whatever asks for more is read as this.
pub const MAX_HINT: Duration = Duration::from_hours(366 * 24);

/// Reads a header value: delta-seconds, or any of the three HTTP-date forms.
///
/// A hint is a whole number of seconds in `1s..=MAX_HINT`. Everything else, zero and dates that
/// have passed included, is `None`.
pub fn parse(value: &[u8], now_unix_ms: i64) -> Option<Duration> {
    let value = trim_ows(value);
    let seconds = if value.iter().all(u8::is_ascii_digit) {
        delta_seconds(value)
    } else {
        seconds_until_date(value, now_unix_ms)?
    };
    (seconds > 0).then(|| Duration::from_secs(seconds).min(MAX_HINT))
}

/// Optional white space as RFC 9110 defines it: spaces and tabs, not line ends.
fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Saturates, so that a number of any length is simply a long wait. No digits at all are zero.
fn delta_seconds(digits: &[u8]) -> u64 {
    digits.iter().fold(0_u64, |seconds, digit| {
        seconds.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}

/// Rounds up to the next whole second, so that the wait never ends before the date asked for.
fn seconds_until_date(value: &[u8], now_unix_ms: i64) -> Option<u64> {
    // The date parser trims line ends and other control characters, which no header may hold.
    if value.iter().any(u8::is_ascii_control) {
        return None;
    }
    let date = httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()?;
    let date_unix_ms = i128::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    let wait_ms = u128::try_from(date_unix_ms - i128::from(now_unix_ms)).ok()?;
    u64::try_from(wait_ms.div_ceil(1000)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Thursday, 1 January 2026, midnight.
    const NOW_MS: i64 = 1_767_225_600_000;

    #[track_caller]
    fn check(value: impl AsRef<[u8]>, seconds: impl Into<Option<u64>>) {
        let value = value.as_ref();
        let wanted = seconds.into().map(Duration::from_secs);
        assert_eq!(parse(value, NOW_MS), wanted, "{}", value.escape_ascii());
    }

    #[test]
    fn whole_seconds_are_honoured() {
        check("1", 1);
        check("120", 120);
        check("0120", 120);
        check(" \t120\t ", 120);
        check("31622400", 31_622_400);
    }

    #[test]
    fn absurd_seconds_are_clamped() {
        let most = MAX_HINT.as_secs();
        check("31622401", most);
        check("9223372036854775807", most);
        check("18446744073709551615", most);
        check("18446744073709551616", most);
        check("99999999999999999999", most);
        check("9".repeat(5000), most);
        check("0".repeat(5000) + "7", 7);
    }

    #[test]
    fn every_date_form_is_honoured() {
        for date in [
            "Thu, 01 Jan 2026 00:02:00 GMT",
            "Thursday, 01-Jan-26 00:02:00 GMT",
            "Thu Jan  1 00:02:00 2026",
            "\t Thu, 01 Jan 2026 00:02:00 GMT ",
        ] {
            check(date, 120);
        }
        check("Wednesday, 07-Jan-26 00:00:00 GMT", 6 * 86_400);
        check("Sun Feb 15 00:00:00 2026", 45 * 86_400);
    }

    #[test]
    fn far_dates_are_clamped() {
        let most = MAX_HINT.as_secs();
        check("Fri, 01 Jan 2027 23:59:59 GMT", most - 1);
        check("Sat, 02 Jan 2027 00:00:00 GMT", most);
        check("Sat, 02 Jan 2027 00:00:01 GMT", most);
        check("Fri, 31 Dec 9999 23:59:59 GMT", most);
    }

    #[test]
    fn dates_that_have_come_or_passed_are_ignored() {
        check("Thu, 01 Jan 2026 00:00:00 GMT", None);
        check("Wed, 31 Dec 2025 23:59:59 GMT", None);
        check("Sunday, 06-Nov-94 08:49:37 GMT", None);
        check("Sun Nov  6 08:49:37 1994", None);
        check("Thu, 01 Jan 1970 00:00:00 GMT", None);
    }

    #[test]
    fn part_of_a_second_rounds_up() {
        let date = b"Thu, 01 Jan 2026 00:00:10 GMT";
        for (late_ms, seconds) in [(-1, 11), (0, 10), (1, 10), (999, 10), (1000, 9), (9999, 1)] {
            assert_eq!(parse(date, NOW_MS + late_ms), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(parse(date, NOW_MS + 10_000), None);
    }

    #[test]
    fn everything_else_is_ignored() {
        for value in [
            "", " ", "\t", "0", "00", "-0", "-1", "+5", "1.5", "1.", ".5", "0x10", "1e3", "1e300",
            "1_000", "120, 60", "120,60", "1 2", "120s", "120;", "\"120\"", "inf", "-inf", "NaN",
            "infinity", "null", "soon", "GMT", "\n120", "120\r\n", "12\0",
        ] {
            check(value, None);
        }
        check(b"\xff\xfe", None);
        check("１２０", None);
        check("120\u{a0}", None);
    }

    #[test]
    fn broken_dates_are_ignored() {
        for value in [
            "Fri, 01 Jan 2026 00:02:00 GMT",
            "Thu, 32 Jan 2026 00:02:00 GMT",
            "Thu, 00 Jan 2026 00:02:00 GMT",
            "Mon, 30 Feb 2026 00:02:00 GMT",
            "Thu, 01 Jan 2026 24:00:00 GMT",
            "Thu, 01 Jan 2026 00:60:00 GMT",
            "Thu, 01 Jan 2026 00:02:00 UTC",
            "Thu, 01 Jan 2026 00:02:00",
            "Thu, 01 Jan 2026 00:02:00 GMT, 60",
            "thu, 01 jan 2026 00:02:00 gmt",
            "Thu, 01 Jan 0000 00:02:00 GMT",
            "Thursday, 01-Jan-2026 00:02:00 GMT",
            "\nThu, 01 Jan 2026 00:02:00 GMT",
            "Thu, 01 Jan 2026 00:02:00 GMT\r\n",
            "2026-01-01T00:02:00Z",
        ] {
            check(value, None);
        }
    }

    #[test]
    fn any_clock_is_survived() {
        let date = b"Thu, 01 Jan 2026 00:02:00 GMT";
        assert_eq!(parse(date, i64::MIN), Some(MAX_HINT));
        assert_eq!(parse(date, i64::MAX), None);
    }

    /// Arbitrary bytes rarely look like a date; these nearly always do.
    fn almost_date() -> impl Strategy<Value = Vec<u8>> {
        let date = prop::sample::select(vec![
            "Thu, 01 Jan 2026 00:02:00 GMT",
            "Thursday, 01-Jan-26 00:02:00 GMT",
            "Thu Jan  1 00:02:00 2026",
        ]);
        let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        (date, damage, 0..4_usize).prop_map(|(date, damage, cut)| {
            let mut bytes = date.as_bytes().to_vec();
            for (place, byte) in damage {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes.truncate(bytes.len() - cut);
            bytes
        })
    }

    proptest! {
        #[test]
        fn no_value_panics_or_leaves_the_bounds(
            value in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..64),
                "[ \t]{0,2}[0-9]{1,30}[ \t]{0,2}".prop_map(String::into_bytes),
                "[A-Za-z0-9:, -]{20,34}".prop_map(String::into_bytes),
                almost_date(),
            ],
            now in any::<i64>(),
        ) {
            if let Some(hint) = parse(&value, now) {
                prop_assert!((Duration::from_secs(1)..=MAX_HINT).contains(&hint));
            }
        }

        #[test]
        fn a_date_is_never_honoured_early(
            now in 0..4_000_000_000_000_i64,
            ahead_seconds in 1..31_000_000_u64,
        ) {
            let date_seconds = u64::try_from(now / 1000).expect("positive") + ahead_seconds;
            let date = UNIX_EPOCH + Duration::from_secs(date_seconds);
            let hint = parse(httpdate::fmt_http_date(date).as_bytes(), now).expect("a date ahead");
            let until = Duration::from_millis(u64::try_from(now).expect("positive")) + hint;
            prop_assert!(until >= Duration::from_secs(date_seconds));
            prop_assert!(until < Duration::from_secs(date_seconds + 1));
        }
    }
}
