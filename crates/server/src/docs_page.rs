//! `/openapi.json` and `/docs`: the description of the API, for programs and for people. The page is
//! three files within the binary and asks nobody else for anything.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};

use crate::App;
use crate::answer::json_text;

const PAGE: &str = include_str!("docs/index.html");
const STYLE: &str = include_str!("docs/docs.css");
const SCRIPT: &str = include_str!("docs/docs.js");

/// Nothing but the files of this page, and requests to this gateway.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

pub(crate) async fn document(State(app): State<Arc<App>>) -> Response {
    json_text(StatusCode::OK, app.document.clone())
}

pub(crate) async fn page() -> Response {
    file("text/html; charset=utf-8", PAGE)
}

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", STYLE)
}

pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", SCRIPT)
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // The next version of the gateway has another page.
        (CACHE_CONTROL, "no-cache"),
    ]
    .map(|(name, value)| (name, HeaderValue::from_static(value)));
    (headers, text).into_response()
}
