//! `/sign-in`, `/sign-out` and `/tenant`: how a session begins and ends, and which tenant it looks at.

use askama::Template;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use http::header::{RETRY_AFTER, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use postrider_core::Timestamp;
use postrider_store::sessions::SessionRecord;

use super::Dashboard;
use super::api::Refused;
use super::cookies::{Cookie, Transport};
use super::fields::{self, Fields, Form};
use super::html::{Shown, Sorry, show_with};
use super::paths::local_path;
use super::session::{self, Visitor};
use crate::App;
use crate::auth;
use crate::keys::{Known, hash};
use crate::problem::Problem;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/sign-in", get(page).post(sign_in))
        .route("/sign-out", post(sign_out))
        .route("/tenant", post(choose_tenant))
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct Page<'a> {
    /// Where to go from here.
    next: &'a str,
    wrong: Option<&'a str>,
}

async fn page(State(dashboard): State<Dashboard>, request: Request) -> Shown {
    let (parts, _) = request.into_parts();
    let mut once = None;
    let mut next = "/".to_owned();
    for (name, value) in
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
    {
        match &*name {
            "once" => once = Some(value.into_owned()),
            "next" => next = way_on(&value),
            _ => {}
        }
    }
    // Whoever only looks at a link, as programs do that show what is behind it, must not use it up.
    if let Some(token) = once.filter(|_| parts.method == Method::GET) {
        return follow_link(&dashboard.app, &parts, &token).await;
    }
    if Visitor::recognise(&parts, &dashboard).await?.is_some() {
        return Ok(session::redirect_to(&next));
    }
    show_with(StatusCode::OK, &Page { next: &next, wrong: None })
}

/// Where to go after signing in: a page of this gateway that does not lead back here.
fn way_on(next: &str) -> String {
    let next = local_path(next).filter(|path| !path.starts_with("/sign-"));
    next.unwrap_or_else(|| "/".to_owned())
}

async fn follow_link(app: &App, parts: &Parts, token: &str) -> Shown {
    let now = app.engine.clock().now();
    app.throttle.admit(&parts.extensions, now)?;
    let Some(key) = app.keys.take_link(token, now) else {
        let used = "this link has been used, or is too old; sign in with a key";
        return refuse(app.throttle.failed_login(&parts.extensions, now, used), "/");
    };
    match app.keys.visit(key, now, app.throttle.per_key()) {
        Ok(known) => enter(app, &parts.headers, known, now, "/").await,
        Err(denied) => refuse(auth::refuse(denied), "/"),
    }
}

async fn sign_in(State(dashboard): State<Dashboard>, request: Request) -> Shown {
    let app = &dashboard.app;
    let (parts, body) = request.into_parts();
    fields::check_origin(&parts, app)?;
    let now = app.engine.clock().now();
    app.throttle.admit(&parts.extensions, now)?;
    let form = Fields::read(&parts.headers, body).await?;
    let next = way_on(form.raw("next"));
    let Some(key) = form.text("key") else {
        let page = Page { next: &next, wrong: Some("enter an API key") };
        return show_with(StatusCode::UNPROCESSABLE_ENTITY, &page);
    };
    match auth::recognise(key, &parts.extensions, app, now) {
        Ok(known) => enter(app, &parts.headers, known, now, &next).await,
        Err(problem) => refuse(problem, &next),
    }
}

/// Shows the form again, with why the key opens nothing.
fn refuse(problem: Problem, next: &str) -> Shown {
    let Refused { status, detail, errors: _ } = Refused::from(&problem);
    let mut response = show_with(status, &Page { next, wrong: Some(&detail) })?;
    if let Some(after) = problem.into_response().headers_mut().remove(RETRY_AFTER) {
        response.headers_mut().insert(RETRY_AFTER, after);
    }
    Ok(response)
}

/// Begins a session, with a token that nobody has seen before, and ends the one that this browser had.
async fn enter(app: &App, headers: &HeaderMap, known: Known, now: Timestamp, next: &str) -> Shown {
    let transport = Transport::of(app.options.public_url.as_deref(), headers);
    if let Some(before) = Cookie::Session.read(transport, headers) {
        app.engine.store().end_session(hash(before)).await.map_err(Problem::from)?;
    }
    let cookie = session::begin(app, known, transport, now).await.map_err(Problem::from)?;
    Ok(session::redirect_with(cookie, next))
}

/// Ends the session for good: whoever has a copy of the cookie has nothing.
async fn sign_out(form: Form) -> Shown {
    let visitor = &form.visitor;
    let Visitor { app, session, transport, .. } = visitor;
    app.engine.store().end_session(session.sha256).await.map_err(Problem::from)?;
    let mut response = session::redirect(visitor, "/sign-in", None);
    response.headers_mut().append(SET_COOKIE, Cookie::Session.forget(*transport));
    Ok(response)
}

/// An admin chooses the tenant to look at.
async fn choose_tenant(form: Form) -> Shown {
    let visitor = &form.visitor;
    if !visitor.is_admin() {
        return Err(Sorry::new(
            StatusCode::FORBIDDEN,
            "the key of a tenant looks at its own tenant only",
        ));
    }
    let named = form.text("tenant").unwrap_or_default();
    let Some(tenant) = visitor.app.keys.tenant_named(named) else {
        return Err(Sorry::from(Problem::not_found("tenant")));
    };
    let session = SessionRecord { tenant, seen_at: visitor.now, ..visitor.session.clone() };
    visitor.app.engine.store().put_session(session).await.map_err(Problem::from)?;
    Ok(session::redirect(visitor, &way_on(form.raw("next")), None))
}
