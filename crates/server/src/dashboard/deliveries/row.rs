//! A delivery as the API tells of it, and as a line of a list.

use std::collections::BTreeMap;

use http::StatusCode;
use postrider_core::{Class, DeliveryId, EndpointId, EventId, Reason, State, Timestamp};
use serde::Deserialize;

use super::filter;
use super::why::WaitingOn;
use crate::dashboard::api::{Api, List, Refused};
use crate::dashboard::words::{self, Moment};

/// The most endpoints that a form offers to choose from; with more, an id is typed.
const MAX_CHOICES: usize = 250;
const MAX_NAME_CHARS: usize = 60;
const MAX_NOTE_CHARS: usize = 160;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Delivery {
    pub(crate) id: DeliveryId,
    pub(crate) event_id: EventId,
    pub(crate) endpoint_id: EndpointId,
    pub(crate) state: State,
    pub(crate) attempts: u32,
    pub(crate) deferrals: u32,
    pub(crate) next_attempt_at: Option<Timestamp>,
    pub(crate) last_attempt_at: Option<Timestamp>,
    pub(crate) delivered_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) error_class: Option<Class>,
    pub(crate) last_error: Option<String>,
    pub(crate) reason: Option<Reason>,
    pub(crate) waiting_on: Option<WaitingOn>,
    pub(crate) replay: bool,
    pub(crate) result: Option<String>,
}

/// A line of a list.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) delivery: Delivery,
    pub(crate) endpoint: String,
    /// What it waits for, or what went wrong, in a few words.
    pub(crate) note: String,
    /// When it goes, or when something last happened to it.
    pub(crate) moment: Option<Moment>,
}

impl Row {
    /// Those of a page, with the names of their endpoints.
    pub(crate) fn all(
        deliveries: Vec<Delivery>,
        endpoints: &Endpoints,
        now: Timestamp,
    ) -> Vec<Self> {
        let row = |delivery: Delivery| Self {
            endpoint: endpoints.name(delivery.endpoint_id),
            note: note(&delivery),
            moment: moment_of(&delivery).map(|at| words::moment(at, now)),
            delivery,
        };
        deliveries.into_iter().map(row).collect()
    }
}

fn note(delivery: &Delivery) -> String {
    if let Some(waiting) = &delivery.waiting_on {
        let reason = waiting.reason.in_short();
        return match &delivery.last_error {
            Some(error) => format!("{reason}: {}", words::line(error, MAX_NOTE_CHARS)),
            None => reason.to_owned(),
        };
    }
    match delivery.state {
        State::Pending | State::InFlight | State::Delivered | State::Cancelled => String::new(),
        State::Retrying | State::Failed | State::Dead => {
            words::line(delivery.last_error.as_deref().unwrap_or_default(), MAX_NOTE_CHARS)
        }
    }
}

fn moment_of(delivery: &Delivery) -> Option<Timestamp> {
    delivery.next_attempt_at.or(delivery.ended_at).or(delivery.last_attempt_at)
}

/// The endpoints that a page can name.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    names: BTreeMap<EndpointId, String>,
    /// What a form offers, newest first.
    pub(crate) choices: Vec<Choice>,
    /// There are more than it offers.
    pub(crate) more: bool,
}

#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) id: String,
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
struct Named {
    id: EndpointId,
    name: Option<String>,
}

impl Named {
    fn shown(&self) -> String {
        match self.name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => words::line(name, MAX_NAME_CHARS),
            None => self.id.to_string(),
        }
    }
}

impl Endpoints {
    pub(crate) async fn load(api: &Api) -> Result<Self, Refused> {
        let limit = MAX_CHOICES.to_string();
        let path = filter::join("/v1/endpoints", [("limit", limit.as_str())]);
        let listed: List<Named> = api.get(&path).await?;
        let names = listed.data.iter().map(|endpoint| (endpoint.id, endpoint.shown())).collect();
        let choices = listed
            .data
            .iter()
            .map(|endpoint| Choice { id: endpoint.id.to_string(), name: endpoint.shown() })
            .collect();
        Ok(Self { names, choices, more: listed.next_cursor.is_some() })
    }

    /// Looks for the names that are missing. Each costs no more than a look into memory.
    pub(crate) async fn learn(&mut self, api: &Api, of: Vec<EndpointId>) -> Result<(), Refused> {
        for id in of {
            if self.names.contains_key(&id) {
                continue;
            }
            let name = match api.get::<Named>(&format!("/v1/endpoints/{id}")).await {
                Ok(endpoint) => endpoint.shown(),
                Err(refused) if refused.status == StatusCode::NOT_FOUND => {
                    format!("{id} (deleted)")
                }
                Err(refused) => return Err(refused),
            };
            self.names.insert(id, name);
        }
        Ok(())
    }

    pub(crate) fn name(&self, id: EndpointId) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// A choice that was made is offered, too, though it may be of one that has been deleted.
    pub(crate) fn offer(&mut self, id: &str) {
        if !id.is_empty() && !self.choices.iter().any(|choice| choice.id == id) {
            let name =
                id.parse().map_or_else(|_| words::line(id, MAX_NAME_CHARS), |id| self.name(id));
            self.choices.push(Choice { id: id.to_owned(), name });
        }
    }
}
