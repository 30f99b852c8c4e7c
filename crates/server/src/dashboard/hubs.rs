//! The pages of hubs: which are connected, since when, how far behind they are; making one, and taking
//! one away.

use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::{Path, RawQuery};
use axum::routing::get;
use http::{HeaderMap, Method, Uri};
use postrider_core::{HubId, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::Dashboard;
use super::api::{List, Refused};
use super::chrome::{Chrome, Section};
use super::fields::Form;
use super::html::{Shown, go_to, show, show_with};
use super::session::Visitor;
use super::sources::confirm::{Confirm, ShownOnce};
use super::sources::{Errors, address, known, next_page, parameter, with_query};
use super::words::{self, Moment, moment};

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/hubs", get(list).post(create))
        .route("/hubs/{id}/revoke", get(ask_revoke).post(revoke))
}

/// A hub as the API shows it.
#[derive(Debug, Clone, Deserialize)]
struct Hub {
    id: HubId,
    name: String,
    created_at: Timestamp,
    connected: bool,
    since: Option<Timestamp>,
    agent: Option<String>,
    capacity: Option<u32>,
    in_flight: u64,
    waiting: u64,
    lag_seconds: Option<f64>,
}

#[derive(Template)]
#[template(path = "hubs.html")]
struct ListPage {
    chrome: Chrome,
    /// This page, for itself to be asked again.
    path: String,
    rows: Vec<Row>,
    next: Option<String>,
    /// What was typed as the name of a new one, and what is wrong with it.
    typed: String,
    errors: Errors,
}

struct Row {
    hub: Hub,
    since: Option<Moment>,
    created: Moment,
    lag: Option<String>,
}

impl ListPage {
    async fn find(visitor: &Visitor, query: Option<&str>) -> Result<Self, Refused> {
        let cursor = parameter(query, "cursor");
        let path = with_query("/v1/hubs", [("cursor", cursor.as_ref())]);
        let listed: List<Hub> = visitor.api.get(&path).await?;
        let rows = listed.data.into_iter().map(|hub| Row {
            since: hub.since.map(|since| moment(since, visitor.now)),
            created: moment(hub.created_at, visitor.now),
            lag: hub
                .lag_seconds
                .map(|seconds| words::span(Duration::from_secs_f64(seconds.max(0.0)))),
            hub,
        });
        Ok(Self {
            chrome: Chrome::new(visitor, Section::Hubs),
            path: with_query("/hubs", [("cursor", cursor.as_ref())]),
            rows: rows.collect(),
            next: listed.next_cursor.map(|next| next_page("/hubs", &next)),
            typed: String::new(),
            errors: Errors::default(),
        })
    }
}

async fn list(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    show(&ListPage::find(&visitor, query.as_deref()).await?)
}

/// The token is in the answer and nowhere else, so the answer is the page.
async fn create(headers: HeaderMap, uri: Uri, form: Form) -> Shown {
    #[derive(Deserialize)]
    struct Made {
        name: String,
        token: String,
    }

    let visitor = &form.visitor;
    let name = form.raw("name").trim();
    let made = visitor.api.send::<Made>(Method::POST, "/v1/hubs", &json!({ "name": name })).await;
    let Made { name, token } = match made {
        Ok(made) => made,
        Err(refused) => {
            let page = ListPage::find(visitor, None).await?;
            let (typed, status) = (name.to_owned(), refused.status);
            return show_with(status, &ListPage { typed, errors: Errors(Some(refused)), ..page });
        }
    };
    let gateway = address(visitor, &headers, &uri);
    show(&ShownOnce {
        chrome: Chrome::new(visitor, Section::Hubs),
        title: format!("The hub {name} was made"),
        what: "Its token".to_owned(),
        command: Some(format!(
            "export POSTRIDER_HUB_TOKEN={token}\npostrider hub --gateway {gateway} --to http://localhost:3000/webhooks"
        )),
        secret: token,
        then:
            "Run this where the gateway cannot reach. Then make an endpoint that leads to the hub."
                .to_owned(),
        back: "/hubs".to_owned(),
    })
}

async fn ask_revoke(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let id: HubId = known(&id)?;
    let hub: Hub = visitor.api.get(&format!("/v1/hubs/{id}")).await?;
    show(&Confirm {
        chrome: Chrome::new(&visitor, Section::Hubs),
        title: format!("Revoke the hub {}?", hub.name),
        warning: "Its connection ends at once and its token is worth nothing from then on. Its \
                  endpoints stay, and what goes to them waits."
            .to_owned(),
        action: format!("/hubs/{id}/revoke"),
        button: "Revoke the hub".to_owned(),
        back: "/hubs".to_owned(),
    })
}

async fn revoke(Path(id): Path<String>, form: Form) -> Shown {
    let id: HubId = known(&id)?;
    form.visitor.api.call(Method::DELETE, &format!("/v1/hubs/{id}")).await?;
    Ok(go_to(&form.visitor, "/hubs", "The hub was revoked."))
}
