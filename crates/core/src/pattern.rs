//! Event type names and the patterns that select them: exact, `order.*`, `*`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub const MAX_TYPE_BYTES: usize = 256;

/// Types that begin so are the gateway's own: what happens in it, told as events.
pub const RESERVED_PREFIX: &str = "postrider.";

/// The text was not a type or a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("an event type has 1 to {MAX_TYPE_BYTES} of the characters A-Z a-z 0-9 . _ - / :")]
    Type,
    #[error("expected an event type, `prefix.*` or `*`")]
    Pattern,
}

/// Checks an event's type: parts separated by dots, none empty.
pub fn check_type(name: &str) -> Result<(), Invalid> {
    let allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/' | b':');
    let part = |part: &str| !part.is_empty() && part.bytes().all(allowed);
    if name.len() <= MAX_TYPE_BYTES && name.split('.').all(part) {
        Ok(())
    } else {
        Err(Invalid::Type)
    }
}

/// Whether a type is one that only the gateway itself may give to an event.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// The type for what came from outside under a reserved one: as long and as readable, but not ours.
pub fn unreserved(name: &str) -> String {
    match name.strip_prefix(RESERVED_PREFIX) {
        Some(rest) => format!("postrider_{rest}"),
        None => name.to_owned(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Every type but the reserved ones: those are for who asks for them by name.
    Any,
    /// `order.*`: the prefix with its dot, then one or more further parts.
    Prefix(String),
    Exact(String),
}

impl Pattern {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some(prefix) = text.strip_suffix(".*") {
            check_type(prefix).map_err(|_| Invalid::Pattern)?;
            return Ok(Self::Prefix(format!("{prefix}.")));
        }
        check_type(text).map_err(|_| Invalid::Pattern)?;
        Ok(Self::Exact(text.to_owned()))
    }

    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => !is_reserved(name),
            Self::Prefix(prefix) => name.len() > prefix.len() && name.starts_with(prefix),
            Self::Exact(exact) => name == exact,
        }
    }

    /// Whether it asks for reserved types.
    pub fn names_reserved(&self) -> bool {
        match self {
            Self::Any => false,
            Self::Prefix(name) | Self::Exact(name) => is_reserved(name),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Exact(exact) => f.write_str(exact),
        }
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_select_types() {
        let cases = [
            ("*", "order.created", true),
            ("order.created", "order.created", true),
            ("order.created", "order.createdx", false),
            ("order.*", "order.created", true),
            ("order.*", "order.item.added", true),
            ("order.*", "order", false),
            ("order.*", "orders.created", false),
            ("*", "postrider.delivery.dead", false),
            ("*", "postrider", true),
            ("*", "postriders.delivery.dead", true),
            ("postrider.*", "postrider.delivery.dead", true),
            ("postrider.delivery.*", "postrider.delivery.dead", true),
            ("postrider.delivery.dead", "postrider.delivery.dead", true),
        ];
        for (pattern, name, expected) in cases {
            let parsed = Pattern::parse(pattern).expect(pattern);
            assert_eq!(parsed.matches(name), expected, "{pattern} on {name}");
            assert_eq!(parsed.to_string(), pattern);
        }
    }

    #[test]
    fn only_patterns_with_the_prefix_ask_for_reserved_types() {
        for (pattern, expected) in [
            ("*", false),
            ("order.*", false),
            ("postrider", false),
            ("postriders.*", false),
            ("postrider.*", true),
            ("postrider.delivery.*", true),
            ("postrider.delivery.dead", true),
        ] {
            let parsed = Pattern::parse(pattern).expect(pattern);
            assert_eq!(parsed.names_reserved(), expected, "{pattern}");
        }
    }

    #[test]
    fn what_is_not_ours_is_kept_apart_from_what_is() {
        for (name, expected) in [
            ("order.created", "order.created"),
            ("postrider", "postrider"),
            ("postrider.delivery.dead", "postrider_delivery.dead"),
        ] {
            let changed = unreserved(name);
            assert_eq!(changed, expected);
            assert!(!is_reserved(&changed) && check_type(&changed).is_ok(), "{changed}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", ".", "a..b", "a.", ".a", "*.a", "a.*.b", "a*", "a b", "é", ".*"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
        assert!(check_type(&"a".repeat(MAX_TYPE_BYTES)).is_ok());
        assert!(check_type(&"a".repeat(MAX_TYPE_BYTES + 1)).is_err());
    }
}
