//! Secrets at rest: sealed with a key that the database does not hold.
//!
//! A sealed value is a version byte, the id of its key, a nonce, and what XChaCha20-Poly1305 makes
//! of the secret. Where keys come from is the caller's: a store has no randomness.

mod nonce;

use std::fmt;

use base64::Engine as _;
use base64::alphabet::{self, Alphabet};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::error::Error;

pub const KEY_BYTES: usize = 32;

/// Long enough that nonces from a hash, or drawn at random, never meet.
pub const NONCE_BYTES: usize = 24;

/// How many keys a keyring holds. Two are enough to re-key.
pub const MAX_KEYS: usize = 16;

const KEY_ID_BYTES: usize = 8;
const TAG_BYTES: usize = 16;

/// Keeps the hash that names a key apart from every other use of a hash of it.
const KEY_ID_DOMAIN: &[u8] = b"postrider sealing key id 1\0";

const VERSION: u8 = 1;

/// Bytes that no text begins with, so that text that was never sealed is told from a sealed value
/// of a later version.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=8;

/// A key that seals and opens. Wiped from memory when it is dropped.
pub struct SealingKey {
    bytes: Zeroizing<[u8; KEY_BYTES]>,
    id: SealingKeyId,
}

/// Names a key without giving it away; shown as hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SealingKeyId([u8; KEY_ID_BYTES]);

/// Why a key, or a set of keys, is refused. No message repeats any part of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "the key has {characters} characters and is not {KEY_BYTES} bytes as base64 (44 \
         characters) or hex (64): `openssl rand -base64 {KEY_BYTES}` makes one"
    )]
    Malformed { characters: usize },
    #[error("there is no key: `openssl rand -base64 {KEY_BYTES}` makes one")]
    NoKey,
    #[error("there are more than {MAX_KEYS} keys; leave out those that seal nothing any more")]
    TooMany,
    #[error("the key {0} is there twice")]
    Twice(SealingKeyId),
}

/// Why a value does not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(
        "sealed with the key {wanted}, which was not given: add it, after the newest key, to the \
         file named by --secret-key-file or to POSTRIDER_SECRET_KEY"
    )]
    UnknownKey { wanted: SealingKeyId },
    #[error(
        "the sealed value is damaged or was moved from another row: restore it from a backup, or \
         set the secret anew"
    )]
    Damaged,
    #[error("not a sealed value")]
    NotSealed,
    #[error(
        "sealed in the form {0}, which this postrider does not know: use the version that wrote \
         it or a later one"
    )]
    UnknownVersion(u8),
}

impl SealingKey {
    /// The bytes must come from a cryptographic source.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self::new(Zeroizing::new(bytes))
    }

    /// Takes base64, standard or URL-safe, with or without padding, or hex.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let bytes = match text.len() {
            0 => return Err(KeyError::NoKey),
            64 => decode_hex(text),
            43 | 44 => decode_base64(text),
            _ => None,
        };
        let malformed = || KeyError::Malformed { characters: text.chars().count() };
        bytes.map(Self::new).ok_or_else(malformed)
    }

    pub fn id(&self) -> SealingKeyId {
        self.id
    }

    /// The key itself, as [`parse`](Self::parse) takes it: to be written to a file and nowhere
    /// else.
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.bytes.as_slice()))
    }

    fn new(bytes: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        let digest =
            Sha256::new().chain_update(KEY_ID_DOMAIN).chain_update(bytes.as_slice()).finalize();
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&digest[..KEY_ID_BYTES]);
        Self { bytes, id: SealingKeyId(id) }
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.bytes).into())
    }

    fn encrypt(&self, nonce: &[u8; NONCE_BYTES], associated: &[u8], plain: &[u8]) -> Vec<u8> {
        self.cipher()
            .encrypt(nonce.into(), Payload { msg: plain, aad: associated })
            .expect("a secret is shorter than the 256 GiB that one nonce is good for")
    }

    /// `None` if any of the three is not what was encrypted.
    fn decrypt(
        &self,
        nonce: &[u8; NONCE_BYTES],
        associated: &[u8],
        body: &[u8],
    ) -> Option<Vec<u8>> {
        self.cipher().decrypt(nonce.into(), Payload { msg: body, aad: associated }).ok()
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.id)
    }
}

impl fmt::Display for SealingKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SealingKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The keys in use: the newest seals, all of them open.
#[derive(Debug)]
pub struct Keyring {
    newest: SealingKey,
    older: Vec<SealingKey>,
}

impl Keyring {
    pub fn new(newest_first: Vec<SealingKey>) -> Result<Self, KeyError> {
        if newest_first.len() > MAX_KEYS {
            return Err(KeyError::TooMany);
        }
        for (index, key) in newest_first.iter().enumerate() {
            if newest_first[..index].iter().any(|earlier| earlier.id == key.id) {
                return Err(KeyError::Twice(key.id));
            }
        }
        let mut keys = newest_first.into_iter();
        let newest = keys.next().ok_or(KeyError::NoKey)?;
        Ok(Self { newest, older: keys.collect() })
    }

    pub fn newest_id(&self) -> SealingKeyId {
        self.newest.id
    }

    /// Seals with the newest key. `nonce` must never come with another `plain` or `context`.
    /// `context` names the place of the value, as in `endpoint:1`: in any other it does not open.
    pub fn seal(&self, nonce: [u8; NONCE_BYTES], context: &[u8], plain: &[u8]) -> Vec<u8> {
        let id = self.newest.id;
        let body = self.newest.encrypt(&nonce, &associated(id, context), plain);
        [&[VERSION][..], &id.0, &nonce, &body].concat()
    }

    /// Opens what any of the keys has sealed for the same `context`.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let Sealed { id, nonce, body } = Sealed::read(sealed)?;
        let mut keys = std::iter::once(&self.newest).chain(&self.older);
        let key = keys.find(|key| key.id == id).ok_or(OpenError::UnknownKey { wanted: id })?;
        key.decrypt(nonce, &associated(id, context), body).ok_or(OpenError::Damaged)
    }
}

/// Which key sealed a value, as far as the value tells.
pub fn key_id_of(sealed: &[u8]) -> Result<SealingKeyId, OpenError> {
    Sealed::read(sealed).map(|sealed| sealed.id)
}

impl OpenError {
    /// The store's failure that this is, where `what` says which value did not open.
    pub fn of(&self, what: impl fmt::Display) -> Error {
        let text = format!("{what}: {self}");
        match self {
            Self::UnknownKey { .. } | Self::UnknownVersion(_) => Error::Refused(text),
            Self::Damaged | Self::NotSealed => Error::Damaged(text),
        }
    }
}

/// The parts of a sealed value. Nothing is known yet of whether it opens.
struct Sealed<'a> {
    id: SealingKeyId,
    nonce: &'a [u8; NONCE_BYTES],
    body: &'a [u8],
}

impl<'a> Sealed<'a> {
    fn read(sealed: &'a [u8]) -> Result<Self, OpenError> {
        let (&version, rest) = sealed.split_first().ok_or(OpenError::NotSealed)?;
        if !VERSIONS.contains(&version) {
            return Err(OpenError::NotSealed);
        }
        if version != VERSION {
            return Err(OpenError::UnknownVersion(version));
        }
        let (id, rest) = rest.split_first_chunk().ok_or(OpenError::Damaged)?;
        let (nonce, body) = rest.split_first_chunk().ok_or(OpenError::Damaged)?;
        if body.len() < TAG_BYTES {
            return Err(OpenError::Damaged);
        }
        Ok(Self { id: SealingKeyId(*id), nonce, body })
    }
}

/// What is authenticated beside the secret. What comes before the context has a fixed length, so
/// no two contexts make the same bytes.
fn associated(id: SealingKeyId, context: &[u8]) -> Vec<u8> {
    [&[VERSION][..], &id.0, context].concat()
}

fn decode_hex(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let mut digits = text.chars().map(|digit| digit.to_digit(16));
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    for byte in bytes.iter_mut() {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(bytes)
}

fn decode_base64(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    /// Other tools hand out keys with and without padding, and both mean the same bytes.
    const fn lenient(alphabet: &Alphabet) -> GeneralPurpose {
        let config = GeneralPurposeConfig::new();
        let config = config.with_decode_padding_mode(DecodePaddingMode::Indifferent);
        GeneralPurpose::new(alphabet, config)
    }
    const ENGINES: [GeneralPurpose; 2] =
        [lenient(&alphabet::STANDARD), lenient(&alphabet::URL_SAFE)];
    let decoded = ENGINES.iter().find_map(|engine| engine.decode(text).ok()).map(Zeroizing::new)?;
    decoded.as_slice().try_into().ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests;
