//! The first run: an empty gateway greets with three steps that really do it, each beside the command
//! that does the same.

mod commands;

use askama::Template;
use axum::Router;
use axum::routing::{get, post};
use http::{HeaderMap, Method, StatusCode};
use postrider_core::{DeliveryId, EndpointId, EventId, SourceId, State, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Dashboard;
use super::api::{Api, List, Refused};
use super::chrome::{Chrome, Section};
use super::fields::Form;
use super::html::{Shown, go_to, show_with};
use super::session::Visitor;
use super::words::{self, Moment};
use commands::Commands;

/// Where the page is, and where each of its steps leads back to.
const PATH: &str = "/first-run";
/// The type of the event that the last step sends. The types that begin with `postrider.` are the
/// gateway's own, and no endpoint gets those without asking for them.
const TEST_TYPE: &str = "test.hello";
/// What a source is called that is given no other name.
const SOURCE_NAME: &str = "My first source";
/// How much of a name, an address or an error is shown.
const MAX_NAME_CHARS: usize = 80;
const MAX_ERROR_CHARS: usize = 200;
/// How many deliveries of the newest event are shown.
const MAX_DELIVERIES: usize = 5;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new()
        .route(PATH, get(page))
        .route("/first-run/source", post(create_source))
        .route("/first-run/endpoint", post(create_endpoint))
        .route("/first-run/event", post(send_event))
}

async fn page(visitor: Visitor, headers: HeaderMap) -> Shown {
    greet(&visitor, &headers).await
}

/// The page as it stands: also what the overview shows while there is nothing to look over.
pub(crate) async fn greet(visitor: &Visitor, headers: &HeaderMap) -> Shown {
    show_page(visitor, headers, Typed::default()).await
}

async fn create_source(headers: HeaderMap, form: Form) -> Shown {
    let name = form.text("name").unwrap_or(SOURCE_NAME);
    let source = json!({"name": name, "verify": {"scheme": "none"}});
    let made = form.visitor.api.send::<Value>(Method::POST, "/v1/sources", &source).await;
    match made {
        Ok(_) => Ok(go_to(&form.visitor, PATH, "The source is there.")),
        Err(refused) => {
            let name = Some(form.raw("name").to_owned());
            let typed = Typed { step: Some(Step::Source), refused: Some(refused), name, url: None };
            show_page(&form.visitor, &headers, typed).await
        }
    }
}

async fn create_endpoint(headers: HeaderMap, form: Form) -> Shown {
    // What is missing is the API's to say, like all that is wrong with it.
    let endpoint = match form.text("url") {
        Some(url) => json!({"url": url}),
        None => json!({}),
    };
    let made = form.visitor.api.send::<Value>(Method::POST, "/v1/endpoints", &endpoint).await;
    match made {
        Ok(_) => Ok(go_to(&form.visitor, PATH, "The endpoint is there.")),
        Err(refused) => {
            let url = Some(form.raw("url").to_owned());
            let typed =
                Typed { step: Some(Step::Endpoint), refused: Some(refused), name: None, url };
            show_page(&form.visitor, &headers, typed).await
        }
    }
}

async fn send_event(headers: HeaderMap, form: Form) -> Shown {
    #[derive(Deserialize)]
    struct Receipt {
        deliveries: u64,
    }

    let event = json!({"type": TEST_TYPE, "payload": {"hello": "world"}});
    match form.visitor.api.send::<Receipt>(Method::POST, "/v1/events", &event).await {
        Ok(Receipt { deliveries: 0 }) => {
            let said = "The event is stored, but no endpoint wants it: see what they select.";
            Ok(go_to(&form.visitor, PATH, said))
        }
        Ok(Receipt { deliveries }) => {
            let deliveries = words::plural(deliveries, "endpoint", "endpoints");
            Ok(go_to(&form.visitor, PATH, &format!("The event is on its way to {deliveries}.")))
        }
        Err(refused) => {
            let typed =
                Typed { step: Some(Step::Event), refused: Some(refused), ..Typed::default() };
            show_page(&form.visitor, &headers, typed).await
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Source,
    Endpoint,
    Event,
}

/// A form that the API refused: what was typed, and why not.
#[derive(Debug, Default)]
struct Typed {
    step: Option<Step>,
    refused: Option<Refused>,
    name: Option<String>,
    url: Option<String>,
}

impl Typed {
    fn status(&self) -> StatusCode {
        self.refused.as_ref().map_or(StatusCode::OK, |refused| refused.status)
    }

    /// Why a step was refused: what is wrong with its field, or else in general.
    fn problem(&self, step: Step, field: &str) -> Option<String> {
        let refused = self.refused.as_ref().filter(|_| self.step == Some(step))?;
        let of_field = refused.of_field(field).map(|message| format!("{field} {message}"));
        Some(of_field.unwrap_or_else(|| refused.detail.clone()))
    }
}

async fn show_page(visitor: &Visitor, headers: &HeaderMap, typed: Typed) -> Shown {
    let api = &visitor.api;
    let now = visitor.now;
    let (source, endpoint, event) =
        tokio::try_join!(newest_source(api), newest_endpoint(api), newest_event(api, now))?;
    let page = Page {
        chrome: Chrome::new(visitor, Section::Overview),
        source_problem: typed.problem(Step::Source, "name"),
        endpoint_problem: typed.problem(Step::Endpoint, "url"),
        event_problem: typed.problem(Step::Event, "type"),
        status: typed.status(),
        name: typed.name.unwrap_or_else(|| SOURCE_NAME.to_owned()),
        url: typed.url.unwrap_or_default(),
        commands: Commands::new(visitor, headers, source.as_ref()),
        source,
        endpoint,
        event,
    };
    show_with(page.status, &page)
}

#[derive(Template)]
#[template(path = "first_run.html")]
struct Page {
    chrome: Chrome,
    status: StatusCode,
    source: Option<Source>,
    endpoint: Option<Endpoint>,
    event: Option<Newest>,
    /// What stands in the fields.
    name: String,
    url: String,
    source_problem: Option<String>,
    endpoint_problem: Option<String>,
    event_problem: Option<String>,
    commands: Commands,
}

impl Page {
    fn done(&self) -> usize {
        let done = [self.source.is_some(), self.endpoint.is_some(), self.event.is_some()];
        done.into_iter().filter(|done| *done).count()
    }
}

#[derive(Debug, Deserialize)]
struct Source {
    id: SourceId,
    name: String,
    /// Where third parties post to: a path of this gateway.
    url: String,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    id: EndpointId,
    name: Option<String>,
    url: Option<String>,
}

impl Endpoint {
    fn title(&self) -> String {
        let id = self.id.to_string();
        let title = self.name.as_ref().or(self.url.as_ref()).unwrap_or(&id);
        words::line(title, MAX_NAME_CHARS)
    }
}

/// The event that came last, and what became of it.
struct Newest {
    id: EventId,
    kind: String,
    received: Moment,
    deliveries: Vec<DeliveryRow>,
}

struct DeliveryRow {
    id: DeliveryId,
    state: State,
    error: Option<String>,
    next: Option<Moment>,
}

async fn newest_source(api: &Api) -> Result<Option<Source>, Refused> {
    #[derive(Deserialize)]
    struct Listed {
        id: SourceId,
    }

    let listed: List<Listed> = api.get("/v1/sources?limit=1").await?;
    let Some(Listed { id }) = listed.data.into_iter().next() else { return Ok(None) };
    // Lists do not have the URL.
    found(api.get(&format!("/v1/sources/{id}")).await)
}

async fn newest_endpoint(api: &Api) -> Result<Option<Endpoint>, Refused> {
    let listed: List<Endpoint> = api.get("/v1/endpoints?limit=1").await?;
    Ok(listed.data.into_iter().next())
}

async fn newest_event(api: &Api, now: Timestamp) -> Result<Option<Newest>, Refused> {
    #[derive(Deserialize)]
    struct Listed {
        id: EventId,
        r#type: String,
        received_at: Timestamp,
    }

    #[derive(Deserialize)]
    struct Delivery {
        id: DeliveryId,
        state: State,
        last_error: Option<String>,
        next_attempt_at: Option<Timestamp>,
    }

    let listed: List<Listed> = api.get("/v1/events?limit=1").await?;
    let Some(event) = listed.data.into_iter().next() else { return Ok(None) };
    let deliveries = api.get(&format!("/v1/events/{}/deliveries", event.id)).await;
    let Some(deliveries) = found::<List<Delivery>>(deliveries)? else { return Ok(None) };
    let row = |delivery: Delivery| DeliveryRow {
        id: delivery.id,
        state: delivery.state,
        error: delivery.last_error.map(|error| words::line(error, MAX_ERROR_CHARS)),
        next: delivery.next_attempt_at.map(|at| words::moment(at, now)),
    };
    Ok(Some(Newest {
        id: event.id,
        kind: words::line(event.r#type, MAX_NAME_CHARS),
        received: words::moment(event.received_at, now),
        deliveries: deliveries.data.into_iter().take(MAX_DELIVERIES).map(row).collect(),
    }))
}

/// None for what is gone since it was listed.
fn found<T>(answer: Result<T, Refused>) -> Result<Option<T>, Refused> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(refused) if refused.status == StatusCode::NOT_FOUND => Ok(None),
        Err(refused) => Err(refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_stands_at_the_step_and_the_field_it_is_about() {
        let refused = |errors: &[(&str, &str)]| Refused {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            detail: "no".into(),
            errors: errors
                .iter()
                .map(|(field, message)| crate::dashboard::api::FieldError {
                    field: (*field).into(),
                    message: (*message).into(),
                })
                .collect(),
        };
        let typed = |errors| Typed {
            step: Some(Step::Endpoint),
            refused: Some(refused(errors)),
            ..Typed::default()
        };
        let at_field = typed(&[("url", "is missing")]);
        assert_eq!(at_field.problem(Step::Endpoint, "url").as_deref(), Some("url is missing"));
        assert_eq!(at_field.problem(Step::Source, "name"), None);
        assert_eq!(at_field.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(typed(&[]).problem(Step::Endpoint, "url").as_deref(), Some("no"));
        assert_eq!(Typed::default().status(), StatusCode::OK);
    }
}
