//! Dials the gateway: TCP, TLS where it is asked for, and the WebSocket handshake.

use std::fmt;
use std::time::Duration;

use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, USER_AGENT};
use http::{HeaderValue, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use postrider_core::hub::{MAX_FROM_GATEWAY_BYTES, PROTOCOL};
use postrider_core::span;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, handshake};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tower_service::Service as _;

use super::pulse::{Pulse, Pulsing};
use super::{AGENT, AgentError, url};
use crate::Error;
use crate::error::{inert, whole_story};

/// Where a gateway has its hub socket, behind whatever its URL begins with.
const PATH: &str = "/v1/hub";
/// What a hub token begins with.
const TOKEN_PREFIX: &str = "prh_";
/// What an API key begins with, which is easily taken for a hub token.
const KEY_PREFIX: &str = "pr_";
/// One address of a name may take this long before the next is tried.
const CONNECT: Duration = Duration::from_secs(5);

pub(super) type Connector = HttpsConnector<HttpConnector>;

/// A connection to the gateway on which nothing has been said yet.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) socket: WebSocketStream<Pulsing<Stream>>,
    pub(super) pulse: Pulse,
}

pub(super) type Stream = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Undialed {
    ForNow(String),
    ForGood(AgentError),
}

/// Opens connections over TCP and TLS. It uses no proxy of the environment.
pub(super) fn connector(extra_roots: Vec<CertificateDer<'static>>) -> Result<Connector, Error> {
    let unusable = |error: rustls::Error| Error::Invalid(format!("TLS cannot be used: {error}"));
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in extra_roots {
        roots.add(certificate).map_err(unusable)?;
    }
    let provider = rustls::crypto::ring::default_provider();
    let tls = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_nodelay(true);
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp))
}

pub(super) struct Dialer {
    connector: Connector,
    /// Where to dial, with `http` or `https`.
    address: Uri,
    /// The same place with `ws` or `wss`.
    socket: Uri,
    /// Marked as sensitive: it is shown by no `Debug`.
    authorization: HeaderValue,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Dialer {
    pub(super) fn new(connector: Connector, gateway: &str, token: &str) -> Result<Self, Error> {
        let (address, socket) = addresses(gateway).map_err(|wrong| {
            Error::Invalid(format!(
                "the gateway's URL {wrong}; write it like https://hooks.example.com"
            ))
        })?;
        let authorization = authorization(token)?;
        Ok(Self { connector, address, socket, authorization })
    }

    /// Connects within `limit`.
    pub(super) async fn dial(&self, limit: Duration) -> Result<Line, Undialed> {
        let late = || {
            let within = span::format(limit);
            Undialed::ForNow(format!("the gateway could not be reached within {within}"))
        };
        tokio::time::timeout(limit, self.connect()).await.map_err(|_| late())?
    }

    async fn connect(&self) -> Result<Line, Undialed> {
        let stream = self.connector.clone().call(self.address.clone()).await.map_err(|error| {
            let story = whole_story(&*error);
            Undialed::ForNow(format!("the gateway cannot be reached: {story}"))
        })?;
        let stream = Pulsing::new(TokioIo::new(stream));
        let pulse = stream.pulse();
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_FROM_GATEWAY_BYTES))
            .max_frame_size(Some(MAX_FROM_GATEWAY_BYTES));
        let request = self.request().map_err(refusal)?;
        let (socket, _) =
            client_async_with_config(request, stream, Some(config)).await.map_err(refusal)?;
        Ok(Line { socket, pulse })
    }

    fn request(&self) -> Result<handshake::client::Request, tungstenite::Error> {
        let mut request = self.socket.clone().into_client_request()?;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        Ok(request)
    }
}

/// The socket of the gateway at this URL, as an HTTP address and as a WebSocket's.
fn addresses(gateway: &str) -> Result<(Uri, Uri), String> {
    let url = url::plain(gateway, &["http", "https", "ws", "wss"])?;
    if url.query().is_some() {
        return Err("must have no query".to_owned());
    }
    let (http, ws) = match url.scheme() {
        "http" | "ws" => ("http", "ws"),
        _ => ("https", "wss"),
    };
    let rest = url.as_str().trim_end_matches('/');
    let rest = &rest[url.scheme().len()..];
    let parse = |scheme: &str| format!("{scheme}{rest}{PATH}").parse();
    let unusable = |_| "is no URL that can be called".to_owned();
    Ok((parse(http).map_err(unusable)?, parse(ws).map_err(unusable)?))
}

fn authorization(token: &str) -> Result<HeaderValue, Error> {
    let invalid = |says: &str| Err(Error::Invalid(says.to_owned()));
    let plain = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.starts_with(KEY_PREFIX) {
        return invalid("this is an API key, and a hub needs a hub token, which begins with prh_");
    }
    if !plain || !token.starts_with(TOKEN_PREFIX) || token == TOKEN_PREFIX {
        return invalid("a hub token begins with prh_ and has neither spaces nor line breaks");
    }
    let Ok(mut value) = HeaderValue::try_from(format!("Bearer {token}")) else {
        return invalid("the hub token cannot be sent");
    };
    value.set_sensitive(true);
    Ok(value)
}

fn refusal(error: tungstenite::Error) -> Undialed {
    match error {
        tungstenite::Error::Http(response) => {
            let detail = detail(&response);
            match response.status().as_u16() {
                401 => Undialed::ForGood(AgentError::TokenRefused { detail }),
                400 | 426 => Undialed::ForGood(AgentError::VersionRefused { detail }),
                status => Undialed::ForNow(format!("the gateway says {status}: {detail}")),
            }
        }
        tungstenite::Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(_)) => {
            let detail = "it answers with a WebSocket of another kind".to_owned();
            Undialed::ForGood(AgentError::VersionRefused { detail })
        }
        other => Undialed::ForNow(format!("the handshake failed: {}", whole_story(&other))),
    }
}

/// What a refusal says of itself, if it came along with its head.
fn detail(response: &handshake::client::Response) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let body = response.body().as_deref().unwrap_or_default();
    match serde_json::from_slice(body) {
        Ok(Problem { detail }) if !detail.is_empty() => inert(&detail),
        Ok(_) | Err(_) => {
            response.status().canonical_reason().unwrap_or("no reason given").to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_found_behind_the_gateways_url() {
        for (gateway, address, socket) in [
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070/v1/hub", "ws://127.0.0.1:7070/v1/hub"),
            ("ws://127.0.0.1:7070/", "http://127.0.0.1:7070/v1/hub", "ws://127.0.0.1:7070/v1/hub"),
            (
                "https://Hooks.example.com",
                "https://hooks.example.com/v1/hub",
                "wss://hooks.example.com/v1/hub",
            ),
            (
                "wss://a.example/hooks/",
                "https://a.example/hooks/v1/hub",
                "wss://a.example/hooks/v1/hub",
            ),
            ("http://[::1]:7070", "http://[::1]:7070/v1/hub", "ws://[::1]:7070/v1/hub"),
        ] {
            let (http, ws) = addresses(gateway).expect(gateway);
            assert_eq!((http.to_string().as_str(), ws.to_string().as_str()), (address, socket));
        }
        for (gateway, says) in [
            ("http://example.com?x=1", "query"),
            ("http://example.com#x", "fragment"),
            ("http://me@example.com", "user name"),
            ("file:///v1", "host"),
        ] {
            let wrong = addresses(gateway).expect_err(gateway);
            assert!(wrong.contains(says), "{gateway}: {wrong}");
        }
    }
}
