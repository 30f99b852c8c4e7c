//! The page of settings: with what this gateway was started, to be looked at. For admins: it shows what
//! belongs to the whole gateway.

use askama::Template;
use axum::Router;
use axum::routing::get;
use http::StatusCode;

use super::Dashboard;
use super::chrome::{Chrome, Section};
use super::html::{Shown, Sorry, show};
use super::session::Visitor;
use super::words;
use crate::effective::{SettingOrigin, SettingsGroup};

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new().route("/settings", get(page))
}

#[derive(Template)]
#[template(path = "settings.html")]
struct Page {
    chrome: Chrome,
    groups: Vec<SettingsGroup>,
}

async fn page(visitor: Visitor) -> Shown {
    if !visitor.is_admin() {
        let detail = "the settings of the gateway are shown to admin keys only";
        return Err(Sorry::new(StatusCode::FORBIDDEN, detail));
    }
    let groups = visitor.app.options.settings.groups.clone();
    show(&Page { chrome: Chrome::new(&visitor, Section::Settings), groups })
}

/// Where a setting comes from, in words.
fn origin(origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::Default => "default".to_owned(),
        SettingOrigin::CommandLine => "command line".to_owned(),
        SettingOrigin::Variable(name) => name.clone(),
        SettingOrigin::File { path, line } => format!("{path}:{line}"),
        SettingOrigin::Found => "found by the gateway".to_owned(),
    }
}
