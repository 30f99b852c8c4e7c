//! How the API says yes: JSON.

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use crate::cursor::Cursor;
use crate::problem::Problem;

/// What a handler comes to.
pub(crate) type Answer = Result<Response, Problem>;

pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "an answer could not be written");
        Problem::internal()
    })?;
    Ok(json_text(status, body))
}

/// An answer that is JSON already.
pub(crate) fn json_text(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// One page of a list, and where the next one starts.
pub(crate) fn list<T: Serialize, C: Cursor>(data: &[T], next: Option<&C>) -> Answer {
    #[derive(Serialize)]
    struct List<'a, T> {
        data: &'a [T],
        next_cursor: Option<String>,
    }

    json(StatusCode::OK, &List { data, next_cursor: next.map(Cursor::to_text) })
}
