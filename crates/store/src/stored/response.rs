//! The stored form of a receiver's answer: one version byte, one byte of flags, the number of
//! headers, each name and value behind its length, then the body to the end. Lengths are 32-bit,
//! little-endian.

use bytes::Bytes;

use crate::error::Error;
use crate::record::Response;

const VERSION: u8 = 1;
const TRUNCATED: u8 = 1;
const LENGTH_BYTES: usize = 4;

pub(crate) fn encode(response: &Response) -> Vec<u8> {
    let headers: usize = response
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len() + 2 * LENGTH_BYTES)
        .sum();
    let mut out = Vec::with_capacity(2 + LENGTH_BYTES + headers + response.body.len());
    out.push(VERSION);
    out.push(if response.truncated { TRUNCATED } else { 0 });
    put_length(&mut out, response.headers.len());
    for (name, value) in &response.headers {
        for text in [name, value] {
            put_length(&mut out, text.len());
            out.extend_from_slice(text.as_bytes());
        }
    }
    out.extend_from_slice(&response.body);
    out
}

/// The inverse of [`encode`]; anything else is damage, whatever the bytes say of their lengths.
pub(crate) fn decode(mut stored: &[u8]) -> Result<Response, Error> {
    let [version, flags] = take(&mut stored, 2)? else { return Err(damaged()) };
    if *version != VERSION || *flags > TRUNCATED {
        return Err(damaged());
    }
    let count = take_length(&mut stored)?;
    // Each header takes at least its two lengths: a count beyond that cannot be true.
    if count > stored.len() / (2 * LENGTH_BYTES) {
        return Err(damaged());
    }
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        headers.push((take_text(&mut stored)?, take_text(&mut stored)?));
    }
    Ok(Response { headers, body: Bytes::copy_from_slice(stored), truncated: *flags == TRUNCATED })
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("an answer is kept to a few KiB");
    out.extend_from_slice(&length.to_le_bytes());
}

fn take<'a>(stored: &mut &'a [u8], count: usize) -> Result<&'a [u8], Error> {
    let (taken, rest) = stored.split_at_checked(count).ok_or_else(damaged)?;
    *stored = rest;
    Ok(taken)
}

fn take_length(stored: &mut &[u8]) -> Result<usize, Error> {
    let bytes = take(stored, LENGTH_BYTES)?.try_into().map_err(|_| damaged())?;
    usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| damaged())
}

fn take_text(stored: &mut &[u8]) -> Result<String, Error> {
    let length = take_length(stored)?;
    let bytes = take(stored, length)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| damaged())
}

fn damaged() -> Error {
    Error::Damaged("a stored response cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Response {
        Response {
            headers: vec![
                ("content-type".to_owned(), "text/plain".to_owned()),
                ("x-empty".to_owned(), String::new()),
                ("x-ünïcode".to_owned(), "wärde".to_owned()),
            ],
            body: Bytes::from_static(b"no \xff\x00 thanks"),
            truncated: true,
        }
    }

    #[test]
    fn a_response_survives_its_stored_form() {
        for response in [sample(), Response::default()] {
            assert_eq!(decode(&encode(&response)).expect("what was encoded"), response);
        }
    }

    #[test]
    fn cut_or_altered_bytes_are_damage_or_another_response_never_a_panic() {
        let whole = encode(&sample());
        let headers_end = whole.len() - sample().body.len();
        for end in 0..headers_end {
            assert!(matches!(decode(&whole[..end]), Err(Error::Damaged(_))), "cut at {end}");
        }
        for index in 0..whole.len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut altered = whole.clone();
                altered[index] = value;
                let _ = decode(&altered).map(|response| encode(&response));
            }
        }
    }
}
