//! TLS as the push carrier speaks it: public roots, TLS 1.2 and 1.3, HTTP/2 preferred; and the same
//! with what an endpoint brings of its own.

use std::sync::Arc;

use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::endpoint_tls::EndpointTls;

/// The protocol names of ALPN.
pub(super) const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Makes the TLS side of connections.
pub(super) struct Connectors {
    roots: Arc<RootCertStore>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    /// For endpoints without settings of their own.
    plain: TlsConnector,
}

/// The connector of one endpoint, and the roots it was made with.
pub(super) struct Built {
    base: Arc<RootCertStore>,
    connector: TlsConnector,
}

impl Connectors {
    /// Fails only if one of the extra certificates cannot be used as a root, or one of the lists
    /// cannot be read.
    pub(super) fn new(
        extra_roots: Vec<CertificateDer<'static>>,
        revoked: Vec<CertificateRevocationListDer<'static>>,
    ) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        for root in extra_roots {
            roots.add(root)?;
        }
        let roots = Arc::new(roots);
        let plain = connector(Arc::clone(&roots), &revoked, None)?;
        Ok(Self { roots, revoked, plain })
    }

    pub(super) fn for_endpoint(
        &self,
        tls: Option<&EndpointTls>,
    ) -> Result<TlsConnector, rustls::Error> {
        let Some(tls) = tls else { return Ok(self.plain.clone()) };
        if let Some(built) = tls.built.get()
            // Settings that another client used first were built with that client's roots.
            && Arc::ptr_eq(&built.base, &self.roots)
        {
            return Ok(built.connector.clone());
        }
        let connector = self.build(tls)?;
        let base = Arc::clone(&self.roots);
        // Of two requests that dial at once, one has its settings kept.
        let _ = tls.built.set(Built { base, connector: connector.clone() });
        Ok(connector)
    }

    fn build(&self, tls: &EndpointTls) -> Result<TlsConnector, rustls::Error> {
        let mut roots = Arc::clone(&self.roots);
        if !tls.roots().is_empty() {
            let roots = Arc::make_mut(&mut roots);
            for root in tls.roots() {
                roots.add(root.clone())?;
            }
        }
        let resolver = tls.client().map(|client| {
            let single = SingleCertAndKey::from(Arc::clone(client.certified()));
            Arc::new(single) as Arc<dyn ResolvesClientCert>
        });
        connector(roots, &self.revoked, resolver)
    }
}

pub(super) fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

fn connector(
    roots: Arc<RootCertStore>,
    revoked: &[CertificateRevocationListDer<'static>],
    client: Option<Arc<dyn ResolvesClientCert>>,
) -> Result<TlsConnector, rustls::Error> {
    let provider = Arc::new(provider());
    let mut verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
    if !revoked.is_empty() {
        // The lists are an operator's own; they need not cover every authority there is.
        verifier = verifier.with_crls(revoked.to_vec()).allow_unknown_revocation_status();
    }
    let verifier = verifier.build().map_err(|error| rustls::Error::General(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_webpki_verifier(verifier);
    let mut config = match client {
        Some(resolver) => builder.with_client_cert_resolver(resolver),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
