//! One delivery for people: why it is where it is, what was tried, what is planned. And lists of them.

use std::io::{self, Write};

use postrider_core::Timestamp;
use serde_json::Value;

use super::entries;
use super::why::why;
use crate::output::{Table, cell, clock, inert_to, moment, pairs};
use crate::resource::say_if_more;

/// Attempts that are shown of a plan.
const MAX_PLANNED: usize = 10;
/// The longest sentence of why.
const MAX_WHY_CHARS: usize = 1_000;

pub(crate) fn write(delivery: &Value, now: Timestamp, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", inert_to(&why(delivery, now), MAX_WHY_CHARS))?;
    let fields = [
        ("id", cell(&delivery["id"])),
        ("event", cell(&delivery["event_id"])),
        ("endpoint", cell(&delivery["endpoint_id"])),
        ("state", cell(&delivery["state"])),
        ("attempts", cell(&delivery["attempts"])),
        ("deferrals", some(&delivery["deferrals"])),
        ("next attempt", moment(&delivery["next_attempt_at"], now)),
        ("last attempt", moment(&delivery["last_attempt_at"], now)),
        ("delivered", moment(&delivery["delivered_at"], now)),
        ("ended", moment(&delivery["ended_at"], now)),
        ("error class", cell(&delivery["error_class"])),
        ("reason", cell(&delivery["reason"])),
        ("last error", cell(&delivery["last_error"])),
        ("result", cell(&delivery["result"])),
    ];
    pairs(out, fields.into_iter().filter(|(_, value)| !value.is_empty()))?;
    let attempts = delivery["attempt_log"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !attempts.is_empty() {
        let mut table = Table::new(&["attempt", "started", "took", "status", "outcome", "error"]);
        for attempt in attempts {
            let counted = attempt["counted"].as_bool().unwrap_or(true);
            let number = cell(&attempt["number"]);
            table.row([
                if counted { number } else { format!("{number} (not counted)") },
                short_time(&attempt["started_at"]),
                format!("{} ms", cell(&attempt["duration_ms"])),
                cell(&attempt["status_code"]),
                cell(&attempt["outcome"]),
                cell(&attempt["error"]),
            ]);
        }
        writeln!(out)?;
        table.write(out)?;
    }
    let plan = delivery["plan"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !plan.is_empty() {
        let mut table = Table::new(&["planned", "at"]);
        for attempt in plan.iter().take(MAX_PLANNED) {
            table.row([cell(&attempt["number"]), moment(&attempt["at"], now)]);
        }
        writeln!(out)?;
        table.write(out)?;
        if let Some(more @ 1..) = plan.len().checked_sub(MAX_PLANNED) {
            writeln!(out, "and {more} more")?;
        }
    }
    Ok(())
}

/// A list of deliveries as a table.
pub(crate) fn write_list(answer: &Value, now: Timestamp, out: &mut dyn Write) -> io::Result<()> {
    let mut table =
        Table::new(&["id", "event", "endpoint", "state", "attempts", "next or last", "error"]);
    for delivery in entries(answer) {
        let next = moment(&delivery["next_attempt_at"], now);
        let last = moment(&delivery["last_attempt_at"], now);
        table.row([
            cell(&delivery["id"]),
            cell(&delivery["event_id"]),
            cell(&delivery["endpoint_id"]),
            cell(&delivery["state"]),
            cell(&delivery["attempts"]),
            if next.is_empty() { last } else { next },
            cell(&delivery["last_error"]),
        ]);
    }
    if table.is_empty() {
        return writeln!(out, "There are none.");
    }
    table.write(out)?;
    say_if_more(out, answer)
}

/// Nothing for zero.
fn some(number: &Value) -> String {
    if number.as_u64() == Some(0) { String::new() } else { cell(number) }
}

fn short_time(value: &Value) -> String {
    let text = cell(value);
    text.parse().map_or(text, clock)
}
