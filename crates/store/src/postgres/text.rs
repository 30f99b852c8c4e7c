//! Text in and out of the database, which cannot hold U+0000.
//!
//! What others send may contain one. It is written as U+FFFF and `0`, and a U+FFFF, which is no
//! character, as U+FFFF and `1`: so every text has one stored form, and two texts never share one.

use std::borrow::Cow;
use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

const MARK: char = '\u{ffff}';

/// A text as a parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'a>(pub(crate) &'a str);

/// A text that was read.
#[derive(Debug)]
pub(crate) struct Stored(pub(crate) String);

/// Whether it is stored otherwise than it is.
fn is_plain(text: &str) -> bool {
    !text.as_bytes().contains(&0) && !text.contains(MARK)
}

pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => stored.extend([MARK, '0']),
            MARK => stored.extend([MARK, '1']),
            other => stored.push(other),
        }
    }
    Cow::Owned(stored)
}

pub(crate) fn decode(stored: &str) -> Result<String, Box<dyn Error + Sync + Send>> {
    if is_plain(stored) {
        return Ok(stored.to_owned());
    }
    let mut text = String::with_capacity(stored.len());
    let mut characters = stored.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            MARK => match characters.next() {
                Some('0') => '\0',
                Some('1') => MARK,
                Some(_) | None => return Err("a text that was not stored by postrider".into()),
            },
            other => other,
        });
    }
    Ok(text)
}

impl ToSql for Text<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        encode(self.0).as_ref().to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        <&str as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Stored {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        decode(<&str>::from_sql(ty, raw)?).map(Self)
    }

    fn accepts(ty: &Type) -> bool {
        <&str as FromSql>::accepts(ty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_survives_and_none_is_stored_as_another() {
        let texts = ["", "a", "\0", "\u{ffff}", "\u{ffff}0", "\u{ffff}1", "0\0\u{ffff}1", "\0\0"];
        let stored: Vec<String> = texts.iter().map(|text| encode(text).into_owned()).collect();
        for (index, text) in texts.iter().enumerate() {
            assert!(!stored[index].contains('\0'), "{text:?}");
            assert_eq!(decode(&stored[index]).expect("its own"), *text);
            assert!(!stored[..index].contains(&stored[index]), "{text:?}");
        }
        assert!(decode("\u{ffff}").is_err() && decode("\u{ffff}2").is_err());
    }
}
