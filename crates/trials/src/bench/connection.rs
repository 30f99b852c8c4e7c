//! One kept-alive HTTP/1.1 connection of the bench, and the requests that go over it.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Answers are small; a batch of a thousand results and a lease of a hundred events are the
/// largest.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// What every request to one place has in common.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    parts: http::request::Parts,
}

impl Target {
    pub(crate) fn new(address: SocketAddr, key: Option<&str>) -> Result<Self> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri("/")
            .header(header::HOST, address.to_string())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = key {
            request = request.header(header::AUTHORIZATION, bearer(key)?);
        }
        let (parts, ()) = request.body(())?.into_parts();
        Ok(Self { address, parts })
    }

    /// The same place, another method and path.
    pub(crate) fn at(&self, method: Method, path: &str) -> Result<Self> {
        let mut target = self.clone();
        target.parts.method = method;
        target.parts.uri = path.parse().with_context(|| format!("{path} is no path"))?;
        Ok(target)
    }

    /// The same place, with a header in place of any of that name.
    pub(crate) fn with(&self, name: HeaderName, value: &str) -> Result<Self> {
        let mut target = self.clone();
        target.parts.headers.insert(name, HeaderValue::from_str(value)?);
        Ok(target)
    }

    pub(crate) fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        Request::from_parts(self.parts.clone(), Full::new(body))
    }
}

pub(crate) fn bearer(key: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {key}"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Closed when dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // A broken connection shows in the request that was under way.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender, driver })
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer> {
        self.sender.ready().await?;
        let (parts, body) = self.sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|error| anyhow::anyhow!("reading the answer: {error}"))?
            .to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// What it says, if its status is the one that was wanted.
    pub(crate) fn json<'a, T: Deserialize<'a>>(&'a self, wanted: StatusCode) -> Result<T> {
        let (status, body) = (self.status, &self.body);
        ensure!(status == wanted, "answered {status}: {}", String::from_utf8_lossy(body));
        serde_json::from_slice(body).context("an answer that is not as expected")
    }
}
