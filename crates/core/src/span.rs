//! Durations as text, the way the API and the configuration write them: `"500ms"`, `"1h30m"`.

use std::fmt::Write as _;
use std::time::Duration;

/// The longest duration that can be written.
pub const MAX: Duration = Duration::from_hours(MAX_DAYS * 24);

const MAX_DAYS: u64 = 3660;

/// How much of a refused text an error repeats.
const MAX_QUOTED_CHARS: usize = 24;

/// From the longest to the shortest, the order in which the parts of a text must stand.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a duration must not be empty; write it like \"30s\", \"5m\" or \"1h30m\"")]
    Empty,
    #[error(
        "{0} is not a duration; write whole numbers with units, like \"500ms\", \"30s\" or \"1h30m\""
    )]
    Malformed(Quoted),
    #[error("{0} is a number without a unit; add ms, s, m, h or d, like \"30s\"")]
    MissingUnit(Quoted),
    #[error("{0} is not a unit of time; use ms, s, m, h or d")]
    UnknownUnit(Quoted),
    #[error(
        "the units of {0} are not in order; write each at most once, the longest first, like \"1h30m\""
    )]
    Order(Quoted),
    #[error("{0} is too long; the longest duration is \"{MAX_DAYS}d\"")]
    TooLong(Quoted),
}

/// Outside text made fit for a message: quoted, escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(String);

impl Quoted {
    fn new(text: &str) -> Self {
        match text.char_indices().nth(MAX_QUOTED_CHARS) {
            None => Self(format!("{text:?}")),
            Some((end, _)) => Self(format!("{:?}…", &text[..end])),
        }
    }
}

impl std::fmt::Display for Quoted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads one or more whole numbers with units, the longest unit first, up to [`MAX`].
pub fn parse(text: &str) -> Result<Duration, Error> {
    if text.is_empty() {
        return Err(Error::Empty);
    }
    let too_long = || Error::TooLong(Quoted::new(text));
    let mut total_ms = 0_u64;
    let mut allowed_units = &UNITS[..];
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after_number) = split_while(rest, |c| c.is_ascii_digit());
        if number.is_empty() {
            return Err(Error::Malformed(Quoted::new(text)));
        }
        let (unit, after_unit) = split_while(after_number, char::is_alphabetic);
        if unit.is_empty() {
            return Err(if after_unit.is_empty() {
                Error::MissingUnit(Quoted::new(number))
            } else {
                Error::Malformed(Quoted::new(text))
            });
        }
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            return Err(Error::UnknownUnit(Quoted::new(unit)));
        }
        let place = allowed_units
            .iter()
            .position(|(name, _)| *name == unit)
            .ok_or_else(|| Error::Order(Quoted::new(text)))?;
        let (_, unit_ms) = allowed_units[place];
        allowed_units = &allowed_units[place + 1..];

        // The text holds only digits here, so the one way to fail is to be too large.
        let number: u64 = number.parse().map_err(|_| too_long())?;
        total_ms = number
            .checked_mul(unit_ms)
            .and_then(|part_ms| total_ms.checked_add(part_ms))
            .ok_or_else(too_long)?;
        rest = after_unit;
    }
    let duration = Duration::from_millis(total_ms);
    if duration > MAX { Err(too_long()) } else { Ok(duration) }
}

/// Writes the one normal form: each unit as large as it gets, none that is zero.
///
/// Exact to the millisecond; what is shorter than that is cut off.
pub fn format(duration: Duration) -> String {
    let mut rest_ms = duration.as_millis();
    let mut text = String::new();
    for (unit, unit_ms) in UNITS {
        let count = rest_ms / u128::from(unit_ms);
        rest_ms %= u128::from(unit_ms);
        if count > 0 {
            write!(text, "{count}{unit}").expect("writing to a String cannot fail");
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// For `#[serde(with = "span::serde_span")]` on a `Duration`.
pub mod serde_span {
    use std::fmt;
    use std::time::Duration;

    use serde::de::Visitor;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::format(*duration))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        from.deserialize_str(Text)
    }

    struct Text;

    impl Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration as text, like \"30s\"")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
            super::parse(text).map_err(E::custom)
        }
    }
}

/// For `#[serde(with = "span::serde_option")]` on an `Option<Duration>`; add `default` where the
/// field may be left out.
pub mod serde_option {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Span(#[serde(with = "super::serde_span")] Duration);

    pub fn serialize<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        duration.map(Span).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Span>::deserialize(from)?.map(|span| span.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[track_caller]
    fn check(text: &str, ms: u64, normal: &str) {
        let duration = Duration::from_millis(ms);
        assert_eq!(parse(text), Ok(duration), "{text}");
        assert_eq!(format(duration), normal, "{text}");
    }

    #[track_caller]
    fn refuse(text: &str, message: &str) {
        assert_eq!(parse(text).expect_err(text).to_string(), message, "{text}");
    }

    #[test]
    fn texts_are_read_and_written_in_normal_form() {
        check("500ms", 500, "500ms");
        check("30s", 30_000, "30s");
        check("5m", 300_000, "5m");
        check("2h", 7_200_000, "2h");
        check("7d", 604_800_000, "7d");
        check("1h30m", 5_400_000, "1h30m");
        check("1d2h3m4s5ms", 93_784_005, "1d2h3m4s5ms");
        check("1d5ms", 86_400_005, "1d5ms");
        check("90s", 90_000, "1m30s");
        check("1500ms", 1_500, "1s500ms");
        check("24h", 86_400_000, "1d");
        check("1h90m", 9_000_000, "2h30m");
        check("007s", 7_000, "7s");
        check("0s", 0, "0s");
        check("0ms", 0, "0s");
        check("0d0h0m0s0ms", 0, "0s");
        check("3660d", 316_224_000_000, "3660d");
        check("3659d24h", 316_224_000_000, "3660d");
        check("316224000000ms", 316_224_000_000, "3660d");
    }

    #[test]
    fn refusals_say_what_to_write() {
        let malformed = |text: &str| {
            format!(
                "{text:?} is not a duration; write whole numbers with units, like \"500ms\", \
                 \"30s\" or \"1h30m\""
            )
        };
        refuse("", "a duration must not be empty; write it like \"30s\", \"5m\" or \"1h30m\"");
        for text in [
            " ", "s", "abc", "-5s", "+5s", " 5s", "5s ", "5 s", "1h 30m", "1.5h", "1,5h", "5s\n",
            "1_000s", "٣s", "5s,", "∞",
        ] {
            refuse(text, &malformed(text));
        }
        refuse("5", "\"5\" is a number without a unit; add ms, s, m, h or d, like \"30s\"");
        refuse("1h30", "\"30\" is a number without a unit; add ms, s, m, h or d, like \"30s\"");
        for (text, unit) in
            [("5S", "S"), ("5sec", "sec"), ("1w", "w"), ("5us", "us"), ("5µs", "µs"), ("1e3s", "e")]
        {
            refuse(text, &format!("\"{unit}\" is not a unit of time; use ms, s, m, h or d"));
        }
        for text in ["30m1h", "5s5s", "5ms5s", "1s1m", "0s0s"] {
            refuse(
                text,
                &format!(
                    "the units of \"{text}\" are not in order; write each at most once, the \
                     longest first, like \"1h30m\""
                ),
            );
        }
        for text in [
            "3661d",
            "3660d1ms",
            "316224000001ms",
            "18446744073709551615d",
            "18446744073709551616s",
        ] {
            refuse(text, &format!("\"{text}\" is too long; the longest duration is \"3660d\""));
        }
    }

    #[test]
    fn a_refusal_repeats_only_the_beginning_of_a_long_text() {
        refuse(
            &"9".repeat(100_000),
            &format!(
                "\"{}\"… is a number without a unit; add ms, s, m, h or d, like \"30s\"",
                "9".repeat(MAX_QUOTED_CHARS)
            ),
        );
        refuse(
            &format!("1{}", "é".repeat(1000)),
            &format!(
                "\"{}\"… is not a unit of time; use ms, s, m, h or d",
                "é".repeat(MAX_QUOTED_CHARS)
            ),
        );
    }

    #[test]
    fn any_duration_can_be_written() {
        assert_eq!(format(Duration::from_nanos(1_999_999)), "1ms");
        assert_eq!(format(Duration::from_nanos(999_999)), "0s");
        assert_eq!(format(Duration::MAX), "213503982334601d7h15s999ms");
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Settings {
        #[serde(with = "serde_span")]
        timeout: Duration,
        #[serde(with = "serde_option", default)]
        max_age: Option<Duration>,
    }

    #[test]
    fn serde_reads_and_writes_text() {
        let check = |json: &str, timeout, max_age, normal: &str| {
            let settings: Settings = serde_json::from_str(json).expect(json);
            assert_eq!(settings, Settings { timeout, max_age });
            assert_eq!(serde_json::to_string(&settings).expect(json), normal);
        };
        let (minute, week) = (Duration::from_mins(1), Duration::from_hours(7 * 24));
        let full = r#"{"timeout":"1m","max_age":"7d"}"#;
        let bare = r#"{"timeout":"1m","max_age":null}"#;
        check(r#"{"timeout":"60s","max_age":"7d"}"#, minute, Some(week), full);
        check(r#"{"timeout":"\u0036\u0030s","max_age":"168h"}"#, minute, Some(week), full);
        check(r#"{"timeout":"60s","max_age":null}"#, minute, None, bare);
        check(r#"{"timeout":"60s"}"#, minute, None, bare);
    }

    #[test]
    fn serde_refusals_carry_the_reason() {
        let refuse = |json: &str, reason: &str| {
            let error = serde_json::from_str::<Settings>(json).expect_err(json).to_string();
            assert!(error.starts_with(reason), "{json}: {error}");
        };
        refuse(r#"{"timeout":"5"}"#, "\"5\" is a number without a unit");
        refuse(r#"{"timeout":"1s","max_age":"1w"}"#, "\"w\" is not a unit of time");
        refuse(
            r#"{"timeout":30}"#,
            "invalid type: integer `30`, expected a duration as text, like \"30s\"",
        );
        refuse(
            r#"{"timeout":"1s","max_age":1.5}"#,
            "invalid type: floating point `1.5`, expected a duration as text",
        );
        refuse(r#"{"timeout":null}"#, "invalid type: null, expected a duration as text");
        refuse(r#"{"max_age":"1s"}"#, "missing field `timeout`");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms in prop_oneof![
            0..=316_224_000_000_u64,
            0..100_000_u64,
        ]) {
            let duration = Duration::from_millis(ms);
            let text = format(duration);
            prop_assert_eq!(parse(&text), Ok(duration));
            prop_assert!(!text.starts_with('0') || text == "0s");
        }

        #[test]
        fn what_is_read_is_within_bounds_and_nothing_panics(text in prop_oneof![
            any::<String>(),
            "([0-9]{0,21}(d|h|m|s|ms|x|é)?){0,6}",
        ]) {
            match parse(&text) {
                Ok(duration) => {
                    prop_assert!(duration <= MAX);
                    prop_assert_eq!(parse(&format(duration)), Ok(duration));
                }
                Err(error) => prop_assert!(!error.to_string().contains(char::is_control)),
            }
        }
    }
}
