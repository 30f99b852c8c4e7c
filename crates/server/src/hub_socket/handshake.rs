//! The opening handshake of a WebSocket (RFC 6455, 4.2), as far as it is the server's.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;
use postrider_core::hub::PROTOCOL;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::App;
use crate::problem::Problem;

const VERSION: &str = "13";
const NONCE_BYTES: usize = 16;

/// A request that asks for a hub's WebSocket, and may have it.
#[derive(Debug)]
pub(crate) struct Handshake {
    accept: HeaderValue,
    upgrade: OnUpgrade,
}

impl FromRequestParts<Arc<App>> for Handshake {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let accept = check(&parts.headers)?;
        let upgrade = parts.extensions.remove().ok_or_else(|| {
            Problem::handshake("this connection cannot become a WebSocket; use HTTP/1.1")
        })?;
        Ok(Self { accept, upgrade })
    }
}

impl Handshake {
    /// The answer, and the connection once the answer is out.
    pub(super) fn answer(self) -> (Response, OnUpgrade) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
        (response, self.upgrade)
    }
}

/// What a client has to be told so that it knows that it was understood.
fn check(headers: &HeaderMap) -> Result<HeaderValue, Problem> {
    for (name, word) in [(CONNECTION, "upgrade"), (UPGRADE, "websocket")] {
        if !has_word(headers, &name, |said| said.eq_ignore_ascii_case(word)) {
            let detail = format!("this path takes a WebSocket: the header {name} has no `{word}`");
            return Err(Problem::handshake(detail));
        }
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        let detail = format!("the header {SEC_WEBSOCKET_VERSION} has to be {VERSION}");
        return Err(Problem::handshake(detail));
    }
    if !has_word(headers, &SEC_WEBSOCKET_PROTOCOL, |said| said == PROTOCOL) {
        let detail = format!("offer the subprotocol {PROTOCOL} in {SEC_WEBSOCKET_PROTOCOL}");
        return Err(Problem::handshake(detail));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    if STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == NONCE_BYTES)
        && let Ok(accept) = derive_accept_key(key).try_into()
    {
        return Ok(accept);
    }
    let detail = format!("the header {SEC_WEBSOCKET_KEY} has to be {NONCE_BYTES} bytes in base64");
    Err(Problem::handshake(detail))
}

/// Whether a header that is a list of words, in one line or in several, has one that fits.
fn has_word(headers: &HeaderMap, name: &HeaderName, fits: impl Fn(&str) -> bool) -> bool {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|word| fits(word.trim()))
}
