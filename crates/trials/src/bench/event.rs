//! The events the bench sends: each carries a number, by which its arrival is known again.

use std::fmt::Write as _;

use bytes::Bytes;
use postrider_core::Timestamp;

pub(crate) const PAYLOAD_BYTES: usize = 512;
const OPENING: &str = "{\"n\":\"";
const DIGITS: usize = 12;
const MIDDLE: &str = "\",\"pad\":\"";
const CLOSING: &str = "\"}";

/// The body of a `POST /v1/events`.
pub(crate) fn single(kind: &str, number: u64) -> Bytes {
    let mut text = String::with_capacity(PAYLOAD_BYTES + 64);
    write_event(&mut text, kind, number, None);
    text.into()
}

/// The body of a `POST /v1/events/batch`, with the events not to go before `deliver_at`.
pub(crate) fn batch(kind: &str, numbers: std::ops::Range<u64>, deliver_at: Timestamp) -> Bytes {
    let deliver_at = deliver_at.to_string();
    let mut text = String::from("{\"events\":[");
    for number in numbers.clone() {
        if number != numbers.start {
            text.push(',');
        }
        write_event(&mut text, kind, number, Some(&deliver_at));
    }
    text.push_str("]}");
    text.into()
}

/// The number in a payload, if it is one of ours.
pub(crate) fn number(payload: &[u8]) -> Option<u64> {
    let digits = payload.strip_prefix(OPENING.as_bytes())?.get(..DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The payload of event `number`: JSON of exactly [`PAYLOAD_BYTES`].
pub(crate) fn write_payload(text: &mut String, number: u64) {
    let pad = PAYLOAD_BYTES - OPENING.len() - DIGITS - MIDDLE.len() - CLOSING.len();
    let _ = write!(text, "{OPENING}{number:0DIGITS$}{MIDDLE}");
    text.extend(std::iter::repeat_n('x', pad));
    text.push_str(CLOSING);
}

fn write_event(text: &mut String, kind: &str, number: u64, deliver_at: Option<&str>) {
    let _ = write!(text, "{{\"type\":\"{kind}\",");
    if let Some(at) = deliver_at {
        let _ = write!(text, "\"deliver_at\":\"{at}\",");
    }
    text.push_str("\"payload\":");
    write_payload(text, number);
    text.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_json_and_its_payload_has_its_size_and_number() {
        let body = single("bench.tick", 42);
        let event: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(event["type"], "bench.tick");
        let payload = event["payload"].to_string();
        assert_eq!(payload.len(), PAYLOAD_BYTES);
        assert_eq!(number(payload.as_bytes()), Some(42));
    }

    #[test]
    fn a_batch_is_json_with_an_event_for_each_number() {
        let body = batch("later.a", 7..10, Timestamp::from_millis(0));
        let batch: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        let events = batch["events"].as_array().expect("a list");
        let numbers: Vec<_> =
            events.iter().map(|event| number(event["payload"].to_string().as_bytes())).collect();
        assert_eq!(numbers, [Some(7), Some(8), Some(9)]);
        assert_eq!(events[0]["deliver_at"], "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn other_payloads_have_no_number() {
        for payload in ["", "{}", "{\"n\":\"12\"}", "{\"n\":\"abcdefghijkl\"}"] {
            assert_eq!(number(payload.as_bytes()), None, "{payload}");
        }
    }
}
