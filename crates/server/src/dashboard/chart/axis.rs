//! Where things stand along the edges of a chart, and what is written there: counts upwards, times
//! sideways.

use std::fmt;

use postrider_core::Timestamp;

/// How many steps a scale of counts has at most.
const MAX_STEPS: u64 = 4;
/// Closer to an edge than this, a label is written inwards instead of centred.
const EDGE: f64 = 6.0;

/// A place across a picture, as an attribute of SVG writes it: pictures stretch with the page, what
/// is written on them does not.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) struct Percent(pub(super) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}%", self.0)
    }
}

impl askama::filters::HtmlSafe for Percent {}

/// A label along the bottom.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: Percent,
    pub(super) label: String,
}

impl Tick {
    /// The `text-anchor` with which the label stays inside the picture.
    pub(super) fn anchor(&self) -> &'static str {
        match self.at.0 {
            at if at < EDGE => "start",
            at if at > 100.0 - EDGE => "end",
            _ => "middle",
        }
    }
}

/// A scale of counts from zero: where it ends, and its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) top: u64,
    pub(super) step: u64,
}

impl Scale {
    /// The smallest one with round steps that has room for `most`.
    pub(super) fn up_to(most: u64) -> Self {
        let mut power = 1_u64;
        loop {
            for digit in [1, 2, 5] {
                let step = power.saturating_mul(digit);
                if step.saturating_mul(MAX_STEPS) >= most {
                    let steps = most.div_ceil(step).max(1);
                    return Self { top: step.saturating_mul(steps), step };
                }
            }
            power = power.saturating_mul(10);
        }
    }

    /// What is written beside the lines, from the lowest, zero left out.
    pub(super) fn steps(self) -> impl Iterator<Item = u64> {
        (1..=self.top / self.step).map(move |number| number * self.step)
    }

    /// The share of the whole height.
    #[expect(clippy::cast_precision_loss, reason = "a picture has far fewer lines than that")]
    pub(super) fn share(self, count: u64) -> f64 {
        count as f64 / self.top as f64
    }
}

/// A count in as few characters as a label has room for: `950`, `1.2k`, `34M`.
pub(super) fn short_count(count: u64) -> String {
    let (unit, letter) = match count {
        0..1_000 => return count.to_string(),
        1_000..1_000_000 => (1_000, 'k'),
        1_000_000..1_000_000_000 => (1_000_000, 'M'),
        1_000_000_000.. => (1_000_000_000, 'G'),
    };
    let (whole, tenth) = (count / unit, count % unit / (unit / 10));
    if whole < 100 && tenth > 0 {
        format!("{whole}.{tenth}{letter}")
    } else {
        format!("{whole}{letter}")
    }
}

/// The time of day, in UTC.
pub(super) fn clock(at: Timestamp) -> String {
    let minutes = at.as_seconds() / 60;
    format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

/// The day of the week, in UTC.
pub(super) fn weekday(at: Timestamp) -> &'static str {
    // The first day of all was a Thursday.
    match at.as_seconds() / 86_400 % 7 {
        0 => "Thu",
        1 => "Fri",
        2 => "Sat",
        3 => "Sun",
        4 => "Mon",
        5 => "Tue",
        _ => "Wed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_scale_has_few_round_steps_and_room_for_the_most() {
        let table = [
            (0, 1, 1),
            (1, 1, 1),
            (4, 4, 1),
            (5, 6, 2),
            (9, 10, 5),
            (21, 30, 10),
            (100, 100, 50),
            (1_001, 1_500, 500),
        ];
        for (most, top, step) in table {
            assert_eq!(Scale::up_to(most), Scale { top, step }, "{most}");
        }
        for most in [7, 99, 12_345, u64::MAX / 2, u64::MAX] {
            let scale = Scale::up_to(most);
            assert!(scale.top >= most && scale.steps().count() <= 4, "{most}: {scale:?}");
        }
    }

    #[test]
    fn a_label_at_the_edge_is_written_inwards() {
        for (at, anchor) in [(0.0, "start"), (50.0, "middle"), (99.0, "end")] {
            assert_eq!(Tick { at: Percent(at), label: String::new() }.anchor(), anchor);
        }
        assert_eq!(Percent(100.0 / 3.0).to_string(), "33.33%");
    }

    #[test]
    fn counts_are_shortened() {
        let table = [
            (0, "0"),
            (999, "999"),
            (1_000, "1k"),
            (1_250, "1.2k"),
            (99_900, "99.9k"),
            (123_456, "123k"),
            (2_500_000, "2.5M"),
            (7_000_000_000, "7G"),
        ];
        for (count, text) in table {
            assert_eq!(short_count(count), text);
        }
    }

    #[test]
    fn times_are_told_in_utc() {
        // 2026-01-01 was a Thursday.
        let at = Timestamp::from_millis(1_767_225_600_000 + 7_500_000);
        assert_eq!((clock(at).as_str(), weekday(at)), ("02:05", "Thu"));
        let days: Vec<&str> =
            (0..7).map(|day| weekday(at.plus(Duration::from_hours(24 * day)))).collect();
        assert_eq!(days, ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]);
    }
}
