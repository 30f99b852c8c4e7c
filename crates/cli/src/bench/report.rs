//! What was measured, for people and for programs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::latency::Times;
use crate::output::inert;
use crate::progress::grouped;

/// What is said of times.
const SHARES: [(&str, u64); 4] = [("p50", 500), ("p95", 950), ("p99", 990), ("max", 1_000)];

pub(super) const CAVEAT: &str = "Where the gateway, this program and its receiver share a machine, \
     they share its processors and its disk, and the figures are of all of them together.";

#[derive(Debug)]
pub(super) struct Report {
    pub(super) accepted: u64,
    /// How many deliveries the gateway has made of what it accepted.
    pub(super) deliveries: u64,
    pub(super) took: Duration,
    /// From when an event was due, or sent, to the gateway's yes.
    pub(super) times: Times,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) delivered: Option<Delivered>,
    pub(super) interrupted: bool,
}

#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) arrived: u64,
    pub(super) repeated: u64,
    /// From the first event sent to the last arrival.
    pub(super) within: Duration,
    /// From the gateway's yes to the arrival.
    pub(super) times: Times,
}

impl Report {
    pub(super) fn to_json(&self) -> Value {
        let delivered = self.delivered.as_ref().map(|delivered| {
            json!({
                "arrived": delivered.arrived,
                "repeated": delivered.repeated,
                "measured": delivered.times.count(),
                "per_second": per_second(delivered.arrived, delivered.within),
                "latency_ms": latencies(&delivered.times),
            })
        });
        json!({
            "accepted": self.accepted,
            "deliveries": self.deliveries,
            "seconds": self.took.as_secs_f64(),
            "accepted_per_second": per_second(self.accepted, self.took),
            "accept_latency_ms": latencies(&self.times),
            "errors": self.errors,
            "delivered": delivered,
            "interrupted": self.interrupted,
            "note": CAVEAT,
        })
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.interrupted {
            writeln!(out, "Ended early; until then:")?;
        }
        writeln!(
            out,
            "accepted   {} events in {:.1} s, {:.1}/s",
            grouped(self.accepted),
            self.took.as_secs_f64(),
            per_second(self.accepted, self.took)
        )?;
        writeln!(out, "  answered within    {}", shares(&self.times))?;
        for (kind, count) in &self.errors {
            writeln!(out, "  not accepted       {} × {}", grouped(*count), inert(kind))?;
        }
        if let Some(delivered) = &self.delivered {
            writeln!(
                out,
                "delivered  {} of {}, {:.1}/s",
                grouped(delivered.arrived),
                grouped(self.accepted),
                per_second(delivered.arrived, delivered.within)
            )?;
            writeln!(out, "  arrived within     {}", shares(&delivered.times))?;
            if delivered.repeated > 0 {
                writeln!(out, "  sent again         {}", grouped(delivered.repeated))?;
            }
        }
        let own = if self.delivered.is_some() { self.accepted } else { 0 };
        if self.deliveries > own {
            let others = grouped(self.deliveries - own);
            writeln!(out, "Other endpoints want this type too: {others} deliveries went to them.")?;
        }
        writeln!(out, "\n{CAVEAT}")
    }
}

fn per_second(count: u64, took: Duration) -> f64 {
    let seconds = took.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    let count = count as f64;
    if seconds > 0.0 { (count / seconds * 10.0).round() / 10.0 } else { 0.0 }
}

fn latencies(times: &Times) -> Value {
    let share = |(name, thousandths): (&str, u64)| {
        let millis = times.within(thousandths).map(|time| time.as_secs_f64() * 1_000.0);
        (name.to_owned(), json!(millis))
    };
    Value::Object(SHARES.into_iter().map(share).collect())
}

fn shares(times: &Times) -> String {
    let share = |(name, thousandths): (&str, u64)| {
        let time = times.within(thousandths);
        let time = time.map_or_else(|| "–".to_owned(), |time| short(time.as_secs_f64() * 1_000.0));
        format!("{name} {time}")
    };
    SHARES.map(share).join("  ")
}

fn short(millis: f64) -> String {
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(millis: &[u64]) -> Times {
        let mut times = Times::default();
        for millis in millis {
            times.add(Duration::from_millis(*millis));
        }
        times
    }

    fn report() -> Report {
        Report {
            accepted: 1_000,
            deliveries: 1_000,
            took: Duration::from_secs(10),
            times: times(&[1, 20]),
            errors: BTreeMap::from([("503 \x1b[2Joverloaded".to_owned(), 12)]),
            delivered: Some(Delivered {
                arrived: 999,
                repeated: 0,
                within: Duration::from_secs(5),
                times: times(&[4]),
            }),
            interrupted: false,
        }
    }

    fn text(report: &Report) -> String {
        let mut out = Vec::new();
        report.write(&mut out).expect("written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn figures_are_told_with_what_they_are_worth() {
        let shown = text(&report());
        for part in [
            "accepted   1,000 events in 10.0 s, 100.0/s",
            "p50 1.0",
            "max 20 ms",
            "12 × 503",
            "delivered  999 of 1,000, 199.8/s",
            "share a machine",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains('\x1b') && !shown.contains("Other endpoints"), "{shown}");
        let shown = report().to_json();
        assert_eq!(shown["accepted_per_second"], 100.0);
        assert_eq!(shown["delivered"]["latency_ms"]["p99"], 4.0);
        assert!(shown["note"].as_str().is_some_and(|note| note.contains("share a machine")));
    }

    #[test]
    fn what_else_happened_is_told() {
        let nothing = Report {
            accepted: 0,
            deliveries: 3,
            took: Duration::ZERO,
            times: Times::default(),
            errors: BTreeMap::new(),
            delivered: None,
            interrupted: true,
        };
        let shown = text(&nothing);
        for part in ["Ended early", "p50 –", "3 deliveries went to them"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(nothing.to_json()["delivered"], Value::Null);
        assert_eq!(nothing.to_json()["accept_latency_ms"]["p50"], Value::Null);
    }
}
