//! The dashboard: pages for people, at `/`.
//!
//! It is a client of the API like any other, only inside: what a page shows it asks the API for, and
//! what a form changes it asks the API to change, in the name of the key that was signed in with. So
//! there is one place that decides who may do what, and a page cannot show what the API would not.
//!
//! Reading order: [`session`] who is there, [`api`] how a page asks, [`fields`] what a form sent,
//! [`chrome`] what every page has around it, [`live`] how a page stays true while it is looked at;
//! then one file per page.

mod api;
mod assets;
mod chart;
mod chrome;
mod cookies;
mod fields;
mod html;
pub(crate) mod live;
mod paths;
mod session;
mod words;

mod audit;
mod dead_letters;
mod deliveries;
mod endpoints;
mod events;
mod first_run;
mod hubs;
mod jobs;
mod keys;
mod nodes;
mod overview;
mod policy_editor;
mod search;
mod settings;
mod sign_in;
mod sources;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::header::{CONTENT_TYPE, SET_COOKIE};
use tokio::sync::Semaphore;

use crate::App;
use crate::problem::Problem;
use cookies::{Cookie, Transport};
use html::{guard, is_part};

/// What axum calls a page.
const TEXT_HTML: &str = "text/html; charset=utf-8";

/// What the pages can reach.
#[derive(Debug, Clone)]
pub(crate) struct Dashboard {
    pub(crate) app: Arc<App>,
    /// The routes of the API, to be asked from inside.
    pub(crate) api: Router,
    /// Places of pages that are told when to look again.
    live: Arc<Semaphore>,
}

/// The pages, over the routes of the API.
pub(crate) fn pages(app: Arc<App>, api: Router) -> Router {
    let dashboard = Dashboard { app, api, live: Arc::new(Semaphore::new(live::MAX_LIVE)) };
    Router::new()
        .merge(assets::routes())
        .merge(sign_in::routes())
        .merge(live::routes())
        .merge(overview::routes())
        .merge(first_run::routes())
        .merge(events::routes())
        .merge(deliveries::routes())
        .merge(dead_letters::routes())
        .merge(jobs::routes())
        .merge(search::routes())
        .merge(endpoints::routes())
        .merge(policy_editor::routes())
        .merge(sources::routes())
        .merge(hubs::routes())
        .merge(keys::routes())
        .merge(audit::routes())
        .merge(nodes::routes())
        .merge(settings::routes())
        .method_not_allowed_fallback(async || Problem::wrong_method())
        .layer(from_fn_with_state(dashboard.clone(), finish))
        .with_state(dashboard)
}

/// What every answer of the dashboard needs: the headers under which nothing from elsewhere runs, and
/// that what is shown once is not shown again.
async fn finish(
    State(Dashboard { app, .. }): State<Dashboard>,
    request: Request,
    next: Next,
) -> Response {
    let transport = Transport::of(app.options.public_url.as_deref(), request.headers());
    let shows_said =
        !is_part(request.headers()) && Cookie::Said.read(transport, request.headers()).is_some();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let is_page = headers.get(CONTENT_TYPE).is_some_and(|kind| kind == TEXT_HTML);
    if shows_said && is_page {
        headers.append(SET_COOKIE, Cookie::Said.forget(transport));
    }
    guard(headers);
    response
}
