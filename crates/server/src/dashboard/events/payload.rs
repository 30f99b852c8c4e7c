//! A payload as a person can read it: JSON with its lines broken, other text as it is, bytes as a dump.

use std::fmt::Write as _;

use crate::dashboard::words::{self, Inert};

/// How much of a body that is not text is shown.
const MAX_DUMPED_BYTES: usize = 4 << 10;
const BYTES_A_LINE: usize = 16;
/// How much is written of JSON: what is shown of a text, and a little more, so that it shows where it
/// was cut.
const MAX_PRETTY_BYTES: usize = words::MAX_INERT_BYTES + 1_024;

#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) text: Inert,
    /// What it is shown as.
    pub(crate) form: &'static str,
    /// Not all of it is shown.
    pub(crate) is_cut: bool,
}

impl Payload {
    pub(crate) fn of(body: &[u8]) -> Self {
        if let Some(json) = pretty(body) {
            let is_cut = json.len() > words::MAX_INERT_BYTES;
            return Self {
                text: words::inert(&json),
                form: "JSON, lines broken to be read",
                is_cut,
            };
        }
        match std::str::from_utf8(body) {
            Ok(text) => {
                let is_cut = text.len() > words::MAX_INERT_BYTES;
                Self { text: words::inert(text), form: "text as it came", is_cut }
            }
            Err(_) => Self {
                text: words::inert(dump(body)),
                form: "bytes that are not text, as a dump",
                is_cut: body.len() > MAX_DUMPED_BYTES,
            },
        }
    }
}

/// The same JSON with its lines broken and nothing else changed: numbers, escapes, doubled names and
/// their order stay as they came. None where it is no JSON, or no more than one value that is not put
/// together of others.
fn pretty(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    // This bounds how deep it goes, too.
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    let mut pretty = String::with_capacity(text.len().min(MAX_PRETTY_BYTES) * 2);
    let mut depth = 0_usize;
    let (mut in_string, mut is_escaped) = (false, false);
    // A list or an object has begun, and may be empty.
    let mut has_begun = false;
    for char in text.chars() {
        if pretty.len() > MAX_PRETTY_BYTES {
            break;
        }
        if in_string {
            pretty.push(char);
            in_string = is_escaped || char != '"';
            is_escaped = !is_escaped && char == '\\';
            continue;
        }
        let ends = matches!(char, '}' | ']');
        if char.is_ascii_whitespace() {
            continue;
        }
        if ends {
            depth = depth.saturating_sub(1);
        }
        if has_begun != ends {
            break_line(&mut pretty, depth);
        }
        has_begun = matches!(char, '{' | '[');
        depth += usize::from(has_begun);
        in_string = char == '"';
        pretty.push(char);
        match char {
            ':' => pretty.push(' '),
            ',' => break_line(&mut pretty, depth),
            _ => {}
        }
    }
    Some(pretty)
}

fn break_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

/// Bytes as numbers, and what of them is a letter.
fn dump(body: &[u8]) -> String {
    let shown = &body[..body.len().min(MAX_DUMPED_BYTES)];
    let mut text = String::with_capacity(shown.len() * 5);
    for (line, bytes) in shown.chunks(BYTES_A_LINE).enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{:08x} ", line * BYTES_A_LINE);
        for byte in bytes {
            let _ = write!(text, " {byte:02x}");
        }
        let missing = BYTES_A_LINE - bytes.len();
        text.extend(std::iter::repeat_n("   ", missing));
        text.push_str("  ");
        text.extend(bytes.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        }));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_token_and_gets_lines() {
        for (body, expected) in [
            (r"{}", "{}"),
            (" [ ] ", "[]"),
            (r#"{"a":1.0,"a":[1,{}]}"#, "{\n  \"a\": 1.0,\n  \"a\": [\n    1,\n    {}\n  ]\n}"),
            (r#"["a, b: {c}","\"[\\"]"#, "[\n  \"a, b: {c}\",\n  \"\\\"[\\\\\"\n]"),
            ("[12345678901234567890, 1e400]", "[\n  12345678901234567890,\n  1e400\n]"),
            ("[[1],[2]]", "[\n  [\n    1\n  ],\n  [\n    2\n  ]\n]"),
        ] {
            assert_eq!(pretty(body.as_bytes()).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_is_no_json_is_left_alone() {
        let deep = "[".repeat(100_000);
        for body in ["", "7", "\"a\"", "{", "{'a':1}", "[1,]", "{} {}", deep.as_str()] {
            assert_eq!(pretty(body.as_bytes()), None);
        }
    }

    #[test]
    fn deep_json_does_not_grow_without_end() {
        let body = format!("{}{}1{}", "[".repeat(100), "1,".repeat(100_000), "]".repeat(100));
        let pretty = pretty(body.as_bytes()).expect("JSON");
        assert!(pretty.len() < MAX_PRETTY_BYTES + 1_024);
    }

    #[test]
    fn bytes_are_dumped_and_cut() {
        let expected = "00000000  00 61 3c ff                                      .a<.\n";
        assert_eq!(dump(b"\0a<\xff"), expected);
        let long = Payload::of(&vec![0xff; 1 << 20]);
        assert!(long.is_cut);
        assert_eq!(dump(&vec![0xff; 1 << 20]).lines().count(), MAX_DUMPED_BYTES / BYTES_A_LINE);
    }
}
