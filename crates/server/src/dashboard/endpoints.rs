//! `/endpoints`: where events go, how each place is doing, and the pages on which one is made, changed,
//! tried, stopped and deleted.

mod actions;
mod edit;
mod one;
mod shown;
mod tries;
mod typed;

use std::collections::HashMap;

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::{get, post};
use http::StatusCode;
use postrider_core::EndpointId;
use serde::Deserialize;
use url::form_urlencoded;

use super::Dashboard;
use super::api::{Api, List, Refused};
use super::chart::{Each, Span, Sparkline, sparkline};
use super::chrome::{Chrome, Section};
use super::html::{Shown, Sorry, show};
use super::session::Visitor;
use super::words;
use crate::deliveries::StateCounts;
use shown::{Endpoint, Health, Standing, Stats};

/// How many endpoints a page shows.
const PAGE: usize = 50;
/// The largest page of the API, and how many of them are looked through by name.
const API_PAGE: usize = 250;
const MAX_API_PAGES: usize = 40;
/// How much of a name, and of an address, a row shows.
const MAX_NAME_CHARS: usize = 80;
const MAX_PLACE_CHARS: usize = 100;
/// The last day, by quarters of an hour.
const SPARK_SLOTS: usize = 96;
const MAX_WANTED_CHARS: usize = 200;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/endpoints", get(list).post(edit::create))
        .route("/endpoints/new", get(edit::new))
        .route("/endpoints/check", post(edit::check_new))
        .route("/endpoints/tries", post(tries::part))
        .route("/endpoints/{id}", get(one::page))
        .route("/endpoints/{id}/edit", get(edit::edit).post(edit::save))
        .route("/endpoints/{id}/check", post(edit::check_change))
        .route("/endpoints/{id}/pause", post(actions::pause))
        .route("/endpoints/{id}/resume", post(actions::resume))
        .route("/endpoints/{id}/enable", post(actions::enable))
        .route("/endpoints/{id}/test", post(actions::test))
        .route("/endpoints/{id}/secret", post(actions::secret))
        .route("/endpoints/{id}/rotate-secret", post(actions::rotate_secret))
        .route("/endpoints/{id}/delete", get(actions::ask_to_delete).post(actions::delete))
}

#[derive(Template)]
#[template(path = "endpoints.html")]
struct Page {
    chrome: Chrome,
    /// What is looked for.
    wanted: String,
    rows: Vec<Row>,
    /// This page, asked for again when something has changed.
    here: String,
    next: Option<String>,
    /// Whether there is none at all.
    is_empty: bool,
}

struct Row {
    id: EndpointId,
    title: String,
    place: String,
    standing: Standing,
    success: Option<String>,
    counts: StateCounts,
    spark: Sparkline,
}

#[derive(Deserialize)]
struct TenantStats {
    endpoints: Vec<Stats>,
}

async fn list(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    let query = query.unwrap_or_default();
    let asked = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let wanted: String =
        asked("q").unwrap_or_default().trim().chars().take(MAX_WANTED_CHARS).collect();
    let after: Option<EndpointId> = asked("after").and_then(|text| text.parse().ok());
    let Found { endpoints, more, is_empty } = find(&visitor.api, &wanted, after).await?;
    let stats: TenantStats = visitor.api.get("/v1/stats").await?;
    let stats: HashMap<EndpointId, Stats> =
        stats.endpoints.into_iter().map(|stats| (stats.endpoint_id, stats)).collect();
    let history = Each::endpoint(&visitor.api, Span::Day).await?;
    let rows = endpoints.iter().map(|endpoint| {
        let stats = stats.get(&endpoint.id);
        let health = stats.map_or_else(Health::default, |stats| stats.health);
        let columns = history.of(endpoint.id);
        let delivered: u64 = columns.iter().map(|column| column.delivered).sum();
        let dead: u64 = columns.iter().map(|column| column.dead).sum();
        let title = words::line(endpoint.title(), MAX_NAME_CHARS);
        Row {
            id: endpoint.id,
            place: words::line(endpoint.place(), MAX_PLACE_CHARS),
            standing: Standing::of(endpoint.state, health, visitor.now),
            success: success_rate(delivered, dead),
            counts: stats.map_or_else(StateCounts::default, |stats| stats.deliveries),
            spark: sparkline(columns, history.since, history.grain(), SPARK_SLOTS, &title),
            title,
        }
    });
    let path = |after: Option<EndpointId>| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("q", &wanted);
        if let Some(after) = after {
            query.append_pair("after", &after.to_string());
        }
        format!("/endpoints?{}", query.finish())
    };
    show(&Page {
        chrome: Chrome::new(&visitor, Section::Endpoints),
        rows: rows.collect(),
        here: path(after),
        next: endpoints.last().filter(|_| more).map(|last| path(Some(last.id))),
        is_empty,
        wanted,
    })
}

struct Found {
    endpoints: Vec<Endpoint>,
    more: bool,
    is_empty: bool,
}

/// Looks through the endpoints, newest first, for a page of those that fit.
async fn find(api: &Api, wanted: &str, after: Option<EndpointId>) -> Result<Found, Refused> {
    let mut found = Found { endpoints: Vec::new(), more: false, is_empty: after.is_none() };
    let mut path = format!("/v1/endpoints?limit={API_PAGE}");
    for _ in 0..MAX_API_PAGES {
        let page: List<Endpoint> = api.get(&path).await?;
        found.is_empty &= page.data.is_empty();
        let later = |endpoint: &Endpoint| after.is_none_or(|after| endpoint.id < after);
        let fits =
            page.data.into_iter().filter(|endpoint| later(endpoint) && endpoint.fits(wanted));
        for endpoint in fits {
            if found.endpoints.len() == PAGE {
                found.more = true;
                return Ok(found);
            }
            found.endpoints.push(endpoint);
        }
        let Some(cursor) = page.next_cursor else { break };
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &API_PAGE.to_string()).append_pair("cursor", &cursor);
        path = format!("/v1/endpoints?{}", query.finish());
    }
    Ok(found)
}

/// Of what has ended, as the API counts it.
#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn success_rate(delivered: u64, dead: u64) -> Option<String> {
    let ended = delivered + dead;
    (ended > 0).then(|| words::percent(delivered as f64 / ended as f64))
}

/// The id in a path; what cannot be one is nowhere.
fn read_id(text: &str) -> Result<EndpointId, Sorry> {
    text.parse().map_err(|_| Sorry::new(StatusCode::NOT_FOUND, "there is no such endpoint"))
}
