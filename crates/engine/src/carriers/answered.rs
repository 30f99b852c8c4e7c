//! What is made of a receiver's answer: what it means, what is kept of it, and a sentence.

use std::fmt::Write as _;

use bytes::Bytes;
use http::Uri;
use percent_encoding::percent_decode_str;
use postrider_core::outcome::Sighting;
use postrider_core::retry_after;
use postrider_store::record::Response;

use crate::carrier::Report;
use crate::destination::Destination;

/// How much of an answer's body stands in a delivery's `last_error`.
const ERROR_EXCERPT_CHARS: usize = 300;
/// Parts of a chat's URL as long as this are taken for secrets.
const SECRET_CHARS: usize = 16;
const CONCEALED: &str = "[concealed]";
/// How many of an answer's headers are kept, and how much of each.
const HEADERS_KEPT: usize = 64;
const HEADER_VALUE_KEPT_BYTES: usize = 1_024;

/// A whole answer, as far as it was read.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// What is kept of its headers.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    pub(crate) truncated: bool,
}

impl Answered {
    /// `retry_after` is the header of that name. `secret` is the destination where its URL is one:
    /// whoever has that of a chat can write there.
    pub(crate) fn report(
        self,
        retry_after: Option<&[u8]>,
        now_unix_ms: i64,
        secret: Option<&Destination>,
    ) -> Report {
        let success = (200..300).contains(&self.status);
        let error = (!success).then(|| self.describe(secret));
        let retry_after = retry_after
            .filter(|_| !success)
            .and_then(|value| retry_after::parse(value, now_unix_ms));
        let Self { status, headers, body, truncated } = self;
        let response = (!headers.is_empty() || !body.is_empty() || truncated).then(|| Response {
            headers,
            body,
            truncated,
        });
        Report { sighting: Sighting::Status(status), retry_after, error, response, result: None }
    }

    /// The status, its usual words, and the beginning of what the receiver said.
    fn describe(&self, secret: Option<&Destination>) -> String {
        let mut text = format!("HTTP {}", self.status);
        let words =
            http::StatusCode::from_u16(self.status).ok().and_then(|code| code.canonical_reason());
        if let Some(words) = words {
            let _infallible = write!(text, " {words}");
        }
        let mut body = String::from_utf8_lossy(&self.body);
        if let Some(destination) = secret {
            body = conceal(&body, destination.target()).into();
        }
        let excerpt: String = body
            .trim()
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .take(ERROR_EXCERPT_CHARS)
            .collect();
        if !excerpt.is_empty() {
            let _infallible = write!(text, ": {excerpt}");
        }
        text
    }
}

/// Takes the secrets of a URL out of a text: a receiver may repeat what it was asked for.
fn conceal(text: &str, target: &Uri) -> String {
    let target = target.to_string();
    let parts = target.split(['/', '?', '&', '=']);
    parts.filter(|part| part.len() >= SECRET_CHARS).fold(text.to_owned(), |text, part| {
        let decoded = percent_decode_str(part).decode_utf8_lossy();
        text.replace(part, CONCEALED).replace(&*decoded, CONCEALED)
    })
}

/// Headers that say nothing about this answer in particular are not kept: they would cost more room
/// than the delivery itself.
pub(crate) fn kept_headers<'a>(
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Vec<(String, String)> {
    const UNREMARKABLE: [&str; 5] =
        ["date", "content-length", "connection", "transfer-encoding", "keep-alive"];
    headers
        .filter(|(name, _)| !UNREMARKABLE.contains(name))
        .take(HEADERS_KEPT)
        .map(|(name, value)| {
            let value = &value[..value.len().min(HEADER_VALUE_KEPT_BYTES)];
            // No escape sequence of a terminal gets into a log or onto a screen by way of a header.
            (name.to_owned(), String::from_utf8_lossy(value).replace(char::is_control, " "))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secrets_of_a_url_are_taken_out_of_what_a_receiver_says() {
        let target =
            Uri::from_static("/bot123456%3AABC-DEF1234ghIkl/sendMessage?key=0123456789abcdef");
        for said in [
            "no /bot123456:ABC-DEF1234ghIkl/sendMessage here",
            "no /bot123456%3AABC-DEF1234ghIkl/sendMessage here",
            "no /[concealed]/sendMessage here",
        ] {
            assert_eq!(conceal(said, &target), "no /[concealed]/sendMessage here");
        }
        assert_eq!(conceal("key 0123456789abcdef", &target), "key [concealed]");
    }
}
