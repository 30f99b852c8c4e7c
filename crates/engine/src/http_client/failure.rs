//! Why a request came to no answer, in words for an operator.

mod handshake;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::HEAD_BYTES;
use super::proxy::EgressProxy;
use crate::destination::{Host, ResolveError};

/// A request that came to no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The guard forbids the destination.
    Refused,
    Dns,
    Connect,
    Tls,
    /// The deadline, or the time to connect, was used up.
    Timeout,
    /// The peer answered something that is not HTTP, or not acceptable.
    Protocol,
    /// The peer ended the connection before it answered.
    Closed,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    Resolving,
    Connecting,
    Handshaking,
    Head,
}

impl Failure {
    pub(super) fn deadline(deadline: Duration, stage: Stage) -> Self {
        let doing = match stage {
            Stage::Resolving => "resolving the name",
            Stage::Connecting => "connecting",
            Stage::Handshaking => "in the TLS handshake",
            Stage::Head => "waiting for the response head",
        };
        Self::new(FailureKind::Timeout, format!("no answer within {deadline:?} ({doing})"))
    }

    pub(super) fn resolve(error: &ResolveError) -> Self {
        let kind = match error {
            ResolveError::Refused { .. } => FailureKind::Refused,
            ResolveError::Failed { .. }
            | ResolveError::NoSuchName { .. }
            | ResolveError::NoAddress { .. }
            | ResolveError::TooManyAddresses { .. }
            | ResolveError::TimedOut { .. }
            | ResolveError::Busy { .. } => FailureKind::Dns,
        };
        Self::new(kind, error.to_string())
    }

    pub(super) fn connect(error: &io::Error, peer: SocketAddr) -> Self {
        let message = match error.kind() {
            io::ErrorKind::ConnectionRefused => format!("connection refused by {peer}"),
            _ => format!("no connection to {peer}: {error}"),
        };
        Self::new(FailureKind::Connect, message)
    }

    pub(super) fn connect_timeout(
        waited: Duration,
        peer: SocketAddr,
        proxy: Option<&EgressProxy>,
    ) -> Self {
        let message = match proxy {
            None => format!("no connection to {peer} within {waited:?}"),
            Some(proxy) => {
                format!(
                    "no connection to {peer} through the egress proxy {proxy} within {waited:?}"
                )
            }
        };
        Self::new(FailureKind::Timeout, message)
    }

    /// The egress proxy itself was not reached.
    pub(super) fn no_proxy(proxy: &EgressProxy, reason: &dyn fmt::Display) -> Self {
        let message = format!("no connection to the egress proxy {proxy}: {reason}");
        Self::new(FailureKind::Connect, message)
    }

    /// The egress proxy made no connection.
    pub(super) fn proxy(proxy: &EgressProxy, peer: SocketAddr, reason: &str) -> Self {
        let message = format!("no connection to {peer} through the egress proxy {proxy}: {reason}");
        Self::new(FailureKind::Connect, message)
    }

    pub(super) fn tls(error: &io::Error, host: &Host, peer: SocketAddr) -> Self {
        let reason = handshake::explain(error).unwrap_or_else(|| error.to_string());
        let message = format!("TLS handshake with {host} at {peer} failed: {reason}");
        Self::new(FailureKind::Tls, message)
    }

    pub(super) fn protocol(message: String) -> Self {
        Self::new(FailureKind::Protocol, message)
    }

    pub(super) fn http(error: &hyper::Error, peer: SocketAddr) -> Self {
        if error.is_parse_too_large() {
            let message = format!(
                "the response head of {peer} is larger than {HEAD_BYTES} bytes or has too many headers"
            );
            return Self::protocol(message);
        }
        if error.is_parse() {
            return Self::protocol(format!("the answer of {peer} is not valid HTTP: {error}"));
        }
        if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            let message = format!("{peer} closed the connection before it answered");
            return Self::new(FailureKind::Closed, message);
        }
        let cause = io_cause(error);
        // A peer that wants a client certificate says so only after the handshake, in TLS 1.3.
        if let Some(reason) = cause.and_then(handshake::explain) {
            return Self::new(FailureKind::Tls, format!("TLS with {peer} failed: {reason}"));
        }
        match cause {
            Some(cause) if cause.kind() == io::ErrorKind::ConnectionReset => {
                Self::new(FailureKind::Closed, format!("connection reset by {peer}"))
            }
            Some(cause) => {
                Self::new(FailureKind::Closed, format!("connection to {peer} lost: {cause}"))
            }
            None => Self::protocol(format!("exchange with {peer} failed: {}", chain(error))),
        }
    }

    fn new(kind: FailureKind, message: String) -> Self {
        Self { kind, message }
    }
}

fn causes(error: &hyper::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

fn io_cause(error: &hyper::Error) -> Option<&io::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}
