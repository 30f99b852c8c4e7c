//! Who is there: a session, begun by signing in with an API key and kept in a cookie.
//!
//! The cookie has 256 random bits; the store knows their hash, so whoever reads the store cannot
//! become anybody. A session ends by signing out, by being left alone, by its age, and with its key,
//! which is looked at for every page.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{LOCATION, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use postrider_core::{TenantId, Timestamp};
use postrider_store::Error;
use postrider_store::audit::Actor;
use postrider_store::registry::Role;
use postrider_store::sessions::SessionRecord;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Dashboard;
use super::api::Api;
use super::cookies::{Cookie, Transport};
use super::html::{self, Sorry, guard};
use super::live;
use super::paths::local_path;
use crate::App;
use crate::auth::{self, Caller};
use crate::keys::{Denied, Known, hash};
use crate::problem::Problem;

/// How long a session lasts that nobody uses.
pub(crate) const IDLE: Duration = Duration::from_mins(30);
/// How long it lasts at most.
pub(crate) const AGE: Duration = Duration::from_hours(12);
/// How often it is noted that it is used.
const TOUCH_EVERY: Duration = Duration::from_mins(1);
/// How many old ones are ended when a new one begins.
const MAX_ENDED_AT_ONCE: usize = 256;
/// How long a browser keeps what it is told to show once.
const SAID_LASTS_SECONDS: u64 = 60;
const MAX_SAID_CHARS: usize = 400;
/// The element that a page renews on its own, as htmx names it.
const LIVE_ELEMENT: &str = "live";
/// So that the token of forms cannot be taken for any other hash of the session's token.
const CSRF_LABEL: &[u8] = b"postrider dashboard forms\0";

/// Somebody who has signed in. Taken first by every page.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    /// The API in the tenant that is looked at.
    pub(crate) api: Api,
    pub(crate) caller: Caller,
    /// The name of the key.
    pub(crate) who: String,
    pub(crate) tenant_name: String,
    /// To be sent with every change.
    pub(crate) csrf: Csrf,
    /// What the last change came to, shown once.
    pub(crate) said: Option<String>,
    pub(crate) now: Timestamp,
    pub(crate) app: Arc<App>,
    pub(super) session: SessionRecord,
    pub(super) transport: Transport,
    asked: Asked,
    routes: Router,
}

/// For what a page was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Page,
    /// By the script of a page that is open.
    Part,
}

impl Visitor {
    pub(crate) fn is_admin(&self) -> bool {
        self.caller.role == Role::Admin
    }

    /// The names of the tenants that it can look at; none where it has no choice.
    pub(crate) fn tenants(&self) -> Vec<String> {
        match self.caller.role {
            Role::Admin => {
                let mut tenants = self.app.keys.tenants();
                tenants.reverse();
                tenants.into_iter().map(|tenant| tenant.name).collect()
            }
            Role::Tenant(_) => Vec::new(),
        }
    }

    /// The API as far as the key reaches: for an admin the keys and changes of all tenants, for
    /// others the same as [`Self::api`].
    pub(crate) fn everywhere(&self) -> Api {
        match self.caller.role {
            Role::Admin => Api::new(self.routes.clone(), Caller { reach: None, ..self.caller }),
            Role::Tenant(_) => self.api.clone(),
        }
    }

    /// Who it is by the cookie it has, if that is worth anything.
    pub(super) async fn recognise(
        parts: &Parts,
        dashboard: &Dashboard,
    ) -> Result<Option<Self>, Problem> {
        let Dashboard { app, api, .. } = dashboard;
        let now = app.engine.clock().now();
        app.throttle.admit(&parts.extensions, now)?;
        let transport = Transport::of(app.options.public_url.as_deref(), &parts.headers);
        let Some(token) = Cookie::Session.read(transport, &parts.headers) else { return Ok(None) };
        let Some(session) = find(app, hash(token), now).await? else { return Ok(None) };
        let known = match app.keys.visit(session.key, now, app.throttle.per_key()) {
            Ok(known) => known,
            Err(Denied::Unknown | Denied::Revoked | Denied::Expired) => return Ok(None),
            Err(too_often @ Denied::TooOften(_)) => return Err(auth::refuse(too_often)),
        };
        let Known { id, role } = known;
        let renews_itself = parts.uri.path() == live::PATH
            || parts.headers.get("hx-trigger").is_some_and(|id| id == LIVE_ELEMENT);
        // A page that is left open is not somebody who uses it.
        if !renews_itself && session.seen_at.plus(TOUCH_EVERY) <= now {
            app.engine.store().touch_session(session.sha256, now).await?;
        }
        let tenant = match role {
            Role::Admin => session.tenant,
            Role::Tenant(own) => own,
        };
        let caller = Caller { tenant, actor: Actor::Key(id), role, reach: Some(tenant) };
        let asked = if html::is_part(&parts.headers) { Asked::Part } else { Asked::Page };
        Ok(Some(Self {
            api: Api::new(api.clone(), caller),
            caller,
            who: app.keys.record(id).map(|key| key.name).unwrap_or_default(),
            tenant_name: app.keys.tenant_name(tenant).unwrap_or_default(),
            csrf: Csrf::of(token),
            said: (asked == Asked::Page).then(|| read_said(transport, &parts.headers)).flatten(),
            now,
            app: Arc::clone(app),
            session,
            transport,
            asked,
            routes: api.clone(),
        }))
    }
}

/// The session with this hash, if it has not ended.
pub(super) async fn find(
    app: &App,
    sha256: [u8; 32],
    now: Timestamp,
) -> Result<Option<SessionRecord>, Error> {
    let found = app.engine.store().session(sha256).await?;
    Ok(found.filter(|session| now < session.seen_at.plus(IDLE) && now < session.begun_at.plus(AGE)))
}

/// Begins a session: what the browser is to keep.
pub(super) async fn begin(
    app: &App,
    Known { id, role }: Known,
    transport: Transport,
    now: Timestamp,
) -> Result<HeaderValue, Error> {
    let token = URL_SAFE_NO_PAD.encode(app.engine.entropy().secret_bytes());
    let tenant = match role {
        Role::Admin => TenantId::DEFAULT,
        Role::Tenant(own) => own,
    };
    let store = app.engine.store();
    store.end_old_sessions(now.minus(AGE), now.minus(IDLE), MAX_ENDED_AT_ONCE).await?;
    let sha256 = hash(&token);
    store
        .put_session(SessionRecord { sha256, key: id, tenant, begun_at: now, seen_at: now })
        .await?;
    Ok(Cookie::Session.keep(transport, &token, AGE.as_secs()))
}

/// What every form of a session carries: nobody who cannot read its pages knows it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Csrf(String);

impl Csrf {
    fn of(token: &str) -> Self {
        let digest = Sha256::new().chain_update(CSRF_LABEL).chain_update(token).finalize();
        Self(URL_SAFE_NO_PAD.encode(digest))
    }

    pub(super) fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

impl fmt::Display for Csrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Csrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Csrf(…)")
    }
}

/// There is no visitor, and so no page.
#[derive(Debug)]
pub(crate) enum NoVisitor {
    /// The way to the page where one signs in, and from there back here.
    SignInFirst {
        next: String,
        part: bool,
    },
    /// The browser came from another site and has not said who it is: it does so when the page asks
    /// for itself.
    AskAgain(String),
    Sorry(Sorry),
}

impl FromRequestParts<Dashboard> for Visitor {
    type Rejection = NoVisitor;

    async fn from_request_parts(
        parts: &mut Parts,
        dashboard: &Dashboard,
    ) -> Result<Self, NoVisitor> {
        match Self::recognise(parts, dashboard).await {
            Ok(Some(visitor)) => Ok(visitor),
            Ok(None) => Err(NoVisitor::nobody(parts)),
            Err(problem) => Err(NoVisitor::Sorry(problem.into())),
        }
    }
}

impl NoVisitor {
    fn nobody(parts: &Parts) -> Self {
        let here = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let here = local_path(here).unwrap_or_else(|| "/".to_owned());
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let part = html::is_part(&parts.headers);
        let readable = parts.method == Method::GET || parts.method == Method::HEAD;
        if readable && matches!(header("sec-fetch-site"), Some("cross-site" | "same-site")) {
            return Self::AskAgain(here);
        }
        let next = match (part, readable) {
            // What the browser shows is the page around the part.
            (true, _) => header("hx-current-url").and_then(path_of),
            (false, true) => Some(here),
            (false, false) => None,
        };
        Self::SignInFirst { next: next.unwrap_or_else(|| "/".to_owned()), part }
    }
}

fn path_of(url: &str) -> Option<String> {
    local_path(&url::Url::parse(url).ok()?[url::Position::BeforePath..])
}

impl From<Sorry> for NoVisitor {
    fn from(sorry: Sorry) -> Self {
        Self::Sorry(sorry)
    }
}

impl IntoResponse for NoVisitor {
    fn into_response(self) -> Response {
        match self {
            Self::SignInFirst { next, part } => {
                let path = match next.as_str() {
                    "/" => "/sign-in".to_owned(),
                    next => {
                        let mut query = url::form_urlencoded::Serializer::new(String::new());
                        format!("/sign-in?{}", query.append_pair("next", next).finish())
                    }
                };
                let mut response = way_to(if part { Asked::Part } else { Asked::Page }, &path);
                if part {
                    *response.status_mut() = StatusCode::UNAUTHORIZED;
                }
                response
            }
            Self::AskAgain(path) => html::ask_again(&path),
            Self::Sorry(sorry) => sorry.into_response(),
        }
    }
}

/// Sends the browser to a page of the gateway: for forms and for parts of pages alike. `said` is shown
/// there once.
pub(crate) fn redirect(visitor: &Visitor, path: &str, said: Option<&str>) -> Response {
    let mut response = way_to(visitor.asked, path);
    if let Some(said) = said {
        let said: String = said.chars().take(MAX_SAID_CHARS).collect();
        let said = URL_SAFE_NO_PAD.encode(said);
        let cookie = Cookie::Said.keep(visitor.transport, &said, SAID_LASTS_SECONDS);
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// The same for a browser that has just been told who it is, or that it is nobody any more.
pub(super) fn redirect_with(cookie: HeaderValue, path: &str) -> Response {
    let mut response = way_to(Asked::Page, path);
    response.headers_mut().append(SET_COOKIE, cookie);
    response
}

/// The same for a page that shows nothing to whoever is known already.
pub(super) fn redirect_to(path: &str) -> Response {
    way_to(Asked::Page, path)
}

fn way_to(asked: Asked, path: &str) -> Response {
    // Paths are made of ids and encoded text; the beginning is better than no way at all.
    let path = HeaderValue::from_str(path).unwrap_or_else(|_| HeaderValue::from_static("/"));
    let mut response = match asked {
        Asked::Page => (StatusCode::SEE_OTHER, [(LOCATION, path)]).into_response(),
        // A script would follow the other kind by itself, and put the new page into the old one.
        Asked::Part => (StatusCode::OK, [("hx-redirect", path)]).into_response(),
    };
    guard(response.headers_mut());
    response
}

fn read_said(transport: Transport, headers: &HeaderMap) -> Option<String> {
    let said = URL_SAFE_NO_PAD.decode(Cookie::Said.read(transport, headers)?).ok()?;
    let said = String::from_utf8(said).ok().filter(|said| !said.is_empty())?;
    Some(said.chars().take(MAX_SAID_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_forms_is_of_one_session_and_hidden() {
        let (mine, other) = (Csrf::of("a"), Csrf::of("b"));
        assert!(mine.is(&mine.to_string()));
        assert!(!mine.is(&other.to_string()));
        assert!(!mine.is(""));
        assert_ne!(mine.to_string(), URL_SAFE_NO_PAD.encode(hash("a")));
        assert_eq!(format!("{mine:?}"), "Csrf(…)");
    }
}
