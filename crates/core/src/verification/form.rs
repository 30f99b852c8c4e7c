//! Splitting of `application/x-www-form-urlencoded` text, in queries and in bodies.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// How many fields are looked at. Twilio's largest requests have fewer than a hundred.
const MAX_FIELDS: usize = 1_000;

pub(super) type Field<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The fields in the order they came, decoded to bytes; `None` if there are too many.
pub(super) fn parse(text: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    for field in text.split(|byte| *byte == b'&').filter(|field| !field.is_empty()) {
        if fields.len() == MAX_FIELDS {
            return None;
        }
        let (name, value) = match field.iter().position(|byte| *byte == b'=') {
            Some(equals) => (&field[..equals], &field[equals + 1..]),
            None => (field, &field[field.len()..]),
        };
        fields.push((decode(name), decode(value)));
    }
    Some(fields)
}

fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if text.contains(&b'+') {
        let spaced: Vec<u8> =
            text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        Cow::Owned(percent_decode(&spaced).collect())
    } else {
        percent_decode(text).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &[u8], wanted: &[(&[u8], &[u8])]) {
        let fields = parse(text).expect("few fields");
        let fields: Vec<(&[u8], &[u8])> =
            fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(fields, wanted);
    }

    #[test]
    fn fields_are_split_and_decoded_to_bytes() {
        check(b"", &[]);
        check(b"&&", &[]);
        check(b"a=1&b=2&a=3", &[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]);
        check(b"a&b=&=c&d==e=", &[(b"a", b""), (b"b", b""), (b"", b"c"), (b"d", b"=e=")]);
        check(b"a+b=%2B+%26&%61=%C3%BC", &[(b"a b", b"+ &"), (b"a", "ü".as_bytes())]);
        check(
            b"a=%FF&b=%&c=%zz&d=\xff",
            &[(b"a", b"\xff"), (b"b", b"%"), (b"c", b"%zz"), (b"d", b"\xff")],
        );
    }

    #[test]
    fn too_many_fields_are_refused() {
        assert!(parse("a&".repeat(MAX_FIELDS).as_bytes()).is_some());
        assert!(parse("a&".repeat(MAX_FIELDS + 1).as_bytes()).is_none());
    }
}
