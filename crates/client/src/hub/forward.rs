//! Forwards one delivery to its target, and says what it met with.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use postrider_core::hub::{Answer, Deliver, MAX_EXCERPT_BYTES, Met};
use postrider_core::span;

use super::dial::Connector;
use super::routes::{Routes, Target};
use crate::error::whole_story;
use crate::ports;

/// How much of a response's body is read before its connection is given up.
const BODY_READ_BYTES: usize = 64 << 10;
/// The largest head of a response.
const HEAD_BYTES: usize = 64 << 10;
/// How long a connection to a target is kept without use. Servers for development close theirs
/// after two to five seconds, and a request that crosses such a close has failed.
const IDLE: Duration = Duration::from_secs(1);
const MAX_IDLE_PER_TARGET: usize = 64;

/// Headers that belong to a connection and not to what is sent over it, in lower case; those of the
/// connection to the target are written anew.
const OF_THE_CONNECTION: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) struct Forwarder {
    /// Follows no redirects, keeps no cookies, and sends nothing twice.
    http: Client<Connector, Full<Bytes>>,
    routes: Routes,
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").field("routes", &self.routes).finish_non_exhaustive()
    }
}

impl Forwarder {
    pub(super) fn new(connector: Connector, routes: Routes) -> Self {
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE_PER_TARGET)
            .http1_max_buf_size(HEAD_BYTES)
            .build(connector);
        Self { http, routes }
    }

    pub(super) async fn forward(&self, deliver: &Deliver) -> Answer {
        let started = ports::now();
        let met = self.meet(deliver).await;
        Answer { seq: deliver.seq, duration: started.elapsed(), met }
    }

    async fn meet(&self, deliver: &Deliver) -> Met {
        let Some(target) = self.routes.target(deliver) else {
            return Met::Network { error: no_route(deliver) };
        };
        let request = match compose(deliver, target) {
            Ok(request) => request,
            Err(error) => return Met::Network { error },
        };
        let mut seen = None;
        let exchange = self.exchange(request, &mut seen);
        let exchanged = tokio::time::timeout(deliver.timeout, exchange).await;
        let origin = &target.origin;
        match (seen, exchanged) {
            // A status decides, even if its body did not come to its end in time.
            (Some(seen), _) => seen.into_met(target),
            (None, Ok(Err(error))) => Met::Network { error: describe(&error, target) },
            (None, Ok(Ok(()))) => Met::Network { error: format!("{origin} did not answer") },
            (None, Err(_)) => {
                let within = span::format(deliver.timeout);
                Met::Timeout { error: format!("{origin} did not answer within {within}") }
            }
        }
    }

    /// Sends a request and takes in the answer, as far as it is wanted.
    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        seen: &mut Option<Seen>,
    ) -> Result<(), Error> {
        let (head, mut body) = self.http.request(request).await?.into_parts();
        let seen = seen.insert(Seen::new(Response::from_parts(head, ())));
        while !body.is_end_stream() {
            match next(&mut body).await {
                None => break,
                // What remains belongs to nobody: the connection ends with it.
                Some(Err(_)) => return Ok(()),
                Some(Ok(data)) => {
                    if !seen.take(&data) {
                        return Ok(());
                    }
                }
            }
        }
        seen.whole = true;
        Ok(())
    }
}

async fn next(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    let frame = body.frame().await?;
    // Trailers say nothing that an answer has room for.
    Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// An answer as far as it has come.
struct Seen {
    head: Response<()>,
    kept: Vec<u8>,
    read_bytes: usize,
    /// The body has come to its end.
    whole: bool,
}

impl Seen {
    fn new(head: Response<()>) -> Self {
        Self { head, kept: Vec::new(), read_bytes: 0, whole: false }
    }

    /// Takes a piece of the body; `false` when enough has been read.
    fn take(&mut self, data: &[u8]) -> bool {
        let room = MAX_EXCERPT_BYTES - self.kept.len();
        self.kept.extend_from_slice(&data[..data.len().min(room)]);
        self.read_bytes += data.len();
        self.read_bytes <= BODY_READ_BYTES
    }

    fn into_met(self, target: &Target) -> Met {
        let status = self.head.status();
        if status.is_informational() {
            let (origin, status) = (&target.origin, status.as_u16());
            let error = format!("{origin} answered {status}, which was not asked for");
            return Met::Network { error };
        }
        let pair = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes()))
        };
        Met::Status {
            status: status.as_u16(),
            headers: self.head.headers().iter().map(pair).collect(),
            truncated: !self.whole || self.read_bytes > self.kept.len(),
            body: self.kept.into(),
        }
    }
}

fn compose(deliver: &Deliver, target: &Target) -> Result<Request<Full<Bytes>>, String> {
    let mut headers = HeaderMap::with_capacity(deliver.headers.len());
    let named = named_by_connection(deliver);
    for (name, value) in &deliver.headers {
        let named = named.iter().any(|named| named.eq_ignore_ascii_case(name));
        if named || OF_THE_CONNECTION.contains(&name.as_str()) {
            continue;
        }
        let unsendable = || format!("the header `{name}` holds what HTTP does not allow");
        let value = HeaderValue::from_maybe_shared(value.clone()).map_err(|_| unsendable())?;
        headers.append(HeaderName::try_from(name).map_err(|_| unsendable())?, value);
    }
    let mut request = Request::new(Full::new(deliver.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.uri.clone();
    *request.headers_mut() = headers;
    Ok(request)
}

/// The headers that `connection` declares to be of the connection as well.
fn named_by_connection(deliver: &Deliver) -> Vec<&str> {
    let connection = |header: &&(String, Bytes)| header.0 == header::CONNECTION.as_str();
    let lists = deliver.headers.iter().filter(connection);
    let texts = lists.filter_map(|(_, value)| std::str::from_utf8(value).ok());
    texts.flat_map(|text| text.split(',')).map(str::trim).collect()
}

fn no_route(deliver: &Deliver) -> String {
    let id = deliver.endpoint;
    match &deliver.endpoint_name {
        Some(name) => format!("no route for endpoint {id} ({name}) at this hub"),
        None => format!("no route for endpoint {id} at this hub"),
    }
}

fn describe(error: &Error, target: &Target) -> String {
    let origin = &target.origin;
    // The outermost says no more than what this sentence says.
    let story = std::error::Error::source(error).map_or_else(|| error.to_string(), whole_story);
    if error.is_connect() {
        format!("{origin} cannot be reached: {story}")
    } else {
        format!("{origin} did not answer: {story}")
    }
}
