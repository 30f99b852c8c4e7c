//! The HMACs that most schemes are made of: keys, encodings, and the comparison.

use base64::Engine as _;
use base64::alphabet::{self, Alphabet};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use subtle::{Choice, ConstantTimeEq as _};

/// The hash inside the HMAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    Sha1,
    #[default]
    Sha256,
    Sha512,
}

impl Algorithm {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// How a signature is written in its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// In either case.
    #[default]
    Hex,
    /// With or without padding.
    Base64,
    /// With or without padding.
    Base64url,
}

impl Encoding {
    pub(super) fn decode(self, text: &str) -> Option<Vec<u8>> {
        const fn lenient(alphabet: &Alphabet) -> GeneralPurpose {
            let config = GeneralPurposeConfig::new();
            GeneralPurpose::new(
                alphabet,
                config.with_decode_padding_mode(DecodePaddingMode::Indifferent),
            )
        }
        const BASE64: GeneralPurpose = lenient(&alphabet::STANDARD);
        const BASE64URL: GeneralPurpose = lenient(&alphabet::URL_SAFE);
        match self {
            Self::Hex => decode_hex(text),
            Self::Base64 => BASE64.decode(text).ok(),
            Self::Base64url => BASE64URL.decode(text).ok(),
        }
    }

    /// Decodes what must be a digest of the given length.
    pub(super) fn digest(self, text: &str, bytes: usize) -> Option<Vec<u8>> {
        self.decode(text).filter(|digest| digest.len() == bytes)
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// The live secrets of a source as keys of one algorithm.
#[derive(Clone)]
pub(super) enum Keys {
    Sha1(Vec<Hmac<Sha1>>),
    Sha256(Vec<Hmac<Sha256>>),
    Sha512(Vec<Hmac<Sha512>>),
}

impl Keys {
    /// Takes the text of each secret as the key.
    pub(super) fn new(algorithm: Algorithm, secrets: &[String]) -> Self {
        match algorithm {
            Algorithm::Sha1 => Self::Sha1(keyed(secrets)),
            Algorithm::Sha256 => Self::Sha256(keyed(secrets)),
            Algorithm::Sha512 => Self::Sha512(keyed(secrets)),
        }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Sha1(_) => Algorithm::Sha1,
            Self::Sha256(_) => Algorithm::Sha256,
            Self::Sha512(_) => Algorithm::Sha512,
        }
    }

    /// Whether one of the signatures is that of the message under one of the keys. Which of them,
    /// and how much of one that is not, does not show in the time it takes.
    pub(super) fn match_any(&self, message: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
        let found = match self {
            Self::Sha1(keys) => match_any(keys, message, signatures),
            Self::Sha256(keys) => match_any(keys, message, signatures),
            Self::Sha512(keys) => match_any(keys, message, signatures),
        };
        found.into()
    }
}

fn keyed<M: KeyInit>(secrets: &[String]) -> Vec<M> {
    secrets
        .iter()
        .map(|secret| M::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length"))
        .collect()
}

fn match_any<M: Mac + Clone>(keys: &[M], message: &[&[u8]], signatures: &[Vec<u8>]) -> Choice {
    let mut found = Choice::from(0);
    for key in keys {
        let mut mac = key.clone();
        for part in message {
            mac.update(part);
        }
        let wanted = mac.finalize().into_bytes();
        for signature in signatures {
            found |= wanted.as_slice().ct_eq(signature);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_read_strictly() {
        use Encoding::{Base64, Base64url, Hex};
        for (encoding, text, wanted) in [
            (Hex, "00fFa5", Some(&b"\x00\xff\xa5"[..])),
            (Hex, "", Some(b"")),
            (Hex, "0", None),
            (Hex, "0g", None),
            (Hex, "+1", None),
            (Hex, " 00", None),
            (Hex, "é0", None),
            (Base64, "+/8=", Some(b"\xfb\xff")),
            (Base64, "+/8", Some(b"\xfb\xff")),
            (Base64, "-_8=", None),
            (Base64, "+/9=", None),
            (Base64, "+/8= ", None),
            (Base64url, "-_8=", Some(b"\xfb\xff")),
            (Base64url, "-_8", Some(b"\xfb\xff")),
            (Base64url, "+/8=", None),
        ] {
            assert_eq!(encoding.decode(text).as_deref(), wanted, "{encoding:?} {text}");
        }
        assert_eq!(Hex.digest("00ff", 2).as_deref(), Some(&b"\x00\xff"[..]));
        assert_eq!(Hex.digest("00ff", 3), None);
    }

    /// RFC 2202 test 2 and RFC 4231 test 2.
    #[test]
    fn each_algorithm_matches_its_published_vector() {
        for (algorithm, hex) in [
            (Algorithm::Sha1, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
            (Algorithm::Sha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                Algorithm::Sha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ] {
            let keys = Keys::new(algorithm, &["other".to_owned(), "Jefe".to_owned()]);
            let digest = Encoding::Hex.digest(hex, algorithm.bytes()).expect(hex);
            let message: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
            let wrong = vec![0; algorithm.bytes()];
            assert!(keys.match_any(&message, &[wrong.clone(), digest.clone()]), "{algorithm:?}");
            assert!(!keys.match_any(&message, &[wrong, digest[1..].to_vec()]), "{algorithm:?}");
            assert!(!keys.match_any(&message, &[]), "{algorithm:?}");
            assert!(!keys.match_any(&message[1..], &[digest]), "{algorithm:?}");
            assert_eq!(keys.algorithm(), algorithm);
        }
    }
}
