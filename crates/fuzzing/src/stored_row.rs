//! What is read from a database: bytes that the gateway wrote are read as it wrote them, and any
//! others are damage, told as such. The first byte says what the others are taken for.

use postrider_store::Error;
use postrider_store::fuzzing as stored;
use postrider_store::sealing::{Keyring, SealingKey, key_id_of};
use postrider_store::sqlite::fuzzing::{Cell, MAX_COLUMNS, read_rows};

pub fn stored_row(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind {
        b'h' => written_back(bytes, stored::headers(bytes)),
        b'r' => written_back(bytes, stored::response(bytes)),
        b'c' => codes(bytes),
        b'w' => words(bytes),
        b's' => sealed(bytes),
        _ => row(bytes),
    }
}

/// There is one way to write anything, so what can be read is what would be written.
fn written_back(bytes: &[u8], again: Result<Vec<u8>, Error>) {
    match again {
        Ok(written) => assert_eq!(written, bytes, "would not have been written so"),
        Err(error) => is_damage(&error),
    }
}

fn is_damage(error: &Error) {
    assert!(matches!(error, Error::Damaged(_)), "{error:?}");
    assert!(!error.to_string().is_empty());
}

fn codes(bytes: &[u8]) {
    let (numbers, _) = bytes.as_chunks::<{ size_of::<i64>() }>();
    for number in numbers {
        let code = i64::from_be_bytes(*number);
        for decoded in stored::codes(code) {
            match decoded {
                Ok(again) => assert_eq!(again, code),
                Err(error) => is_damage(&error),
            }
        }
        assert_eq!(stored::actor(Some(code)), Some(code), "who did something");
    }
}

fn words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for word in stored::words(text) {
        match word {
            Ok(again) => assert_eq!(again, text),
            Err(error) => is_damage(&error),
        }
    }
    match stored::latency(text) {
        // The zeros at the end of a list need not be there, nor spaces anywhere.
        Ok(again) => assert_eq!(stored::latency(&again).as_ref().ok(), Some(&again)),
        Err(error) => is_damage(&error),
    }
}

/// A sealed value opens in its place and with its key; changed in any byte it does not, and says
/// why without saying what is in it.
fn sealed(bytes: &[u8]) {
    let keyring = keyring(1);
    match keyring.open(b"endpoint:1", bytes) {
        Ok(plain) => {
            assert_eq!(keyring.seal_in(b"endpoint:1", &plain), bytes, "sealed by somebody else");
            assert!(keyring.open(b"endpoint:2", bytes).is_err(), "moved to another row");
            assert!(self::keyring(2).open(b"endpoint:1", bytes).is_err(), "under another key");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = key_id_of(bytes);
    for secrets in [stored::secrets(&keyring, bytes), stored::digest(&keyring, bytes)] {
        if let Err(error) = secrets {
            let said = matches!(error, Error::Damaged(_) | Error::Refused(_));
            assert!(said, "{error:?}");
        }
    }

    let mut whole = keyring.seal_in(b"endpoint:1", bytes);
    assert_eq!(keyring.open(b"endpoint:1", &whole).as_deref(), Ok(bytes));
    let place = bytes.iter().fold(0_usize, |sum, byte| sum + usize::from(*byte)) % whole.len();
    whole[place] ^= 1;
    assert!(keyring.open(b"endpoint:1", &whole).is_err(), "changed in byte {place}");
}

fn keyring(byte: u8) -> Keyring {
    Keyring::new(vec![SealingKey::from_bytes([byte; 32])]).expect("one key")
}

/// Bytes as the cells of a row: each begins with what it is, and texts and blobs with their length.
fn row(mut bytes: &[u8]) {
    let mut cells = Vec::new();
    while cells.len() < MAX_COLUMNS
        && let Some((kind, rest)) = bytes.split_first()
    {
        bytes = rest;
        cells.push(match kind % 8 {
            0 => Cell::Null,
            // Small numbers, which most columns hold.
            1 | 2 => Cell::Integer(i64::from(taken(&mut bytes, 1).first().copied().unwrap_or(0))),
            3 => Cell::Integer(i64::from_be_bytes(padded(taken(&mut bytes, 8)))),
            4 => Cell::Real(f64::from_be_bytes(padded(taken(&mut bytes, 8)))),
            5 | 6 => Cell::Text(counted(&mut bytes)),
            _ => Cell::Blob(counted(&mut bytes)),
        });
    }
    for read in read_rows(&cells) {
        if let Err(error) = read {
            is_damage(&error);
        }
    }
}

fn taken<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    taken
}

fn counted(bytes: &mut &[u8]) -> Vec<u8> {
    let count = taken(bytes, 1).first().copied().unwrap_or(0);
    taken(bytes, count.into()).to_vec()
}

fn padded(bytes: &[u8]) -> [u8; 8] {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}
