//! The search: from an id, an idempotency key or a type to what it is of.

use std::str::FromStr;

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use http::StatusCode;
use postrider_core::{DeliveryId, EndpointId, EventId, HubId, JobId, SourceId};
use serde::Deserialize;

use super::Dashboard;
use super::api::{Api, List, Refused};
use super::chrome::{Chrome, Section};
use super::deliveries::filter::join;
use super::deliveries::found;
use super::html::{Shown, show_with};
use super::session::{self, Visitor};
use super::words::{self, Inert};

/// Nothing that can be found is longer.
const MAX_SEARCHED_CHARS: usize = 1_000;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new().route("/search", get(search))
}

#[derive(Template)]
#[template(path = "search.html")]
struct Page {
    chrome: Chrome,
    searched: Inert,
    /// The kind of thing that its id is of, if it is one.
    kind: Option<&'static str>,
}

async fn search(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    let query = query.unwrap_or_default();
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let text = pairs.find(|(name, _)| name == "q").map(|(_, text)| text).unwrap_or_default();
    // As ids are copied: with spaces, or quotes, around them.
    let text = text.trim().trim_matches(['"', '\'', '`']).trim();
    let (way, kind) = if text.is_empty() || text.chars().count() > MAX_SEARCHED_CHARS {
        (None, None)
    } else if let Some(place) = Place::of(text) {
        (place.page(&visitor.api).await?, Some(place.kind))
    } else {
        (by_content(&visitor.api, text).await?, None)
    };
    if let Some(way) = way {
        return Ok(session::redirect(&visitor, &way, None));
    }
    let status = if text.is_empty() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let searched = words::inert_to(text, MAX_SEARCHED_CHARS);
    let chrome = Chrome::new(&visitor, Section::Events);
    show_with(status, &Page { chrome, searched, kind })
}

/// What an id is of, where the API has it and where its page is.
struct Place {
    kind: &'static str,
    api: String,
    page: String,
}

impl Place {
    fn of(text: &str) -> Option<Self> {
        // An attempt is a part of its delivery, whose digits it has.
        let attempt = text.strip_prefix("att_").and_then(|digits| digits.get(..13));
        let delivery = attempt.map(|digits| format!("{}{digits}", DeliveryId::PREFIX));
        let text = delivery.as_deref().unwrap_or(text);
        at::<EventId>(text, "event", "events")
            .or_else(|| at::<DeliveryId>(text, "delivery", "deliveries"))
            .or_else(|| at::<EndpointId>(text, "endpoint", "endpoints"))
            .or_else(|| at::<SourceId>(text, "source", "sources"))
            .or_else(|| at::<JobId>(text, "job", "jobs"))
            .or_else(|| {
                let hub = at::<HubId>(text, "hub", "hubs")?;
                Some(Self { page: "/hubs".into(), ..hub })
            })
    }

    /// The way to it, if it is there for this visitor.
    async fn page(&self, api: &Api) -> Result<Option<String>, Refused> {
        let there = found(api.get_bytes(&self.api).await)?;
        Ok(there.map(|_| self.page.clone()))
    }
}

fn at<T: FromStr + ToString>(text: &str, kind: &'static str, plural: &str) -> Option<Place> {
    let id = text.parse::<T>().ok()?.to_string();
    let page = format!("/{plural}/{id}");
    Some(Place { kind, api: format!("/v1{page}"), page })
}

/// Events that have it as their key, or as their type.
async fn by_content(api: &Api, text: &str) -> Result<Option<String>, Refused> {
    #[derive(Deserialize)]
    struct Found {
        id: EventId,
    }

    let query = [("idempotency_key", text), ("limit", "2")];
    let listed = sought(api.get::<List<Found>>(&join("/v1/events", query)).await)?;
    match listed.as_slice() {
        [] => {}
        [only] => return Ok(Some(format!("/events/{}", only.id))),
        [_, _, ..] => return Ok(Some(join("/events", [("idempotency_key", text)]))),
    }
    let query = [("type", text), ("limit", "1")];
    let listed = sought(api.get::<List<Found>>(&join("/v1/events", query)).await)?;
    Ok((!listed.is_empty()).then(|| join("/events", [("type", text)])))
}

/// What cannot be a key, or a type, is not there.
fn sought<T>(answer: Result<List<T>, Refused>) -> Result<Vec<T>, Refused> {
    match answer {
        Ok(listed) => Ok(listed.data),
        Err(refused) if refused.status == StatusCode::UNPROCESSABLE_ENTITY => Ok(Vec::new()),
        Err(refused) => Err(refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_id_has_its_page() {
        for (text, page) in [
            ("evt_0000000000007", Some("/events/evt_0000000000007")),
            ("dlv_0000000000007", Some("/deliveries/dlv_0000000000007")),
            ("att_00000000000070001", Some("/deliveries/dlv_0000000000007")),
            ("ep_0000000000007", Some("/endpoints/ep_0000000000007")),
            ("src_0000000000007", Some("/sources/src_0000000000007")),
            ("hub_0000000000007", Some("/hubs")),
            ("job_0000000000007", Some("/jobs/job_0000000000007")),
            ("evt_7", None),
            ("evt_0000000000007x", None),
            ("evt_0000000000007/../x", None),
            ("att_ü", None),
            ("order-7", None),
        ] {
            assert_eq!(Place::of(text).map(|place| place.page).as_deref(), page, "{text}");
        }
    }
}
