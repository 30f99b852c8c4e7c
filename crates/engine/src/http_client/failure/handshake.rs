//! What went wrong in TLS, in words for an operator.

use std::io;

use rustls::{CertificateError, Error, PeerIncompatible};

/// How rustls begins what a peer said before it hung up.
const ALERT: &str = "received fatal alert: ";

const TOO_OLD: &str = "it speaks no version of TLS from 1.2 up";
const NOT_TLS: &str = "what it speaks is not TLS";

/// Why TLS failed, if that is what ended a connection.
pub(super) fn explain(error: &io::Error) -> Option<String> {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        return Some(explain_error(error));
    }
    // HTTP/2 hands on the words of an error, not the error.
    let text = error.to_string();
    text.strip_prefix(ALERT).map(explain_alert)
}

fn explain_error(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => explain_certificate(error),
        Error::AlertReceived(alert) => explain_alert(&format!("{alert:?}")),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => TOO_OLD.to_owned(),
        Error::InvalidMessage(_) => NOT_TLS.to_owned(),
        other => other.to_string(),
    }
}

fn explain_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "its certificate comes from no authority that is trusted here; if that is meant, give \
             the authority's certificate as tls.ca"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name".to_owned()
        }
        CertificateError::BadSignature => {
            "its certificate was not signed by the authority it names".to_owned()
        }
        CertificateError::Revoked => "its certificate is revoked".to_owned(),
        other => format!("its certificate is not acceptable: {other}"),
    }
}

/// The names of alerts are those of RFC 8446, as rustls writes them.
fn explain_alert(alert: &str) -> String {
    match alert {
        "CertificateRequired" => {
            "it asks for a client certificate; give one as tls.client_cert and tls.client_key"
                .to_owned()
        }
        "BadCertificate"
        | "UnsupportedCertificate"
        | "CertificateRevoked"
        | "CertificateExpired"
        | "CertificateUnknown"
        | "UnknownCA"
        | "AccessDenied" => {
            format!("it does not accept the client certificate, or asks for one ({alert})")
        }
        "HandshakeFailure" => {
            "it found no cipher suite in common, or asks for a client certificate \
             (HandshakeFailure)"
                .to_owned()
        }
        "ProtocolVersion" => TOO_OLD.to_owned(),
        other => format!("it hung up ({other})"),
    }
}
