//! What is sent to an endpoint, as far as a page can say it: everything but the signature.

use std::collections::BTreeMap;

use postrider_core::{DeliveryId, EndpointId, Timestamp};
use serde::Deserialize;

use super::curl::{self, Command};
use super::found;
use crate::dashboard::api::{Api, Refused};
use crate::dashboard::events::Event;
use crate::dashboard::words;

/// What the gateway says itself; an event's own are not passed on.
const OWN_PREFIXES: [&str; 2] = ["webhook-", "postrider-"];
const MAX_SHOWN_CHARS: usize = 500;

/// An endpoint, as far as it says how deliveries come to it.
#[derive(Debug, Default, Deserialize)]
struct Endpoint {
    url: Option<String>,
    command: Option<Vec<String>>,
    hub: Option<String>,
    pull: Option<bool>,
    handler: Option<String>,
    headers: BTreeMap<String, String>,
    signing: Signing,
    format: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Signing {
    scheme: String,
    header: Option<String>,
}

/// Where a delivery goes.
#[derive(Debug, Default)]
pub(super) struct Recipient {
    endpoint: Option<Endpoint>,
}

impl Recipient {
    pub(super) async fn find(api: &Api, id: EndpointId) -> Result<Self, Refused> {
        Ok(Self { endpoint: found(api.get(&format!("/v1/endpoints/{id}")).await)? })
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.endpoint.is_none()
    }

    /// The line that a request begins with, or what takes its place.
    pub(super) fn line(&self) -> String {
        let Some(endpoint) = &self.endpoint else {
            return "its endpoint has been deleted".to_owned();
        };
        if let Some(url) = &endpoint.url {
            return words::line(format!("POST {url}"), MAX_SHOWN_CHARS);
        }
        if let Some(hub) = &endpoint.hub {
            return format!("by {hub}, which posts it locally");
        }
        if let Some(command) = &endpoint.command {
            return words::line(format!("runs {}", command.join(" ")), MAX_SHOWN_CHARS);
        }
        if let Some(handler) = &endpoint.handler {
            return words::line(format!("to the handler {handler}"), MAX_SHOWN_CHARS);
        }
        if endpoint.pull == Some(true) {
            return "fetched by a worker".to_owned();
        }
        String::new()
    }

    /// It is posted, so that it has headers.
    pub(super) fn is_posted(&self) -> bool {
        self.endpoint
            .as_ref()
            .is_some_and(|endpoint| endpoint.url.is_some() || endpoint.hub.is_some())
    }

    /// It gets a message that was written of the event, not the event's bytes.
    pub(super) fn is_written(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| endpoint.format.is_some())
    }

    /// The name of the header that proves who sends it, if it is sent.
    pub(super) fn signature(&self) -> Option<String> {
        let Endpoint { signing, .. } = self.endpoint.as_ref()?;
        match (signing.scheme.as_str(), &signing.header) {
            ("none", _) => None,
            (_, Some(header)) => Some(words::line(header, MAX_SHOWN_CHARS)),
            (_, None) => Some("webhook-signature".to_owned()),
        }
    }
}

/// The attempt that would be made next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) delivery: DeliveryId,
    pub(super) number: u32,
    pub(super) at: Timestamp,
}

/// The request that would be made next, for whoever wants to make it by hand. None where a delivery is
/// not posted as it is.
pub(super) async fn curl(
    api: &Api,
    event: &Event,
    to: &Recipient,
    attempt: &Next,
    file: &str,
) -> Result<Option<Command>, Refused> {
    let Some(endpoint) = &to.endpoint else { return Ok(None) };
    let (Some(url), None) = (&endpoint.url, &endpoint.format) else { return Ok(None) };
    let short = event.payload_size.is_some_and(|size| size <= curl::MAX_INLINE_BYTES);
    let body = if short { found(event.payload(api).await)? } else { None };
    let request = curl::Request {
        url,
        headers: headers(event, endpoint, attempt),
        body: body.as_deref(),
        file,
    };
    Ok(curl::command(&request))
}

fn headers(event: &Event, endpoint: &Endpoint, attempt: &Next) -> Vec<(String, String)> {
    let own = [
        ("content-type", event.content_type.clone()),
        ("user-agent", format!("Postrider/{}", env!("CARGO_PKG_VERSION"))),
        ("webhook-id", event.id.to_string()),
        ("webhook-timestamp", attempt.at.as_seconds().to_string()),
        ("postrider-event-type", event.kind.clone()),
        ("postrider-attempt", attempt.number.to_string()),
        ("postrider-delivery-id", attempt.delivery.to_string()),
    ];
    // Names of headers mean the same in any case.
    let is_own = |name: &str| own.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let is_set = |name: &str| endpoint.headers.keys().any(|set| set.eq_ignore_ascii_case(name));
    let passed_on = event.headers.iter().flatten().filter_map(|header| {
        let name = header.name.to_ascii_lowercase();
        let reserved = OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        // A value that is not text is left out here, and counted there.
        let value = header.value.clone().unwrap_or_else(|| "\0".to_owned());
        (!reserved && !is_own(&name) && !is_set(&name)).then_some((name, value))
    });
    let set = endpoint.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
    let own = own.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    own.chain(set).chain(passed_on).collect()
}
