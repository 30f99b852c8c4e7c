//! JSON pointers (RFC 6901) into bodies: only what a pointer leads to is kept of a document, so that
//! looking into a large body takes no more memory than the body itself.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

const MAX_POINTER_BYTES: usize = 256;
/// Far less than what the JSON reader itself would follow.
const MAX_DEPTH: usize = 32;

/// Why a text cannot be used as a pointer, as the end of a sentence about it.
pub(crate) fn check(pointer: &str) -> Result<(), String> {
    if !pointer.starts_with('/') {
        return Err("must begin with a slash, like /data/id".to_owned());
    }
    if pointer.len() > MAX_POINTER_BYTES || pointer.split('/').count() > MAX_DEPTH + 1 {
        return Err(format!(
            "must have at most {MAX_POINTER_BYTES} bytes and {MAX_DEPTH} parts between slashes"
        ));
    }
    let escaped = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if !escaped {
        return Err("has a ~ that is not part of ~0 or ~1".to_owned());
    }
    Ok(())
}

/// The text, number or truth value that `pointer` leads to. Numbers are as they were written. None,
/// if the body is no JSON or has nothing of the kind there.
pub(crate) fn look_up(body: &[u8], pointer: &str) -> Option<String> {
    let parts: Vec<Cow<'_, str>> = pointer.split('/').skip(1).map(unescape).collect();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let found = Way(&parts).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    found
}

fn unescape(part: &str) -> Cow<'_, str> {
    if part.contains('~') {
        Cow::Owned(part.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(part)
    }
}

/// The parts of a pointer that are still to be followed.
struct Way<'p>(&'p [Cow<'p, str>]);

impl<'de> DeserializeSeed<'de> for Way<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self.0.split_first() {
            Some((part, rest)) => deserializer.deserialize_any(Step { part, rest: Way(rest) }),
            None => <&RawValue>::deserialize(deserializer).map(|value| scalar(value.get())),
        }
    }
}

/// What a value says, if it is one that can be said in a word.
fn scalar(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str(json).ok(),
        b'-' | b'0'..=b'9' | b't' | b'f' => Some(json.to_owned()),
        _ => None,
    }
}

struct Step<'p> {
    part: &'p str,
    rest: Way<'p>,
}

impl Step<'_> {
    /// The place in a list, written without leading zeros.
    fn index(&self) -> Option<usize> {
        let plain = self.part == "0" || !self.part.starts_with(['0', '+']);
        self.part.parse().ok().filter(|_| plain)
    }
}

impl<'de> Visitor<'de> for Step<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == self.part {
                found = map.next_value_seed(Way(self.rest.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Some(index) = self.index() else {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(None);
        };
        for _ in 0..index {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = list.next_element_seed(Way(self.rest.0))?.flatten();
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_what_rfc_6901_says() {
        let body = br#"{"type":"order.created","id":12345678901234567890123,"live":true,
            "none":null,"":"empty","a/b":"slash","m~n":"tilde","~1":"odd",
            "data":{"list":[{"id":"first"},["in",7]],"text":"\u00e9\n"},"twice":1,"twice":2}"#;
        for (pointer, expected) in [
            ("/type", Some("order.created")),
            ("/id", Some("12345678901234567890123")),
            ("/live", Some("true")),
            ("/none", None),
            ("/", Some("empty")),
            ("/a~1b", Some("slash")),
            ("/m~0n", Some("tilde")),
            ("/~01", Some("odd")),
            ("/data", None),
            ("/data/text", Some("é\n")),
            ("/data/list/0/id", Some("first")),
            ("/data/list/1/1", Some("7")),
            ("/data/list/2", None),
            ("/data/list/00", None),
            ("/data/list/+1", None),
            ("/data/list/-", None),
            ("/data/list/x", None),
            ("/type/more", None),
            ("/id/more", None),
            ("/none/more", None),
            ("/live/more", None),
            ("/missing", None),
            ("/twice", Some("2")),
        ] {
            assert_eq!(look_up(body, pointer).as_deref(), expected, "{pointer}");
        }
    }

    #[test]
    fn what_is_no_json_has_nothing_in_it() {
        let deep = "[".repeat(100_000);
        for body in ["", "a=1", r#"{"a":1"#, r#"{"a":1} more"#, r#"{"a":1,}"#, "7", &deep] {
            assert_eq!(look_up(body.as_bytes(), "/a"), None);
        }
        assert_eq!(look_up(b"{\"a\":\"\xff\"}", "/a"), None);
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        for pointer in ["/", "/a", "/a/0/b", "/a~0b~1c", "/é"] {
            assert_eq!(check(pointer), Ok(()), "{pointer}");
        }
        let (long, deep) = (format!("/{}", "a".repeat(256)), "/a".repeat(33));
        for pointer in ["", "a", "a/b", "#/a", "/a~", "/a~2", "/~/b", &long, &deep] {
            assert!(check(pointer).is_err(), "{pointer}");
        }
    }
}
