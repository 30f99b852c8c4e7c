//! What a gateway says of itself at one moment, taken apart.

use std::cmp::Reverse;
use std::collections::HashMap;

use postrider_core::Timestamp;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    /// By the clock of this machine.
    pub(super) at: Timestamp,
    pub(super) received: Flow,
    pub(super) delivered: Flow,
    pub(super) counts: Counts,
    pub(super) oldest_waiting_at: Option<Timestamp>,
    /// p50, p95 and p99 of the last hour, in milliseconds.
    pub(super) latency: [Option<u64>; 3],
    pub(super) endpoints: Vec<Endpoint>,
    /// Where several can share the store.
    pub(super) nodes: Vec<Node>,
}

/// Something that happens again and again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Flow {
    pub(super) per_second: f64,
    /// How often in each minute of the last hour.
    pub(super) minutes: Vec<u64>,
}

/// Deliveries by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) pending: u64,
    pub(super) in_flight: u64,
    pub(super) retrying: u64,
    pub(super) delivered: u64,
    pub(super) failed: u64,
    pub(super) dead: u64,
    pub(super) cancelled: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) id: String,
    /// What it is called, or where it leads.
    pub(super) name: String,
    pub(super) state: String,
    pub(super) breaker: Option<String>,
    pub(super) counts: Counts,
    /// Attempts that failed within the last hour.
    pub(super) failures: u64,
    pub(super) last_error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) live: bool,
    pub(super) lanes: usize,
    pub(super) in_flight: u64,
    pub(super) lag_seconds: f64,
}

/// In which order endpoints are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Worst,
    Waiting,
    Failures,
    Name,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Worst => Self::Waiting,
            Self::Waiting => Self::Failures,
            Self::Failures => Self::Name,
            Self::Name => Self::Worst,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Worst => "worst",
            Self::Waiting => "waiting",
            Self::Failures => "failures",
            Self::Name => "name",
        }
    }
}

impl Counts {
    pub(super) fn read(value: &Value) -> Self {
        let count = |state: &str| value[state].as_u64().unwrap_or(0);
        Self {
            pending: count("pending"),
            in_flight: count("in_flight"),
            retrying: count("retrying"),
            delivered: count("delivered"),
            failed: count("failed"),
            dead: count("dead"),
            cancelled: count("cancelled"),
        }
    }

    /// What is not at its end.
    pub(super) fn waiting(&self) -> u64 {
        self.pending.saturating_add(self.in_flight).saturating_add(self.retrying)
    }
}

impl Endpoint {
    /// Whether somebody should look at it, and how much so.
    pub(super) fn trouble(&self) -> u8 {
        match (&*self.state, self.breaker.as_deref()) {
            ("disabled", _) => 4,
            (_, Some("open")) => 3,
            (_, Some("half_open")) => 2,
            ("paused", _) => 1,
            _ => 0,
        }
    }

    /// In one word.
    pub(super) fn condition(&self) -> &str {
        match (&*self.state, self.breaker.as_deref()) {
            ("active", Some("open")) => "breaker",
            ("active", Some("half_open")) => "probing",
            (state, _) => state,
        }
    }
}

/// What is known of endpoints beside their counts.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) names: HashMap<String, String>,
    pub(super) errors: HashMap<String, String>,
}

impl Snapshot {
    /// Of a gateway that does nothing.
    #[cfg(test)]
    pub(super) fn idle(at: Timestamp) -> Self {
        let nothing = Value::Null;
        Self::read(at, &nothing, &nothing, &nothing, &Known::default())
    }

    /// From `/v1/stats`, `/v1/stats/history` and the same for each endpoint. What is missing counts as
    /// nothing: a gateway of another version shows less, and something all the same.
    pub(super) fn read(
        at: Timestamp,
        stats: &Value,
        history: &Value,
        each: &Value,
        known: &Known,
    ) -> Self {
        let endpoint = |shown: &Value| {
            let id = shown["endpoint_id"].as_str().unwrap_or_default().to_owned();
            let points = each["endpoints"][&*id].as_array().map(Vec::as_slice).unwrap_or_default();
            Endpoint {
                name: known.names.get(&id).cloned().unwrap_or_else(|| id.clone()),
                state: shown["state"].as_str().unwrap_or_default().to_owned(),
                breaker: shown["health"]["breaker"].as_str().map(str::to_owned),
                counts: Counts::read(&shown["deliveries"]),
                failures: points.iter().filter_map(|point| point["failures"].as_u64()).sum(),
                last_error: known.errors.get(&id).cloned(),
                id,
            }
        };
        let flow = |what: &str| Flow {
            per_second: history["per_second"][what].as_f64().unwrap_or(0.0),
            minutes: list(&history["points"])
                .iter()
                .map(|point| point[what].as_u64().unwrap_or(0))
                .collect(),
        };
        let oldest = history["oldest_waiting_at"].as_str().and_then(|time| time.parse().ok());
        Self {
            at,
            received: flow("received"),
            delivered: flow("delivered"),
            counts: Counts::read(&stats["deliveries"]),
            oldest_waiting_at: oldest,
            latency: ["p50_ms", "p95_ms", "p99_ms"].map(|name| history["total"][name].as_u64()),
            endpoints: list(&stats["endpoints"]).iter().map(endpoint).collect(),
            nodes: Vec::new(),
        }
    }

    pub(super) fn sort(&mut self, by: Sort) {
        let bad = |endpoint: &Endpoint| endpoint.counts.failed + endpoint.counts.dead;
        match by {
            Sort::Worst => self.endpoints.sort_by_cached_key(|endpoint| {
                let rank = (endpoint.trouble(), endpoint.failures, endpoint.counts.waiting());
                (Reverse(rank), Reverse(bad(endpoint)), endpoint.name.clone())
            }),
            Sort::Waiting => self.endpoints.sort_by_cached_key(|endpoint| {
                (Reverse(endpoint.counts.waiting()), endpoint.name.clone())
            }),
            Sort::Failures => self.endpoints.sort_by_cached_key(|endpoint| {
                (Reverse((endpoint.failures, bad(endpoint))), endpoint.name.clone())
            }),
            Sort::Name => self.endpoints.sort_by_cached_key(|endpoint| endpoint.name.clone()),
        }
    }
}

/// From `/v1/nodes`.
pub(super) fn nodes(answer: &Value) -> Vec<Node> {
    let node = |node: &Value| Node {
        name: node["name"].as_str().unwrap_or_default().to_owned(),
        live: node["live"].as_bool().unwrap_or(false),
        lanes: list(&node["lanes"]).len(),
        in_flight: node["in_flight"].as_u64().unwrap_or(0),
        lag_seconds: node["lag_seconds"].as_f64().unwrap_or(0.0),
    };
    list(&answer["nodes"]).iter().map(node).collect()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    fn endpoint(name: &str, state: &str, breaker: &str, waiting: u64, failures: u64) -> Endpoint {
        Endpoint {
            id: format!("ep_{name}"),
            name: name.to_owned(),
            state: state.to_owned(),
            breaker: Some(breaker.to_owned()),
            counts: Counts { pending: waiting, ..Counts::default() },
            failures,
            last_error: None,
        }
    }

    #[test]
    fn answers_of_a_gateway_become_one_picture() {
        let stats = json!({
            "events": 9,
            "deliveries": { "pending": 4, "in_flight": 1, "retrying": 2, "delivered": 7, "dead": 3 },
            "endpoints": [{
                "endpoint_id": "ep_1", "state": "active",
                "deliveries": { "pending": 4, "retrying": 2 },
                "health": { "in_flight": 1, "window": 4, "breaker": "open", "hold_until": null },
            }],
        });
        let history = json!({
            "points": [{ "received": 60, "delivered": 50 }, { "received": 5, "delivered": 0 }],
            "per_second": { "received": 1.5, "delivered": 0.25 },
            "total": { "p50_ms": 12, "p95_ms": 80, "p99_ms": null },
            "oldest_waiting_at": "2026-01-01T00:00:00.000Z",
        });
        let each = json!({ "endpoints": { "ep_1": [{ "failures": 3 }, { "failures": 4 }] } });
        let known = Known {
            names: HashMap::from([("ep_1".to_owned(), "billing".to_owned())]),
            errors: HashMap::from([("ep_1".to_owned(), "502".to_owned())]),
        };
        let seen = Snapshot::read(AT, &stats, &history, &each, &known);
        assert_eq!(seen.received, Flow { per_second: 1.5, minutes: vec![60, 5] });
        assert_eq!(seen.delivered, Flow { per_second: 0.25, minutes: vec![50, 0] });
        assert_eq!((seen.counts.waiting(), seen.counts.dead, seen.counts.failed), (7, 3, 0));
        assert_eq!(seen.latency, [Some(12), Some(80), None]);
        assert_eq!(seen.oldest_waiting_at, Some(AT));
        let [found] = &*seen.endpoints else { panic!("{:?}", seen.endpoints) };
        assert_eq!((&*found.name, found.failures, found.condition()), ("billing", 7, "breaker"));
        assert_eq!(found.last_error.as_deref(), Some("502"));
    }

    #[test]
    fn an_answer_that_says_nothing_is_a_picture_of_nothing() {
        for nothing in [json!(null), json!([]), json!({ "endpoints": 7, "points": "x" })] {
            let seen = Snapshot::read(AT, &nothing, &nothing, &nothing, &Known::default());
            assert_eq!(seen, Snapshot::idle(AT));
            assert_eq!((seen.counts, seen.endpoints.len()), (Counts::default(), 0));
            assert!(nodes(&nothing).is_empty());
        }
    }

    #[test]
    fn every_order_has_its_first() {
        let mut seen = Snapshot {
            endpoints: vec![
                endpoint("fine", "active", "closed", 0, 0),
                endpoint("paused", "paused", "closed", 900, 0),
                endpoint("failing", "active", "closed", 5, 70),
                endpoint("broken", "active", "open", 7, 60),
                endpoint("away", "disabled", "closed", 0, 1),
            ],
            ..Snapshot::idle(AT)
        };
        let mut by = Sort::default();
        for expected in [
            ["away", "broken", "paused", "failing", "fine"],
            ["paused", "broken", "failing", "away", "fine"],
            ["failing", "broken", "away", "fine", "paused"],
            ["away", "broken", "failing", "fine", "paused"],
        ] {
            seen.sort(by);
            let names: Vec<&str> = seen.endpoints.iter().map(|each| &*each.name).collect();
            assert_eq!(names, expected, "{by:?}");
            by = by.next();
        }
        assert_eq!(by, Sort::default());
    }
}
