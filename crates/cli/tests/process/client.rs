//! One kept-alive connection to the API.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::gateway::payload;
use crate::within;

#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
    key: String,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Null where there is no JSON.
    pub(crate) body: Value,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, key: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // How it ends is seen by whoever sends on it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, authority: address.to_string(), key: key.to_owned() })
    }

    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> hyper::Result<Answer> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(AUTHORIZATION, format!("Bearer {}", self.key))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .expect("a valid request");
        within("an answer of the API", async {
            self.sender.ready().await?;
            let (parts, body) = self.sender.send_request(request).await?.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        })
        .await
    }

    /// Sends the event with this number in its payload.
    pub(crate) async fn send_event(&mut self, number: u64) -> hyper::Result<Answer> {
        let event = format!(r#"{{"type":"load.tick","payload":{}}}"#, payload(number));
        self.call(Method::POST, "/v1/events", event).await
    }
}
