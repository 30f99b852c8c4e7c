//! The stored form of an event's headers: one version byte, then each name and value behind its
//! length. Lengths are 32-bit, little-endian. Values are bytes: not every header is text.

use bytes::Bytes;

use crate::error::Error;
use crate::record::Headers;

const VERSION: u8 = 1;
const LENGTH_BYTES: usize = 4;

pub(crate) fn encode(headers: &Headers) -> Vec<u8> {
    let size: usize =
        headers.iter().map(|(name, value)| name.len() + value.len() + 2 * LENGTH_BYTES).sum();
    let mut out = Vec::with_capacity(1 + size);
    out.push(VERSION);
    for (name, value) in headers {
        put(&mut out, name.as_bytes());
        put(&mut out, value);
    }
    out
}

/// The inverse of [`encode`]; anything else is damage, whatever the bytes say of their lengths.
pub(crate) fn decode(stored: &[u8]) -> Result<Headers, Error> {
    let (version, mut rest) = stored.split_first().ok_or_else(damaged)?;
    if *version != VERSION {
        return Err(damaged());
    }
    let mut headers = Headers::new();
    while !rest.is_empty() {
        let name = std::str::from_utf8(take(&mut rest)?).map_err(|_| damaged())?.to_owned();
        headers.push((name, Bytes::copy_from_slice(take(&mut rest)?)));
    }
    Ok(headers)
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("headers are kept to a few KiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    let (length, after) = rest.split_first_chunk::<LENGTH_BYTES>().ok_or_else(damaged)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| damaged())?;
    let (taken, after) = after.split_at_checked(length).ok_or_else(damaged)?;
    *rest = after;
    Ok(taken)
}

fn damaged() -> Error {
    Error::Damaged("the stored headers of an event cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_order_and_bytes_survive() {
        let headers: Headers = vec![
            ("x-a".to_owned(), Bytes::from_static(b"1")),
            ("x-b".to_owned(), Bytes::from_static(b"\xff\x00 bytes")),
            ("x-a".to_owned(), Bytes::new()),
        ];
        assert_eq!(decode(&encode(&headers)).expect("whole"), headers);
    }

    #[test]
    fn what_is_cut_or_too_long_is_damage() {
        let whole = encode(&vec![("x-a".to_owned(), Bytes::from_static(b"value"))]);
        for length in 0..whole.len() {
            // One byte is the version alone: no headers at all.
            assert_eq!(decode(&whole[..length]).is_ok(), length == 1, "{length}");
        }
        assert!(decode(&[VERSION, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(decode(&[9]).is_err());
    }
}
