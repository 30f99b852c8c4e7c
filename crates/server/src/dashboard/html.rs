//! Pages as answers: rendered from templates that were checked when the gateway was built, and sent
//! with headers under which nothing from elsewhere can run.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::api::Refused;
use super::session::Visitor;
use crate::problem::Problem;

/// Nothing but the files of this gateway, and requests to it.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'";

/// What a page comes to: itself, or a page that says why not.
pub(crate) type Shown = Result<Response, Sorry>;

/// A page, or a part of one that is put into a page that is open already.
pub(crate) fn show(template: &impl Template) -> Shown {
    show_with(StatusCode::OK, template)
}

/// The same with another status, such as 422 for a form that is shown again with what is wrong.
pub(crate) fn show_with(status: StatusCode, template: &impl Template) -> Shown {
    let text = template.render().map_err(|error| {
        tracing::error!(%error, "a page could not be rendered");
        Sorry::internal()
    })?;
    let mut response = (status, Html(text)).into_response();
    guard(response.headers_mut());
    Ok(response)
}

/// The headers of everything that the dashboard sends, where it has none of its own.
pub(crate) fn guard(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        // What one sees who signed in is not for whoever comes to the machine next.
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Why there is no page: shown as one of its own, without what needs a visitor.
#[derive(Debug)]
pub(crate) struct Sorry {
    status: StatusCode,
    detail: String,
    retry_after: Option<HeaderValue>,
}

impl Sorry {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the gateway could not make this page; its log says why",
        )
    }
}

impl From<Refused> for Sorry {
    fn from(refused: Refused) -> Self {
        Self::new(refused.status, refused.detail)
    }
}

impl From<Problem> for Sorry {
    fn from(problem: Problem) -> Self {
        let refused = Refused::from(&problem);
        let retry_after = problem.into_response().headers_mut().remove(RETRY_AFTER);
        Self { retry_after, ..refused.into() }
    }
}

#[derive(Template)]
#[template(path = "sorry.html")]
struct SorryPage<'a> {
    status: u16,
    title: &'a str,
    detail: &'a str,
}

impl IntoResponse for Sorry {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Something is wrong");
        let page = SorryPage { status: self.status.as_u16(), title, detail: &self.detail };
        // A template of three texts cannot fail to render; if it does, the status is still right.
        let text = page.render().unwrap_or_default();
        let mut response = (self.status, Html(text)).into_response();
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, after);
        }
        guard(response.headers_mut());
        response
    }
}

#[derive(Template)]
#[template(path = "ask_again.html")]
struct AskAgain<'a> {
    path: &'a str,
}

/// A page that asks for the page at `path` at once: then it is a page of this gateway that asks, and
/// the browser says who it is.
pub(super) fn ask_again(path: &str) -> Response {
    show(&AskAgain { path }).into_response()
}

/// Whether a part of a page was asked for by the page itself.
pub(crate) fn is_part(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request")
}

/// Sends the browser to another page, after a change; `said` is shown there once.
pub(crate) fn go_to(visitor: &Visitor, path: &str, said: &str) -> Response {
    super::session::redirect(visitor, path, Some(said))
}
