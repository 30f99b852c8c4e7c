//! Certificates for receivers, good and bad.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

pub(crate) struct Authority {
    pub(crate) root: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// What a receiver shows of itself.
pub(crate) struct Leaf {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Validity {
    Current,
    Expired,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let root = params.self_signed(&key).expect("a root").der().clone();
        Self { root, issuer: Issuer::new(params, key) }
    }

    /// A certificate that was taken back, and the list that says so.
    pub(crate) fn issue_and_revoke(
        &self,
        address: &str,
    ) -> (Leaf, CertificateRevocationListDer<'static>) {
        let serial_number = SerialNumber::from(4_711_u64);
        let mut params = params(address);
        params.serial_number = Some(serial_number.clone());
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let revoked = RevokedCertParams {
            serial_number,
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("a list");
        (Leaf { chain: vec![certificate.der().clone()], key }, list.der().clone())
    }

    pub(crate) fn issue(&self, address: &str, validity: Validity) -> Leaf {
        let mut params = params(address);
        match validity {
            Validity::Current => {}
            Validity::Expired => params.not_after = date_time_ymd(2001, 1, 1),
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Leaf { chain: vec![certificate.der().clone()], key }
    }
}

fn params(address: &str) -> CertificateParams {
    CertificateParams::new([address.to_owned()]).expect("an address")
}

impl Leaf {
    /// Vouched for by nobody else.
    pub(crate) fn self_signed(address: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let certificate = params(address).self_signed(&key).expect("a certificate");
        Self { chain: vec![certificate.der().clone()], key }
    }

    pub(crate) fn acceptor(&self, protocols: &[&[u8]]) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("usable versions")
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), key.into())
            .expect("a key and its certificate");
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}
