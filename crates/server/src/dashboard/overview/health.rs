//! Whether all is well: what is wrong with each endpoint, in words, and one sentence over all of it.

use postrider_core::endpoint::EndpointState;
use postrider_core::{EndpointId, Timestamp};
use postrider_engine::BreakerState;
use serde::Deserialize;

use crate::dashboard::chart::{Each, History};
use crate::dashboard::words::{self, Moment};
use crate::deliveries::StateCounts;

/// A backlog smaller than this is not worth asking after.
pub(super) const BACKLOG_WORTH_A_LOOK: u64 = 100;
/// Over how many of the last minutes a backlog is watched.
const GROWTH_MINUTES: usize = 10;
/// By how much more came in than ended, in that time, in a backlog that grows.
const LEAST_GROWTH: u64 = 20;

/// How an endpoint stands, as `/v1/stats` tells it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Standing {
    pub(super) endpoint_id: EndpointId,
    pub(super) state: EndpointState,
    pub(super) deliveries: StateCounts,
    pub(super) health: Health,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Health {
    /// None where another node carries the endpoint, and was not asked.
    pub(super) breaker: Option<BreakerState>,
    pub(super) hold_until: Option<Timestamp>,
}

/// How much an endpoint needs somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Somebody has to do something.
    Act,
    /// The gateway is doing something about it.
    Watch,
    /// Somebody has already decided so.
    Know,
}

impl Need {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Act => "needs you",
            Self::Watch => "being handled",
            Self::Know => "as you left it",
        }
    }

    /// For the style sheet.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Act => "bad",
            Self::Watch => "warn",
            Self::Know => "calm",
        }
    }
}

/// What is the matter with an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matter {
    Disabled,
    BreakerOpen,
    DeadLetters(u64),
    BacklogGrows(u64),
    Probing,
    Ramping,
    Held(Timestamp),
    Paused,
}

impl Matter {
    pub(super) const fn need(self) -> Need {
        match self {
            Self::Disabled | Self::BreakerOpen | Self::DeadLetters(_) | Self::BacklogGrows(_) => {
                Need::Act
            }
            Self::Probing | Self::Ramping | Self::Held(_) => Need::Watch,
            Self::Paused => Need::Know,
        }
    }

    /// The worst is the lowest, however much of it there is.
    const fn rank(self) -> u8 {
        match self {
            Self::Disabled => 0,
            Self::BreakerOpen => 1,
            Self::DeadLetters(_) => 2,
            Self::BacklogGrows(_) => 3,
            Self::Probing => 4,
            Self::Ramping => 5,
            Self::Held(_) => 6,
            Self::Paused => 7,
        }
    }

    /// What is said of one endpoint.
    pub(super) fn words(self) -> String {
        match self {
            Self::Disabled => {
                "disabled: it answered that it is gone, or failed for too long; nothing is sent until \
                 somebody enables it"
                    .into()
            }
            Self::DeadLetters(count) => {
                let letters = words::plural(count, "dead letter", "dead letters");
                format!("made {letters} in the last hour")
            }
            Self::BreakerOpen => {
                "the breaker is open: too many attempts failed, so nothing is sent until a probe \
                 succeeds"
                    .into()
            }
            Self::Probing => "the breaker is half open: one probe is on its way".into(),
            Self::Ramping => "answers again; sending speeds up with each success".into(),
            Self::Held(_) => "asked to be left alone (Retry-After)".into(),
            Self::BacklogGrows(count) => format!(
                "the backlog grows: {} more came in than went out in the last {GROWTH_MINUTES} \
                 minutes",
                words::count(count)
            ),
            Self::Paused => "paused; deliveries are kept until it is resumed".into(),
        }
    }

    /// Until when it is so, where that is known.
    pub(super) const fn until(self) -> Option<Timestamp> {
        match self {
            Self::Held(until) => Some(until),
            Self::Disabled
            | Self::DeadLetters(_)
            | Self::BreakerOpen
            | Self::Probing
            | Self::Ramping
            | Self::BacklogGrows(_)
            | Self::Paused => None,
        }
    }
}

/// An endpoint with which something is the matter.
#[derive(Debug, Clone)]
pub(super) struct Concern {
    pub(super) endpoint: EndpointId,
    pub(super) need: Need,
    pub(super) matters: Vec<Matter>,
    pub(super) backlog: u64,
    /// In the last hour.
    pub(super) dead: u64,
}

impl Concern {
    /// The reasons with the moments that belong to them, for the page.
    pub(super) fn reasons(&self, now: Timestamp) -> Vec<(String, Option<Moment>)> {
        let told = |matter: &Matter| {
            (matter.words(), matter.until().map(|until| words::moment(until, now)))
        };
        self.matters.iter().map(told).collect()
    }
}

/// Finds those with which something is the matter, the worst first. `grown` says by how much the
/// backlogs grew that were looked at.
pub(super) fn judge(
    standings: &[Standing],
    last_hour: &Each,
    grown: &[(EndpointId, u64)],
    now: Timestamp,
) -> Vec<Concern> {
    let mut concerns: Vec<Concern> = standings
        .iter()
        .filter_map(|standing| {
            let id = standing.endpoint_id;
            let dead = last_hour.of(id).iter().map(|column| column.dead).sum();
            let growth = grown.iter().find(|(grown, _)| *grown == id).map(|(_, by)| *by);
            let matters = matters(standing, dead, growth, now);
            let need = matters.iter().map(|matter| matter.need()).min()?;
            let backlog = standing.deliveries.backlog();
            Some(Concern { endpoint: id, need, matters, backlog, dead })
        })
        .collect();
    concerns.sort_by_key(|concern| {
        let Concern { need, dead, backlog, endpoint, .. } = *concern;
        let worst = concern.matters.first().map(|matter| matter.rank());
        (need, worst, u64::MAX - dead, u64::MAX - backlog, endpoint)
    });
    concerns
}

fn matters(standing: &Standing, dead: u64, growth: Option<u64>, now: Timestamp) -> Vec<Matter> {
    let mut matters = Vec::new();
    match standing.state {
        EndpointState::Disabled => matters.push(Matter::Disabled),
        EndpointState::Paused => matters.push(Matter::Paused),
        EndpointState::Active => {
            match standing.health.breaker {
                Some(BreakerState::Open) => matters.push(Matter::BreakerOpen),
                Some(BreakerState::HalfOpen) => matters.push(Matter::Probing),
                Some(BreakerState::Ramping) => matters.push(Matter::Ramping),
                Some(BreakerState::Closed) | None => {}
            }
            let hold = standing.health.hold_until.filter(|until| *until > now);
            matters.extend(hold.map(Matter::Held));
            matters.extend(growth.map(Matter::BacklogGrows));
        }
        EndpointState::Deleted => return matters,
    }
    if dead > 0 {
        matters.push(Matter::DeadLetters(dead));
    }
    matters.sort_by_key(|matter| matter.rank());
    matters
}

/// Those whose backlog is to be asked after, the largest first, at most `limit`.
pub(super) fn backlogged(standings: &[Standing], limit: usize) -> Vec<EndpointId> {
    let mut found: Vec<(u64, EndpointId)> = standings
        .iter()
        .filter(|standing| standing.state == EndpointState::Active)
        .map(|standing| (standing.deliveries.backlog(), standing.endpoint_id))
        .filter(|(backlog, _)| *backlog >= BACKLOG_WORTH_A_LOOK)
        .collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found.into_iter().take(limit).map(|(_, id)| id).collect()
}

/// By how much a backlog has grown of late; none where it has not.
pub(super) fn growth(history: &History) -> Option<u64> {
    let recent = &history.points[history.points.len().saturating_sub(GROWTH_MINUTES)..];
    let received: u64 = recent.iter().map(|point| point.received).sum();
    let ended: u64 = recent.iter().map(|point| point.delivered + point.dead).sum();
    Some(received.saturating_sub(ended)).filter(|growth| *growth >= LEAST_GROWTH)
}

/// What else an operator has to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Elsewhere {
    pub(super) endpoints: usize,
    /// Hubs that are not connected while something waits for them.
    pub(super) awaited_hubs: usize,
    /// Nodes that have stopped without a word.
    pub(super) lost_nodes: usize,
}

/// The sentence at the top of the page, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// For the style sheet.
    pub(super) class: &'static str,
    pub(super) sentence: String,
    pub(super) reasons: Vec<String>,
}

pub(super) fn verdict(concerns: &[Concern], elsewhere: Elsewhere) -> Verdict {
    let needing = |need: Need| concerns.iter().filter(|concern| concern.need == need).count();
    let (act, watch) = (needing(Need::Act), needing(Need::Watch));
    let mut wrong = Vec::new();
    if act > 0 {
        wrong.push(number(act, "endpoint needs you", "endpoints need you"));
    }
    if elsewhere.awaited_hubs > 0 {
        wrong.push(number(
            elsewhere.awaited_hubs,
            "hub is not connected",
            "hubs are not connected",
        ));
    }
    if elsewhere.lost_nodes > 0 {
        wrong.push(number(elsewhere.lost_nodes, "node is gone", "nodes are gone"));
    }
    let reasons = reasons(concerns, elsewhere);
    let (class, sentence) = if !wrong.is_empty() {
        ("verdict-act", wrong.join(", "))
    } else if elsewhere.endpoints == 0 {
        ("verdict-watch", "Nothing goes anywhere yet".into())
    } else if watch > 0 {
        let held = number(watch, "endpoint is being handled", "endpoints are being handled");
        ("verdict-watch", format!("Nothing needs you; {held}"))
    } else {
        ("verdict-well", "All is well".into())
    };
    Verdict { class, sentence, reasons }
}

/// Why, counted over all endpoints.
fn reasons(concerns: &[Concern], elsewhere: Elsewhere) -> Vec<String> {
    let with = |wanted: fn(&Matter) -> bool| {
        concerns.iter().filter(|concern| concern.matters.iter().any(wanted)).count()
    };
    let mut reasons = Vec::new();
    let mut say = |count: usize, one: &str, many: &str| {
        if count > 0 {
            reasons.push(number(count, one, many));
        }
    };
    say(
        with(|matter| matches!(matter, Matter::Disabled)),
        "endpoint is disabled",
        "endpoints are disabled",
    );
    let dead: u64 = concerns.iter().map(|concern| concern.dead).sum();
    let dead = usize::try_from(dead).unwrap_or(usize::MAX);
    say(dead, "dead letter in the last hour", "dead letters in the last hour");
    say(
        with(|matter| matches!(matter, Matter::BreakerOpen)),
        "breaker is open",
        "breakers are open",
    );
    say(with(|matter| matches!(matter, Matter::BacklogGrows(_))), "backlog grows", "backlogs grow");
    say(
        elsewhere.awaited_hubs,
        "hub is not connected while deliveries wait for it",
        "hubs are not connected while deliveries wait for them",
    );
    say(
        elsewhere.lost_nodes,
        "node has not been heard of for longer than its lease",
        "nodes have not been heard of for longer than their lease",
    );
    say(
        with(|matter| matches!(matter, Matter::Probing | Matter::Ramping)),
        "endpoint is recovering",
        "endpoints are recovering",
    );
    say(
        with(|matter| matches!(matter, Matter::Held(_))),
        "endpoint asked for a pause",
        "endpoints asked for a pause",
    );
    say(
        with(|matter| matches!(matter, Matter::Paused)),
        "endpoint is paused",
        "endpoints are paused",
    );
    if elsewhere.endpoints == 0 {
        reasons.push("there is no endpoint: events are kept, but nobody gets them".into());
    } else if reasons.is_empty() {
        let endpoints = number(elsewhere.endpoints, "endpoint", "endpoints");
        reasons.push(format!(
            "{endpoints}, none failing or held back, no dead letter in the last hour"
        ));
    }
    reasons
}

fn number(count: usize, one: &str, many: &str) -> String {
    words::plural(count as u64, one, many)
}

#[cfg(test)]
mod tests;
