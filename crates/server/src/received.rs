//! What is made of a request that reached a source: the type of the event, the key by which a second
//! one is known, and the headers that are kept with it.
//!
//! Nothing here refuses a webhook for what its provider wrote: a type that cannot be one is made one.
//! Only headers beyond the bounds are refused, since to cut them would be to change them.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use postrider_core::pattern::MAX_TYPE_BYTES;
use postrider_core::source::{KeepHeaders, Place, Spec, TypeFrom};
use postrider_core::verification::{self, Scheme};
use postrider_store::record::Headers;
use sha2::{Digest as _, Sha256};

use crate::framing::OF_THE_CONNECTION;
use crate::new_event::{MAX_CONTENT_TYPE_BYTES, MAX_KEY_CHARS, UNKNOWN_CONTENT};
use crate::pointer;

/// The type of an event whose request does not say one.
pub(crate) const FALLBACK_TYPE: &str = "webhook.received";
/// Types that only the gateway itself gives out begin with this.
pub(crate) const RESERVED_TYPES: &str = "postrider.";

pub(crate) const MAX_KEPT_HEADERS: usize = 64;
/// Names and values together.
pub(crate) const MAX_KEPT_BYTES: usize = 16 << 10;

/// Credentials, which would open a door to whoever gets the event. Headers of the connection mean
/// nothing to them.
const NEVER_KEPT: [&str; 2] = ["authorization", "cookie"];
const NEVER_KEPT_PREFIXES: [&str; 2] = ["postrider-", "proxy-"];
const TELEGRAM_TOKEN: &str = "x-telegram-bot-api-secret-token";

/// Whether a header stays out of the event whatever the source says. `name` is in lower case.
pub(crate) fn is_never_kept(scheme: &Scheme, name: &str) -> bool {
    OF_THE_CONNECTION.contains(&name)
        || NEVER_KEPT.contains(&name)
        || NEVER_KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || token_header(scheme).is_some_and(|token| token.eq_ignore_ascii_case(name))
}

/// The header that holds the source's secret itself.
fn token_header(scheme: &Scheme) -> Option<&str> {
    match scheme {
        Scheme::Telegram => Some(TELEGRAM_TOKEN),
        Scheme::Token(verification::Place::Header { name, .. }) => Some(name),
        Scheme::Token(
            verification::Place::Bearer
            | verification::Place::Basic
            | verification::Place::Query { .. },
        )
        | Scheme::None
        | Scheme::Standard { .. }
        | Scheme::Stripe { .. }
        | Scheme::Github
        | Scheme::Slack { .. }
        | Scheme::Shopify
        | Scheme::Twilio
        | Scheme::Linear { .. }
        | Scheme::Paddle { .. }
        | Scheme::Hmac(_) => None,
    }
}

/// More headers came than are kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyHeaders;

/// The headers that go with the event: bytes as they came, repeats in their order. A body cannot be
/// read without its encoding, so that is kept with any list.
pub(crate) fn kept_headers(spec: &Spec, headers: &HeaderMap) -> Result<Headers, TooManyHeaders> {
    let wanted = |name: &str| match &spec.keep_headers {
        KeepHeaders::All => true,
        KeepHeaders::Named(names) => {
            name == CONTENT_ENCODING.as_str() || names.iter().any(|kept| kept == name)
        }
    };
    let mut kept = Headers::new();
    let mut bytes = 0;
    for (name, value) in headers {
        let name = name.as_str();
        if is_never_kept(&spec.verify, name) || !wanted(name) {
            continue;
        }
        bytes += name.len() + value.len();
        if kept.len() == MAX_KEPT_HEADERS || bytes > MAX_KEPT_BYTES {
            return Err(TooManyHeaders);
        }
        kept.push((name.to_owned(), Bytes::copy_from_slice(value.as_bytes())));
    }
    Ok(kept)
}

/// As it came. One that no answer could carry is in the kept headers only.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    said.filter(|text| (1..=MAX_CONTENT_TYPE_BYTES).contains(&text.len()))
        .unwrap_or(UNKNOWN_CONTENT)
        .to_owned()
}

pub(crate) fn event_type(from: &TypeFrom, headers: &HeaderMap, body: &[u8]) -> String {
    let said = match from {
        TypeFrom::Fixed(kind) => return kind.clone(),
        TypeFrom::Header(name) => in_header(headers, name),
        TypeFrom::JsonPointer(pointer) => in_body(body, pointer),
    };
    said.map_or_else(|| FALLBACK_TYPE.to_owned(), |said| to_type(&String::from_utf8_lossy(&said)))
}

/// Makes a type of any text: what is not allowed in one becomes `_`, and what is too long is cut.
fn to_type(text: &str) -> String {
    let mut kind = String::new();
    let mut rest = text.trim().chars().take(MAX_TYPE_BYTES).peekable();
    while let Some(char) = rest.next() {
        let dot_between = !kind.is_empty() && !kind.ends_with('.') && rest.peek().is_some();
        kind.push(match char {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '/' | ':' => char,
            '.' if dot_between && RESERVED_TYPES.strip_suffix('.') != Some(&kind) => '.',
            _ => '_',
        });
    }
    if kind.is_empty() { FALLBACK_TYPE.to_owned() } else { kind }
}

/// What a second webhook with the same content has in common with the first. One that is too long or
/// has spaces in it is known by its hash.
pub(crate) fn dedup_key(from: &Place, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let said = match from {
        Place::Header(name) => in_header(headers, name),
        Place::JsonPointer(pointer) => in_body(body, pointer),
    }?;
    let plain = std::str::from_utf8(&said).ok().filter(|text| {
        text.chars().count() <= MAX_KEY_CHARS
            && !text.chars().any(|char| char.is_control() || char.is_whitespace())
    });
    Some(plain.map_or_else(|| hashed(&said), str::to_owned))
}

fn hashed(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn in_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, [u8]>> {
    let value = headers.get(name)?.as_bytes().trim_ascii();
    (!value.is_empty()).then_some(Cow::Borrowed(value))
}

fn in_body(body: &[u8], pointer: &str) -> Option<Cow<'static, [u8]>> {
    let text = pointer::look_up(body, pointer)?;
    (!text.is_empty()).then(|| Cow::Owned(text.into_bytes()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use postrider_core::pattern;
    use postrider_core::source::OnInvalid;

    use super::*;

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let value = HeaderValue::from_bytes(value).expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        headers
    }

    fn spec(verify: Scheme, keep_headers: KeepHeaders) -> Spec {
        Spec {
            name: "a".into(),
            verify,
            on_invalid: OnInvalid::Reject,
            type_from: TypeFrom::Fixed("a".into()),
            dedup_from: None,
            keep_headers,
        }
    }

    #[test]
    fn any_text_makes_a_type() {
        let long = "a.".repeat(400);
        for (text, expected) in [
            ("order.created", "order.created"),
            ("orders/create", "orders/create"),
            ("Issue", "Issue"),
            (" ping ", "ping"),
            ("a b", "a_b"),
            ("a..b", "a._b"),
            (".a.", "_a_"),
            ("...", "_._"),
            ("é", "_"),
            ("", FALLBACK_TYPE),
            ("postrider.test", "postrider_test"),
            ("a.postrider.test", "a.postrider.test"),
            ("\u{fffd}\n*", "___"),
        ] {
            assert_eq!(to_type(text), expected, "{text}");
            assert_eq!(pattern::check_type(&to_type(text)), Ok(()), "{text}");
        }
        assert_eq!(pattern::check_type(&to_type(&long)), Ok(()));
        assert_eq!(to_type(&long).len(), MAX_TYPE_BYTES);
    }

    #[test]
    fn the_type_is_where_the_source_says() {
        let headers = headers(&[("x-event", b"push"), ("x-bytes", b"\xffa"), ("x-empty", b"")]);
        let body = br#"{"type":"a.b","n":7,"o":{}}"#;
        let header = |name: &str| TypeFrom::Header(name.into());
        let pointer = |text: &str| TypeFrom::JsonPointer(text.into());
        for (from, expected) in [
            (header("x-event"), "push"),
            (header("x-bytes"), "_a"),
            (header("x-empty"), FALLBACK_TYPE),
            (header("x-none"), FALLBACK_TYPE),
            (pointer("/type"), "a.b"),
            (pointer("/n"), "7"),
            (pointer("/o"), FALLBACK_TYPE),
            (TypeFrom::Fixed("x".into()), "x"),
        ] {
            assert_eq!(event_type(&from, &headers, body), expected, "{from:?}");
        }
    }

    #[test]
    fn every_dedup_key_can_be_stored_and_different_ones_stay_different() {
        let long = "k".repeat(256);
        let values: [&[u8]; 6] =
            [b"k-1", b"a b", b"a\tb", b"\xff", long.as_bytes(), &long.as_bytes()[1..]];
        let mut keys: Vec<String> = values
            .iter()
            .map(|value| {
                let from = Place::Header("x-id".into());
                dedup_key(&from, &headers(&[("x-id", value)]), b"").expect("a key")
            })
            .collect();
        assert_eq!(keys[0], "k-1");
        for key in &keys {
            assert!(key.len() <= MAX_KEY_CHARS && !key.contains(char::is_whitespace), "{key}");
        }
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), values.len());
        let none = headers(&[("x-id", b"")]);
        assert_eq!(dedup_key(&Place::Header("x-id".into()), &none, b""), None);
        let number = dedup_key(&Place::JsonPointer("/id".into()), &none, br#"{"id":7}"#);
        assert_eq!(number.as_deref(), Some("7"));
    }

    #[test]
    fn headers_are_kept_as_they_came_without_those_that_open_doors() {
        let token = Scheme::Token(verification::Place::Header {
            name: "X-My-Token".into(),
            prefix: String::new(),
        });
        let all = headers(&[
            ("x-a", b"1"),
            ("x-b", b"\xfe\xff"),
            ("x-a", b"2"),
            ("x-my-token", b"secret"),
            ("authorization", b"Bearer x"),
            ("cookie", b"a=b"),
            ("host", b"here"),
            ("connection", b"close"),
            ("proxy-authorization", b"x"),
            ("postrider-event-type", b"forged"),
            ("content-encoding", b"gzip"),
        ]);
        let kept = |spec: &Spec| {
            let mut kept = kept_headers(spec, &all).expect("few");
            kept.sort_by(|one, other| one.0.cmp(&other.0));
            kept
        };
        let pair = |name: &str, value: &'static [u8]| (name.to_owned(), Bytes::from_static(value));
        let expected = [
            pair("content-encoding", b"gzip"),
            pair("x-a", b"1"),
            pair("x-a", b"2"),
            pair("x-b", b"\xfe\xff"),
        ];
        assert_eq!(kept(&spec(token.clone(), KeepHeaders::All)), expected);
        let named = KeepHeaders::Named(vec!["x-a".into(), "x-my-token".into()]);
        assert_eq!(kept(&spec(token, named)), expected[..3]);
        assert_eq!(kept(&spec(Scheme::None, KeepHeaders::Named(Vec::new()))), expected[..1]);
    }

    #[test]
    fn too_many_headers_are_refused_not_cut() {
        let keep = |spec: &Spec, lines: &[(&'static str, &[u8])]| {
            kept_headers(spec, &headers(lines)).map(|kept| kept.len())
        };
        let all = spec(Scheme::None, KeepHeaders::All);
        let line: (&'static str, &[u8]) = ("x-a", b"1");
        assert_eq!(keep(&all, &[line; MAX_KEPT_HEADERS]), Ok(MAX_KEPT_HEADERS));
        assert_eq!(keep(&all, &[line; MAX_KEPT_HEADERS + 1]), Err(TooManyHeaders));
        let none = spec(Scheme::None, KeepHeaders::Named(Vec::new()));
        assert_eq!(keep(&none, &[line; MAX_KEPT_HEADERS + 1]), Ok(0));
        let large = vec![b'v'; MAX_KEPT_BYTES - 3];
        assert_eq!(keep(&all, &[("x-a", &large)]), Ok(1));
        assert_eq!(keep(&all, &[("x-ab", &large)]), Err(TooManyHeaders));
    }

    #[test]
    fn a_content_type_is_kept_or_replaced_by_one_that_claims_nothing() {
        for (value, expected) in [
            (&b"application/json; charset=UTF-8"[..], "application/json; charset=UTF-8"),
            (b"text/plain; x=\xff", UNKNOWN_CONTENT),
            (b"", UNKNOWN_CONTENT),
        ] {
            assert_eq!(content_type(&headers(&[("content-type", value)])), expected);
        }
        assert_eq!(content_type(&HeaderMap::new()), UNKNOWN_CONTENT);
    }
}
