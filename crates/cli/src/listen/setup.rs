//! What listening needs on the gateway: a source, a hub and an endpoint between them, found by name or
//! made.

use anyhow::{Context as _, anyhow};
use postrider_client::{Error, Gateway, Method};
use serde_json::{Value, json};

use crate::Failure;

/// Pages of a list that are looked through for a name.
const MAX_PAGES: usize = 1_000;

/// What was found or made.
pub(super) struct Ears {
    /// The URL for the provider.
    pub(super) url: String,
    /// The hub's. It is made anew each time and kept nowhere.
    pub(super) token: String,
    pub(super) endpoint: String,
    hub: String,
    source: String,
    /// The source is not ours to take down.
    given: bool,
}

pub(super) async fn prepare(
    gateway: &Gateway,
    name: &str,
    source: Option<&str>,
) -> Result<Ears, Failure> {
    let known = find(gateway, "/v1/sources", source.unwrap_or(name)).await?;
    let source_id = match (known, source) {
        (Some(known), _) => text(&known, "id")?,
        (None, Some(wanted)) => {
            return Err(Failure::usage(anyhow!("the gateway has no source {wanted:?}")));
        }
        (None, None) => {
            let body = json!({ "name": name, "verify": { "scheme": "none" } });
            text(&gateway.request(Method::POST, "/v1/sources", Some(&body)).await?, "id")?
        }
    };
    let shown = gateway.request(Method::GET, &format!("/v1/sources/{source_id}"), None).await?;
    let url = format!("{}{}", gateway.url(), text(&shown, "url")?);

    // A token is shown once, so there has to be a new hub; the old one, if it still runs, ends.
    let old = find(gateway, "/v1/hubs", name).await?;
    let made = gateway.request(Method::POST, "/v1/hubs", Some(&json!({ "name": name }))).await?;
    let (hub, token) = (text(&made, "id")?, text(&made, "token")?);
    let endpoint = lead_to(gateway, name, &hub, &source_id).await?;
    if let Some(old) = old {
        delete(gateway, &format!("/v1/hubs/{}", text(&old, "id")?)).await?;
    }
    Ok(Ears { url, token, endpoint, hub, source: source_id, given: source.is_some() })
}

/// The endpoint of this name, made to lead from the source to the hub. What waits for it is kept.
async fn lead_to(
    gateway: &Gateway,
    name: &str,
    hub: &str,
    source: &str,
) -> Result<String, Failure> {
    match find(gateway, "/v1/endpoints", name).await? {
        Some(known) if known.get("hub").is_some_and(Value::is_string) => {
            let id = text(&known, "id")?;
            let change = json!({ "hub": hub, "sources": [source] });
            gateway.request(Method::PATCH, &format!("/v1/endpoints/{id}"), Some(&change)).await?;
            Ok(id)
        }
        Some(known) => {
            let id = text(&known, "id")?;
            Err(Failure::usage(anyhow!(
                "the endpoint {name:?} ({id}) is not one of a hub; choose another --name"
            )))
        }
        None => {
            let new = json!({
                "name": name,
                "hub": hub,
                "sources": [source],
                // Patient, because whoever listens goes home in the evening; not in order, because
                // what they are working on fails all the time, and must not hold up the rest.
                "policy": "edge",
                "ordering": "none",
            });
            text(&gateway.request(Method::POST, "/v1/endpoints", Some(&new)).await?, "id")
        }
    }
}

impl Ears {
    /// Deletes what was made.
    pub(super) async fn take_down(&self, gateway: &Gateway) -> Result<(), Failure> {
        delete(gateway, &format!("/v1/endpoints/{}", self.endpoint)).await?;
        delete(gateway, &format!("/v1/hubs/{}", self.hub)).await?;
        if !self.given {
            delete(gateway, &format!("/v1/sources/{}", self.source)).await?;
        }
        Ok(())
    }
}

/// What has been deleted by somebody else is as well.
async fn delete(gateway: &Gateway, path: &str) -> Result<(), Failure> {
    match gateway.request(Method::DELETE, path, None).await {
        Ok(_) | Err(Error::Refused { status: 404, .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The item of a list with this id or, the newest of it, this name.
async fn find(gateway: &Gateway, list: &str, wanted: &str) -> Result<Option<Value>, Failure> {
    let mut path = format!("{list}?limit=100");
    for _ in 0..MAX_PAGES {
        let mut page = gateway.request(Method::GET, &path, None).await?;
        let items = page.get_mut("data").and_then(Value::as_array_mut);
        let items = items.with_context(|| format!("the gateway's answer to {list} has no data"))?;
        let is_it =
            |item: &Value| [item.get("id"), item.get("name")].contains(&Some(&Value::from(wanted)));
        if let Some(at) = items.iter().position(is_it) {
            return Ok(Some(items.swap_remove(at)));
        }
        match page.get("next_cursor").and_then(Value::as_str) {
            Some(cursor) => path = format!("{list}?limit=100&cursor={cursor}"),
            None => return Ok(None),
        }
    }
    Ok(None)
}

fn text(object: &Value, field: &str) -> Result<String, Failure> {
    let value = object.get(field).and_then(Value::as_str);
    Ok(value.with_context(|| format!("the gateway's answer has no {field}"))?.to_owned())
}
