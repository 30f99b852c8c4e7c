//! A small HTTP client for the API: one connection per request, JSON in and out.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
}

/// An answer of the API.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The JSON of an answer that has to have this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{:?}", String::from_utf8_lossy(&self.body));
        if self.body.is_empty() { Value::Null } else { self.json() }
    }
}

impl Client {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, Some(body)).await
    }

    /// A POST that says nothing but its path.
    pub(crate) async fn act(&self, path: &str) -> Answer {
        self.send(Method::POST, path, None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let answer = async {
            let (parts, body) = self.request(method, path, body).await.into_parts();
            let body = body.collect().await.expect("a whole answer").to_bytes();
            Answer { status: parts.status.as_u16(), body }
        };
        timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("no answer to {path}"))
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> http::Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.expect("the gateway listens");
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        // It ends with the answer; what can go wrong with it shows there.
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {}", self.key));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body))).expect("a valid request");
        sender.send_request(request).await.expect("an answer")
    }

    /// Follows the stream of notices from here on.
    pub(crate) async fn follow(&self) -> Stream {
        let path = "/v1/stream?topic=gateway:webhooks";
        let response = self.request(Method::GET, path, None).await;
        assert_eq!(response.status().as_u16(), 200);
        let mut stream = Stream { body: response.into_body(), unread: BytesMut::new() };
        // The greeting: from here on nothing is missed.
        stream.block().await;
        stream
    }
}

/// Server-sent events.
pub(crate) struct Stream {
    body: Incoming,
    unread: BytesMut,
}

impl Stream {
    /// The next notice of this kind.
    pub(crate) async fn notice(&mut self, kind: &str) -> Value {
        loop {
            let block = self.block().await;
            let data = block.lines().find_map(|line| line.strip_prefix("data: "));
            let Some(data) = data else { continue };
            let notice: Value = serde_json::from_str(data).expect("JSON");
            if notice["kind"] == kind {
                return notice;
            }
        }
    }

    async fn block(&mut self) -> String {
        loop {
            let end = self.unread.windows(2).position(|pair| pair == b"\n\n");
            if let Some(end) = end {
                let block = self.unread.split_to(end + 2);
                return String::from_utf8(block.to_vec()).expect("text");
            }
            let frame = timeout(PATIENCE, self.body.frame()).await.expect("something in time");
            let frame = frame.expect("the stream goes on").expect("without an error");
            self.unread.extend_from_slice(frame.data_ref().expect("no trailers"));
        }
    }
}
