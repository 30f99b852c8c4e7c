//! Certificates for tests, made from a fresh key each time: just enough DER for a root and a leaf.

use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;
use std::sync::Arc;

/// What precedes the 32 secret bytes of an Ed25519 key in PKCS #8 (RFC 8410).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const ED25519: [u8; 7] = [0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
const COMMON_NAME: [u8; 5] = [6, 3, 0x55, 4, 3];
const BASIC_CONSTRAINTS: [u8; 5] = [6, 3, 0x55, 0x1d, 0x13];
const ALTERNATIVE_NAME: [u8; 5] = [6, 3, 0x55, 0x1d, 0x11];
const TRUE: [u8; 3] = [1, 1, 0xff];

pub(super) struct Authority {
    pub(super) root: CertificateDer<'static>,
    key: Arc<dyn SigningKey>,
}

pub(super) struct Leaf {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let (_, key) = fresh_key();
        let constraints = der(0x30, &[&TRUE]);
        let extension = der(0x30, &[&BASIC_CONSTRAINTS, &TRUE, &der(4, &[&constraints])]);
        Self { root: certify("root", &*key, &extension, &*key), key }
    }

    /// A certificate for an IPv4 address.
    pub(super) fn issue(&self, address: [u8; 4]) -> Leaf {
        let (pkcs8, key) = fresh_key();
        let names = der(0x30, &[&der(0x87, &[&address])]);
        let extension = der(0x30, &[&ALTERNATIVE_NAME, &der(4, &[&names])]);
        Leaf { certificate: certify("leaf", &*key, &extension, &*self.key), key: pkcs8.into() }
    }
}

fn fresh_key() -> (PrivatePkcs8KeyDer<'static>, Arc<dyn SigningKey>) {
    let mut pkcs8 = PKCS8_PREFIX.to_vec();
    pkcs8.extend([0; 32]);
    getrandom::fill(&mut pkcs8[PKCS8_PREFIX.len()..]).unwrap();
    let pkcs8 = PrivatePkcs8KeyDer::from(pkcs8);
    let key = any_eddsa_type(&pkcs8).unwrap();
    (pkcs8, key)
}

fn certify(
    subject: &str,
    subject_key: &dyn SigningKey,
    extension: &[u8],
    issuer_key: &dyn SigningKey,
) -> CertificateDer<'static> {
    let name = |text: &str| {
        let attribute = der(0x30, &[&COMMON_NAME, &der(0x0c, &[text.as_bytes()])]);
        der(0x30, &[&der(0x31, &[&attribute])])
    };
    let validity = der(0x30, &[&der(0x17, &[b"200101000000Z"]), &der(0x18, &[b"21000101000000Z"])]);
    let content = der(
        0x30,
        &[
            &der(0xa0, &[&[2, 1, 2]]),
            &[2, 1, 1],
            &ED25519,
            &name("root"),
            &validity,
            &name(subject),
            &subject_key.public_key().unwrap(),
            &der(0xa3, &[&der(0x30, &[extension])]),
        ],
    );
    let signer = issuer_key.choose_scheme(&[SignatureScheme::ED25519]).unwrap();
    let signature = signer.sign(&content).unwrap();
    der(0x30, &[&content, &ED25519, &der(3, &[&[0], &signature])]).into()
}

/// One DER element: tag, length, the parts one after the other.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut element = vec![tag];
    match content.len() {
        length @ 0..0x80 => element.push(u8::try_from(length).unwrap()),
        length @ 0x80..0x100 => element.extend([0x81, u8::try_from(length).unwrap()]),
        length => {
            element.push(0x82);
            element.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    element.extend(content);
    element
}
