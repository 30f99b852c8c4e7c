//! JSON into the values of the evaluator, without a copy of strings where that can be.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use cel::common::value::Val;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// The longest JSON text that filters read. Its values take up to forty times as much memory.
pub const MAX_JSON_BYTES: usize = 1 << 20;

/// How deep lists and objects may be nested in it.
pub const MAX_JSON_DEPTH: usize = 100;

/// Why JSON is not read at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    TooLarge,
    TooDeep,
}

/// Reads a text. What is not JSON is null.
pub(super) fn read(text: &[u8]) -> Result<Box<dyn Val + '_>, Unreadable> {
    if text.len() > MAX_JSON_BYTES {
        return Err(Unreadable::TooLarge);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = Node { depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match read {
        Ok(value) => Ok(value),
        // The only complaint about the data, rather than the syntax, is the one made below.
        Err(error) if error.is_data() => Err(Unreadable::TooDeep),
        Err(_) => Ok(Box::new(CelNull)),
    }
}

/// A value at some depth.
#[derive(Clone, Copy)]
struct Node {
    depth: usize,
}

impl Node {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_JSON_DEPTH {
            return Err(E::custom("nested too deeply"));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Node {
    type Value = Box<dyn Val + 'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node {
    type Value = Box<dyn Val + 'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Box::new(CelNull))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Box::new(CelBool::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Box::new(CelInt::from(value)))
    }

    /// An int wherever it fits into one, so that arithmetic works with the ints of an expression.
    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        match i64::try_from(value) {
            Ok(value) => Ok(Box::new(CelInt::from(value))),
            Err(_) => Ok(Box::new(CelUInt::from(value))),
        }
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Box::new(CelDouble::from(value)))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Box::new(CelString::from(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Box::new(CelString::from(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Box::new(CelList::from(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let inner = self.deeper()?;
        let mut map: HashMap<CelMapKey<'de>, Box<dyn Val + 'de>> = HashMap::new();
        while let Some(name) = entries.next_key_seed(Name)? {
            let value = entries.next_value_seed(inner)?;
            map.insert(CelMapKey::String(name.into()), value);
        }
        Ok(Box::new(CelMap::from(map)))
    }
}

/// The name of a field.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
