//! `/healthz` and `/readyz`: for whoever starts and watches the process. They need no key.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use crate::App;
use crate::answer::{Answer, json_text};
use crate::problem::Problem;

/// The process answers.
pub(crate) async fn alive() -> Response {
    json_text(StatusCode::OK, r#"{"status":"ok"}"#)
}

/// The store answers too, and where several nodes share it, this is one of them. The start-up load
/// is done before there is anybody to ask.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Answer {
    app.engine.store().ping().await?;
    if !app.engine.is_ready() {
        let lapsed = "the others cannot know that this node runs, and may have taken over";
        return Err(Problem::unavailable(lapsed));
    }
    Ok(json_text(StatusCode::OK, r#"{"status":"ready"}"#))
}
