//! What one endpoint needs of TLS beyond the rest: a certificate to show, and authorities of its own
//! to trust. Read from PEM, checked here, so that a connection cannot fail for a bad configuration.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, InconsistentKeys, RootCertStore};

use super::tls::{Built, provider};

/// The largest PEM text taken for one field.
pub const MAX_PEM_BYTES: usize = 64 * 1024;
/// How many certificates a client's chain, or an endpoint's list of authorities, may have.
pub const MAX_CERTIFICATES: usize = 16;

const CLIENT_CERT: &str = "tls.client_cert";
const CLIENT_KEY: &str = "tls.client_key";
const CA: &str = "tls.ca";

/// The TLS settings of one endpoint.
///
/// Connections that were opened with one of these serve no request that comes with another, or with
/// none.
pub struct EndpointTls {
    identity: Identity,
    client: Option<ClientIdentity>,
    roots: Vec<CertificateDer<'static>>,
    /// The settings as rustls wants them, made at the first dial: with them live the tickets that
    /// shorten the next handshake.
    pub(super) built: OnceLock<Built>,
}

/// A certificate chain and the key that belongs to its first certificate.
#[derive(Clone)]
pub struct ClientIdentity {
    certified: Arc<CertifiedKey>,
}

/// Tells the settings of endpoints apart. No two that were read have the same, even if they say
/// the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity(u64);

/// The PEM texts of an endpoint's TLS settings.
#[derive(Clone, Copy, Default)]
pub struct TlsPem<'a> {
    /// The client's certificate first, then those between it and its authority.
    pub client_cert: Option<&'a str>,
    pub client_key: Option<&'a str>,
    /// Authorities trusted beside the public ones.
    pub ca: Option<&'a str>,
}

/// What is wrong with which field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct TlsError {
    pub field: &'static str,
    pub message: String,
}

impl EndpointTls {
    pub fn from_pem(pem: TlsPem<'_>) -> Result<Self, TlsError> {
        let client = match (pem.client_cert, pem.client_key) {
            (Some(cert), Some(key)) => Some(ClientIdentity::from_pem(cert, key)?),
            (Some(_), None) => return Err(wrong(CLIENT_KEY, "is needed beside tls.client_cert")),
            (None, Some(_)) => return Err(wrong(CLIENT_CERT, "is needed beside tls.client_key")),
            (None, None) => None,
        };
        let roots = match pem.ca {
            Some(ca) => authorities(ca)?,
            None => Vec::new(),
        };
        if client.is_none() && roots.is_empty() {
            let message = "says nothing: give client_cert and client_key, or ca, or both";
            return Err(wrong("tls", message));
        }
        Ok(Self { identity: Identity::new(), client, roots, built: OnceLock::new() })
    }

    pub fn client(&self) -> Option<&ClientIdentity> {
        self.client.as_ref()
    }

    pub fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }
}

impl Identity {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl ClientIdentity {
    pub fn from_pem(cert: &str, key: &str) -> Result<Self, TlsError> {
        let chain = certificates(CLIENT_CERT, cert)?;
        let key = private_key(key)?;
        let certified =
            CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
                rustls::Error::InconsistentKeys(
                    InconsistentKeys::KeyMismatch | InconsistentKeys::Unknown,
                ) => {
                    wrong(CLIENT_KEY, "does not belong to the first certificate of tls.client_cert")
                }
                rustls::Error::InvalidCertificate(error) => unreadable(CLIENT_CERT, &error),
                _ => wrong(
                    CLIENT_KEY,
                    "cannot be used: it must be an RSA, ECDSA (P-256, P-384) or Ed25519 key",
                ),
            })?;
        Ok(Self { certified: Arc::new(certified) })
    }

    pub(super) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

fn authorities(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let roots = certificates(CA, pem)?;
    let mut store = RootCertStore::empty();
    for root in &roots {
        store.add(root.clone()).map_err(|error| match error {
            rustls::Error::InvalidCertificate(error) => unreadable(CA, &error),
            other => wrong(CA, &format!("cannot be used: {other}")),
        })?;
    }
    Ok(roots)
}

fn certificates(field: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut certificates = Vec::new();
    for (kind, der) in sections(field, pem)? {
        match kind {
            SectionKind::Certificate => certificates.push(CertificateDer::from(der)),
            // It would be shown wherever the certificates are.
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                return Err(wrong(field, "holds a private key; it belongs into tls.client_key"));
            }
            _ => {}
        }
    }
    match certificates.len() {
        0 => Err(wrong(field, "holds no certificate (-----BEGIN CERTIFICATE-----)")),
        1..=MAX_CERTIFICATES => Ok(certificates),
        _ => Err(wrong(field, &format!("holds more than {MAX_CERTIFICATES} certificates"))),
    }
}

fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    let mut keys = sections(CLIENT_KEY, pem)?
        .into_iter()
        .filter_map(|(kind, der)| PrivateKeyDer::from_pem(kind, der));
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(key),
        (Some(_), Some(_)) => Err(wrong(CLIENT_KEY, "holds more than one private key")),
        (None, _) if pem.contains("BEGIN ENCRYPTED PRIVATE KEY") => {
            Err(wrong(CLIENT_KEY, "is encrypted; give it without a passphrase"))
        }
        (None, _) => Err(wrong(CLIENT_KEY, "holds no private key (-----BEGIN PRIVATE KEY-----)")),
    }
}

fn sections(field: &'static str, pem: &str) -> Result<Vec<(SectionKind, Vec<u8>)>, TlsError> {
    if pem.len() > MAX_PEM_BYTES {
        return Err(wrong(field, &format!("is longer than {MAX_PEM_BYTES} bytes")));
    }
    // The parser's own words may repeat what it read, which may be a key.
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| wrong(field, "is not valid PEM"))
}

fn unreadable(field: &'static str, error: &CertificateError) -> TlsError {
    wrong(field, &format!("holds a certificate that cannot be read: {error}"))
}

fn wrong(field: &'static str, message: &str) -> TlsError {
    TlsError { field, message: message.to_owned() }
}

impl fmt::Debug for EndpointTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointTls")
            .field("identity", &self.identity)
            .field("client", &self.client)
            .field("roots", &self.roots.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity")
            .field("certificates", &self.certified.cert.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsPem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPem").finish_non_exhaustive()
    }
}
