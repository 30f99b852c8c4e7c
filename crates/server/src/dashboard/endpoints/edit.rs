//! The form on which an endpoint is made or changed, and what it says while somebody types.

use askama::Template;
use axum::extract::Path;
use http::{Method, StatusCode};
use postrider_core::{EndpointId, HubId, SourceId};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::read_id;
use super::shown::Endpoint;
use super::typed::{Purpose, Typed, controls};
use crate::dashboard::api::{Api, List, Refused};
use crate::dashboard::chrome::{Chrome, Section};
use crate::dashboard::fields::Form;
use crate::dashboard::html::{Shown, go_to, show, show_with};
use crate::dashboard::policy_editor::{Control, Editor, Errors};
use crate::dashboard::session::Visitor;
use crate::dashboard::words;

/// How many hubs and sources can be chosen from; others can still be said by the API.
const MAX_CHOICES: usize = 250;
const MAX_NAME_CHARS: usize = 80;

#[derive(Template)]
#[template(path = "endpoint_form.html")]
struct Page {
    chrome: Chrome,
    /// The one that is changed; none is a new one.
    id: Option<EndpointId>,
    /// When it was last changed, as the form knows it.
    updated_at: String,
    typed: Typed,
    hubs: Vec<Choice>,
    sources: Vec<Choice>,
    errors: Errors,
    editor: Editor,
}

struct Choice {
    id: String,
    name: String,
}

pub(super) async fn new(visitor: Visitor) -> Shown {
    let page = Page::new(&visitor, None, Typed::new()).await?;
    show(&page)
}

pub(super) async fn edit(visitor: Visitor, Path(id): Path<String>) -> Shown {
    let id = read_id(&id)?;
    let endpoint: Endpoint = visitor.api.get(&format!("/v1/endpoints/{id}")).await?;
    let page = Page::new(&visitor, Some(id), Typed::of(&endpoint)).await?;
    show(&Page { updated_at: endpoint.updated_at.to_string(), ..page })
}

pub(super) async fn create(form: Form) -> Shown {
    #[derive(Deserialize)]
    struct Made {
        id: EndpointId,
    }

    let typed = Typed::read(&form);
    let visitor = &form.visitor;
    let errors = match typed.body(Purpose::New) {
        Ok(body) => match visitor.api.send::<Made>(Method::POST, "/v1/endpoints", &body).await {
            Ok(Made { id }) => {
                let said = "Made. Its secret is below, when you ask for it.";
                return Ok(go_to(visitor, &format!("/endpoints/{id}"), said));
            }
            Err(refused) => at_controls(refused)?,
        },
        Err(error) => Errors::one(&error, &controls()),
    };
    let page = Page::new(visitor, None, typed).await?;
    show_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { errors, ..page })
}

pub(super) async fn save(Path(id): Path<String>, form: Form) -> Shown {
    let id = read_id(&id)?;
    let path = format!("/v1/endpoints/{id}");
    let typed = Typed::read(&form);
    let visitor = &form.visitor;
    let current: Endpoint = visitor.api.get(&path).await?;
    let now_at = current.updated_at.to_string();
    let errors = if form.raw("updated_at") == now_at {
        match typed.body(Purpose::Change) {
            Ok(body) => match visitor.api.send::<IgnoredAny>(Method::PATCH, &path, &body).await {
                Ok(_) => {
                    return Ok(go_to(visitor, &format!("/endpoints/{id}"), "Changed."));
                }
                Err(refused) => at_controls(refused)?,
            },
            Err(error) => Errors::one(&error, &controls()),
        }
    } else {
        // The form says every field, and would take back what somebody else has said since.
        Errors::above(
            "It was changed by somebody else since this form was opened. Nothing was saved: look at \
             it in another window, then save again to put what is here in its place.",
        )
    };
    let page = Page::new(visitor, Some(id), typed).await?;
    show_with(StatusCode::UNPROCESSABLE_ENTITY, &Page { errors, updated_at: now_at, ..page })
}

/// What the API refused, at the controls that it is about. What is not about them is no page.
fn at_controls(refused: Refused) -> Result<Errors, Refused> {
    let by_input = [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::CONFLICT];
    if by_input.contains(&refused.status) {
        Ok(Errors::of(&refused, &controls()))
    } else {
        Err(refused)
    }
}

#[derive(Template)]
#[template(path = "endpoint_checked.html")]
struct Checked {
    errors: Errors,
    controls: Vec<Control>,
    /// Nothing has been typed where the deliveries go yet: that is no mistake so far.
    waits_for_place: bool,
}

pub(super) async fn check_new(form: Form) -> Shown {
    check(&form, Purpose::New, "/v1/endpoints/preview").await
}

pub(super) async fn check_change(Path(id): Path<String>, form: Form) -> Shown {
    let id = read_id(&id)?;
    check(&form, Purpose::Change, &format!("/v1/endpoints/{id}/preview")).await
}

/// What saving would say, while somebody types. Changes nothing.
async fn check(form: &Form, purpose: Purpose, path: &str) -> Shown {
    let typed = Typed::read(form);
    let mut errors = match typed.body(purpose) {
        Ok(body) => match form.visitor.api.send::<IgnoredAny>(Method::POST, path, &body).await {
            Ok(_) => Errors::default(),
            Err(refused) => at_controls(refused)?,
        },
        Err(error) => Errors::one(&error, &controls()),
    };
    let waits_for_place =
        typed.place == "url" && typed.url.is_empty() && errors.at("url").is_some();
    if waits_for_place {
        errors = Errors::default();
    }
    // A message for a control that the page does not have would go nowhere.
    let is_there = |(name, _): &Control| match *name {
        "secret" => purpose == Purpose::New,
        "place" | "url" | "hub" | "command" => typed.place != "handler",
        _ => true,
    };
    let controls = controls().into_iter().filter(is_there).collect();
    show(&Checked { errors, controls, waits_for_place })
}

impl Page {
    async fn new(visitor: &Visitor, id: Option<EndpointId>, typed: Typed) -> Result<Self, Refused> {
        let api = &visitor.api;
        let mut hubs = choices::<HubId>(api, "/v1/hubs").await?;
        let mut sources = choices::<SourceId>(api, "/v1/sources").await?;
        // What was chosen can still be chosen, though it is too old to be listed, or gone.
        keep(&mut hubs, std::slice::from_ref(&typed.hub));
        keep(&mut sources, &typed.sources);
        Ok(Self {
            chrome: Chrome::new(visitor, Section::Endpoints),
            id,
            updated_at: String::new(),
            hubs,
            sources,
            errors: Errors::default(),
            editor: Editor::look(api, typed.policy.clone()).await?,
            typed,
        })
    }

    fn action(&self) -> String {
        self.id.map_or_else(|| "/endpoints".into(), |id| format!("/endpoints/{id}/edit"))
    }

    fn checked_by(&self) -> String {
        self.id.map_or_else(|| "/endpoints/check".into(), |id| format!("/endpoints/{id}/check"))
    }
}

async fn choices<Id: serde::de::DeserializeOwned + ToString>(
    api: &Api,
    path: &str,
) -> Result<Vec<Choice>, Refused> {
    #[derive(Deserialize)]
    struct Named<Id> {
        id: Id,
        name: String,
    }

    let list: List<Named<Id>> = api.get(&format!("{path}?limit={MAX_CHOICES}")).await?;
    let choice = |named: Named<Id>| Choice {
        id: named.id.to_string(),
        name: words::line(named.name, MAX_NAME_CHARS),
    };
    Ok(list.data.into_iter().map(choice).collect())
}

fn keep(choices: &mut Vec<Choice>, chosen: &[String]) {
    for id in chosen.iter().filter(|id| !id.is_empty()) {
        if !choices.iter().any(|choice| choice.id == *id) {
            choices.push(Choice { id: id.clone(), name: words::line(id, MAX_NAME_CHARS) });
        }
    }
}
