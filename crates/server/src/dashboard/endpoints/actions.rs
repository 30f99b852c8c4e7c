//! What is done to an endpoint that there is: stopped, started, tried, given a new secret, deleted.

use std::time::Duration;

use askama::Template;
use axum::extract::Path;
use http::{Method, StatusCode};
use postrider_core::{EndpointId, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::read_id;
use super::shown::{Endpoint, Stats};
use crate::dashboard::chrome::{Chrome, Section};
use crate::dashboard::fields::Form;
use crate::dashboard::html::{Shown, Sorry, go_to, show, show_with};
use crate::dashboard::session::Visitor;
use crate::dashboard::words::{self, Inert, Moment, inert, moment};
use crate::deliveries::StateCounts;

const MAX_TITLE_CHARS: usize = 200;
const MAX_ERROR_CHARS: usize = 1_000;
/// How many headers of an answer are shown, and how much of each.
const MAX_HEADERS: usize = 50;
const MAX_HEADER_CHARS: usize = 500;
/// How long an old secret goes on signing where nothing else is typed.
const DEFAULT_OVERLAP: &str = "24h";

pub(super) async fn pause(Path(id): Path<String>, form: Form) -> Shown {
    act(&form.visitor, &id, "pause", "Paused: what comes is kept, nothing is sent.").await
}

pub(super) async fn resume(Path(id): Path<String>, form: Form) -> Shown {
    act(&form.visitor, &id, "resume", "Resumed: what has waited goes out, oldest first.").await
}

pub(super) async fn enable(Path(id): Path<String>, form: Form) -> Shown {
    act(&form.visitor, &id, "enable", "Enabled: what has waited goes out, oldest first.").await
}

async fn act(visitor: &Visitor, id: &str, action: &str, said: &str) -> Shown {
    let id = read_id(id)?;
    visitor.api.call(Method::POST, &format!("/v1/endpoints/{id}/{action}")).await?;
    Ok(go_to(visitor, &format!("/endpoints/{id}"), said))
}

/// What a page about an endpoint begins with.
struct Head {
    id: EndpointId,
    title: String,
}

async fn head(visitor: &Visitor, id: &str) -> Result<Head, Sorry> {
    let id = read_id(id)?;
    let endpoint: Endpoint = visitor.api.get(&format!("/v1/endpoints/{id}")).await?;
    Ok(Head { id, title: words::line(endpoint.title(), MAX_TITLE_CHARS) })
}

#[derive(Template)]
#[template(path = "endpoint_test.html")]
struct TestPage {
    chrome: Chrome,
    head: Head,
    /// What came of it, or why it was not tried.
    tried: Result<Tried, String>,
}

/// An attempt, made harmless to look at.
struct Tried {
    at: Moment,
    took: String,
    delivered: bool,
    outcome: String,
    status: Option<u16>,
    error: Option<String>,
    body: Option<Inert>,
    truncated: bool,
    headers: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Attempt {
    started_at: Timestamp,
    duration_ms: u64,
    status_code: Option<u16>,
    outcome: String,
    error: Option<String>,
    response_body: Option<String>,
    response_headers: Option<std::collections::BTreeMap<String, String>>,
    response_truncated: bool,
}

/// Sends a sample event and shows what came back.
pub(super) async fn test(Path(id): Path<String>, form: Form) -> Shown {
    let visitor = &form.visitor;
    let head = head(visitor, &id).await?;
    let path = format!("/v1/endpoints/{}/test", head.id);
    let tried = match visitor.api.send::<Attempt>(Method::POST, &path, &json!({})).await {
        Ok(attempt) => Ok(Tried::of(attempt, visitor.now)),
        Err(refused) if refused.status == StatusCode::CONFLICT => Err(refused.detail),
        Err(refused) => return Err(refused.into()),
    };
    show(&TestPage { chrome: Chrome::new(visitor, Section::Endpoints), head, tried })
}

impl Tried {
    fn of(attempt: Attempt, now: Timestamp) -> Self {
        let headers = attempt.response_headers.unwrap_or_default();
        let headers = headers.into_iter().take(MAX_HEADERS).map(|(name, value)| {
            (words::line(name, MAX_HEADER_CHARS), words::line(value, MAX_HEADER_CHARS))
        });
        Self {
            at: moment(attempt.started_at, now),
            took: words::span(Duration::from_millis(attempt.duration_ms)),
            delivered: attempt.outcome == "delivered",
            outcome: attempt.outcome.replace('_', " "),
            status: attempt.status_code,
            error: attempt.error.map(|error| words::line(error, MAX_ERROR_CHARS)),
            body: attempt.response_body.filter(|body| !body.is_empty()).map(inert),
            truncated: attempt.response_truncated,
            headers: headers.collect(),
        }
    }
}

#[derive(Template)]
#[template(path = "endpoint_secret.html")]
struct SecretPage {
    chrome: Chrome,
    head: Head,
    secrets: Vec<ShownSecret>,
    public_key: Option<String>,
    overlap: String,
    /// What is wrong with the overlap.
    wrong: Option<String>,
    rotated: bool,
}

struct ShownSecret {
    text: String,
    expires: Option<Moment>,
}

#[derive(Deserialize)]
struct Secrets {
    public_key: Option<String>,
    secrets: Vec<Secret>,
}

#[derive(Deserialize)]
struct Secret {
    secret: String,
    expires_at: Option<Timestamp>,
}

/// Shows the secret: only when asked for, never by a page that is merely looked at.
pub(super) async fn secret(Path(id): Path<String>, form: Form) -> Shown {
    let head = head(&form.visitor, &id).await?;
    let page = SecretPage::new(&form.visitor, head).await?;
    show(&page)
}

pub(super) async fn rotate_secret(Path(id): Path<String>, form: Form) -> Shown {
    let visitor = &form.visitor;
    let head = head(visitor, &id).await?;
    let overlap = form.text("overlap").unwrap_or(DEFAULT_OVERLAP);
    let path = format!("/v1/endpoints/{}/rotate-secret", head.id);
    let body = json!({ "overlap": overlap });
    match visitor.api.send::<Secrets>(Method::POST, &path, &body).await {
        Ok(_) => {
            let page = SecretPage::new(visitor, head).await?;
            show(&SecretPage { rotated: true, ..page })
        }
        Err(refused) => {
            let Some(wrong) = refused.of_field("overlap").map(str::to_owned) else {
                return Err(refused.into());
            };
            let page = SecretPage::new(visitor, head).await?;
            let page = SecretPage { overlap: overlap.to_owned(), wrong: Some(wrong), ..page };
            show_with(StatusCode::UNPROCESSABLE_ENTITY, &page)
        }
    }
}

impl SecretPage {
    async fn new(visitor: &Visitor, head: Head) -> Result<Self, Sorry> {
        let path = format!("/v1/endpoints/{}/secret", head.id);
        let Secrets { public_key, secrets } = visitor.api.get(&path).await?;
        let secrets = secrets.into_iter().map(|secret| ShownSecret {
            text: secret.secret,
            expires: secret.expires_at.map(|at| moment(at, visitor.now)),
        });
        Ok(Self {
            chrome: Chrome::new(visitor, Section::Endpoints),
            head,
            secrets: secrets.collect(),
            public_key,
            overlap: DEFAULT_OVERLAP.into(),
            wrong: None,
            rotated: false,
        })
    }
}

#[derive(Template)]
#[template(path = "endpoint_delete.html")]
struct DeletePage {
    chrome: Chrome,
    head: Head,
    counts: StateCounts,
}

pub(super) async fn ask_to_delete(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let head = head(&visitor, &id).await?;
    let stats: Stats = visitor.api.get(&format!("/v1/endpoints/{}/stats", head.id)).await?;
    let chrome = Chrome::new(&visitor, Section::Endpoints);
    show(&DeletePage { chrome, head, counts: stats.deliveries })
}

pub(super) async fn delete(Path(id): Path<String>, form: Form) -> Shown {
    let head = head(&form.visitor, &id).await?;
    form.visitor.api.call(Method::DELETE, &format!("/v1/endpoints/{}", head.id)).await?;
    let said = "Deleted: what was unfinished is being cancelled, its history stays.";
    Ok(go_to(&form.visitor, "/endpoints", said))
}
