//! An endpoint as the API shows it, and how it is doing in words.

use std::collections::BTreeMap;

use postrider_core::endpoint::EndpointState;
use postrider_core::{EndpointId, HubId, SourceId, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::dashboard::words::{Moment, moment};
use crate::deliveries::StateCounts;

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Endpoint {
    pub(super) id: EndpointId,
    pub(super) name: Option<String>,
    pub(super) url: Option<String>,
    pub(super) command: Option<Vec<String>>,
    pub(super) hub: Option<HubId>,
    #[serde(default)]
    pub(super) pull: bool,
    pub(super) handler: Option<String>,
    pub(super) event_types: Vec<String>,
    pub(super) sources: Vec<SourceId>,
    pub(super) filter: Option<String>,
    pub(super) policy: Value,
    pub(super) ordering: String,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) max_in_flight: Option<u32>,
    pub(super) timeout: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) signing: Signing,
    pub(super) format: Option<Value>,
    pub(super) tls: Option<Tls>,
    pub(super) metadata: Map<String, Value>,
    pub(super) state: EndpointState,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct RateLimit {
    pub(super) per_second: f64,
    pub(super) burst: u32,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Signing {
    pub(super) scheme: String,
    pub(super) header: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Tls {
    pub(super) client_cert: Option<String>,
    pub(super) has_client_key: bool,
    pub(super) ca: Option<String>,
}

impl Endpoint {
    /// What it is called: by its name, else by its id.
    pub(super) fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// Where its deliveries go, in a line.
    pub(super) fn place(&self) -> String {
        if let Some(url) = &self.url {
            return url.clone();
        }
        if let Some(words) = &self.command {
            return format!("runs {}", words.join(" "));
        }
        if let Some(hub) = self.hub {
            return format!("by hub {hub}");
        }
        if let Some(name) = &self.handler {
            return format!("function {name} of the program around the gateway");
        }
        "workers come and lease".into()
    }

    /// Whether a request is made, so that something can be tried.
    pub(super) fn can_be_tried(&self) -> bool {
        !self.pull
    }

    pub(super) fn is_active(&self) -> bool {
        self.state == EndpointState::Active
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state == EndpointState::Paused
    }

    pub(super) fn is_disabled(&self) -> bool {
        self.state == EndpointState::Disabled
    }

    /// Whether one looks for it by this text.
    pub(super) fn fits(&self, wanted: &str) -> bool {
        let wanted = wanted.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        self.name.as_deref().is_some_and(has) || has(&self.id.to_string()) || has(&self.place())
    }
}

/// `GET …/stats`, and each endpoint of `GET /v1/stats`.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Stats {
    pub(super) endpoint_id: EndpointId,
    pub(super) deliveries: StateCounts,
    pub(super) health: Health,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Health {
    pub(super) breaker: Option<Breaker>,
    pub(super) hold_until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Breaker {
    Closed,
    Open,
    HalfOpen,
    Ramping,
}

impl Breaker {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Closed => "closed: nothing is held back",
            Self::Open => "open: it has failed too often, so nothing is sent for a while",
            Self::HalfOpen => "half open: one delivery is tried to see whether it has recovered",
            Self::Ramping => "ramping: it has recovered and gets more and more again",
        }
    }
}

/// How an endpoint is doing: a badge, and why in words.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// The class of the badge in the style sheet, after `state-`.
    pub(super) class: &'static str,
    pub(super) badge: &'static str,
    pub(super) why: Option<&'static str>,
    pub(super) until: Option<Moment>,
}

impl Standing {
    pub(super) fn of(state: EndpointState, health: Health, now: Timestamp) -> Self {
        let held = health.hold_until.filter(|until| *until > now);
        let (class, badge, why) = match (state, health.breaker) {
            (EndpointState::Disabled, _) => (
                "disabled",
                "disabled",
                Some(
                    "it answered 410 or has failed for days; what comes waits until it is enabled",
                ),
            ),
            (EndpointState::Paused, _) => {
                ("paused", "paused", Some("what comes is kept until it is resumed"))
            }
            (EndpointState::Deleted, _) => ("deleted", "deleted", None),
            (EndpointState::Active, Some(Breaker::Open)) => {
                ("open", "breaker open", Some(Breaker::Open.words()))
            }
            (EndpointState::Active, Some(Breaker::HalfOpen)) => {
                ("half_open", "breaker half open", Some(Breaker::HalfOpen.words()))
            }
            (EndpointState::Active, _) if held.is_some() => {
                ("held", "held", Some("it asked by Retry-After to be left alone"))
            }
            (EndpointState::Active, Some(Breaker::Ramping)) => {
                ("warn", "recovering", Some(Breaker::Ramping.words()))
            }
            (EndpointState::Active, Some(Breaker::Closed) | None) => ("active", "active", None),
        };
        let until = held.filter(|_| badge == "held").map(|until| moment(until, now));
        Self { class, badge, why, until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_that_is_known_of_an_endpoint_is_said() {
        let now = Timestamp::from_millis(1_000_000);
        let later = Timestamp::from_millis(2_000_000);
        let earlier = Timestamp::from_millis(500_000);
        let health = |breaker, hold_until| Health { breaker, hold_until };
        let cases = [
            (EndpointState::Active, health(None, None), "active"),
            (EndpointState::Active, health(Some(Breaker::Closed), None), "active"),
            (EndpointState::Active, health(Some(Breaker::Closed), Some(later)), "held"),
            (EndpointState::Active, health(Some(Breaker::Closed), Some(earlier)), "active"),
            (EndpointState::Active, health(Some(Breaker::Open), Some(later)), "breaker open"),
            (EndpointState::Active, health(Some(Breaker::HalfOpen), None), "breaker half open"),
            (EndpointState::Active, health(Some(Breaker::Ramping), None), "recovering"),
            (EndpointState::Paused, health(Some(Breaker::Open), Some(later)), "paused"),
            (EndpointState::Disabled, health(None, Some(later)), "disabled"),
        ];
        for (state, health, badge) in cases {
            let standing = Standing::of(state, health, now);
            assert_eq!(standing.badge, badge, "{state:?} {health:?}");
            assert_eq!(standing.until.is_some(), badge == "held");
        }
    }
}
