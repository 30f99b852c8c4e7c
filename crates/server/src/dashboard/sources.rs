//! The pages of sources: the URLs that third parties post to, how what comes in is verified, what came
//! last, and a command that tries it.

pub(super) mod confirm;
mod draft;
mod sample;

use std::fmt::Display;
use std::str::FromStr;

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::routing::{get, post};
use futures_util::future::try_join_all;
use http::header::HOST;
use http::{HeaderMap, Method, StatusCode, Uri};
use postrider_core::source::{OnInvalid, Place, TypeFrom};
use postrider_core::verification::Scheme;
use postrider_core::{EventId, SourceId, Timestamp};
use serde::Deserialize;
use url::form_urlencoded;

use super::Dashboard;
use super::api::{List, Refused};
use super::chrome::{Chrome, Section};
use super::cookies::Transport;
use super::fields::Form;
use super::html::{Shown, Sorry, go_to, show, show_with};
use super::session::Visitor;
use super::words::{self, Moment, moment};
use confirm::Confirm;
use draft::{Draft, SCHEMES};

/// How many stand on a page. Of each the last event is looked for, which may be a long way back.
const SHOWN: usize = 12;
/// How many of the last events stand on the page of a source.
const LAST: usize = 5;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/sources", get(list).post(create))
        .route("/sources/new", get(blank))
        .route("/sources/{id}", get(page))
        .route("/sources/{id}/edit", get(edit).post(change))
        .route("/sources/{id}/rotate-token", get(ask_rotate).post(rotate))
        .route("/sources/{id}/delete", get(ask_delete).post(delete))
        .route("/sources/options", post(options))
}

/// A source as the API shows it.
#[derive(Debug, Clone, Deserialize)]
struct Source {
    id: SourceId,
    name: String,
    verify: Verify,
    on_invalid: OnInvalid,
    type_from: TypeFrom,
    dedup_from: Option<Place>,
    keep_headers: Keep,
    /// Not in lists.
    url: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

#[derive(Debug, Clone, Deserialize)]
struct Verify {
    #[serde(flatten)]
    scheme: Scheme,
    /// How many are live.
    secrets: usize,
}

/// `"all"`, or a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Keep {
    All(String),
    Named(Vec<String>),
}

/// An event as far as it says what a source received.
#[derive(Debug, Clone, Deserialize)]
struct Webhook {
    id: EventId,
    r#type: String,
    received_at: Timestamp,
    verified: Option<bool>,
}

impl Source {
    fn scheme_name(&self) -> &'static str {
        let scheme = self.verify.scheme.as_str();
        SCHEMES.iter().find(|(name, _)| *name == scheme).map_or(scheme, |(_, label)| label)
    }

    fn on_invalid_words(&self) -> &'static str {
        match self.on_invalid {
            OnInvalid::Reject => "refused with 401, and a notice is given",
            OnInvalid::Mark => "kept, and marked as not verified",
        }
    }

    fn type_words(&self) -> String {
        match &self.type_from {
            TypeFrom::Header(name) => format!("the header {name}"),
            TypeFrom::JsonPointer(pointer) => format!("{pointer} in the body"),
            TypeFrom::Fixed(kind) => format!("always {kind}"),
        }
    }

    fn dedup_words(&self) -> String {
        match &self.dedup_from {
            None => "nothing: every webhook is an event".to_owned(),
            Some(Place::Header(name)) => format!("the header {name}"),
            Some(Place::JsonPointer(pointer)) => format!("{pointer} in the body"),
        }
    }

    fn keep_words(&self) -> String {
        match &self.keep_headers {
            Keep::All(all) => format!("{all} but those of the connection and credentials"),
            Keep::Named(names) => names.join(", "),
        }
    }
}

/// What is known of the last webhook of a source.
#[derive(Debug)]
struct Last {
    id: EventId,
    kind: String,
    received: Moment,
    verified: Option<bool>,
}

impl Last {
    fn of(event: Webhook, now: Timestamp) -> Self {
        Self {
            id: event.id,
            kind: event.r#type,
            received: moment(event.received_at, now),
            verified: event.verified,
        }
    }
}

/// The last events of a source, and whether there may be more further back than was looked.
async fn last_of(
    visitor: &Visitor,
    id: SourceId,
    limit: usize,
) -> Result<(Vec<Webhook>, bool), Refused> {
    let path = format!("/v1/events?source={id}&limit={limit}");
    let found: List<Webhook> = visitor.api.get(&path).await?;
    Ok((found.data, found.next_cursor.is_some()))
}

async fn source(visitor: &Visitor, id: SourceId) -> Result<Source, Refused> {
    visitor.api.get(&format!("/v1/sources/{id}")).await
}

#[derive(Template)]
#[template(path = "sources.html")]
struct ListPage {
    chrome: Chrome,
    rows: Vec<Row>,
    next: Option<String>,
}

struct Row {
    source: Source,
    url: String,
    last: Option<Last>,
    /// Nothing was found, and not everything was looked at.
    is_long_ago: bool,
}

async fn list(visitor: Visitor, headers: HeaderMap, uri: Uri, RawQuery(query): RawQuery) -> Shown {
    let (limit, cursor) = (SHOWN.to_string(), parameter(query.as_deref(), "cursor"));
    let path = with_query("/v1/sources", [("limit", Some(&limit)), ("cursor", cursor.as_ref())]);
    let listed: List<Source> = visitor.api.get(&path).await?;
    let address = address(&visitor, &headers, &uri);
    let now = visitor.now;
    let rows = listed.data.iter().map(async |listed| {
        let whole = source(&visitor, listed.id).await?;
        let (last, more) = last_of(&visitor, listed.id, 1).await?;
        let last = last.into_iter().next().map(|event| Last::of(event, now));
        let is_long_ago = last.is_none() && more;
        let url = url_of(&address, &whole);
        Ok::<_, Refused>(Row { url, source: whole, last, is_long_ago })
    });
    let rows = try_join_all(rows).await?;
    let chrome = Chrome::new(&visitor, Section::Sources);
    show(&ListPage {
        chrome,
        rows,
        next: listed.next_cursor.map(|next| next_page("/sources", &next)),
    })
}

#[derive(Template)]
#[template(path = "source.html")]
struct SourcePage {
    chrome: Chrome,
    source: Source,
    url: String,
    command: String,
    last: Vec<Last>,
    created: Moment,
    updated: Moment,
}

async fn page(visitor: Visitor, headers: HeaderMap, uri: Uri, Path(id): Path<String>) -> Shown {
    let id = known(&id)?;
    let source = source(&visitor, id).await?;
    let (last, _) = last_of(&visitor, id, LAST).await?;
    let now = visitor.now;
    let url = url_of(&address(&visitor, &headers, &uri), &source);
    show(&SourcePage {
        chrome: Chrome::new(&visitor, Section::Sources),
        command: sample::command(&source.verify.scheme, &url),
        url,
        last: last.into_iter().map(|event| Last::of(event, now)).collect(),
        created: moment(source.created_at, now),
        updated: moment(source.updated_at, now),
        source,
    })
}

/// The form, for a new source or one that is there.
#[derive(Template)]
#[template(path = "source_form.html")]
struct FormPage {
    chrome: Chrome,
    draft: Draft,
    /// The one that is changed, and what it is called.
    editing: Option<(SourceId, String)>,
    /// The scheme it has: its secrets stay if none are given.
    had_scheme: &'static str,
    keeps_secrets: bool,
    schemes: [(&'static str, &'static str); SCHEMES.len()],
    errors: Errors,
}

/// The part of the form that depends on the scheme.
#[derive(Template)]
#[template(path = "source_options.html")]
struct OptionsPart {
    draft: Draft,
    keeps_secrets: bool,
    errors: Errors,
}

/// What the API had against what was filled in.
#[derive(Debug, Default)]
pub(super) struct Errors(pub(super) Option<Refused>);

impl Errors {
    /// What is wrong with a field, or with a part of it.
    pub(super) fn at(&self, field: &str) -> Option<&str> {
        let errors = &self.0.as_ref()?.errors;
        let found = errors.iter().find(|error| error.field.starts_with(field));
        found.map(|error| error.message.as_str())
    }

    /// All of it in a sentence.
    pub(super) fn detail(&self) -> Option<&str> {
        self.0.as_ref().map(|refused| refused.detail.as_str())
    }
}

impl FormPage {
    /// `before` is the source that is changed.
    fn new(visitor: &Visitor, draft: Draft, before: Option<&Source>, errors: Errors) -> Self {
        let had_scheme = before.map_or("", |source| source.verify.scheme.as_str());
        Self {
            chrome: Chrome::new(visitor, Section::Sources),
            editing: before.map(|source| (source.id, source.name.clone())),
            // The secrets of one scheme are none of another's.
            keeps_secrets: before.is_some_and(|source| source.verify.secrets > 0)
                && had_scheme == draft.scheme,
            had_scheme,
            draft,
            schemes: SCHEMES,
            errors,
        }
    }
}

async fn blank(visitor: Visitor) -> Shown {
    show(&FormPage::new(&visitor, Draft::blank(), None, Errors::default()))
}

async fn edit(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let source = source(&visitor, known(&id)?).await?;
    show(&FormPage::new(&visitor, Draft::of(&source), Some(&source), Errors::default()))
}

/// The fields of the scheme that was chosen, into the form that is being filled in.
async fn options(form: Form) -> Shown {
    let draft = Draft::read(&form);
    let keeps_secrets = form.text("had_scheme") == Some(&draft.scheme);
    show(&OptionsPart { draft, keeps_secrets, errors: Errors::default() })
}

async fn create(form: Form) -> Shown {
    let (visitor, draft) = (&form.visitor, Draft::read(&form));
    // The button of those who have no script.
    if form.has("show_options") {
        return show(&FormPage::new(visitor, draft, None, Errors::default()));
    }
    let request = draft.request(&form, None);
    match visitor.api.send::<Source>(Method::POST, "/v1/sources", &request).await {
        Ok(made) => {
            let said = "The source was made. Give its URL to the provider.";
            Ok(go_to(visitor, &format!("/sources/{}", made.id), said))
        }
        Err(refused) => {
            let status = refused.status;
            show_with(status, &FormPage::new(visitor, draft, None, Errors(Some(refused))))
        }
    }
}

async fn change(Path(id): Path<String>, form: Form) -> Shown {
    let (visitor, draft) = (&form.visitor, Draft::read(&form));
    let before = source(visitor, known(&id)?).await?;
    if form.has("show_options") {
        return show(&FormPage::new(visitor, draft, Some(&before), Errors::default()));
    }
    let request = draft.request(&form, Some(&before));
    let path = format!("/v1/sources/{}", before.id);
    match visitor.api.send::<Source>(Method::PATCH, &path, &request).await {
        Ok(changed) => {
            let path = format!("/sources/{}", changed.id);
            Ok(go_to(visitor, &path, "The source was changed."))
        }
        Err(refused) => {
            let status = refused.status;
            let errors = Errors(Some(refused));
            show_with(status, &FormPage::new(visitor, draft, Some(&before), errors))
        }
    }
}

async fn ask_rotate(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let Source { id, name, .. } = source(&visitor, known(&id)?).await?;
    show(&Confirm {
        chrome: Chrome::new(&visitor, Section::Sources),
        title: format!("Give {name} a new URL?"),
        warning: "The old URL stops working at once: what the provider sends there until it knows \
                  the new one is answered with 404."
            .to_owned(),
        action: format!("/sources/{id}/rotate-token"),
        button: "Make a new URL".to_owned(),
        back: format!("/sources/{id}"),
    })
}

async fn rotate(Path(id): Path<String>, form: Form) -> Shown {
    let id: SourceId = known(&id)?;
    let path = format!("/v1/sources/{id}/rotate-token");
    form.visitor.api.call(Method::POST, &path).await?;
    let said = "The source has a new URL. Give it to the provider.";
    Ok(go_to(&form.visitor, &format!("/sources/{id}"), said))
}

async fn ask_delete(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let Source { id, name, .. } = source(&visitor, known(&id)?).await?;
    show(&Confirm {
        chrome: Chrome::new(&visitor, Section::Sources),
        title: format!("Delete the source {name}?"),
        warning: "Its URL stops working at once and cannot be had back. What came in by it stays, \
                  and is delivered."
            .to_owned(),
        action: format!("/sources/{id}/delete"),
        button: "Delete the source".to_owned(),
        back: format!("/sources/{id}"),
    })
}

async fn delete(Path(id): Path<String>, form: Form) -> Shown {
    let id: SourceId = known(&id)?;
    form.visitor.api.call(Method::DELETE, &format!("/v1/sources/{id}")).await?;
    Ok(go_to(&form.visitor, "/sources", "The source was deleted."))
}

/// An id in a path. What cannot be one is not there, and never reaches the path of a request.
pub(super) fn known<T: FromStr<Err: Display>>(text: &str) -> Result<T, Sorry> {
    text.parse().map_err(|error: T::Err| Sorry::new(StatusCode::NOT_FOUND, error.to_string()))
}

/// What a query says of a name.
pub(super) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query?.as_bytes());
    pairs
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

/// A path and what is asked of it, as far as it is said.
pub(super) fn with_query<const N: usize>(
    path: &str,
    pairs: [(&str, Option<&String>); N],
) -> String {
    let said = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(said).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// The address of the rest of a list.
pub(super) fn next_page(path: &str, cursor: &String) -> String {
    with_query(path, [("cursor", Some(cursor))])
}

/// Under which third parties reach this gateway, as far as it knows: without a slash at the end.
pub(super) fn address(visitor: &Visitor, headers: &HeaderMap, uri: &Uri) -> String {
    if let Some(public) = &visitor.app.options.public_url {
        return public.clone();
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(http::uri::Authority::as_str));
    let scheme = match visitor.transport {
        Transport::Plain => "http",
        Transport::Tls => "https",
    };
    format!("{scheme}://{}", host.unwrap_or("127.0.0.1:7070"))
}

fn url_of(address: &str, source: &Source) -> String {
    format!("{address}{}", source.url.as_deref().unwrap_or_default())
}
