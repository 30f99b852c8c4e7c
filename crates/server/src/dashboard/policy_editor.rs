//! `/policies`: the named policies with their pictures, and an editor that shows what a policy will do
//! while it is typed. The endpoint form has the same editor in it.

mod errors;
mod picture;
mod typed;

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::Dashboard;
use super::api::{Api, List, Refused};
use super::chrome::{Chrome, Section};
use super::html::{Shown, show};
use super::session::Visitor;

pub(crate) use errors::{Control, Errors};
pub(crate) use picture::{Picture, Plan};
pub(crate) use typed::{CONTROLS, Typed, number, wrong};

/// More than the editor has controls, every row of its table counted.
const MAX_PAIRS: usize = 512;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new().route("/policies", get(page)).route("/policies/picture", get(part))
}

/// A policy as the editor has it: what was typed, what is wrong with it, what it would do.
#[derive(Debug)]
pub(crate) struct Editor {
    pub(crate) typed: Typed,
    pub(crate) presets: Vec<PresetName>,
    pub(crate) errors: Errors,
    /// None while something is wrong.
    pub(crate) picture: Option<Picture>,
    /// What the API takes, to be copied.
    pub(crate) json: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PresetName {
    pub(crate) name: String,
    pub(crate) about: String,
}

impl Editor {
    /// Asks the API what the policy would do.
    pub(crate) async fn look(api: &Api, typed: Typed) -> Result<Self, Refused> {
        let presets: List<PresetName> = api.get("/v1/policies").await?;
        let mut editor = Self {
            typed,
            presets: presets.data,
            errors: Errors::default(),
            picture: None,
            json: None,
        };
        let policy = match editor.typed.policy() {
            Ok(policy) => policy,
            Err(error) => {
                editor.errors = Errors::one(&error, &CONTROLS);
                return Ok(editor);
            }
        };
        let body = json!({ "policy": policy });
        match api.send::<Plan>(Method::POST, "/v1/policies/preview", &body).await {
            Ok(plan) => editor.picture = Some(Picture::of(&plan)),
            Err(refused) if refused.status.is_client_error() => {
                editor.errors = Errors::of(&refused, &CONTROLS);
            }
            Err(refused) => return Err(refused),
        }
        editor.json = serde_json::to_string_pretty(&policy).ok();
        Ok(editor)
    }
}

#[derive(Template)]
#[template(path = "policies.html")]
struct Page {
    chrome: Chrome,
    editor: Editor,
    named: Vec<Named>,
}

/// A preset with its picture.
struct Named {
    name: String,
    about: String,
    default: bool,
    picture: Picture,
    json: String,
}

async fn page(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    #[derive(Deserialize)]
    struct Preset {
        name: String,
        about: String,
        default: bool,
        policy: Value,
        plan: Plan,
    }

    let presets: List<Preset> = visitor.api.get("/v1/policies").await?;
    let named = presets.data.into_iter().map(|preset| Named {
        picture: Picture::of(&preset.plan),
        json: serde_json::to_string_pretty(&preset.policy).unwrap_or_default(),
        name: preset.name,
        about: preset.about,
        default: preset.default,
    });
    let editor = Editor::look(&visitor.api, read(query)).await?;
    let chrome = Chrome::new(&visitor, Section::Policies);
    show(&Page { chrome, editor, named: named.collect() })
}

#[derive(Template)]
#[template(path = "policy_part.html")]
struct Part {
    editor: Editor,
    controls: &'static [Control],
}

/// The picture alone, put in place while somebody types.
async fn part(visitor: Visitor, RawQuery(query): RawQuery) -> Shown {
    let editor = Editor::look(&visitor.api, read(query)).await?;
    show(&Part { editor, controls: &CONTROLS })
}

/// The editor is a form that only asks, so what was typed is in the address and can be passed on.
fn read(query: Option<String>) -> Typed {
    let query = query.unwrap_or_default();
    let pairs: Vec<(String, String)> =
        form_urlencoded::parse(query.as_bytes()).into_owned().take(MAX_PAIRS).collect();
    Typed::read(|name| {
        pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    })
}
