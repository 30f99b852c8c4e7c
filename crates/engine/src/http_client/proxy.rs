//! The egress proxy: a connection to a vetted address through an HTTP proxy, by CONNECT.
//!
//! Plain http destinations go through a tunnel too, so that there is one way and the proxy can
//! change nothing. The name is resolved and judged here; the proxy is told the address.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::net::TcpStream;
use url::Url;

use super::connection::http1_builder;
use super::failure::Failure;
use crate::destination::{Guard, Host};

/// An HTTP proxy that every push goes through.
#[derive(Clone, PartialEq, Eq)]
pub struct EgressProxy {
    host: Host,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<HeaderValue>,
}

/// Why a text names no proxy. It repeats nothing of the text, which may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadProxy {
    #[error("the egress proxy must be written as http://[user:password@]host:port")]
    Form,
    #[error("the egress proxy must be reached over http://")]
    Scheme,
    #[error("the egress proxy must be written without a path, a query and a fragment")]
    Path,
}

/// An address that was not reached.
pub(super) enum Unreached {
    /// Another address of the name may do.
    Here(Failure),
    /// No other address will do better.
    Anywhere(Failure),
}

impl FromStr for EgressProxy {
    type Err = BadProxy;

    fn from_str(text: &str) -> Result<Self, BadProxy> {
        let url = Url::parse(text).map_err(|_| BadProxy::Form)?;
        if url.scheme() != "http" {
            return Err(BadProxy::Scheme);
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(BadProxy::Path);
        }
        let host = match url.host() {
            Some(url::Host::Ipv4(address)) => Host::Address(address.into()),
            Some(url::Host::Ipv6(address)) => Host::Address(address.into()),
            Some(url::Host::Domain(name)) => Host::Name(name.into()),
            None => return Err(BadProxy::Form),
        };
        let Some(port @ 1..) = url.port_or_known_default() else { return Err(BadProxy::Form) };
        Ok(Self { host, port, authorization: authorization(&url)? })
    }
}

impl EgressProxy {
    /// Opens a tunnel to an address.
    pub(super) async fn tunnel(
        &self,
        guard: &Guard,
        to: SocketAddr,
    ) -> Result<TcpStream, Unreached> {
        let tcp = self.connect(guard).await.map_err(Unreached::Anywhere)?;
        let lost = |error: &hyper::Error| {
            let reason = format!("the exchange with it failed: {error}");
            Unreached::Anywhere(Failure::proxy(self, to, &reason))
        };
        let opened = http1_builder().handshake(TokioIo::new(tcp)).await;
        let (mut sender, mut wire) = opened.map_err(|error| lost(&error))?;
        let mut answer = pin!(sender.send_request(self.request(to)?));
        let mut wire_ended = false;
        let response = poll_fn(|cx| {
            if !wire_ended {
                // Its error comes to whoever waits for the answer.
                wire_ended = wire.poll_without_shutdown(cx).is_ready();
            }
            answer.as_mut().poll(cx)
        })
        .await
        .map_err(|error| lost(&error))?;
        self.check(response.status(), to)?;
        let parts = wire.into_parts();
        if parts.read_buf.is_empty() {
            Ok(parts.io.into_inner())
        } else {
            // Nobody has spoken to the receiver yet, so these bytes are not its answer.
            let reason = "it sent bytes before the tunnel was used";
            Err(Unreached::Anywhere(Failure::proxy(self, to, reason)))
        }
    }

    /// The proxy is the operator's choice, so its address is not judged.
    async fn connect(&self, guard: &Guard) -> Result<TcpStream, Failure> {
        let resolved = guard.resolve_trusted(&self.host, self.port).await;
        let addresses = resolved.map_err(|error| Failure::no_proxy(self, &error))?;
        // It tries the addresses in turn, within the time that the caller gives.
        let tcp = TcpStream::connect(&*addresses).await;
        let tcp = tcp.map_err(|error| Failure::no_proxy(self, &error))?;
        tcp.set_nodelay(true).map_err(|error| Failure::no_proxy(self, &error))?;
        Ok(tcp)
    }

    fn request(&self, to: SocketAddr) -> Result<Request<Empty<Bytes>>, Unreached> {
        let target = to.to_string();
        let written = (Uri::try_from(&*target), HeaderValue::try_from(&*target));
        let (Ok(uri), Ok(host)) = written else {
            let reason = "it cannot be asked for that address";
            return Err(Unreached::Anywhere(Failure::proxy(self, to, reason)));
        };
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = uri;
        request.headers_mut().insert(header::HOST, host);
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization.clone());
        }
        Ok(request)
    }

    fn check(&self, status: StatusCode, to: SocketAddr) -> Result<(), Unreached> {
        let refused = |reason: &str| Failure::proxy(self, to, reason);
        match status {
            StatusCode::OK => Ok(()),
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                let reason = match &self.authorization {
                    None => "it asks for a user name and password (407)",
                    Some(_) => "it does not accept the user name and password (407)",
                };
                Err(Unreached::Anywhere(refused(reason)))
            }
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                Err(Unreached::Here(refused(&format!("it answered {status}"))))
            }
            _ => Err(Unreached::Anywhere(refused(&format!("it answered {status}")))),
        }
    }
}

fn authorization(url: &Url) -> Result<Option<HeaderValue>, BadProxy> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let mut credentials: Vec<u8> = percent_decode_str(url.username()).collect();
    // A colon ends the user name in what is sent.
    if credentials.contains(&b':') {
        return Err(BadProxy::Form);
    }
    credentials.push(b':');
    credentials.extend(percent_decode_str(url.password().unwrap_or_default()));
    let text = format!("Basic {}", BASE64_STANDARD.encode(credentials));
    let mut value = HeaderValue::try_from(text).map_err(|_| BadProxy::Form)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Without the credentials.
impl fmt::Display for EgressProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl fmt::Debug for EgressProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EgressProxy({self})")
    }
}
