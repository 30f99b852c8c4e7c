//! A browser without a picture: it keeps cookies, knows the token of the pages it has seen, and shows
//! what came. It follows no redirect by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::gateway::Gateway;

pub(crate) struct Browser {
    pub(crate) gateway: Arc<Gateway>,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default, Clone)]
struct Memory {
    cookies: BTreeMap<String, String>,
    /// The token that the last page had in its forms.
    csrf: Option<String>,
}

/// What came.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) bytes: Bytes,
}

/// One request, with headers of its own.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Browser {
    /// A new gateway, signed in with its admin key.
    pub(crate) async fn signed_in() -> Self {
        let gateway = Gateway::start().await;
        let key = gateway.client.key.clone();
        Self::with_key(&gateway, &key).await
    }

    /// At a gateway, signed in with a key.
    pub(crate) async fn with_key(gateway: &Arc<Gateway>, key: &str) -> Self {
        let browser = Self::nobody(gateway);
        let entered = browser.sign_in(key).await;
        assert_eq!(entered.status, 303, "{}", entered.text);
        // The overview has forms, as every page has, and so the token.
        let first = browser.open("/").await;
        assert_eq!(first.status, 200, "{}", first.text);
        browser
    }

    /// At a gateway, not signed in.
    pub(crate) fn nobody(gateway: &Arc<Gateway>) -> Self {
        Self { gateway: Arc::clone(gateway), memory: Mutex::default() }
    }

    /// Another browser with the same cookies, as if they were stolen.
    pub(crate) fn copy(&self) -> Self {
        Self { gateway: Arc::clone(&self.gateway), memory: Mutex::new(self.memory().clone()) }
    }

    pub(crate) async fn sign_in(&self, key: &str) -> Page {
        self.send(Ask::form("/sign-in", &[("key", key)])).await
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.send(Ask::new(Method::GET, path)).await
    }

    /// A part of a page, as the script of a page asks for it.
    pub(crate) async fn part(&self, path: &str) -> Page {
        self.send(Ask::new(Method::GET, path).header("hx-request", "true")).await
    }

    /// The same, wherever it leads.
    pub(crate) async fn open(&self, path: &str) -> Page {
        let mut page = self.get(path).await;
        for _ in 0..5 {
            let Some(next) = page.location().filter(|_| page.status == 303) else { break };
            page = self.get(&next).await;
        }
        page
    }

    /// Sends a form, with the token of the pages that were seen.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let csrf = self.csrf();
        let with_token: Vec<_> = fields.iter().copied().chain([("csrf", csrf.as_str())]).collect();
        self.send(Ask::form(path, &with_token)).await
    }

    /// The same as the script of a page sends it.
    pub(crate) async fn post_part(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let ask = Ask::form(path, fields).header("hx-request", "true");
        self.send(ask.header("x-csrf-token", &self.csrf())).await
    }

    /// Sends a form as another site would make it be sent.
    pub(crate) async fn post_without_token(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        self.send(Ask::form(path, fields)).await
    }

    /// The token of the pages that were seen.
    #[track_caller]
    pub(crate) fn csrf(&self) -> String {
        self.memory().csrf.clone().expect("a page with a form was seen")
    }

    pub(crate) fn cookie(&self, name: &str) -> Option<String> {
        self.memory().cookies.get(name).cloned()
    }

    pub(crate) async fn send(&self, ask: Ask) -> Page {
        let seen = async {
            let (parts, body) = self.request(ask).await.into_parts();
            let bytes = body.collect().await.expect("a whole answer").to_bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let page = Page { status: parts.status.as_u16(), headers: parts.headers, text, bytes };
            self.remember(&page);
            page
        };
        timeout(PATIENCE, seen).await.expect("an answer in time")
    }

    /// Opens a stream of server-sent events.
    pub(crate) async fn follow(&self, path: &str) -> Events {
        let response = self.request(Ask::new(Method::GET, path)).await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events { body: response.into_body(), unread: BytesMut::new() }
    }

    async fn request(&self, ask: Ask) -> http::Response<Incoming> {
        let address = self.gateway.address;
        let stream = TcpStream::connect(address).await.expect("the gateway listens");
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        // It ends with the answer; what can go wrong with it shows there.
        tokio::spawn(connection);
        let mut request =
            Request::builder().method(ask.method).uri(ask.path).header("host", address.to_string());
        let cookies: Vec<String> =
            self.memory().cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            request = request.header("cookie", cookies.join("; "));
        }
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(ask.body))).expect("a valid request");
        sender.send_request(request).await.expect("an answer")
    }

    fn remember(&self, page: &Page) {
        let mut memory = self.memory();
        for cookie in page.headers.get_all("set-cookie") {
            let cookie = cookie.to_str().expect("text");
            let pair = cookie.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').expect("a name and a value");
            if cookie.contains("Max-Age=0") {
                memory.cookies.remove(name);
            } else {
                memory.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let mark = "name=\"csrf\" value=\"";
        if let Some((_, rest)) = page.text.split_once(mark) {
            memory.csrf = rest.split('"').next().map(str::to_owned);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    /// Where it leads: another page, for a browser or for the script of a page.
    pub(crate) fn location(&self) -> Option<String> {
        let header = |name| self.headers.get(name).map(|value| value.to_str().expect("text"));
        header("location").or_else(|| header("hx-redirect")).map(str::to_owned)
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    #[track_caller]
    pub(crate) fn assert_has(&self, text: &str) {
        assert!(self.has(text), "no {text:?} in {}", self.text);
    }

    #[track_caller]
    pub(crate) fn assert_lacks(&self, text: &str) {
        assert!(!self.has(text), "{text:?} in {}", self.text);
    }
}

impl Ask {
    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn form(path: &str, fields: &[(&str, &str)]) -> Self {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(fields);
        let ask = Self { body: body.finish(), ..Self::new(Method::POST, path) };
        ask.header("content-type", "application/x-www-form-urlencoded")
    }

    #[must_use]
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub(crate) fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }
}

/// Server-sent events.
pub(crate) struct Events {
    body: Incoming,
    unread: BytesMut,
}

impl Events {
    /// The next block; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            let end = self.unread.windows(2).position(|pair| pair == b"\n\n");
            if let Some(end) = end {
                let block = self.unread.split_to(end + 2);
                return Some(String::from_utf8(block.to_vec()).expect("text"));
            }
            let frame = timeout(PATIENCE, self.body.frame()).await.expect("something in time")?;
            let frame = frame.expect("without an error");
            self.unread.extend_from_slice(frame.data_ref().expect("no trailers"));
        }
    }
}
