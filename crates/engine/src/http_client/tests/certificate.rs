//! Certificates for tests, made from a fresh key each time: just enough DER for a root and a leaf.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What precedes the 32 secret bytes of an Ed25519 key in PKCS #8 (RFC 8410).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const ED25519: [u8; 7] = [0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
const COMMON_NAME: [u8; 5] = [6, 3, 0x55, 4, 3];
const BASIC_CONSTRAINTS: [u8; 5] = [6, 3, 0x55, 0x1d, 0x13];
const ALTERNATIVE_NAME: [u8; 5] = [6, 3, 0x55, 0x1d, 0x11];
const TRUE: [u8; 3] = [1, 1, 0xff];

/// From and until when a certificate is valid, as `GeneralizedTime`.
pub(super) type Validity = [&'static str; 2];
pub(super) const VALID: Validity = ["20200101000000Z", "21000101000000Z"];
pub(super) const EXPIRED: Validity = ["20200101000000Z", "20210101000000Z"];
pub(super) const NOT_YET_VALID: Validity = ["20990101000000Z", "21000101000000Z"];

pub(super) struct Authority {
    pub(super) root: CertificateDer<'static>,
    /// No two have the same, so that neither is taken for the other's issuer.
    name: String,
    key: Arc<dyn SigningKey>,
}

pub(super) struct Leaf {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (_, key) = fresh_key();
        let constraints = der(0x30, &[&TRUE]);
        let extension = der(0x30, &[&BASIC_CONSTRAINTS, &TRUE, &der(4, &[&constraints])]);
        let name = format!("root {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { root: certify(&name, &*key, VALID, &extension, (&name, &*key)), name, key }
    }

    /// A certificate for an IPv4 address.
    pub(super) fn issue(&self, address: [u8; 4]) -> Leaf {
        self.issue_for(address, VALID)
    }

    pub(super) fn issue_for(&self, address: [u8; 4], validity: Validity) -> Leaf {
        let (pkcs8, key) = fresh_key();
        let name = der(0x87, &[&address]);
        let certificate =
            certify("leaf", &*key, validity, &alternative_name(&name), (&self.name, &*self.key));
        Leaf { certificate, key: pkcs8.into() }
    }

    /// A certificate for a host name.
    pub(super) fn issue_named(&self, host: &str) -> Leaf {
        let (pkcs8, key) = fresh_key();
        let name = der(0x82, &[host.as_bytes()]);
        let certificate =
            certify("leaf", &*key, VALID, &alternative_name(&name), (&self.name, &*self.key));
        Leaf { certificate, key: pkcs8.into() }
    }
}

impl Leaf {
    /// A certificate for an IPv4 address that nobody but itself vouches for.
    pub(super) fn self_signed(address: [u8; 4]) -> Self {
        let (pkcs8, key) = fresh_key();
        let extension = alternative_name(&der(0x87, &[&address]));
        let certificate = certify("leaf", &*key, VALID, &extension, ("leaf", &*key));
        Self { certificate, key: pkcs8.into() }
    }

    pub(super) fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.secret_der())
    }

    pub(super) fn certificate_pem(&self) -> String {
        certificate_pem(&self.certificate)
    }
}

pub(super) fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    pem("CERTIFICATE", certificate)
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

fn alternative_name(name: &[u8]) -> Vec<u8> {
    let names = der(0x30, &[name]);
    der(0x30, &[&ALTERNATIVE_NAME, &der(4, &[&names])])
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
    validity: Validity,
    extension: &[u8],
    (issuer, issuer_key): (&str, &dyn SigningKey),
) -> CertificateDer<'static> {
    let name = |text: &str| {
        let attribute = der(0x30, &[&COMMON_NAME, &der(0x0c, &[text.as_bytes()])]);
        der(0x30, &[&der(0x31, &[&attribute])])
    };
    let validity = validity.map(|time| der(0x18, &[time.as_bytes()])).concat();
    let content = der(
        0x30,
        &[
            &der(0xa0, &[&[2, 1, 2]]),
            &[2, 1, 1],
            &ED25519,
            &name(issuer),
            &der(0x30, &[&validity]),
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
