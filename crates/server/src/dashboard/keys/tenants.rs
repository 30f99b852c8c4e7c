//! The page of tenants, for admins: which there are, making one, and going to look at one.

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use http::Method;
use postrider_core::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::dashboard::Dashboard;
use crate::dashboard::api::{List, Refused};
use crate::dashboard::chrome::{Chrome, Section};
use crate::dashboard::fields::Form;
use crate::dashboard::html::{Shown, go_to, show, show_with};
use crate::dashboard::session::Visitor;
use crate::dashboard::sources::{Errors, next_page, parameter, with_query};
use crate::dashboard::words::{Moment, moment};

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/tenants", get(list).post(create))
}

/// A tenant as the API shows it.
#[derive(Debug, Clone, Deserialize)]
struct Tenant {
    name: String,
    created_at: Option<Timestamp>,
}

#[derive(Template)]
#[template(path = "tenants.html")]
struct ListPage {
    chrome: Chrome,
    rows: Vec<(String, Option<Moment>)>,
    next: Option<String>,
    typed: String,
    errors: Errors,
}

impl ListPage {
    async fn find(visitor: &Visitor, query: Option<&str>) -> Result<Self, Refused> {
        let cursor = parameter(query, "cursor");
        let path = with_query("/v1/tenants", [("cursor", cursor.as_ref())]);
        let listed: List<Tenant> = visitor.everywhere().get(&path).await?;
        let row = |tenant: Tenant| {
            (tenant.name, tenant.created_at.map(|created| moment(created, visitor.now)))
        };
        Ok(Self {
            chrome: Chrome::new(visitor, Section::Keys),
            rows: listed.data.into_iter().map(row).collect(),
            next: listed.next_cursor.map(|next| next_page("/tenants", &next)),
            typed: String::new(),
            errors: Errors::default(),
        })
    }
}

async fn list(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    show(&ListPage::find(&visitor, query.as_deref()).await?)
}

async fn create(form: Form) -> Shown {
    let visitor = &form.visitor;
    let name = form.raw("name").trim();
    let request = json!({ "name": name });
    match visitor.everywhere().send::<Tenant>(Method::POST, "/v1/tenants", &request).await {
        Ok(made) => {
            let said = format!("The tenant {} was made. It needs a key.", made.name);
            Ok(go_to(visitor, "/tenants", &said))
        }
        Err(refused) => {
            let (typed, page) = (name.to_owned(), ListPage::find(visitor, None).await?);
            let (status, errors) = (refused.status, Errors(Some(refused)));
            show_with(status, &ListPage { typed, errors, ..page })
        }
    }
}
