//! The dead letters: what they have in common, the list of them, and the ways to send them again or to
//! throw them away. Both first say how many they are about.

mod groups;

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::{get, post};
use http::{Method, StatusCode};
use postrider_core::{JobId, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Dashboard;
use super::api::{Api, FieldError, Refused};
use super::chrome::{Chrome, Section};
use super::deliveries::filter::Filter;
use super::deliveries::list::Listing;
use super::deliveries::row::Endpoints;
use super::fields::Form;
use super::html::{Shown, go_to, show, show_with};
use super::session::{self, Visitor};
use super::words;
use groups::Groups;

const PATH: &str = "/dead-letters";
const REPLAY: &str = "/dead-letters/replay";
/// Where the gateway stops counting.
const MAX_COUNT: u64 = postrider_store::ledger::MAX_COUNT;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new()
        .route(PATH, get(page))
        .route(REPLAY, get(preview_replay).post(replay))
        .route("/dead-letters/purge", post(purge))
}

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct Page {
    chrome: Chrome,
    list: Listing,
    /// On the first page.
    groups: Option<Groups>,
    replay: String,
}

async fn page(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    let filter = Filter::read(&query.unwrap_or_default());
    let mut list = Listing::load(&visitor, PATH, filter, None).await?;
    let groups = if list.is_live() {
        Some(Groups::load(&visitor, &list.filter, &mut list.endpoints).await?)
    } else {
        None
    };
    let replay = Filter { cursor: String::new(), ..list.filter.clone() }.address(REPLAY);
    let chrome = Chrome::new(&visitor, Section::DeadLetters);
    let status = list.status();
    show_with(status, &Page { chrome, list, groups, replay })
}

/// What a change is about: so many, which of them, and how to say it again.
#[derive(Debug)]
struct Selection {
    filter: Filter,
    matched: u64,
    words: Vec<(&'static str, String)>,
}

impl Selection {
    async fn count(visitor: &Visitor, filter: &Filter) -> Result<Self, Refused> {
        let filter = filter.settled(visitor.now);
        let matched = matched(&visitor.api, &filter.as_json(visitor.now)).await?;
        let mut endpoints = Endpoints::default();
        endpoints.learn(&visitor.api, filter.endpoint.parse().into_iter().collect()).await?;
        let words = filter.pairs().into_iter().map(|(name, value)| match name {
            "endpoint" => {
                let name = value.parse().map(|id| endpoints.name(id));
                ("endpoint", name.unwrap_or_else(|_| words::line(value, 60)))
            }
            "error_class" => ("class", value.replace('_', " ")),
            "since" | "until" => (name, exact(value)),
            _ => (name, words::line(value, 60)),
        });
        Ok(Self { words: words.collect(), matched, filter: filter.clone() })
    }

    /// What carries the filter through a form.
    fn pairs(&self) -> Vec<(&'static str, &str)> {
        self.filter.pairs()
    }

    fn how_many(&self) -> String {
        match self.matched {
            MAX_COUNT.. => format!("{} or more dead letters", words::count(MAX_COUNT)),
            matched => words::plural(matched, "dead letter", "dead letters"),
        }
    }
}

/// A time that was spelled out before.
fn exact(text: &str) -> String {
    text.parse::<Timestamp>().map_or_else(|_| words::line(text, 60), words::exact)
}

async fn matched(api: &Api, filter: &Value) -> Result<u64, Refused> {
    #[derive(Deserialize)]
    struct Matched {
        matched: u64,
    }

    let body = json!({ "filter": filter, "dry_run": true });
    let found: Matched = api.send(Method::POST, "/v1/dead-letters/replay", &body).await?;
    Ok(found.matched)
}

#[derive(Template)]
#[template(path = "dead_letters_replay.html")]
struct ReplayPage {
    chrome: Chrome,
    selection: Selection,
    rate: String,
    refused: Option<Refused>,
    back: String,
}

impl ReplayPage {
    fn wrong_rate(&self) -> Option<&str> {
        self.refused.as_ref()?.of_field("rate_per_second")
    }
}

async fn preview_replay(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    let filter = Filter::read(&query.unwrap_or_default());
    show_replay(&visitor, &filter, String::new(), None).await
}

async fn show_replay(
    visitor: &Visitor,
    filter: &Filter,
    rate: String,
    refused: Option<Refused>,
) -> Shown {
    let back = filter.address(PATH);
    let selection = match Selection::count(visitor, filter).await {
        Ok(selection) => selection,
        // The list says what is wrong, at its place.
        Err(refused) if refused.status == StatusCode::UNPROCESSABLE_ENTITY => {
            return Ok(session::redirect(visitor, &back, None));
        }
        Err(refused) => return Err(refused.into()),
    };
    let status = refused.as_ref().map_or(StatusCode::OK, |refused| refused.status);
    let chrome = Chrome::new(visitor, Section::DeadLetters);
    show_with(status, &ReplayPage { chrome, selection, rate, refused, back })
}

async fn replay(form: Form) -> Shown {
    #[derive(Deserialize)]
    struct Begun {
        job: JobId,
    }

    let visitor = &form.visitor;
    let filter = Filter::of(&form).settled(visitor.now);
    let rate = form.raw("rate").trim().to_owned();
    let mut body = json!({ "filter": filter.as_json(visitor.now) });
    // What is no finite number has no form in JSON, and would be no limit at all.
    let paced = rate.parse::<f64>().ok().filter(|rate| rate.is_finite());
    let answer = if paced.is_none() && !rate.is_empty() {
        Err(not_a_rate())
    } else {
        if let Some(rate) = paced {
            body["rate_per_second"] = json!(rate);
        }
        visitor.api.send::<Begun>(Method::POST, "/v1/dead-letters/replay", &body).await
    };
    match answer {
        Ok(Begun { job }) => Ok(go_to(visitor, &format!("/jobs/{job}"), "The replay has begun.")),
        Err(refused) if refused.of_field("rate_per_second").is_some() => {
            show_replay(visitor, &filter, rate, Some(refused)).await
        }
        Err(refused) => Err(refused.into()),
    }
}

fn not_a_rate() -> Refused {
    let message = "is a number, such as 10 or 0.5, or nothing";
    Refused {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        detail: format!("the rate {message}"),
        errors: vec![FieldError { field: "rate_per_second".into(), message: message.into() }],
    }
}

#[derive(Template)]
#[template(path = "dead_letters_purge.html")]
struct PurgePage {
    chrome: Chrome,
    selection: Selection,
    /// How many there were when it was confirmed, if that is no longer true.
    before: Option<String>,
    back: String,
}

/// The first time it only asks; what confirms names the number that was shown.
async fn purge(form: Form) -> Shown {
    #[derive(Deserialize)]
    struct Purged {
        deleted: u64,
    }

    let visitor = &form.visitor;
    let filter = Filter::of(&form);
    let back = filter.address(PATH);
    let selection = match Selection::count(visitor, &filter).await {
        Ok(selection) => selection,
        Err(refused) if refused.status == StatusCode::UNPROCESSABLE_ENTITY => {
            return Ok(session::redirect(visitor, &back, None));
        }
        Err(refused) => return Err(refused.into()),
    };
    let confirmed: Option<u64> = form.text("confirmed").and_then(|count| count.parse().ok());
    if confirmed != Some(selection.matched) || selection.matched == 0 {
        let before = confirmed.map(words::count);
        let chrome = Chrome::new(visitor, Section::DeadLetters);
        return show(&PurgePage { chrome, selection, before, back });
    }
    let body = json!({ "filter": selection.filter.as_json(visitor.now) });
    let purged: Purged = visitor.api.send(Method::DELETE, "/v1/dead-letters", &body).await?;
    let count = words::plural(purged.deleted, "dead letter", "dead letters");
    Ok(go_to(visitor, PATH, &format!("{count} thrown away.")))
}
