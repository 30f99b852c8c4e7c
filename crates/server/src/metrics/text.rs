//! The text format of Prometheus, as far as it is needed: counters, gauges and histograms whose labels
//! are words of this program, so that nothing has to be escaped.

use std::fmt::{Display, Write as _};

use postrider_store::meter::Distribution;

use super::catalogue::{Family, Kind, Unit};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const MICROS_PER_SECOND: f64 = 1_000_000.0;

#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

/// The samples of one family.
#[derive(Debug)]
pub(super) struct Samples<'p> {
    text: &'p mut String,
    family: &'static Family,
}

impl Page {
    pub(super) fn family(&mut self, family: &'static Family) -> Samples<'_> {
        let (name, kind) = (family.name, family.kind.as_str());
        // Writing to a text cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
        Samples { text: &mut self.text, family }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl Samples<'_> {
    /// The only sample of a family without labels.
    pub(super) fn is(&mut self, value: impl Display) {
        self.of(&[], value);
    }

    /// `values` are those of the family's labels, in its order.
    pub(super) fn of(&mut self, values: &[&str], value: impl Display) {
        self.line("", values, None, value);
    }

    pub(super) fn distribution(&mut self, values: &[&str], counted: &Distribution) {
        let unit = match self.family.kind {
            Kind::Histogram(unit) => unit,
            Kind::Counter | Kind::Gauge => unreachable!("{} is no histogram", self.family.name),
        };
        let mut total = 0;
        for (count, bound) in counted.counts.iter().zip(counted.bounds) {
            total += count;
            self.line("_bucket", values, Some(&in_unit(*bound, unit)), total);
        }
        total += counted.counts.last().copied().unwrap_or(0);
        self.line("_bucket", values, Some("+Inf"), total);
        self.line("_sum", values, None, in_unit(counted.sum, unit));
        self.line("_count", values, None, total);
    }

    fn line(&mut self, suffix: &str, values: &[&str], bound: Option<&str>, value: impl Display) {
        let labels = self.family.labels;
        assert_eq!(labels.len(), values.len(), "{} has other labels", self.family.name);
        let _ = write!(self.text, "{}{suffix}", self.family.name);
        let named = labels.iter().map(|label| label.name).zip(values.iter().copied());
        let mut separator = '{';
        for (name, value) in named.chain(bound.map(|bound| ("le", bound))) {
            let _ = write!(self.text, "{separator}{name}=\"{value}\"");
            separator = ',';
        }
        let end = if separator == ',' { "}" } else { "" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

#[allow(clippy::cast_precision_loss, reason = "what is read by a float anyway")]
fn in_unit(number: u64, unit: Unit) -> String {
    match unit {
        Unit::Seconds => (number as f64 / MICROS_PER_SECOND).to_string(),
        Unit::Pieces => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::{COMMIT_DURATION, COMMIT_ROWS, EVENTS_RECEIVED, READY};
    use super::*;

    #[test]
    fn samples_are_written_as_prometheus_reads_them() {
        let mut page = Page::default();
        page.family(&READY).is(1);
        page.family(&EVENTS_RECEIVED).of(&["api"], 7);
        let text = page.into_text();
        assert!(text.contains("# TYPE postrider_ready gauge\npostrider_ready 1\n"), "{text}");
        let sample = "# TYPE postrider_events_received_total counter\n\
                      postrider_events_received_total{way=\"api\"} 7\n";
        assert!(text.contains(sample), "{text}");
    }

    #[test]
    fn steps_of_a_histogram_add_up() {
        let counted =
            Distribution { bounds: &[500, 2_500_000], counts: vec![1, 0, 2], sum: 9_000_250 };
        let mut page = Page::default();
        page.family(&COMMIT_DURATION).distribution(&["append"], &counted);
        let text = page.into_text();
        let samples: Vec<&str> = text.lines().skip(2).collect();
        let name = "postrider_store_commit_duration_seconds";
        assert_eq!(
            samples,
            [
                format!("{name}_bucket{{operation=\"append\",le=\"0.0005\"}} 1"),
                format!("{name}_bucket{{operation=\"append\",le=\"2.5\"}} 1"),
                format!("{name}_bucket{{operation=\"append\",le=\"+Inf\"}} 3"),
                format!("{name}_sum{{operation=\"append\"}} 9.00025"),
                format!("{name}_count{{operation=\"append\"}} 3"),
            ]
        );
    }

    #[test]
    fn pieces_are_whole_numbers() {
        let counted = Distribution { bounds: &[64], counts: vec![1, 0], sum: 60 };
        let mut page = Page::default();
        page.family(&COMMIT_ROWS).distribution(&["settle"], &counted);
        let text = page.into_text();
        assert!(text.contains("le=\"64\"} 1\n"), "{text}");
        assert!(text.contains("_sum{operation=\"settle\"} 60\n"), "{text}");
    }
}
