//! Dead letters put together by where they were to go and why they did not get there.

use postrider_core::{Class, EndpointId, Reason, State, Timestamp};
use serde::Deserialize;

use super::{PATH, REPLAY};
use crate::dashboard::api::Refused;
use crate::dashboard::deliveries::filter::Filter;
use crate::dashboard::deliveries::row::Endpoints;
use crate::dashboard::session::Visitor;
use crate::dashboard::words::{self, Moment};

/// How many are shown: those with the most.
const MAX_GROUPS: usize = 50;
const MAX_ERROR_CHARS: usize = 200;

#[derive(Debug)]
pub(super) struct Groups {
    pub(super) rows: Vec<Group>,
    /// How many were left out of the table.
    pub(super) more: usize,
    /// How many dead letters were looked at.
    pub(super) looked_at: String,
    /// There are no others.
    pub(super) complete: bool,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) endpoint_id: EndpointId,
    pub(super) endpoint: String,
    pub(super) state: State,
    pub(super) class: Option<String>,
    pub(super) reason: Option<&'static str>,
    pub(super) deliveries: String,
    pub(super) newest: Option<Moment>,
    pub(super) last_error: String,
    /// The list of them.
    pub(super) list: String,
    pub(super) replay: String,
}

#[derive(Debug, Deserialize)]
struct Answer {
    data: Vec<Found>,
    looked_at: u64,
    complete: bool,
}

#[derive(Debug, Deserialize)]
struct Found {
    endpoint_id: EndpointId,
    state: State,
    error_class: Option<Class>,
    reason: Option<Reason>,
    deliveries: u64,
    newest_at: Option<Timestamp>,
    last_error: Option<String>,
}

impl Groups {
    pub(super) async fn load(
        visitor: &Visitor,
        filter: &Filter,
        endpoints: &mut Endpoints,
    ) -> Result<Self, Refused> {
        let now = visitor.now;
        let path = filter.question("/v1/dead-letters/groups", now);
        let mut answer: Answer = visitor.api.get(&path).await?;
        let more = answer.data.len().saturating_sub(MAX_GROUPS);
        answer.data.truncate(MAX_GROUPS);
        endpoints
            .learn(&visitor.api, answer.data.iter().map(|row| row.endpoint_id).collect())
            .await?;
        let groups = answer.data.into_iter().map(|row| Group::of(row, filter, endpoints, now));
        Ok(Self {
            rows: groups.collect(),
            more,
            looked_at: words::plural(answer.looked_at, "dead letter", "dead letters"),
            complete: answer.complete,
        })
    }
}

impl Group {
    fn of(row: Found, filter: &Filter, endpoints: &Endpoints, now: Timestamp) -> Self {
        let narrowed = Filter {
            endpoint: row.endpoint_id.to_string(),
            state: row.state.as_str().to_owned(),
            error_class: row.error_class.map_or_else(String::new, |class| class.as_str().into()),
            reason: row.reason.map_or_else(String::new, |reason| reason.as_str().into()),
            ..filter.clone()
        };
        Self {
            endpoint_id: row.endpoint_id,
            endpoint: endpoints.name(row.endpoint_id),
            state: row.state,
            class: row.error_class.map(|class| class.as_str().replace('_', " ")),
            reason: row.reason.map(Reason::as_str),
            deliveries: words::count(row.deliveries),
            newest: row.newest_at.map(|at| words::moment(at, now)),
            last_error: words::line(row.last_error.unwrap_or_default(), MAX_ERROR_CHARS),
            list: narrowed.address(PATH),
            replay: narrowed.address(REPLAY),
        }
    }
}
