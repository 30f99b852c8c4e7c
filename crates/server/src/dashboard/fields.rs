//! What a form sent, taken only from a page of this gateway: every change carries the session's token.

use std::fmt;
use std::ops::Deref;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts as _, Request};
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use url::Url;

use super::Dashboard;
use super::html::Sorry;
use super::session::{NoVisitor, Visitor};
use crate::App;
use crate::extract::read_body;

/// The largest form.
const FORM_LIMIT_BYTES: usize = 256 << 10;
/// How many fields it has at most.
const MAX_FIELDS: usize = 1_000;
const FORM_TYPE: &str = "application/x-www-form-urlencoded";
/// Where the session's token is: in a field, or in a header that the script of a page adds.
const TOKEN_FIELD: &str = "csrf";
const TOKEN_HEADER: &str = "x-csrf-token";

/// A form that was sent by a page of this visitor. Taken instead of [`Visitor`] by whatever changes
/// something: without the session's token there is no such thing.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) visitor: Visitor,
    fields: Fields,
}

/// What was filled in.
pub(crate) struct Fields {
    pairs: Vec<(String, String)>,
}

impl Fields {
    /// What a field has, spaces around it left out; none where it is missing or empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).map(str::trim).find(|text| !text.is_empty())
    }

    /// As it was typed, empty where it is missing.
    pub(crate) fn raw(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    /// A checkbox, or a button.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Reads the body of a form.
    pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Self, Sorry> {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case(FORM_TYPE)) {
            return Err(Sorry::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("a form is sent as {FORM_TYPE}"),
            ));
        }
        let body = read_body(headers, body, FORM_LIMIT_BYTES).await?;
        let pairs: Vec<_> = url::form_urlencoded::parse(&body)
            .take(MAX_FIELDS + 1)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        if pairs.len() > MAX_FIELDS {
            let detail = format!("a form has at most {MAX_FIELDS} fields; nothing was changed");
            return Err(Sorry::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
        }
        Ok(Self { pairs })
    }
}

/// What was filled in may be secret.
impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pairs.iter().map(|(name, _)| name)).finish()
    }
}

impl Deref for Form {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.fields
    }
}

impl FromRequest<Dashboard> for Form {
    type Rejection = NoVisitor;

    async fn from_request(request: Request, dashboard: &Dashboard) -> Result<Self, NoVisitor> {
        let (mut parts, body) = request.into_parts();
        check_origin(&parts, &dashboard.app)?;
        let visitor = Visitor::from_request_parts(&mut parts, dashboard).await?;
        let fields = Fields::read(&parts.headers, body).await?;
        let in_header = parts.headers.get(TOKEN_HEADER).and_then(|token| token.to_str().ok());
        let shown = in_header.unwrap_or_else(|| fields.raw(TOKEN_FIELD));
        if !visitor.csrf.is(shown) {
            return Err(NoVisitor::Sorry(Sorry::new(
                StatusCode::FORBIDDEN,
                "this form is of another session, or was not sent by a page of this gateway; nothing \
                 was changed. Go back, load the page again and repeat it",
            )));
        }
        Ok(Self { visitor, fields })
    }
}

/// Refuses what a page of another site has sent, where the browser says so.
pub(super) fn check_origin(parts: &Parts, app: &App) -> Result<(), Sorry> {
    let headers = &parts.headers;
    if let Some(site) = headers.get("sec-fetch-site")
        && !(site == "same-origin" || site == "none")
    {
        return Err(Sorry::new(
            StatusCode::FORBIDDEN,
            "this was sent by a page of another site; nothing was changed",
        ));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str));
    let origin = origin.to_str().unwrap_or_default();
    if is_own(origin, host, app.options.public_url.as_deref()) {
        return Ok(());
    }
    Err(Sorry::new(
        StatusCode::FORBIDDEN,
        "this was sent by a page of another site; nothing was changed. If a proxy in front of the \
         gateway changes the Host header, tell the gateway its public URL",
    ))
}

/// Whether an origin is that of this gateway: as the browser calls it, or as it is configured.
fn is_own(origin: &str, host: Option<&str>, public_url: Option<&str>) -> bool {
    let Ok(origin) = Url::parse(origin) else { return false };
    // What is more than a name and a port would be read as another name.
    let host = host.filter(|host| !host.contains(['@', '/', '\\', '?', '#']));
    let as_called = host.and_then(|host| Url::parse(&format!("{}://{host}", origin.scheme())).ok());
    let as_configured = public_url.and_then(|url| Url::parse(url).ok());
    let known = [as_called, as_configured];
    origin.has_host() && known.iter().flatten().any(|own| own.origin() == origin.origin())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_own_by_scheme_host_and_port() {
        let public = Some("https://hooks.example/");
        for (origin, host, public_url, own) in [
            ("http://127.0.0.1:7070", Some("127.0.0.1:7070"), None, true),
            ("http://127.0.0.1:7071", Some("127.0.0.1:7070"), None, false),
            ("https://gateway.example", Some("gateway.example"), None, true),
            ("https://gateway.example", Some("GATEWAY.example:443"), None, true),
            ("https://evil.example", Some("gateway.example"), None, false),
            ("https://gateway.example.evil.example", Some("gateway.example"), None, false),
            ("https://hooks.example", Some("10.0.0.1:7070"), public, true),
            ("http://hooks.example", Some("10.0.0.1:7070"), public, false),
            ("null", Some("gateway.example"), None, false),
            ("null", Some("null"), None, false),
            ("", Some("gateway.example"), None, false),
            ("https://gateway.example", None, None, false),
            ("https://evil.example", Some("gateway.example@evil.example"), None, false),
        ] {
            assert_eq!(is_own(origin, host, public_url), own, "{origin} at {host:?}");
        }
    }

    #[test]
    fn what_was_filled_in_is_not_in_debug_output() {
        let fields = Fields { pairs: vec![("key".into(), "pr_secret".into())] };
        assert_eq!(format!("{fields:?}"), r#"["key"]"#);
    }
}
