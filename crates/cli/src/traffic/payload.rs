//! Payloads from outside: as text on a terminal, and as part of a line of JSON.

use std::io::{self, IsTerminal as _, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use crate::output::inert_to;

/// The longest line of a payload that a terminal is shown whole.
const MAX_LINE_CHARS: usize = 10_000;

/// Writes the bytes as they are to a file or a pipe, and as text that moves nothing to a terminal.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        for line in String::from_utf8_lossy(bytes).lines() {
            writeln!(out, "{}", inert_to(line, MAX_LINE_CHARS))?;
        }
    } else {
        out.write_all(bytes)?;
    }
    out.flush()
}

/// A field for a line of JSON, so that the bytes can be had from it again: `payload` where they are
/// JSON on one line, and stand there as they are; `payload_base64` where they are anything else.
pub(crate) fn field(bytes: &[u8]) -> String {
    match one_line_of_json(bytes) {
        Some(text) => format!("\"payload\":{text}"),
        None => format!("\"payload_base64\":\"{}\"", STANDARD.encode(bytes)),
    }
}

fn one_line_of_json(bytes: &[u8]) -> Option<&str> {
    let value = serde_json::from_slice::<&RawValue>(bytes).ok()?.get();
    (value.len() == bytes.len() && !value.contains(['\n', '\r'])).then_some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_bytes_of_a_payload_can_be_had_again() {
        for (bytes, in_the_open) in [
            (&b"{\"a\":1.0,  \"b\":[true]}"[..], true),
            (b"\"text\"", true),
            (b"null", true),
            (b"{\n  \"a\": 1\n}", false),
            (b" {}", false),
            (b"{}\n", false),
            (b"", false),
            (b"<xml/>", false),
            (b"\xff\xfe", false),
        ] {
            let field = field(bytes);
            let line: Value = serde_json::from_str(&format!("{{{field}}}")).expect("JSON");
            assert_eq!(line.get("payload").is_some(), in_the_open, "{field}");
            assert!(!field.contains('\n'), "{field}");
            if in_the_open {
                assert_eq!(field.strip_prefix("\"payload\":").map(str::as_bytes), Some(bytes));
            } else {
                let text = line["payload_base64"].as_str().expect("text");
                assert_eq!(STANDARD.decode(text).expect("base64"), bytes);
            }
        }
    }
}
