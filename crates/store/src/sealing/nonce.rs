//! A nonce for every value, made of the value itself: a store has no randomness to draw from.
//!
//! It is a keyed hash of the place and the secret, under a key of its own. Two values share a nonce
//! only if they are the same secret in the same place, and then they are the same sealed value,
//! which tells nobody anything that an unchanged row would not.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{Keyring, NONCE_BYTES, SealingKey};

/// Keeps the key of the hash apart from the key that seals.
const NONCE_DOMAIN: &[u8] = b"postrider sealing nonce 1\0";

impl Keyring {
    /// Seals with the newest key; see [`Keyring::seal`].
    pub fn seal_in(&self, context: &[u8], plain: &[u8]) -> Vec<u8> {
        self.seal(self.newest.nonce(context, plain), context, plain)
    }
}

impl SealingKey {
    fn nonce(&self, context: &[u8], plain: &[u8]) -> [u8; NONCE_BYTES] {
        let own_key = keyed(&*self.bytes, &[NONCE_DOMAIN]);
        // The length keeps the end of the context apart from the beginning of the secret.
        let length = (context.len() as u64).to_le_bytes();
        let hash = keyed(&own_key, &[&length, context, plain]);
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&hash[..NONCE_BYTES]);
        nonce
    }
}

fn keyed(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring(byte: u8) -> Keyring {
        Keyring::new(vec![SealingKey::from_bytes([byte; 32])]).expect("one key")
    }

    #[test]
    fn a_nonce_differs_with_the_key_the_place_and_the_secret() {
        let sealed = keyring(1).seal_in(b"a:1", b"secret");
        assert_eq!(keyring(1).seal_in(b"a:1", b"secret"), sealed);
        assert_eq!(keyring(1).open(b"a:1", &sealed).expect("opens"), b"secret");
        let nonces: Vec<_> = [
            (1, &b"a:1"[..], &b"secret"[..]),
            (2, b"a:1", b"secret"),
            (1, b"a:2", b"secret"),
            (1, b"a:1", b"secres"),
            (1, b"a:1s", b"ecret"),
        ]
        .iter()
        .map(|(key, context, plain)| SealingKey::from_bytes([*key; 32]).nonce(context, plain))
        .collect();
        for (index, nonce) in nonces.iter().enumerate() {
            assert!(!nonces[..index].contains(nonce), "{index}");
        }
    }
}
