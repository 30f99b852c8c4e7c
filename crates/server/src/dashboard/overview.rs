//! The overview, at `/`: whether all is well, how much goes through, and what needs somebody.

mod figures;
mod health;

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use futures_util::future::{join_all, try_join_all};
use http::{HeaderMap, StatusCode};
use postrider_core::{EndpointId, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::api::{Api, List, Refused};
use super::chart::{self, Bars, Each, History, Span};
use super::chrome::{Chrome, Section};
use super::html::{Shown, show};
use super::nodes::Fleet;
use super::session::Visitor;
use super::words::{self, Moment};
use super::{Dashboard, first_run};
use crate::deliveries::StateCounts;
use figures::{Figure, StateCount};
use health::{Concern, Elsewhere, Standing, Verdict};

/// How many endpoints that need somebody are shown; all of them are in the list of endpoints.
const MAX_CONCERNS: usize = 20;
/// How many hubs are shown, those that are not connected first.
const MAX_HUBS: usize = 20;
/// How many endpoints are asked whether their backlog grows.
const MAX_BACKLOGS: usize = 8;
/// How many endpoints that other nodes carry are asked how they are.
const MAX_ASKED: usize = 20;

/// How much of a name or an address is shown.
const MAX_NAME_CHARS: usize = 80;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new().route("/", get(page))
}

async fn page(visitor: Visitor, RawQuery(query): RawQuery, headers: HeaderMap) -> Shown {
    let stats: Stats = visitor.api.get("/v1/stats").await?;
    if stats.is_empty() && has_no_source(&visitor.api).await? {
        return first_run::greet(&visitor, &headers).await;
    }
    let span = asked_span(query.as_deref());
    show(&Page::gather(&visitor, stats, span).await?)
}

fn asked_span(query: Option<&str>) -> Span {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut spans = pairs.filter(|(name, _)| name == "span");
    spans.next().map(|(_, text)| Span::read(&text)).unwrap_or_default()
}

async fn has_no_source(api: &Api) -> Result<bool, Refused> {
    let sources: List<Value> = api.get("/v1/sources?limit=1").await?;
    Ok(sources.data.is_empty())
}

#[derive(Debug, Deserialize)]
struct Stats {
    events: u64,
    deliveries: StateCounts,
    endpoints: Vec<Standing>,
}

impl Stats {
    fn is_empty(&self) -> bool {
        self.events == 0 && self.endpoints.is_empty()
    }
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    chrome: Chrome,
    span: Span,
    verdict: Verdict,
    figures: Vec<Figure>,
    states: [StateCount; 7],
    oldest: Option<Moment>,
    chart: Bars,
    concerns: Vec<ConcernRow>,
    /// Those for which there was no room.
    more_concerns: usize,
    hubs: Vec<HubRow>,
    more_hubs: usize,
    /// None where the visitor may not see them, or there is only one.
    fleet: Option<Fleet>,
}

impl Page {
    async fn gather(visitor: &Visitor, mut stats: Stats, span: Span) -> Result<Self, Refused> {
        let api = &visitor.api;
        let now = visitor.now;
        let (history, last_hour, hubs) = tokio::try_join!(
            History::of_tenant(api, span),
            Each::endpoint(api, Span::Hour),
            api.get::<List<Hub>>("/v1/hubs?limit=250"),
        )?;
        let fleet =
            if visitor.is_admin() { Fleet::find(api, now).await?.of_several() } else { None };
        ask_other_nodes(api, &mut stats.endpoints, &last_hour).await;
        let grown = find_growth(api, &stats.endpoints).await?;
        let concerns = health::judge(&stats.endpoints, &last_hour, &grown, now);
        let elsewhere = Elsewhere {
            endpoints: stats.endpoints.len(),
            awaited_hubs: hubs.data.iter().filter(|hub| hub.is_awaited()).count(),
            lost_nodes: fleet.as_ref().map_or(0, Fleet::lost),
        };
        let verdict = health::verdict(&concerns, elsewhere);
        let more_concerns = concerns.len().saturating_sub(MAX_CONCERNS);
        let shown = concerns.iter().take(MAX_CONCERNS);
        let rows = try_join_all(shown.map(|concern| ConcernRow::of(api, concern, now))).await?;
        let (hubs, more_hubs) = HubRow::of_all(hubs.data, now);
        Ok(Self {
            chrome: Chrome::new(visitor, Section::Overview),
            span,
            verdict,
            figures: figures::of(&history, &stats.deliveries, span),
            states: figures::states(&stats.deliveries),
            oldest: history.oldest_waiting_at.map(|at| words::moment(at, now)),
            chart: chart::bars(&history.columns(), history.grain(), span, "All deliveries"),
            concerns: rows.into_iter().flatten().collect(),
            more_concerns,
            hubs,
            more_hubs,
            fleet,
        })
    }
}

/// How an endpoint stands is known to the node that carries it. Those with which something may be the
/// matter are asked after one by one; a node that does not answer leaves what was known.
async fn ask_other_nodes(api: &Api, standings: &mut [Standing], last_hour: &Each) {
    let suspects = standings.iter_mut().filter(|standing| {
        let busy = standing.deliveries.backlog() > 0;
        standing.health.breaker.is_none()
            && (busy || !last_hour.of(standing.endpoint_id).is_empty())
    });
    let asked = suspects.take(MAX_ASKED).map(async |standing| {
        let path = format!("/v1/endpoints/{}/stats", standing.endpoint_id);
        if let Ok(known) = api.get::<Standing>(&path).await {
            *standing = known;
        }
    });
    join_all(asked).await;
}

/// The backlogs that grow, of the largest ones.
async fn find_growth(api: &Api, standings: &[Standing]) -> Result<Vec<(EndpointId, u64)>, Refused> {
    let asked = health::backlogged(standings, MAX_BACKLOGS).into_iter().map(async |id| {
        match History::of_endpoint(api, Span::Hour, id).await {
            Ok(history) => Ok(health::growth(&history).map(|by| (id, by))),
            Err(refused) if refused.status == StatusCode::NOT_FOUND => Ok(None),
            Err(refused) => Err(refused),
        }
    });
    Ok(try_join_all(asked).await?.into_iter().flatten().collect())
}

/// An endpoint as far as it is shown here.
#[derive(Debug, Deserialize)]
struct Endpoint {
    name: Option<String>,
    url: Option<String>,
    command: Option<Vec<String>>,
    #[serde(default)]
    pull: bool,
    handler: Option<String>,
}

impl Endpoint {
    /// What a person knows it by.
    fn title(&self, id: EndpointId) -> String {
        self.name.clone().or_else(|| self.url.clone()).unwrap_or_else(|| id.to_string())
    }

    /// Where its deliveries go, in a word or two.
    fn place(&self) -> String {
        match (&self.url, &self.command, &self.handler) {
            (Some(url), _, _) => url.clone(),
            (None, Some(command), _) => {
                format!("command {}", command.first().map_or("", String::as_str))
            }
            (None, None, Some(handler)) => format!("handler {handler}"),
            (None, None, None) if self.pull => "fetched by workers".into(),
            (None, None, None) => "through a hub".into(),
        }
    }
}

/// An endpoint that needs somebody.
struct ConcernRow {
    id: EndpointId,
    title: String,
    place: String,
    need: &'static str,
    class: &'static str,
    reasons: Vec<(String, Option<Moment>)>,
    backlog: u64,
    dead: u64,
}

impl ConcernRow {
    /// None when it has been deleted since.
    async fn of(api: &Api, concern: &Concern, now: Timestamp) -> Result<Option<Self>, Refused> {
        let id = concern.endpoint;
        let endpoint = match api.get::<Endpoint>(&format!("/v1/endpoints/{id}")).await {
            Ok(endpoint) => endpoint,
            Err(refused) if refused.status == StatusCode::NOT_FOUND => return Ok(None),
            Err(refused) => return Err(refused),
        };
        Ok(Some(Self {
            id,
            title: words::line(endpoint.title(id), MAX_NAME_CHARS),
            place: words::line(endpoint.place(), MAX_NAME_CHARS),
            need: concern.need.as_str(),
            class: concern.need.class(),
            reasons: concern.reasons(now),
            backlog: concern.backlog,
            dead: concern.dead,
        }))
    }
}

#[derive(Debug, Deserialize)]
struct Hub {
    name: String,
    connected: bool,
    since: Option<Timestamp>,
    in_flight: u64,
    waiting: u64,
    lag_seconds: Option<f64>,
}

impl Hub {
    /// Somebody waits for it in vain.
    fn is_awaited(&self) -> bool {
        !self.connected && self.waiting > 0
    }
}

struct HubRow {
    name: String,
    connected: bool,
    since: Option<Moment>,
    in_flight: u64,
    waiting: u64,
    lag: Option<String>,
}

impl HubRow {
    /// Those that are awaited first, then the others that are not connected; and how many there was
    /// no room for.
    fn of_all(mut hubs: Vec<Hub>, now: Timestamp) -> (Vec<Self>, usize) {
        hubs.sort_by_key(|hub| (!hub.is_awaited(), hub.connected, u64::MAX - hub.waiting));
        let more = hubs.len().saturating_sub(MAX_HUBS);
        let row = |hub: Hub| Self {
            connected: hub.connected,
            since: hub.since.map(|since| words::moment(since, now)),
            in_flight: hub.in_flight,
            waiting: hub.waiting,
            lag: hub.lag_seconds.map(figures::seconds),
            name: words::line(hub.name, MAX_NAME_CHARS),
        };
        (hubs.into_iter().take(MAX_HUBS).map(row).collect(), more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_span_that_is_asked_for_counts() {
        let table = [
            (None, Span::Hour),
            (Some(""), Span::Hour),
            (Some("span=week"), Span::Week),
            (Some("x=1&span=d%61y&span=week"), Span::Day),
            (Some("span=%ff"), Span::Hour),
        ];
        for (query, span) in table {
            assert_eq!(asked_span(query), span, "{query:?}");
        }
    }

    #[test]
    fn hubs_that_are_awaited_come_first() {
        let hub = |number: i64, connected, waiting| Hub {
            name: number.to_string(),
            connected,
            since: None,
            in_flight: 0,
            waiting,
            lag_seconds: None,
        };
        let hubs = vec![hub(1, true, 9), hub(2, false, 0), hub(3, false, 1), hub(4, false, 5)];
        let (rows, more) = HubRow::of_all(hubs, Timestamp::MIN);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((names, more), (vec!["4", "3", "2", "1"], 0));
        let many = (0..25).map(|number| hub(number, true, 0)).collect();
        let (rows, more) = HubRow::of_all(many, Timestamp::MIN);
        assert_eq!((rows.len(), more), (MAX_HUBS, 5));
    }
}
