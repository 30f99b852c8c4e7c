//! Headers in the head of a frame: pairs of strings in which each character stands for one byte.
//!
//! A header's value is bytes, and most are ASCII. Writing byte `n` as the character U+00`n` lets
//! every byte pass and keeps ordinary headers readable; base64 would do only the first.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use bytes::Bytes;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::ser::{SerializeSeq as _, Serializer};
use serde::{Deserialize, Serialize};

use super::MAX_HEADERS;

/// For `#[serde(with = "headers")]` on a list of headers.
pub(super) fn serialize<S: Serializer>(
    headers: &[(String, Bytes)],
    to: S,
) -> Result<S::Ok, S::Error> {
    let mut list = to.serialize_seq(Some(headers.len()))?;
    for (name, value) in headers {
        list.serialize_element(&(name, Value(&value[..])))?;
    }
    list.end()
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Cow<'static, [(String, Bytes)]>, D::Error> {
    from.deserialize_seq(List).map(Cow::Owned)
}

/// How many bytes a header takes in a head, at most: each byte of a value may need an escape.
pub(super) fn room(name: &str, value: &[u8]) -> usize {
    const PUNCTUATION: usize = r#"["",""],"#.len();
    let written = |byte: &u8| match byte {
        b'"' | b'\\' | 0x80.. => 2,
        0..0x20 => r"\u0000".len(),
        0x20..0x80 => 1,
    };
    PUNCTUATION + name.len() + value.iter().map(written).sum::<usize>()
}

/// Whether this can be the name of a header as frames write them.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9') || is_mark(byte);
    !name.is_empty() && name.bytes().all(allowed)
}

/// What a field name of HTTP may hold beside letters and digits.
fn is_mark(byte: u8) -> bool {
    b"!#$%&'*+-.^_`|~".contains(&byte)
}

struct Value<'a>(&'a [u8]);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) if text.is_ascii() => f.write_str(text),
            Ok(_) | Err(_) => self.0.iter().try_for_each(|byte| f.write_char(char::from(*byte))),
        }
    }
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

struct List;

impl<'de> Visitor<'de> for List {
    type Value = Vec<(String, Bytes)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of headers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut headers = Vec::with_capacity(list.size_hint().unwrap_or(0).min(MAX_HEADERS));
        while let Some((Name(name), Read(value))) = list.next_element()? {
            if headers.len() == MAX_HEADERS {
                return Err(de::Error::custom(format_args!("more than {MAX_HEADERS} headers")));
            }
            headers.push((name, value));
        }
        Ok(headers)
    }
}

struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if is_name(&name) {
            Ok(Self(name))
        } else {
            Err(de::Error::custom("a header's name must be a lower-case HTTP field name"))
        }
    }
}

struct Read(Bytes);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Characters)
    }
}

struct Characters;

impl Visitor<'_> for Characters {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header's value as a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Read, E> {
        if text.is_ascii() {
            return Ok(Read(Bytes::copy_from_slice(text.as_bytes())));
        }
        let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
        bytes
            .map(|bytes| Read(bytes.into()))
            .map_err(|_| E::custom("a header's value has a character above U+00FF"))
    }
}
