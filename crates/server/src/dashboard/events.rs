//! The events: the list of them, and the page of each with what came, what became of it, and the way to
//! send it again.

mod payload;

use askama::Template;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, StatusCode};
use postrider_core::{EventId, SourceId, State, Timestamp};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::Dashboard;
use super::api::{Api, FieldError, List, Refused};
use super::chrome::{Chrome, Section};
use super::deliveries::filter;
use super::deliveries::list::{Choice, SPANS, choices};
use super::deliveries::row::{Delivery, Endpoints, Row};
use super::deliveries::{found, known};
use super::fields::Form;
use super::html::{Shown, Sorry, go_to, show_with};
use super::session::{self, Visitor};
use super::words::{self, Inert};
use crate::deliveries::StateCounts;
use payload::Payload;

const PATH: &str = "/events";
/// How many deliveries of one event its page shows; there is a way to the others.
const MAX_DELIVERIES: usize = 100;
const MAX_KEY_CHARS: usize = 80;
const MAX_TYPE_CHARS: usize = 120;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new()
        .route(PATH, get(list))
        .route("/events/{id}", get(page))
        .route("/events/{id}/payload", get(download))
        .route("/events/{id}/replay", post(replay))
}

/// An event as the API tells of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) id: EventId,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) content_type: String,
    pub(crate) received_at: Timestamp,
    pub(crate) deliver_at: Option<Timestamp>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) ordering_key: Option<String>,
    pub(crate) metadata: Option<Box<RawValue>>,
    pub(crate) source: Option<SourceId>,
    pub(crate) verified: Option<bool>,
    pub(crate) filter_errors: Option<Box<RawValue>>,
    /// Not in lists, like the next one.
    pub(crate) headers: Option<Vec<Header>>,
    pub(crate) payload_size: Option<usize>,
    pub(crate) status: String,
    pub(crate) deliveries: u64,
    pub(crate) counts: StateCounts,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    pub(crate) name: String,
    /// None where it is not text.
    pub(crate) value: Option<String>,
    value_base64: Option<String>,
}

impl Event {
    /// None where retention has taken it.
    pub(crate) async fn find(api: &Api, id: EventId) -> Result<Option<Self>, Refused> {
        found(api.get(&format!("/v1/events/{id}")).await)
    }

    pub(crate) async fn payload(&self, api: &Api) -> Result<Bytes, Refused> {
        api.get_bytes(&format!("/v1/events/{}/payload", self.id)).await
    }

    /// What its payload is called as a file.
    pub(crate) fn file_name(&self) -> String {
        let kind = self.content_type.split(';').next().unwrap_or_default().trim();
        let ending = if kind.ends_with("json") {
            "json"
        } else if kind.starts_with("text/") {
            "txt"
        } else {
            "bin"
        };
        format!("{}.{ending}", self.id)
    }

    pub(crate) fn shown_type(&self) -> String {
        words::line(&self.kind, MAX_TYPE_CHARS)
    }

    fn shown_key(&self) -> String {
        words::line(self.idempotency_key.as_deref().unwrap_or_default(), MAX_KEY_CHARS)
    }

    pub(crate) fn shown_content_type(&self) -> String {
        words::line(&self.content_type, MAX_TYPE_CHARS)
    }

    /// The list of those of its type.
    fn of_its_type(&self) -> String {
        filter::join(PATH, [("type", self.kind.as_str())])
    }

    /// How many deliveries are in which state, for those that are in any.
    fn states(&self) -> Vec<(State, u64)> {
        let counted = State::ALL.into_iter().map(|state| (state, self.counts.of(state)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

/// What the list is narrowed to, as its address says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Filter {
    kind: String,
    key: String,
    source: String,
    since: String,
    until: String,
    last: String,
    cursor: String,
}

impl Filter {
    fn read(query: &str) -> Self {
        let mut filter = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let field = match name.as_ref() {
                "type" => &mut filter.kind,
                "idempotency_key" => &mut filter.key,
                "source" => &mut filter.source,
                "since" => &mut filter.since,
                "until" => &mut filter.until,
                "last" => &mut filter.last,
                "cursor" => &mut filter.cursor,
                _ => continue,
            };
            value.trim().clone_into(field);
        }
        filter
    }

    fn address(&self, path: &str) -> String {
        let pairs = [
            ("type", &self.kind),
            ("idempotency_key", &self.key),
            ("source", &self.source),
            ("since", &self.since),
            ("until", &self.until),
            ("last", &self.last),
            ("cursor", &self.cursor),
        ];
        let said = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        filter::join(path, said.map(|(name, value)| (name, value.as_str())))
    }

    /// What times mean is said once, by the filter of deliveries.
    fn times(&self) -> filter::Filter {
        filter::Filter {
            since: self.since.clone(),
            until: self.until.clone(),
            last: self.last.clone(),
            ..filter::Filter::default()
        }
    }

    fn question(&self, now: Timestamp) -> String {
        let filter::Filter { since, until, .. } = self.times().fixed(now);
        Self { since, until, last: String::new(), ..self.clone() }.address("/v1/events")
    }

    fn is_empty(&self) -> bool {
        *self == Self { cursor: self.cursor.clone(), ..Self::default() }
    }
}

#[derive(Template)]
#[template(path = "events.html")]
struct ListPage {
    chrome: Chrome,
    now: Timestamp,
    here: String,
    filter: Filter,
    id: String,
    spans: Vec<Choice>,
    sources: Vec<SourceChoice>,
    events: Vec<Event>,
    next: Option<String>,
    total: String,
    refused: Option<Refused>,
}

struct SourceChoice {
    id: String,
    name: String,
    chosen: bool,
}

impl ListPage {
    fn wrong(&self, field: &str) -> Option<&str> {
        self.refused.as_ref()?.of_field(field)
    }

    fn wrong_otherwise(&self) -> Option<&str> {
        const FIELDS: [&str; 6] = ["id", "type", "idempotency_key", "source", "since", "until"];
        let refused = self.refused.as_ref()?;
        let shown = FIELDS.iter().any(|field| refused.of_field(field).is_some());
        (!shown).then_some(refused.detail.as_str())
    }

    fn is_live(&self) -> bool {
        self.filter.cursor.is_empty() && self.refused.is_none()
    }

    fn since_field(&self) -> String {
        self.filter.times().since_field()
    }

    fn until_field(&self) -> String {
        self.filter.times().until_field()
    }

    fn has_times(&self) -> bool {
        !self.filter.since.is_empty() || !self.filter.until.is_empty()
    }
}

async fn list(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    let query = query.unwrap_or_default();
    let (api, now) = (&visitor.api, visitor.now);
    let filter = Filter::read(&query);
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let id = pairs.find(|(name, _)| name == "id").map(|(_, id)| id.trim().to_owned());
    let id = id.unwrap_or_default();
    let answer = match id.parse::<EventId>() {
        Ok(id) => return Ok(session::redirect(&visitor, &format!("{PATH}/{id}"), None)),
        Err(_) if id.is_empty() => api.get::<List<Event>>(&filter.question(now)).await,
        Err(error) => Err(Refused {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            detail: error.to_string(),
            errors: vec![FieldError { field: "id".into(), message: error.to_string() }],
        }),
    };
    let (listed, refused) = match answer {
        Ok(listed) => (listed, None),
        Err(refused) if refused.status == StatusCode::UNPROCESSABLE_ENTITY => {
            (List { data: Vec::new(), next_cursor: None }, Some(refused))
        }
        Err(refused) => return Err(refused.into()),
    };
    let next = listed.next_cursor.map(|cursor| Filter { cursor, ..filter.clone() }.address(PATH));
    let status = refused.as_ref().map_or(StatusCode::OK, |refused| refused.status);
    show_with(
        status,
        &ListPage {
            chrome: Chrome::new(&visitor, Section::Events),
            now,
            here: filter.address(PATH),
            spans: choices(&SPANS, &filter.last),
            sources: sources(api, &filter.source).await?,
            total: total(api).await?,
            filter,
            id,
            events: listed.data,
            next,
            refused,
        },
    )
}

async fn total(api: &Api) -> Result<String, Refused> {
    #[derive(Deserialize)]
    struct Stats {
        events: u64,
    }

    let stats: Stats = api.get("/v1/stats").await?;
    Ok(words::plural(stats.events, "event", "events"))
}

/// The sources to choose from, and the chosen one whether it is still there or not.
async fn sources(api: &Api, chosen: &str) -> Result<Vec<SourceChoice>, Refused> {
    #[derive(Deserialize)]
    struct Named {
        id: SourceId,
        name: String,
    }

    let listed: List<Named> = api.get("/v1/sources?limit=250").await?;
    let mut choices: Vec<SourceChoice> = listed
        .data
        .into_iter()
        .map(|source| {
            let id = source.id.to_string();
            let name =
                if source.name.is_empty() { id.clone() } else { words::line(source.name, 60) };
            SourceChoice { chosen: id == chosen, id, name }
        })
        .collect();
    if !chosen.is_empty() && !choices.iter().any(|choice| choice.chosen) {
        let name = words::line(chosen, 60);
        choices.push(SourceChoice { id: chosen.to_owned(), name, chosen: true });
    }
    Ok(choices)
}

#[derive(Template)]
#[template(path = "event.html")]
struct Page {
    chrome: Chrome,
    now: Timestamp,
    event: Event,
    rows: Vec<Row>,
    /// There are more deliveries than are shown.
    more: bool,
    key: Option<Inert>,
    ordering_key: Option<Inert>,
    metadata: Option<Inert>,
    filter_errors: Option<Inert>,
    headers: Vec<(String, Inert)>,
    payload: Payload,
    size: String,
    endpoints: Endpoints,
    /// What a replay that was refused asked for, and why it was.
    chosen: Vec<String>,
    refused: Option<Refused>,
}

impl Page {
    fn is_chosen(&self, id: &str) -> bool {
        self.chosen.iter().any(|chosen| chosen == id)
    }
}

async fn page(visitor: Visitor, Path(id): Path<String>) -> Shown {
    render(&visitor, known(&id)?, Vec::new(), None).await
}

async fn render(
    visitor: &Visitor,
    id: EventId,
    chosen: Vec<String>,
    refused: Option<Refused>,
) -> Shown {
    let (api, now) = (&visitor.api, visitor.now);
    let event: Event = api.get(&format!("/v1/events/{id}")).await?;
    let path = format!("/v1/events/{id}/deliveries?limit={MAX_DELIVERIES}");
    let listed: List<Delivery> = api.get(&path).await?;
    let mut endpoints = Endpoints::load(api).await?;
    endpoints.learn(api, listed.data.iter().map(|delivery| delivery.endpoint_id).collect()).await?;
    let body = event.payload(api).await?;
    let status = refused.as_ref().map_or(StatusCode::OK, |refused| refused.status);
    let json = |text: &Option<Box<RawValue>>| {
        text.as_ref().map(|text| Payload::of(text.get().as_bytes()).text)
    };
    show_with(
        status,
        &Page {
            chrome: Chrome::new(visitor, Section::Events),
            now,
            rows: Row::all(listed.data, &endpoints, now),
            more: listed.next_cursor.is_some(),
            key: event.idempotency_key.as_ref().map(words::inert),
            ordering_key: event.ordering_key.as_ref().map(words::inert),
            metadata: json(&event.metadata),
            filter_errors: json(&event.filter_errors),
            headers: event.headers.iter().flatten().map(Header::shown).collect(),
            payload: Payload::of(&body),
            size: words::bytes(body.len() as u64),
            endpoints,
            event,
            chosen,
            refused,
        },
    )
}

impl Header {
    fn shown(&self) -> (String, Inert) {
        let value = match (&self.value, &self.value_base64) {
            (Some(value), _) => words::inert(value),
            (None, Some(encoded)) => words::inert(format!("(not text, in base64) {encoded}")),
            (None, None) => words::inert(""),
        };
        (words::line(&self.name, 100), value)
    }
}

/// The bytes as a file to keep. Nothing of them is shown, whatever they say they are.
async fn download(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let id: EventId = known(&id)?;
    let event: Event = visitor.api.get(&format!("/v1/events/{id}")).await?;
    let body = event.payload(&visitor.api).await?;
    let disposition = format!("attachment; filename=\"{}\"", event.file_name());
    let disposition = HeaderValue::try_from(disposition).map_err(|_| Sorry::internal())?;
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_DISPOSITION, disposition);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn replay(Path(id): Path<String>, form: Form) -> Shown {
    #[derive(Deserialize)]
    struct Made {
        deliveries: Vec<String>,
    }

    let id: EventId = known(&id)?;
    let chosen: Vec<String> = form.all("endpoint").map(|id| id.trim().to_owned()).collect();
    let chosen: Vec<String> = chosen.into_iter().filter(|id| !id.is_empty()).collect();
    // All that listen, unless some were chosen: the button says which.
    let body = if form.raw("to") == "all" { json!({}) } else { json!({ "endpoints": chosen }) };
    let path = format!("/v1/events/{id}/replay");
    match form.visitor.api.send::<Made>(Method::POST, &path, &body).await {
        Ok(made) => {
            let said = match made.deliveries.len() as u64 {
                0 => "No endpoint listens to this event, so nothing was sent.".to_owned(),
                made => {
                    format!("{} on the way.", words::plural(made, "new delivery", "new deliveries"))
                }
            };
            Ok(go_to(&form.visitor, &format!("{PATH}/{id}"), &said))
        }
        Err(refused) if refused.status == StatusCode::UNPROCESSABLE_ENTITY => {
            render(&form.visitor, id, chosen, Some(refused)).await
        }
        Err(refused) => Err(refused.into()),
    }
}
