//! How the API says no: RFC 9457 `application/problem+json`, for everything.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use postrider_core::verification::Refusal;
use serde::Serialize;

/// How long a client should wait before it comes back to a store that could not serve it.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");
/// Outside text in an answer is cut here.
const MAX_MESSAGE_CHARS: usize = 400;
const MAX_FIELD_CHARS: usize = 120;

/// Why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct FieldError {
    field: String,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Broken,
    Handshake,
    Unauthorized,
    Signature,
    Forbidden,
    NotFound,
    WrongMethod,
    TooSlow,
    Conflict,
    LeaseLapsed,
    TooLarge,
    HeadersTooLarge,
    Invalid,
    Loop,
    TooMany { retry_after_seconds: u64 },
    Internal,
    Unavailable,
}

impl Kind {
    /// Status, the name that ends the problem's type, title.
    const fn describe(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Broken => (StatusCode::BAD_REQUEST, "broken-request", "The request broke off"),
            Self::Handshake => {
                (StatusCode::BAD_REQUEST, "handshake", "A WebSocket handshake is needed")
            }
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized", "A key is needed"),
            Self::Signature => {
                (StatusCode::UNAUTHORIZED, "signature", "The signature does not hold")
            }
            Self::Forbidden => (StatusCode::FORBIDDEN, "forbidden", "This key may not do that"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not-found", "Not found"),
            Self::WrongMethod => {
                (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed")
            }
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too-slow", "The body came too slowly"),
            Self::Conflict => (StatusCode::CONFLICT, "conflict", "Conflict"),
            Self::LeaseLapsed => (StatusCode::CONFLICT, "lease-lapsed", "The lease has lapsed"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large"),
            Self::HeadersTooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers-too-large",
                "Too many headers",
            ),
            Self::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid", "Invalid request"),
            Self::Loop => (StatusCode::LOOP_DETECTED, "loop", "The event goes round in circles"),
            Self::TooMany { .. } => {
                (StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests")
            }
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error"),
            Self::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Temporarily unavailable")
            }
        }
    }
}

impl Problem {
    fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: cut(detail.into(), MAX_MESSAGE_CHARS), errors: Vec::new() }
    }

    fn at_field(kind: Kind, field: impl Into<String>, message: impl Into<String>) -> Self {
        let field = cut(field.into(), MAX_FIELD_CHARS);
        let message = cut(message.into(), MAX_MESSAGE_CHARS);
        let detail = format!("{field}: {message}");
        Self { kind, detail, errors: vec![FieldError { field, message }] }
    }

    /// A field of the input cannot be used.
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::at_field(Kind::Invalid, field, message)
    }

    pub(crate) fn no_route() -> Self {
        Self::new(Kind::NotFound, "there is nothing at this path")
    }

    pub(crate) fn wrong_method() -> Self {
        Self::new(Kind::WrongMethod, "this path does not take this method; see the Allow header")
    }

    /// `what` is the kind of thing asked for: "event", "endpoint".
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(Kind::NotFound, format!("there is no such {what}"))
    }

    /// The id in the path cannot be one of the wanted kind.
    pub(crate) fn not_an_id(message: impl Into<String>) -> Self {
        Self::at_field(Kind::NotFound, "id", message)
    }

    pub(crate) fn unauthorized(detail: &str) -> Self {
        Self::new(Kind::Unauthorized, detail)
    }

    pub(crate) fn forbidden(detail: &str) -> Self {
        Self::new(Kind::Forbidden, detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, detail)
    }

    /// Whoever holds the delivery now, it is not the one that asks.
    pub(crate) fn lease_lapsed() -> Self {
        let detail = "the lease has ended, or there never was one like it; nothing was changed";
        Self::new(Kind::LeaseLapsed, detail)
    }

    /// What came is not the beginning of a WebSocket.
    pub(crate) fn handshake(detail: impl Into<String>) -> Self {
        Self::new(Kind::Handshake, detail)
    }

    pub(crate) fn too_large(limit_bytes: usize) -> Self {
        Self::new(Kind::TooLarge, format!("at most {limit_bytes} bytes are taken here"))
    }

    pub(crate) fn loops(found: postrider_engine::via::Loop) -> Self {
        Self::new(Kind::Loop, found.to_string())
    }

    /// A webhook that its sender cannot have signed.
    pub(crate) fn signature(refusal: &Refusal) -> Self {
        Self::new(Kind::Signature, refusal.to_string())
    }

    pub(crate) fn headers_too_large(detail: impl Into<String>) -> Self {
        Self::new(Kind::HeadersTooLarge, detail)
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(Kind::TooSlow, "the body was not there in time; nothing was stored")
    }

    pub(crate) fn broken_body() -> Self {
        Self::new(Kind::Broken, "the body ended before it was whole; nothing was stored")
    }

    /// There is a limit to how often this may be asked; it may be asked again after `wait`.
    pub(crate) fn too_many(detail: &str, wait: Duration) -> Self {
        // Whole seconds, and not one too early.
        let part = u64::from(wait.subsec_nanos() > 0);
        let retry_after_seconds = wait.as_secs().saturating_add(part).max(1);
        Self::new(Kind::TooMany { retry_after_seconds }, detail)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, detail)
    }

    pub(crate) fn internal() -> Self {
        Self::new(Kind::Internal, "something that should not happen did; the log has more")
    }

    #[cfg(test)]
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let Kind::TooMany { retry_after_seconds } = self.kind else { return None };
        Some(Duration::from_secs(retry_after_seconds))
    }

    #[cfg(test)]
    pub(crate) fn fields(&self) -> Vec<&str> {
        self.errors.iter().map(|error| error.field.as_str()).collect()
    }
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            r#type: String,
            title: &'static str,
            status: u16,
            detail: &'a str,
            errors: &'a [FieldError],
        }

        let (status, name, title) = self.kind.describe();
        let document = Document {
            r#type: format!("urn:postrider:problem:{name}"),
            title,
            status: status.as_u16(),
            detail: &self.detail,
            errors: &self.errors,
        };
        document.serialize(serializer)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, ..) = self.kind.describe();
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.kind {
            Kind::Unauthorized => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Kind::Signature => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Signature"));
            }
            Kind::Unavailable => {
                headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
            }
            Kind::TooMany { retry_after_seconds } => {
                headers.insert(RETRY_AFTER, retry_after_seconds.into());
            }
            Kind::Broken
            | Kind::Handshake
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::WrongMethod
            | Kind::TooSlow
            | Kind::Conflict
            | Kind::LeaseLapsed
            | Kind::TooLarge
            | Kind::HeadersTooLarge
            | Kind::Invalid
            | Kind::Loop
            | Kind::Internal => {}
        }
        response
    }
}

impl From<postrider_store::Error> for Problem {
    fn from(error: postrider_store::Error) -> Self {
        use postrider_store::Error;
        match error {
            Error::Overloaded | Error::Unavailable(_) | Error::Closed => {
                Self::unavailable(error.to_string())
            }
            Error::Exists(_) => Self::conflict(error.to_string()),
            Error::Refused(_) | Error::Damaged(_) => {
                tracing::error!(%error, "the store cannot answer");
                Self::internal()
            }
        }
    }
}

impl From<postrider_engine::Error> for Problem {
    fn from(error: postrider_engine::Error) -> Self {
        use postrider_engine::Error;
        match error {
            Error::NotFound => Self::not_found("thing"),
            Error::Invalid { field, message } => Self::invalid(field, message),
            Error::Conflict(detail) => Self::conflict(detail),
            Error::Store(error) => error.into(),
        }
    }
}

/// Says what was not found, where the engine only knows that something was not.
pub(crate) trait OrMissing<T> {
    fn or_missing(self, what: &str) -> Result<T, Problem>;
}

impl<T> OrMissing<T> for Result<T, postrider_engine::Error> {
    fn or_missing(self, what: &str) -> Result<T, Problem> {
        self.map_err(|error| match error {
            postrider_engine::Error::NotFound => Problem::not_found(what),
            other => other.into(),
        })
    }
}

impl<T> OrMissing<T> for Option<T> {
    fn or_missing(self, what: &str) -> Result<T, Problem> {
        self.ok_or_else(|| Problem::not_found(what))
    }
}

fn cut(mut text: String, max_chars: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(max_chars) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    use super::*;

    async fn document(problem: Problem) -> (Response<()>, Value) {
        let (parts, body) = problem.into_response().into_parts();
        let bytes = body.collect().await.expect("a body in memory").to_bytes();
        (Response::from_parts(parts, ()), serde_json::from_slice(&bytes).expect("JSON"))
    }

    #[tokio::test]
    async fn a_problem_has_the_five_members_and_names_the_field() {
        let (response, document) = document(Problem::invalid("policy.max_age", "too long")).await;
        assert_eq!(response.status(), 422);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(
            document,
            json!({
                "type": "urn:postrider:problem:invalid",
                "title": "Invalid request",
                "status": 422,
                "detail": "policy.max_age: too long",
                "errors": [{"field": "policy.max_age", "message": "too long"}],
            })
        );
    }

    #[tokio::test]
    async fn what_may_pass_says_when_to_come_back() {
        for error in [
            postrider_store::Error::Overloaded,
            postrider_store::Error::Unavailable("database is locked".into()),
            postrider_store::Error::Closed,
        ] {
            let (response, _) = document(error.into()).await;
            assert_eq!(response.status(), 503);
            assert_eq!(response.headers()[RETRY_AFTER], "1");
        }
        for (wait_ms, said) in [(0, "1"), (1, "1"), (1_000, "1"), (1_001, "2"), (90_000, "90")] {
            let wait = Duration::from_millis(wait_ms);
            let (response, _) = document(Problem::too_many("slower", wait)).await;
            assert_eq!(response.status(), 429);
            assert_eq!(response.headers()[RETRY_AFTER], said);
        }
        let (response, _) = document(Problem::unauthorized("no key")).await;
        assert_eq!(response.headers()[WWW_AUTHENTICATE], "Bearer");
    }

    #[test]
    fn outside_text_is_cut() {
        let problem = Problem::invalid("é".repeat(100_000), "ü".repeat(100_000));
        assert_eq!(problem.errors[0].field.chars().count(), MAX_FIELD_CHARS + 1);
        assert_eq!(problem.errors[0].message.chars().count(), MAX_MESSAGE_CHARS + 1);
    }
}
