//! One gateway, as its API shows it: requests out, JSON back, within a time and a size.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use postrider_core::{retry_after, span};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use crate::error::{Error, inert, whole_story};
use crate::ports;

/// How long an answer may take, from the dial to its last byte, unless the request itself asks the
/// gateway to wait.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(30);
const MAX_IDLE_CONNECTIONS: usize = 32;
/// An HTTP/2 gateway with requests outstanding is asked for a sign of life this often, and given up
/// when none comes.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer that is read. The longest that a gateway gives is a lease of events, which
/// may be of 100 MiB each and grow by a third as base64.
const MAX_ANSWER_BYTES: usize = 256 << 20;
const TENANT_HEADER: &str = "postrider-tenant";
const LAST_EVENT_ID: &str = "last-event-id";
/// How many wrong fields an error names.
const MAX_FIELD_ERRORS: usize = 20;
const PROBLEM_PREFIX: &str = "urn:postrider:problem:";
const AGENT: &str = concat!("postrider-client/", env!("CARGO_PKG_VERSION"));

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A gateway and the key to it. Clones share their connections.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
}

struct Shared {
    http: Http,
    /// Scheme, host, port and perhaps a path before the API's own; without a slash at the end.
    base: String,
    /// Marked as sensitive: it is shown by no `Debug`.
    authorization: HeaderValue,
    tenant: Option<HeaderValue>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("url", &self.shared.base).finish_non_exhaustive()
    }
}

/// A successful answer.
pub(crate) struct Answer {
    /// When its head was there: what it says was true shortly before.
    pub(crate) at: Instant,
    pub(crate) body: Bytes,
}

impl Gateway {
    /// `url` is where the gateway listens, such as `https://hooks.example.com`; `key` is one of its
    /// API keys. Nothing is sent yet.
    pub fn new(url: &str, key: &str) -> Result<Self, Error> {
        let base = base_of(url)?;
        let authorization = HeaderValue::try_from(format!("Bearer {key}"))
            .ok()
            .filter(|_| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()));
        let Some(mut authorization) = authorization else {
            return Err(Error::Invalid(
                "the key has characters that no key of a gateway has, or none at all".to_owned(),
            ));
        };
        authorization.set_sensitive(true);
        let shared = Shared { http: http_client()?, base, authorization, tenant: None };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Acts in this tenant, for which the key must be an admin key.
    pub fn in_tenant(&self, name: &str) -> Result<Self, Error> {
        let tenant = HeaderValue::from_str(name)
            .map_err(|_| Error::Invalid(format!("{:?} is no tenant's name", inert(name))))?;
        let Shared { http, base, authorization, tenant: _ } = &*self.shared;
        let shared = Shared {
            http: http.clone(),
            base: base.clone(),
            authorization: authorization.clone(),
            tenant: Some(tenant),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.shared.base
    }

    /// Asks for anything the API has. `path` begins with `/v1/` and brings its query along; an
    /// answer without a body is `Null`.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let body = body.map(Value::to_string).map(Bytes::from);
        let answer = self.send(method, path, body, DEADLINE).await?;
        if answer.body.is_empty() { Ok(Value::Null) } else { self.read(&answer.body) }
    }

    /// Posts bytes as they are: an event that is no JSON, or JSON whose text is to be kept.
    pub async fn post(&self, path: &str, content_type: &str, body: Bytes) -> Result<Value, Error> {
        let content_type = HeaderValue::from_str(content_type)
            .map_err(|_| Error::Invalid(format!("{:?} is no content type", inert(content_type))))?;
        let mut request = self.compose(Method::POST, path, Some(body))?;
        request.headers_mut().insert(CONTENT_TYPE, content_type);
        let answer = self.exchange(request, DEADLINE).await?;
        if answer.body.is_empty() { Ok(Value::Null) } else { self.read(&answer.body) }
    }

    /// Fetches what is not JSON: the payload of an event, for example.
    pub async fn bytes(&self, path: &str) -> Result<Bytes, Error> {
        Ok(self.send(Method::GET, path, None, DEADLINE).await?.body)
    }

    /// Sends a request and takes the whole answer, within `deadline`.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        deadline: Duration,
    ) -> Result<Answer, Error> {
        let request = self.compose(method, path, body)?;
        self.exchange(request, deadline).await
    }

    /// Asks for an answer that has no end; its head has to come in time. `after` is the id of the
    /// last event of it that is known already.
    pub(crate) async fn open(&self, path: &str, after: Option<u64>) -> Result<Incoming, Error> {
        let mut request = self.compose(Method::GET, path, None)?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = after {
            headers.insert(LAST_EVENT_ID, id.into());
        }
        let opening = async {
            let response = self.shared.http.request(request).await;
            let response = response.map_err(|error| self.unreachable(whole_story(&error)))?;
            let (parts, body) = response.into_parts();
            if parts.status.is_success() {
                return Ok(body);
            }
            let body = self.take(body).await?;
            Err(refusal(parts.status, &parts.headers, &body))
        };
        tokio::time::timeout(DEADLINE, opening).await.map_err(|_| self.late(DEADLINE))?
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        deadline: Duration,
    ) -> Result<Answer, Error> {
        let exchange = async {
            let response = self.shared.http.request(request).await;
            let response = response.map_err(|error| self.unreachable(whole_story(&error)))?;
            let at = ports::now();
            let (parts, body) = response.into_parts();
            let body = self.take(body).await?;
            if parts.status.is_success() {
                Ok(Answer { at, body })
            } else {
                Err(refusal(parts.status, &parts.headers, &body))
            }
        };
        tokio::time::timeout(deadline, exchange).await.map_err(|_| self.late(deadline))?
    }

    fn late(&self, deadline: Duration) -> Error {
        let within = span::format(deadline);
        self.unreachable(format!("there was no whole answer within {within}"))
    }

    fn compose(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let shared = &*self.shared;
        let uri: Option<Uri> = Some(path)
            .filter(|path| path.starts_with('/'))
            .and_then(|path| format!("{}{path}", shared.base).parse().ok());
        let uri =
            uri.ok_or_else(|| Error::Invalid(format!("{:?} is no path of the API", inert(path))))?;
        let with_body = body.is_some();
        let mut request = Request::new(Full::from(body.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, shared.authorization.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if with_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(tenant) = &shared.tenant {
            headers.insert(TENANT_HEADER, tenant.clone());
        }
        Ok(request)
    }

    async fn take(&self, body: Incoming) -> Result<Bytes, Error> {
        let taken = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        taken.map(http_body_util::Collected::to_bytes).map_err(|error| {
            if error.is::<LengthLimitError>() {
                self.bad_answer(format!("it answers with more than {MAX_ANSWER_BYTES} bytes"))
            } else {
                self.unreachable(format!("the answer broke off: {}", whole_story(&*error)))
            }
        })
    }

    /// Reads what a successful answer says.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&self, body: &'a [u8]) -> Result<T, Error> {
        serde_json::from_slice(body).map_err(|error| self.bad_answer(error.to_string()))
    }

    pub(crate) fn bad_answer(&self, reason: impl AsRef<str>) -> Error {
        let (gateway, reason) = (self.shared.base.clone(), inert(reason.as_ref()));
        Error::BadAnswer { gateway, reason }
    }

    pub(crate) fn unreachable(&self, reason: String) -> Error {
        Error::Unreachable { gateway: self.shared.base.clone(), reason }
    }
}

/// What a gateway's URL must be, so that a path can be put behind it.
fn base_of(text: &str) -> Result<String, Error> {
    // A refused URL is not repeated: it may hold a password.
    let refuse = |reason: &str| {
        Error::Invalid(format!(
            "the gateway's URL {reason}; write it like https://hooks.example.com"
        ))
    };
    let url = Url::parse(text).map_err(|_| refuse("is no URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("must have no user name or password"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refuse("must have no query and no fragment"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// No redirects, no cookies, no proxies of the environment: the key goes to the gateway alone.
fn http_client() -> Result<Http, Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
    tcp.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
        .map_err(|error| Error::Invalid(format!("TLS cannot be used: {error}")))?
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector))
}

/// What the API says no with. A proxy between may say it in its own way, so nothing is required.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    r#type: String,
    title: String,
    detail: String,
    errors: Vec<FieldError>,
}

/// What is wrong with one field.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FieldError {
    field: String,
    message: String,
}

impl Problem {
    /// What is wrong, with each of the fields that it is wrong with.
    fn said(self) -> String {
        let mut said = if self.detail.is_empty() { self.title } else { self.detail };
        for FieldError { field, message } in self.errors.iter().take(MAX_FIELD_ERRORS) {
            let error = format!("{field}: {message}");
            // A gateway mentions the first of them in its detail.
            if !said.contains(&error) {
                let between = if said.is_empty() { "" } else { "; " };
                said = format!("{said}{between}{error}");
            }
        }
        said
    }
}

fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    let problem: Problem = serde_json::from_slice(body).unwrap_or_default();
    let kind = inert(problem.r#type.strip_prefix(PROBLEM_PREFIX).unwrap_or(&problem.r#type));
    let said = Some(problem.said()).filter(|said| !said.is_empty());
    let detail = said.unwrap_or_else(|| match headers.get(LOCATION) {
        Some(location) if status.is_redirection() => {
            let location = String::from_utf8_lossy(location.as_bytes());
            format!("it redirects to {location}, and redirects are not followed")
        }
        Some(_) | None => status.canonical_reason().unwrap_or("no reason given").to_owned(),
    });
    // Gateways write seconds. Dates count as passed, since no clock is asked here.
    let retry_after =
        headers.get(RETRY_AFTER).and_then(|value| retry_after::parse(value.as_bytes(), i64::MAX));
    Error::Refused { status: status.as_u16(), kind, detail: inert(&detail), retry_after }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "pr_0123456789abcdefghijklmnopqrstuvwxyz";

    #[test]
    fn a_gateway_is_a_plain_http_url() {
        for (text, base) in [
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070"),
            ("http://127.0.0.1:7070/", "http://127.0.0.1:7070"),
            ("https://Hooks.example.com", "https://hooks.example.com"),
            ("https://example.com/hooks/", "https://example.com/hooks"),
            ("http://[::1]:7070", "http://[::1]:7070"),
        ] {
            assert_eq!(Gateway::new(text, KEY).expect(text).url(), base);
        }
        for (text, word) in [
            ("", "no URL"),
            ("hooks.example.com", "no URL"),
            ("localhost:7070", "http://"),
            ("ftp://example.com", "http://"),
            ("https://me:hunter2@example.com", "password"),
            ("https://example.com?x=hunter2", "query"),
            ("https://example.com#hunter2", "fragment"),
        ] {
            let error = Gateway::new(text, KEY).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn the_key_is_neither_in_debug_nor_in_refusals() {
        let gateway = Gateway::new("http://127.0.0.1:1", KEY).expect("valid");
        let gateway = gateway.in_tenant("acme").expect("valid");
        assert!(!format!("{gateway:?} {gateway:#?}").contains(KEY));
        let request = gateway.compose(Method::GET, "/v1/stats", None).expect("valid");
        assert!(!format!("{request:?}").contains(KEY));
        assert_eq!(request.headers()[TENANT_HEADER], "acme");
        for key in ["", "pr_a b", "pr_\n", "pr_é", "pr_\u{7f}"] {
            let error = Gateway::new("http://127.0.0.1:1", key).expect_err("refused").to_string();
            assert!(error.contains("the key"), "{error}");
            assert!(!error.contains("pr_"), "{error}");
        }
    }

    #[test]
    fn what_is_no_path_is_not_sent() {
        let gateway = Gateway::new("http://127.0.0.1:1", KEY).expect("valid");
        for path in ["", "v1/stats", "@example.com/", "/v1/a b"] {
            assert!(gateway.compose(Method::GET, path, None).is_err(), "{path}");
        }
    }

    #[test]
    fn refusals_say_what_the_gateway_said_or_what_is_known() {
        let not_found = r#"{"type":"urn:postrider:problem:not-found","title":"Not found","status":404,"detail":"there is no such endpoint","errors":[]}"#;
        let invalid = r#"{"type":"urn:postrider:problem:invalid","detail":"url: no","errors":[{"field":"url","message":"no"},{"field":"name","message":"too long"}]}"#;
        for (status, body, kind, says) in [
            (404, not_found, "not-found", "404: there is no such endpoint"),
            (401, r#"{"title":"A key\nis needed"}"#, "", "401: A key is needed"),
            (422, invalid, "invalid", "422: url: no; name: too long"),
            (422, r#"{"errors":[{"field":"a","message":"b"}]}"#, "", "422: a: b"),
            (502, "<html>", "", "502: Bad Gateway"),
            (599, "", "", "599: no reason given"),
            (503, r#"{"detail":7}"#, "", "503: Service Unavailable"),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let error = refusal(status, &HeaderMap::new(), body.as_bytes());
            assert_eq!(error.to_string(), format!("the gateway says {says}"));
            assert!(matches!(&error, Error::Refused { kind: named, .. } if named == kind));
        }
    }

    #[test]
    fn a_wait_that_the_gateway_asks_for_is_known() {
        for (value, expected) in [("7", Some(7)), ("0", None), ("soon", None)] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            let error = refusal(StatusCode::TOO_MANY_REQUESTS, &headers, b"");
            assert_eq!(error.retry_after(), expected.map(Duration::from_secs), "{value}");
            assert!(error.is_temporary());
        }
    }
}
