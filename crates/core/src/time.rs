//! A point in time, to the millisecond, in UTC.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds since 1970-01-01T00:00:00Z, kept within the years 1970 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The text was not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected an RFC 3339 time such as 2026-01-31T12:00:00Z")]
pub struct ParseError;

impl Timestamp {
    pub const MIN: Self = Self(0);
    /// 9999-12-30T22:00:00Z, the last second that every time zone can write.
    pub const MAX: Self = Self(253_402_207_200_000);

    pub const fn from_millis(millis: i64) -> Self {
        if millis < Self::MIN.0 {
            Self::MIN
        } else if millis > Self::MAX.0 {
            Self::MAX
        } else {
            Self(millis)
        }
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    pub const fn as_seconds(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Later by `span`, stopping at [`Timestamp::MAX`]. Part of a millisecond counts as a whole
    /// one, so that nothing ever becomes due early.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        let millis = i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        Self::from_millis(self.0.saturating_add(millis))
    }

    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.0.saturating_sub(millis))
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_millisecond(self.0).map_err(|_| fmt::Error)?;
        write!(f, "{time:.3}")
    }
}

impl FromStr for Timestamp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let time: jiff::Timestamp = text.parse().map_err(|_| ParseError)?;
        let millis = time.as_millisecond();
        if (Self::MIN.0..=Self::MAX.0).contains(&millis) {
            Ok(Self(millis))
        } else {
            Err(ParseError)
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        let time = Timestamp::from_millis(1_767_225_600_050);
        assert_eq!(time.to_string(), "2026-01-01T00:00:00.050Z");
        assert_eq!("2026-01-01T01:00:00.05+01:00".parse(), Ok(time));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "now", "2026-01-01", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "12"]
        {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn arithmetic_saturates_and_never_rounds_down_a_wait() {
        assert_eq!(Timestamp::MAX.plus(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.minus(Duration::MAX), Timestamp::MIN);
        let start = Timestamp::from_millis(10);
        assert_eq!(start.plus(Duration::from_nanos(1)).as_millis(), 11);
        assert_eq!(start.since(Timestamp::from_millis(20)), Duration::ZERO);
    }
}
