//! What was measured, beside what limits it: as an aligned table and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) measure: String,
    pub(crate) figure: Figure,
    /// What the machine does without the work in question, measured in the same run.
    pub(crate) limit: Option<Figure>,
    pub(crate) ratio: Option<f64>,
    pub(crate) wanted: Wanted,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    pub(crate) unit: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    PerSecond,
    Seconds,
    Milliseconds,
    Microseconds,
    Mebibytes,
    Bytes,
    Percent,
    /// How many of something.
    Count,
}

/// What a figure, or its ratio to the limit, has to reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wanted {
    RatioAtLeast(f64),
    RatioAtMost(f64),
    FigureAtMost(f64),
    /// Nothing: the figure explains another.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Ok,
    Short,
    Unjudged,
}

impl Row {
    pub(crate) fn new(
        measure: impl Into<String>,
        figure: Figure,
        limit: Option<Figure>,
        wanted: Wanted,
    ) -> Self {
        let ratio = limit.filter(|limit| limit.value > 0.0).map(|limit| figure.value / limit.value);
        let reached = match wanted {
            Wanted::RatioAtLeast(least) => Some(ratio.is_some_and(|ratio| ratio >= least)),
            Wanted::RatioAtMost(most) => Some(ratio.is_some_and(|ratio| ratio <= most)),
            Wanted::FigureAtMost(most) => Some(figure.value <= most),
            Wanted::Nothing => None,
        };
        let verdict = match reached {
            Some(true) => Verdict::Ok,
            Some(false) => Verdict::Short,
            None => Verdict::Unjudged,
        };
        Self { measure: measure.into(), figure, limit, ratio, wanted, verdict }
    }
}

impl Figure {
    pub(crate) fn per_second(value: f64) -> Self {
        Self { value, unit: Unit::PerSecond }
    }

    pub(crate) fn seconds(time: Duration) -> Self {
        Self { value: time.as_secs_f64(), unit: Unit::Seconds }
    }

    pub(crate) fn milliseconds(time: Duration) -> Self {
        Self { value: time.as_secs_f64() * 1e3, unit: Unit::Milliseconds }
    }

    pub(crate) fn microseconds(time: Duration) -> Self {
        Self { value: time.as_secs_f64() * 1e6, unit: Unit::Microseconds }
    }

    pub(crate) fn mebibytes(value: f64) -> Self {
        Self { value, unit: Unit::Mebibytes }
    }

    pub(crate) fn bytes(value: f64) -> Self {
        Self { value, unit: Unit::Bytes }
    }

    pub(crate) fn percent(value: f64) -> Self {
        Self { value, unit: Unit::Percent }
    }

    pub(crate) fn count(value: f64) -> Self {
        Self { value, unit: Unit::Count }
    }

    fn show(self) -> String {
        let value = self.value;
        match self.unit {
            Unit::PerSecond => format!("{}/s", thousands(value)),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Milliseconds => format!("{value:.2} ms"),
            Unit::Microseconds => format!("{value:.1} µs"),
            Unit::Mebibytes => format!("{value:.1} MiB"),
            Unit::Bytes => format!("{} B", thousands(value)),
            Unit::Percent => format!("{value:.1} %"),
            Unit::Count => format!("{value:.3}"),
        }
    }
}

impl Wanted {
    fn show(self, unit: Unit) -> String {
        match self {
            Self::RatioAtLeast(least) => format!("≥ {least:.2}"),
            Self::RatioAtMost(most) => format!("≤ {most:.2}"),
            Self::FigureAtMost(most) => format!("≤ {}", Figure { value: most, unit }.show()),
            Self::Nothing => String::new(),
        }
    }
}

/// The rows as an aligned table with a heading.
pub(crate) fn table(rows: &[Row]) -> String {
    let heading = ["measure", "figure", "limit", "ratio", "wanted", ""].map(str::to_owned);
    let mut cells = vec![heading];
    cells.extend(rows.iter().map(|row| {
        [
            row.measure.clone(),
            row.figure.show(),
            row.limit.map(Figure::show).unwrap_or_default(),
            row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            row.wanted.show(row.figure.unit),
            match row.verdict {
                Verdict::Ok => "ok",
                Verdict::Short => "short",
                Verdict::Unjudged => "",
            }
            .to_owned(),
        ]
    }));
    let mut widths = [0; 6];
    for line in &cells {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in cells {
        let mut shown = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            // Words to the left, numbers to the right.
            let aligned = if column == 0 || column == 5 { cell.clone() + &pad } else { pad + cell };
            shown.push_str(&aligned);
            shown.push_str("  ");
        }
        let _ = writeln!(text, "{}", shown.trim_end());
    }
    text
}

/// A whole number with commas between the thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_judged_by_what_is_wanted() {
        let half = (Figure::per_second(50.0), Some(Figure::per_second(100.0)));
        for (wanted, verdict) in [
            (Wanted::RatioAtLeast(0.5), Verdict::Ok),
            (Wanted::RatioAtLeast(0.51), Verdict::Short),
            (Wanted::RatioAtMost(0.5), Verdict::Ok),
            (Wanted::RatioAtMost(0.49), Verdict::Short),
            (Wanted::FigureAtMost(50.0), Verdict::Ok),
            (Wanted::FigureAtMost(49.0), Verdict::Short),
            (Wanted::Nothing, Verdict::Unjudged),
        ] {
            let row = Row::new("a", half.0, half.1, wanted);
            assert_eq!(row.verdict, verdict, "{wanted:?}");
            assert_eq!(row.ratio, Some(0.5));
        }
    }

    #[test]
    fn a_ratio_that_could_not_be_measured_is_short() {
        for limit in [None, Some(Figure::per_second(0.0))] {
            let row = Row::new("a", Figure::per_second(5.0), limit, Wanted::RatioAtLeast(0.1));
            assert_eq!((row.ratio, row.verdict), (None, Verdict::Short));
        }
    }

    #[test]
    fn the_table_is_aligned() {
        let rows = [
            Row::new(
                "accept",
                Figure::per_second(14_203.4),
                Some(Figure::per_second(1_020_000.0)),
                Wanted::RatioAtLeast(0.5),
            ),
            Row::new("memory", Figure::mebibytes(70.0), None, Wanted::FigureAtMost(100.0)),
            Row::new(
                "processor an event",
                Figure::microseconds(Duration::from_micros(71)),
                None,
                Wanted::Nothing,
            ),
            Row::new(
                "log an event",
                Figure::bytes(1_325.2),
                Some(Figure::bytes(1_325.2)),
                Wanted::Nothing,
            ),
            Row::new("statements an event", Figure::count(0.0625), None, Wanted::Nothing),
        ];
        let expected = "\
measure                figure        limit  ratio       wanted
accept               14,203/s  1,020,000/s   0.01       ≥ 0.50  short
memory               70.0 MiB                      ≤ 100.0 MiB  ok
processor an event    71.0 µs
log an event          1,325 B      1,325 B   1.00
statements an event     0.062
";
        assert_eq!(table(&rows), expected);
    }

    #[test]
    fn json_names_units_and_verdicts() {
        let row = Row::new("a", Figure::percent(1.0), None, Wanted::FigureAtMost(5.0));
        let json = serde_json::to_value(row).expect("serialisable");
        assert_eq!(json["figure"]["unit"], "percent");
        assert_eq!(json["wanted"]["figure_at_most"], 5.0);
        assert_eq!(json["verdict"], "ok");
    }
}
