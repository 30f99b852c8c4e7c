//! A request as it reached a source, and how the schemes read its headers and its query.

use std::borrow::Cow;
use std::fmt;

use super::{Refusal, form};

/// The longest value of a header that a scheme reads. Sixteen ed25519 signatures fill a third.
pub const MAX_HEADER_BYTES: usize = 4096;

/// A request that reached a source.
#[derive(Clone, Copy)]
pub struct Inbound<'a> {
    pub method: &'a str,
    /// Absolute, as the provider called it, with the query as it came.
    pub url: &'a str,
    /// Names in lower case, values as they came, repeated ones each by itself.
    pub headers: &'a [(&'a str, &'a [u8])],
    pub body: &'a [u8],
}

impl<'a> Inbound<'a> {
    pub(super) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(given, _)| *given == name)
    }

    /// The value of a header that may be left out, but not repeated.
    pub(super) fn optional(&self, name: &str) -> Result<Option<&'a [u8]>, Refusal> {
        let mut lines = self.headers.iter().filter(|(given, _)| *given == name);
        match (lines.next(), lines.next()) {
            (None, _) => Ok(None),
            (Some((_, value)), None) => Ok(Some(value)),
            (Some(_), Some(_)) => Err(Refusal::RepeatedHeader { header: name.to_owned() }),
        }
    }

    /// The value of a header that must come exactly once.
    pub(super) fn required(&self, name: &str, expected: &'static str) -> Result<&'a [u8], Refusal> {
        let value = self
            .optional(name)?
            .ok_or_else(|| Refusal::MissingHeader { header: name.to_owned() })?;
        if value.is_empty() || value.len() > MAX_HEADER_BYTES {
            return Err(malformed(name, expected));
        }
        Ok(value)
    }

    /// Like [`Inbound::required`], for a header that can only hold printable ASCII.
    pub(super) fn text(&self, name: &str, expected: &'static str) -> Result<&'a str, Refusal> {
        std::str::from_utf8(self.required(name, expected)?)
            .ok()
            .filter(|text| text.bytes().all(|byte| (b' '..=b'~').contains(&byte)))
            .ok_or_else(|| malformed(name, expected))
    }

    /// The decoded value of a query parameter that may be left out, but not repeated.
    pub(super) fn parameter(&self, name: &str) -> Result<Option<Cow<'a, [u8]>>, Refusal> {
        let before_fragment = self.url.split('#').next().unwrap_or_default();
        let Some((_, query)) = before_fragment.split_once('?') else { return Ok(None) };
        let fields = form::parse(query.as_bytes()).ok_or(Refusal::TooManyParameters)?;
        let mut named = fields.into_iter().filter(|(given, _)| **given == *name.as_bytes());
        match (named.next(), named.next()) {
            (None, _) => Ok(None),
            (Some((_, value)), None) => Ok(Some(value)),
            (Some(_), Some(_)) => Err(Refusal::RepeatedParameter { name: name.to_owned() }),
        }
    }
}

impl fmt::Debug for Inbound<'_> {
    /// Without the URL and the headers: both can hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (headers, bytes) = (self.headers.len(), self.body.len());
        write!(f, "Inbound({}, {headers} headers, {bytes} bytes)", self.method)
    }
}

pub(super) fn malformed(header: &str, expected: &'static str) -> Refusal {
    Refusal::MalformedHeader { header: header.to_owned(), expected }
}
