//! `/healthz` and `/readyz`: for whoever starts and watches the process. They need no key.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use crate::App;
use crate::answer::{Answer, json_text};

/// The process answers.
pub(crate) async fn alive() -> Response {
    json_text(StatusCode::OK, r#"{"status":"ok"}"#)
}

/// The store answers too. The start-up load is done before there is anybody to ask.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Answer {
    app.engine.store().ping().await?;
    Ok(json_text(StatusCode::OK, r#"{"status":"ready"}"#))
}
