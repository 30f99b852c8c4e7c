//! A notice as a line for people.

use postrider_core::Timestamp;
use serde_json::Value;

use crate::output::{Colour, Style, cell, clock, inert_to};

/// As wide as the longest kind.
const KIND_WIDTH: usize = 24;
const MAX_KIND_CHARS: usize = 40;
const MAX_ID_CHARS: usize = 60;
const MAX_ERROR_CHARS: usize = 300;

pub(super) fn render(notice: &Value, style: Style) -> String {
    let kind = inert_to(&cell(&notice["kind"]), MAX_KIND_CHARS);
    let padded = format!("{kind:<KIND_WIDTH$}");
    let painted = match colour_of(&kind) {
        Some(colour) => style.paint(colour, &padded),
        None => padded,
    };
    let mut parts = vec![style.paint(Colour::Grey, &time(&notice["at"])), painted];
    let text = |field: &str, longest| Some(inert_to(notice[field].as_str()?, longest));
    for field in ["event_id", "delivery_id", "endpoint_id", "source_id", "hub_id"] {
        parts.extend(text(field, MAX_ID_CHARS));
    }
    parts.extend(notice["attempts"].as_u64().map(|attempts| format!("attempt {attempts}")));
    parts.extend(text("reason", MAX_ID_CHARS));
    if notice["next_attempt_at"].is_string() {
        parts.push(format!("next at {}", time(&notice["next_attempt_at"])));
    }
    parts.extend(text("last_error", MAX_ERROR_CHARS));
    parts.extend(text("detail", MAX_ERROR_CHARS));
    parts.join("  ")
}

fn time(value: &Value) -> String {
    let text = cell(value);
    match text.parse::<Timestamp>() {
        Ok(at) => clock(at),
        Err(_) => inert_to(&text, MAX_ID_CHARS),
    }
}

fn colour_of(kind: &str) -> Option<Colour> {
    match kind {
        "delivery.delivered" | "endpoint.breaker_closed" | "hub.connected" => Some(Colour::Green),
        "delivery.retry_scheduled" | "hub.disconnected" => Some(Colour::Yellow),
        "delivery.failed"
        | "delivery.dead"
        | "endpoint.disabled"
        | "endpoint.breaker_opened"
        | "source.signature_failed" => Some(Colour::Red),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_notice_is_one_line_that_moves_nothing() {
        let notice = json!({
            "id": "7", "kind": "delivery.retry_scheduled", "at": "2026-11-16T14:02:10.123Z",
            "tenant": "default", "delivery_id": "dlv_1", "event_id": "evt_1",
            "endpoint_id": "ep_1", "attempts": 2, "reason": null,
            "last_error": "503\nbusy\x1b[2J", "next_attempt_at": "2026-11-16T14:03:10.123Z",
        });
        assert_eq!(
            render(&notice, Style::of_stdout()),
            "2026-11-16 14:02:10  delivery.retry_scheduled  evt_1  dlv_1  ep_1  attempt 2  \
             next at 2026-11-16 14:03:10  503\\u{a}busy\\u{1b}[2J"
        );
        let strange = json!({"kind": "\x1b[A", "at": "\n", "source_id": "\r", "detail": "\x07"});
        let line = render(&strange, Style::of_stdout());
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}
