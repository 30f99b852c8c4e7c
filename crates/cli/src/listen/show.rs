//! Lines on the terminal. Everything that came from outside is made inert first.

use std::time::Duration;

use postrider_core::hub::{Answer, Deliver, Met};
use postrider_core::span;
use serde_json::Value;

use crate::output::{Colour, Style, inert_to};

/// How much of a payload is shown.
const MAX_PAYLOAD_CHARS: usize = 20_000;
const MAX_TYPE_CHARS: usize = 60;
const MAX_ERROR_CHARS: usize = 200;

pub(super) fn greeting(style: Style, url: &str, to: &str) {
    println!("Paste this URL into the provider: {}", style.paint(Colour::Bold, url));
    println!("Webhooks go on to {to}. What arrives while nobody listens is kept.");
    help(style);
}

pub(super) fn help(style: Style) {
    let keys = "r replay the last one · i inspect it · 12r, 12i number 12 · q quit";
    println!("{}", style.paint(Colour::Grey, keys));
}

pub(super) fn note(style: Style, text: &str) {
    println!("{}", style.paint(Colour::Grey, &inert_to(text, MAX_ERROR_CHARS)));
}

pub(super) fn trouble(style: Style, text: &str) {
    println!("{}", style.paint(Colour::Red, &inert_to(text, MAX_ERROR_CHARS)));
}

pub(super) fn disconnected(style: Style, reason: &str, retry_in: Duration) {
    let reason = inert_to(reason, MAX_ERROR_CHARS);
    let retry_in = span::format(Duration::from_millis(
        u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX),
    ));
    println!(
        "{}",
        style.paint(Colour::Yellow, &format!("no connection: {reason}; next try in {retry_in}"))
    );
}

pub(super) fn stopping(style: Style, in_hand: usize) {
    if in_hand > 0 {
        note(style, &format!("stopping; {in_hand} under way are finished first"));
    }
}

pub(super) fn webhook(style: Style, number: usize, deliver: &Deliver, answer: &Answer) {
    println!("{}", line(style, number, deliver, answer));
}

fn line(style: Style, number: usize, deliver: &Deliver, answer: &Answer) -> String {
    let (colour, outcome) = match &answer.met {
        Met::Status { status, .. } => {
            let colour = match status {
                200..=299 => Colour::Green,
                500..=599 | 429 => Colour::Yellow,
                _ => Colour::Red,
            };
            (colour, status.to_string())
        }
        Met::Network { error } | Met::Timeout { error } => {
            (Colour::Red, inert_to(error, MAX_ERROR_CHARS))
        }
    };
    let kind = inert_to(&deliver.kind, MAX_TYPE_CHARS);
    let retry =
        if deliver.attempt > 1 { format!("  attempt {}", deliver.attempt) } else { String::new() };
    format!(
        "{:>4}  {}  {} ms  {kind}  {}{retry}",
        number,
        style.paint(colour, &outcome),
        answer.duration.as_millis(),
        style.paint(Colour::Grey, &deliver.event.to_string()),
    )
}

/// An event as the API shows it: what came with it, then its payload.
pub(super) fn event(style: Style, event: &Value, payload: &[u8]) {
    println!("{}", described(style, event, payload));
}

fn described(style: Style, event: &Value, payload: &[u8]) -> String {
    let mut text = String::new();
    let mut add = |name: &str, value: &Value| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&style.paint(Colour::Grey, &format!("{name}: ")));
        text.push_str(&inert_to(&value, MAX_ERROR_CHARS * 5));
        text.push('\n');
    };
    for field in ["id", "type", "received_at", "content_type", "verified"] {
        if let Some(value) = event.get(field).filter(|value| !value.is_null()) {
            add(field, value);
        }
    }
    for header in event.get("headers").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(name), Some(value)) = (header.get("name"), header.get("value")) {
            add(&inert_to(name.as_str().unwrap_or_default(), MAX_TYPE_CHARS), value);
        }
    }
    text.push_str(&readable(payload));
    text
}

/// A payload as text: JSON laid out, anything else as it is, line by line.
fn readable(payload: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(payload) {
        Ok(json) => format!("{json:#}"),
        Err(_) => String::from_utf8_lossy(payload).into_owned(),
    };
    let shown: String = text.chars().take(MAX_PAYLOAD_CHARS).collect();
    let cut = if shown.len() < text.len() { "\n… and more" } else { "" };
    let lines: Vec<String> = shown.lines().map(|line| inert_to(line, MAX_PAYLOAD_CHARS)).collect();
    lines.join("\n") + cut
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_core::{DeliveryId, EndpointId, EventId};
    use serde_json::json;

    use super::*;

    fn deliver(kind: &str, attempt: u32) -> Deliver {
        Deliver {
            seq: 1,
            delivery: DeliveryId::from_i64(2),
            event: EventId::from_i64(1),
            endpoint: EndpointId::from_i64(3),
            endpoint_name: None,
            kind: kind.into(),
            attempt,
            timeout: Duration::from_secs(15),
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    fn answer(met: Met) -> Answer {
        Answer { seq: 1, duration: Duration::from_millis(12), met }
    }

    #[test]
    fn a_webhook_is_one_line_whatever_is_in_it() {
        let ok = Met::Status { status: 200, headers: vec![], body: Bytes::new(), truncated: false };
        let refused = Met::Network { error: "refused\x1b[2J\nby peer".into() };
        for (attempt, met, expected) in [
            (1, ok, "   7  200  12 ms  order.created  evt_0000000000001"),
            (
                3,
                refused,
                "   7  refused\\u{1b}[2J\\u{a}by peer  12 ms  order.created  evt_0000000000001  attempt 3",
            ),
        ] {
            assert_eq!(
                line(Style::PLAIN, 7, &deliver("order.created", attempt), &answer(met)),
                expected
            );
        }
    }

    #[test]
    fn a_payload_cannot_move_the_cursor() {
        let event = json!({
            "id": "evt_1",
            "type": "a\u{1b}[2J",
            "headers": [{ "name": "x-event", "value": "push\u{7}" }],
        });
        for (payload, expected) in [
            (&b"{\"x\":1}"[..], "{\n  \"x\": 1\n}"),
            (b"one\ntwo\x1b[2J\x00\xff", "one\ntwo\\u{1b}[2J\\u{0}\u{fffd}"),
            (b"", ""),
        ] {
            let shown = described(Style::PLAIN, &event, payload);
            let head = "id: evt_1\ntype: a\\u{1b}[2J\nx-event: push\\u{7}\n";
            assert_eq!(shown, format!("{head}{expected}"));
        }
    }
}
