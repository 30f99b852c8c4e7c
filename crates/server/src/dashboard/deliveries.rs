//! The deliveries: the list of them, and the page of each, which says why it is where it is.

pub(crate) mod curl;
pub(crate) mod filter;
pub(crate) mod list;
mod request;
pub(crate) mod row;
mod timeline;
pub(crate) mod why;

use std::fmt::Display;
use std::str::FromStr;

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::routing::{get, post};
use http::{Method, StatusCode};
use postrider_core::{DeliveryId, EventId, State, Timestamp};
use serde::Deserialize;

use super::Dashboard;
use super::api::{FieldError, Refused};
use super::chrome::{Chrome, Section};
use super::events::Event;
use super::fields::Form;
use super::html::{Shown, Sorry, go_to, show, show_with};
use super::session::{self, Visitor};
use super::words::{self, Inert};
use curl::Command;
use filter::Filter;
use list::{Listing, Tab};
use request::{Next, Recipient};
use row::{Delivery, Endpoints};
use timeline::{Planned, Timeline, Tried};
use why::{Why, clock, why};

const PATH: &str = "/deliveries";

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new()
        .route(PATH, get(list))
        .route("/deliveries/{id}", get(page))
        .route("/deliveries/{id}/retry", post(retry))
        .route("/deliveries/{id}/cancel", get(ask_to_cancel).post(cancel))
}

#[derive(Template)]
#[template(path = "deliveries.html")]
struct ListPage {
    chrome: Chrome,
    list: Listing,
    tabs: Vec<Tab>,
}

async fn list(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    let query = query.unwrap_or_default();
    let mut filter = Filter::read(&query);
    let mut refused = None;
    match wanted(&query) {
        Wanted::All => {}
        Wanted::Event(id) => filter.event = id.to_string(),
        Wanted::Delivery(id) => {
            return Ok(session::redirect(&visitor, &format!("{PATH}/{id}"), None));
        }
        Wanted::Unknown(typed) => {
            refused = Some(not_an_id());
            filter.event = typed;
        }
    }
    let list = Listing::load(&visitor, PATH, filter, refused).await?;
    let tabs = Tab::all(&visitor, &list).await?;
    let status = list.status();
    show_with(status, &ListPage { chrome: Chrome::new(&visitor, Section::Deliveries), list, tabs })
}

/// What was typed where an id is asked for.
enum Wanted {
    All,
    Event(EventId),
    Delivery(DeliveryId),
    Unknown(String),
}

fn wanted(query: &str) -> Wanted {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let Some((_, typed)) = pairs.find(|(name, _)| name == "id") else { return Wanted::All };
    let typed = typed.trim();
    match (typed.parse(), typed.parse()) {
        (Ok(id), _) => Wanted::Event(id),
        (Err(_), Ok(id)) => Wanted::Delivery(id),
        (Err(_), Err(_)) if typed.is_empty() => Wanted::All,
        (Err(_), Err(_)) => Wanted::Unknown(typed.to_owned()),
    }
}

fn not_an_id() -> Refused {
    let message = "is neither an event's id (evt_…) nor a delivery's (dlv_…)";
    Refused {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        detail: format!("id {message}"),
        errors: vec![FieldError { field: "id".into(), message: message.into() }],
    }
}

/// The id in the path of a page.
pub(crate) fn known<T: FromStr<Err: Display>>(text: &str) -> Result<T, Sorry> {
    text.parse().map_err(|error: T::Err| Sorry::new(StatusCode::NOT_FOUND, error.to_string()))
}

/// A delivery with its past and its future.
#[derive(Debug, Deserialize)]
struct Whole {
    #[serde(flatten)]
    delivery: Delivery,
    plan: Vec<Planned>,
    attempt_log: Vec<Tried>,
}

#[derive(Template)]
#[template(path = "delivery.html")]
struct Page {
    chrome: Chrome,
    now: Timestamp,
    delivery: Delivery,
    why: Why,
    last_error: Option<Inert>,
    result: Option<Inert>,
    /// None where retention has taken it.
    event: Option<Event>,
    endpoint: String,
    recipient: Recipient,
    timeline: Timeline,
    curl: Option<Command>,
    file: String,
}

impl Page {
    fn next_at(&self) -> Option<String> {
        self.delivery.next_attempt_at.map(|at| clock(at, self.now))
    }

    fn can_retry(&self) -> bool {
        match self.delivery.state {
            State::Pending | State::Retrying | State::Failed | State::Dead | State::Cancelled => {
                true
            }
            State::InFlight | State::Delivered => false,
        }
    }

    fn can_cancel(&self) -> bool {
        !self.delivery.state.is_terminal()
    }

    /// What it listens to: its own notices, and those of its line while it waits there.
    fn topics(&self) -> String {
        let Delivery { id, endpoint_id, .. } = self.delivery;
        match self.why.behind {
            Some(_) => format!("delivery={id}&endpoint={endpoint_id}"),
            None => format!("delivery={id}"),
        }
    }
}

async fn page(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let id: DeliveryId = known(&id)?;
    let (api, now) = (&visitor.api, visitor.now);
    let whole: Whole = api.get(&format!("/v1/deliveries/{id}")).await?;
    let Whole { delivery, plan, attempt_log } = whole;
    let head = match delivery.waiting_on.as_ref().and_then(|waiting| waiting.delivery_id) {
        Some(head) => found(api.get::<Delivery>(&format!("/v1/deliveries/{head}")).await)?,
        None => None,
    };
    let event = Event::find(api, delivery.event_id).await?;
    let recipient = Recipient::find(api, delivery.endpoint_id).await?;
    let mut endpoints = Endpoints::default();
    endpoints.learn(api, vec![delivery.endpoint_id]).await?;
    let file = event.as_ref().map_or_else(String::new, Event::file_name);
    let curl = match &event {
        Some(event) => {
            let number = attempt_log.last().map_or(0, |tried| tried.number) + 1;
            let next = Next { delivery: delivery.id, number, at: now };
            request::curl(api, event, &recipient, &next, &file).await?
        }
        None => None,
    };
    show(&Page {
        chrome: Chrome::new(&visitor, Section::Deliveries),
        now,
        why: why(&delivery, head.as_ref(), now),
        last_error: delivery.last_error.as_ref().map(words::inert),
        result: delivery.result.as_ref().map(words::inert),
        timeline: Timeline::new(attempt_log, plan),
        endpoint: endpoints.name(delivery.endpoint_id),
        delivery,
        event,
        recipient,
        curl,
        file,
    })
}

/// What may have gone meanwhile.
pub(crate) fn found<T>(answer: Result<T, Refused>) -> Result<Option<T>, Refused> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(refused) if refused.status == StatusCode::NOT_FOUND => Ok(None),
        Err(refused) => Err(refused),
    }
}

async fn retry(Path(id): Path<String>, form: Form) -> Shown {
    act(&form, &id, "retry", "It goes again: attempts count from zero.").await
}

async fn cancel(Path(id): Path<String>, form: Form) -> Shown {
    act(&form, &id, "cancel", "Cancelled.").await
}

/// Does it, and goes back to the delivery, which shows what came of it.
async fn act(form: &Form, id: &str, action: &str, done: &str) -> Shown {
    let id: DeliveryId = known(id)?;
    let visitor = &form.visitor;
    let answer = visitor.api.call(Method::POST, &format!("/v1/deliveries/{id}/{action}")).await;
    let said = match answer {
        Ok(()) => done.to_owned(),
        // It changed between the page and the click.
        Err(refused) if refused.status == StatusCode::CONFLICT => {
            format!("Not done: {}.", refused.detail)
        }
        Err(refused) => return Err(refused.into()),
    };
    Ok(go_to(visitor, &format!("{PATH}/{id}"), &said))
}

#[derive(Template)]
#[template(path = "delivery_cancel.html")]
struct CancelPage {
    chrome: Chrome,
    delivery: Delivery,
    endpoint: String,
}

async fn ask_to_cancel(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let id: DeliveryId = known(&id)?;
    let delivery: Delivery = visitor.api.get(&format!("/v1/deliveries/{id}")).await?;
    let mut endpoints = Endpoints::default();
    endpoints.learn(&visitor.api, vec![delivery.endpoint_id]).await?;
    let endpoint = endpoints.name(delivery.endpoint_id);
    show(&CancelPage { chrome: Chrome::new(&visitor, Section::Deliveries), delivery, endpoint })
}
