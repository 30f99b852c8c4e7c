//! A list of deliveries with its filter: what the pages of deliveries and of dead letters share.

use http::StatusCode;
use postrider_core::{State, Timestamp};
use serde::Deserialize;

use super::filter::Filter;
use super::row::{Delivery, Endpoints, Row};
use crate::dashboard::api::{List, Refused};
use crate::dashboard::html::Sorry;
use crate::dashboard::session::Visitor;
use crate::dashboard::words;
use crate::deliveries::StateCounts;

/// What can be chosen in a field of a filter.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) value: &'static str,
    pub(crate) label: &'static str,
    pub(crate) chosen: bool,
}

const STATES: [(&str, &str); 8] = [
    ("", "any"),
    ("pending", "pending"),
    ("in_flight", "in flight"),
    ("retrying", "retrying"),
    ("delivered", "delivered"),
    ("failed", "failed"),
    ("dead", "dead"),
    ("cancelled", "cancelled"),
];
const DEAD_STATES: [(&str, &str); 3] =
    [("", "failed or dead"), ("failed", "failed"), ("dead", "dead")];
const CLASSES: [(&str, &str); 4] =
    [("", "any"), ("final", "final"), ("retryable", "retryable"), ("rate_limited", "rate limited")];
const REASONS: [(&str, &str); 4] = [
    ("", "any"),
    ("rejected", "rejected: refused for good"),
    ("exhausted", "exhausted: no attempts left"),
    ("expired", "expired: too old"),
];
pub(crate) const SPANS: [(&str, &str); 4] =
    [("", "any time"), ("hour", "last hour"), ("day", "last day"), ("week", "last week")];

pub(crate) fn choices(of: &[(&'static str, &'static str)], chosen: &str) -> Vec<Choice> {
    let choice = |&(value, label): &(_, _)| Choice { value, label, chosen: value == chosen };
    of.iter().map(choice).collect()
}

/// A page of a list, and the filter above it.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) path: &'static str,
    pub(crate) here: String,
    pub(crate) filter: Filter,
    pub(crate) endpoints: Endpoints,
    pub(crate) rows: Vec<Row>,
    pub(crate) next: Option<String>,
    pub(crate) now: Timestamp,
    refused: Option<Refused>,
}

impl Listing {
    /// What the API has under the same name as the page. What is wrong with the filter is shown with it;
    /// `refused` is what the page itself found wrong.
    pub(crate) async fn load(
        visitor: &Visitor,
        path: &'static str,
        filter: Filter,
        refused: Option<Refused>,
    ) -> Result<Self, Sorry> {
        let (api, now) = (&visitor.api, visitor.now);
        let mut endpoints = Endpoints::load(api).await?;
        let question = filter.question(&format!("/v1{path}"), now);
        let answer = match refused {
            Some(refused) => Err(refused),
            None => api.get::<List<Delivery>>(&question).await,
        };
        let (listed, refused) = match answer {
            Ok(listed) => (listed, None),
            Err(refused) if refused.status == StatusCode::UNPROCESSABLE_ENTITY => {
                (List { data: Vec::new(), next_cursor: None }, Some(refused))
            }
            Err(refused) => return Err(refused.into()),
        };
        endpoints
            .learn(api, listed.data.iter().map(|delivery| delivery.endpoint_id).collect())
            .await?;
        endpoints.offer(&filter.endpoint);
        let next = listed.next_cursor.map(|cursor| filter.next(path, &cursor));
        let rows = Row::all(listed.data, &endpoints, now);
        Ok(Self { path, here: filter.address(path), filter, endpoints, rows, next, now, refused })
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.refused.as_ref().map_or(StatusCode::OK, |refused| refused.status)
    }

    /// What is wrong with a field.
    pub(crate) fn wrong(&self, field: &str) -> Option<&str> {
        self.refused.as_ref()?.of_field(field)
    }

    /// What is wrong with anything that has no field, such as a cursor that was tampered with.
    pub(crate) fn wrong_otherwise(&self) -> Option<&str> {
        const FIELDS: [&str; 7] =
            ["id", "state", "endpoint", "error_class", "reason", "since", "until"];
        let refused = self.refused.as_ref()?;
        let shown = FIELDS.iter().any(|field| refused.of_field(field).is_some());
        (!shown).then_some(refused.detail.as_str())
    }

    pub(crate) fn is_wrong(&self) -> bool {
        self.refused.is_some()
    }

    pub(crate) fn is_live(&self) -> bool {
        self.filter.is_first_page() && self.refused.is_none()
    }

    /// The filter for a form that acts upon what is shown.
    pub(crate) fn fixed_pairs(&self) -> Vec<(&'static str, String)> {
        let fixed = self.filter.fixed(self.now);
        fixed.pairs().into_iter().map(|(name, value)| (name, value.to_owned())).collect()
    }

    pub(crate) fn states(&self) -> Vec<Choice> {
        choices(&STATES, &self.filter.state)
    }

    pub(crate) fn dead_states(&self) -> Vec<Choice> {
        choices(&DEAD_STATES, &self.filter.state)
    }

    pub(crate) fn classes(&self) -> Vec<Choice> {
        choices(&CLASSES, &self.filter.error_class)
    }

    pub(crate) fn reasons(&self) -> Vec<Choice> {
        choices(&REASONS, &self.filter.reason)
    }

    pub(crate) fn spans(&self) -> Vec<Choice> {
        choices(&SPANS, &self.filter.last)
    }

    /// Exact times were asked for, or something is wrong with them.
    pub(crate) fn has_times(&self) -> bool {
        let Filter { since, until, .. } = &self.filter;
        !since.is_empty() || !until.is_empty()
    }
}

/// The way to one state, with how many there are where that is known.
#[derive(Debug)]
pub(crate) struct Tab {
    pub(crate) label: &'static str,
    pub(crate) address: String,
    pub(crate) count: Option<String>,
    pub(crate) chosen: bool,
}

#[derive(Debug, Deserialize)]
struct Stats {
    deliveries: StateCounts,
}

impl Tab {
    /// The gateway keeps count by state, for the tenant and for each endpoint; of anything narrower
    /// there are no numbers.
    pub(crate) async fn all(visitor: &Visitor, list: &Listing) -> Result<Vec<Self>, Sorry> {
        let filter = &list.filter;
        let counted = Filter {
            state: filter.state.clone(),
            endpoint: filter.endpoint.clone(),
            cursor: filter.cursor.clone(),
            ..Filter::default()
        };
        let counts = if *filter == counted && !list.is_wrong() {
            let path = match filter.endpoint.parse::<postrider_core::EndpointId>() {
                Ok(id) => format!("/v1/endpoints/{id}/stats"),
                Err(_) => "/v1/stats".to_owned(),
            };
            super::found(visitor.api.get::<Stats>(&path).await)?
        } else {
            None
        };
        let counts = counts.map(|stats| stats.deliveries);
        let tab = |(value, label): (&'static str, &'static str)| {
            let state = State::ALL.into_iter().find(|state| state.as_str() == value);
            let count = counts.map(|counts| state.map_or(counts.all(), |state| counts.of(state)));
            Self {
                label: if value.is_empty() { "all" } else { label },
                address: filter.in_state(list.path, value),
                count: count.map(words::count),
                chosen: filter.state == value,
            }
        };
        Ok(STATES.into_iter().map(tab).collect())
    }
}
