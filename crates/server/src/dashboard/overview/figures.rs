//! The figures at the top of the overview, as people read them.

use std::time::Duration;

use crate::dashboard::chart::{History, Span};
use crate::dashboard::words;
use crate::deliveries::StateCounts;

/// A figure, what it is of, and about which time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) about: String,
}

/// How many deliveries are in a state, and where to see them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StateCount {
    pub(super) state: &'static str,
    pub(super) name: &'static str,
    pub(super) count: u64,
}

pub(super) fn of(history: &History, counts: &StateCounts, span: Span) -> Vec<Figure> {
    let total = &history.total;
    let about = format!("in the last {span}");
    let latency = |name, ms: Option<f64>| Figure {
        name,
        value: ms.map_or_else(none, |ms| seconds(ms / 1_000.0)),
        about: about.clone(),
    };
    vec![
        Figure {
            name: "Delivered / s",
            value: rate(history.per_second.delivered),
            about: format!("{} received / s", rate(history.per_second.received)),
        },
        Figure {
            name: "Success rate",
            value: total.success_rate.map_or_else(none, words::percent),
            about: about.clone(),
        },
        latency("p50 to deliver", total.p50_ms),
        latency("p95 to deliver", total.p95_ms),
        latency("p99 to deliver", total.p99_ms),
        Figure {
            name: "Backlog",
            value: words::count(counts.backlog()),
            about: "not ended yet".into(),
        },
    ]
}

pub(super) fn states(counts: &StateCounts) -> [StateCount; 7] {
    let of = |state, name, count| StateCount { state, name, count };
    [
        of("pending", "pending", counts.pending),
        of("in_flight", "in flight", counts.in_flight),
        of("retrying", "retrying", counts.retrying),
        of("delivered", "delivered", counts.delivered),
        of("failed", "failed", counts.failed),
        of("dead", "dead", counts.dead),
        of("cancelled", "cancelled", counts.cancelled),
    ]
}

/// What stands where there is no figure.
fn none() -> String {
    "–".into()
}

/// A rate a second: tenths only where they matter.
fn rate(per_second: f64) -> String {
    if per_second > 0.0 && per_second < 0.05 {
        "< 0.1".into()
    } else if per_second < 10.0 {
        format!("{per_second:.1}")
    } else {
        format!("{per_second:.0}")
    }
}

/// A span of time in at most two parts.
pub(super) fn seconds(seconds: f64) -> String {
    words::span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_tenths_only_while_it_is_small() {
        let table = [
            (0.0, "0.0"),
            (0.01, "< 0.1"),
            (0.25, "0.2"),
            (9.9, "9.9"),
            (12.4, "12"),
            (1e6, "1000000"),
        ];
        for (per_second, text) in table {
            assert_eq!(rate(per_second), text);
        }
    }
}
