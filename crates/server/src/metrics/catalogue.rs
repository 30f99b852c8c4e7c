//! Every metric there is: what it is called, what it says, and which labels it has. The page that is
//! served and the page of the documentation are both made of this.
//!
//! No label is named after a tenant, an endpoint or anything else that comes from outside: how many
//! series there are is known when the program is built.

use std::fmt::Write as _;

/// All series of one name.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [Label],
    /// One sentence, which is also its `HELP`.
    pub(super) help: &'static str,
    pub(super) scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram(Unit),
}

/// What a histogram counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Counted in microseconds, shown in seconds.
    Seconds,
    Pieces,
}

/// How to put together what several nodes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Each node tells of itself: they are added up.
    Node,
    /// Every node tells of the whole store: the largest is taken.
    Store,
}

#[derive(Debug)]
pub(super) struct Label {
    pub(super) name: &'static str,
    /// What it can be, for people.
    pub(super) values: &'static str,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

const NONE: &[Label] = &[];
const STATES: &str = "pending, retrying, in_flight, delivered, failed, dead, cancelled";
const OPERATION: &[Label] = &[Label { name: "operation", values: "append, settle" }];

const fn counter(name: &'static str, labels: &'static [Label], help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, labels, help, scope: Scope::Node }
}

const fn gauge(
    name: &'static str,
    labels: &'static [Label],
    scope: Scope,
    help: &'static str,
) -> Family {
    Family { name, kind: Kind::Gauge, labels, help, scope }
}

const fn histogram(
    name: &'static str,
    unit: Unit,
    labels: &'static [Label],
    help: &'static str,
) -> Family {
    Family { name, kind: Kind::Histogram(unit), labels, help, scope: Scope::Node }
}

pub(super) const READY: Family = gauge(
    "postrider_ready",
    NONE,
    Scope::Node,
    "1 while the store answers and this node takes part in what it is to take part in.",
);
pub(super) const BUILD_INFO: Family = gauge(
    "postrider_build_info",
    &[Label { name: "version", values: "of the program" }],
    Scope::Node,
    "Always 1; the label says what runs.",
);
pub(super) const EVENTS_RECEIVED: Family = counter(
    "postrider_events_received_total",
    &[Label { name: "way", values: "api, source, gateway (made to tell operators)" }],
    "Events that were stored.",
);
pub(super) const EVENTS_DUPLICATE: Family = counter(
    "postrider_events_duplicate_total",
    NONE,
    "Events that were there already, by their idempotency key.",
);
pub(super) const EVENTS_CONFLICTING: Family = counter(
    "postrider_events_conflicting_total",
    NONE,
    "Events with the idempotency key of an event that says something else.",
);
pub(super) const SIGNATURES_REJECTED: Family = counter(
    "postrider_signatures_rejected_total",
    NONE,
    "Webhooks that their sender cannot have signed, refused or marked.",
);
pub(super) const DELIVERIES_CREATED: Family =
    counter("postrider_deliveries_created_total", NONE, "Deliveries made of events and replays.");
pub(super) const DELIVERIES_ENDED: Family = counter(
    "postrider_deliveries_ended_total",
    &[Label { name: "state", values: "delivered, failed, dead, cancelled" }],
    "Deliveries that ended, by how.",
);
pub(super) const ATTEMPTS: Family = counter(
    "postrider_attempts_total",
    &[
        Label { name: "try", values: "first, retry" },
        Label { name: "outcome", values: "delivered, retryable, rate_limited, final" },
    ],
    "Attempts, by whether there was one before and by what they came to.",
);
pub(super) const RETRIES_SCHEDULED: Family = counter(
    "postrider_retries_scheduled_total",
    NONE,
    "Failed attempts after which another one was scheduled.",
);
pub(super) const DEFERRALS: Family = counter(
    "postrider_deferrals_total",
    NONE,
    "Attempts put off because the endpoint asked for time, which do not count as tries.",
);
pub(super) const ATTEMPT_DURATION: Family = histogram(
    "postrider_attempt_duration_seconds",
    Unit::Seconds,
    NONE,
    "How long attempts take, whatever they come to.",
);
pub(super) const DELIVERY_LATENCY: Family = histogram(
    "postrider_delivery_latency_seconds",
    Unit::Seconds,
    NONE,
    "From the arrival of an event, or the time it was meant for, to its delivery, retries included.",
);
pub(super) const IN_FLIGHT: Family = gauge(
    "postrider_deliveries_in_flight",
    NONE,
    Scope::Node,
    "Deliveries on their way from this node.",
);
pub(super) const IN_MEMORY: Family = gauge(
    "postrider_deliveries_in_memory",
    NONE,
    Scope::Node,
    "Deliveries in this node's memory, waiting for their turn.",
);
pub(super) const DELIVERIES: Family = gauge(
    "postrider_deliveries",
    &[Label { name: "state", values: STATES }],
    Scope::Store,
    "Deliveries kept, by state; what is on its way from a node is stored as pending or retrying.",
);
pub(super) const OLDEST_WAITING: Family = gauge(
    "postrider_oldest_waiting_age_seconds",
    NONE,
    Scope::Store,
    "Age of the oldest delivery that could go, or be fetched, and has not; 0 if none waits.",
);
pub(super) const ENDPOINTS: Family = gauge(
    "postrider_endpoints",
    &[Label { name: "state", values: "active, paused, disabled" }],
    Scope::Store,
    "Endpoints, by state.",
);
pub(super) const BREAKERS: Family = gauge(
    "postrider_breakers",
    &[Label { name: "state", values: "closed, open, half_open, ramping" }],
    Scope::Node,
    "Endpoints that this node sends to, by the state of their breaker.",
);
pub(super) const HUBS_CONNECTED: Family =
    gauge("postrider_hubs_connected", NONE, Scope::Node, "Hubs connected to this node.");
pub(super) const HUB_LAG: Family = gauge(
    "postrider_hub_lag_seconds",
    NONE,
    Scope::Store,
    "Age of the oldest due delivery that goes to a hub, whether or not that hub is connected.",
);
pub(super) const LANES: Family =
    gauge("postrider_lanes", NONE, Scope::Store, "Parts into which the work is cut.");
pub(super) const LANES_OWNED: Family = gauge(
    "postrider_lanes_owned",
    NONE,
    Scope::Node,
    "Lanes that this node carries and may be sure of.",
);
pub(super) const NODES: Family =
    gauge("postrider_nodes", NONE, Scope::Store, "Live nodes that share the store.");
pub(super) const OPERATOR_EVENTS_LOST: Family = counter(
    "postrider_operator_events_lost_total",
    NONE,
    "Events for operators that were given up because too many waited.",
);
pub(super) const COMMIT_ROWS: Family = histogram(
    "postrider_store_commit_rows",
    Unit::Pieces,
    OPERATION,
    "Events appended, or changes settled, in one commit; a commit may have both.",
);
pub(super) const COMMIT_DURATION: Family = histogram(
    "postrider_store_commit_duration_seconds",
    Unit::Seconds,
    OPERATION,
    "How long commits take until they are on disk, by what is in them.",
);
pub(super) const STORE_ERRORS: Family = counter(
    "postrider_store_errors_total",
    &[Label { name: "reason", values: "unavailable, overloaded, damaged" }],
    "What the store was asked to do and did not do, by why.",
);
pub(super) const HTTP_REQUESTS: Family = counter(
    "postrider_http_requests_total",
    &[
        Label { name: "route", values: super::requests::ROUTES },
        Label { name: "status", values: "1xx, 2xx, 3xx, 4xx, 5xx" },
    ],
    "Requests answered, by what they were for and the class of the answer.",
);
pub(super) const HTTP_DURATION: Family = histogram(
    "postrider_http_request_duration_seconds",
    Unit::Seconds,
    &[Label { name: "route", values: super::requests::ROUTES }],
    "From a request to the head of its answer.",
);
pub(super) const PROCESS_CPU: Family = counter(
    "process_cpu_seconds_total",
    NONE,
    "Processor time of the program and the system for it, in seconds.",
);
pub(super) const PROCESS_OPEN_FDS: Family =
    gauge("process_open_fds", NONE, Scope::Node, "Open file descriptors.");
pub(super) const PROCESS_MAX_FDS: Family =
    gauge("process_max_fds", NONE, Scope::Node, "The most file descriptors that may be open.");
pub(super) const PROCESS_VIRTUAL: Family =
    gauge("process_virtual_memory_bytes", NONE, Scope::Node, "Virtual memory size in bytes.");
pub(super) const PROCESS_RESIDENT: Family =
    gauge("process_resident_memory_bytes", NONE, Scope::Node, "Resident memory size in bytes.");
pub(super) const PROCESS_START: Family = gauge(
    "process_start_time_seconds",
    NONE,
    Scope::Node,
    "When the process started, in seconds since the epoch.",
);

/// In the order of the documentation.
pub(super) const ALL: &[&Family] = &[
    &READY,
    &BUILD_INFO,
    &EVENTS_RECEIVED,
    &EVENTS_DUPLICATE,
    &EVENTS_CONFLICTING,
    &SIGNATURES_REJECTED,
    &DELIVERIES_CREATED,
    &DELIVERIES_ENDED,
    &ATTEMPTS,
    &RETRIES_SCHEDULED,
    &DEFERRALS,
    &ATTEMPT_DURATION,
    &DELIVERY_LATENCY,
    &IN_FLIGHT,
    &IN_MEMORY,
    &DELIVERIES,
    &OLDEST_WAITING,
    &ENDPOINTS,
    &BREAKERS,
    &HUBS_CONNECTED,
    &HUB_LAG,
    &LANES,
    &LANES_OWNED,
    &NODES,
    &OPERATOR_EVENTS_LOST,
    &COMMIT_ROWS,
    &COMMIT_DURATION,
    &STORE_ERRORS,
    &HTTP_REQUESTS,
    &HTTP_DURATION,
    &PROCESS_CPU,
    &PROCESS_OPEN_FDS,
    &PROCESS_MAX_FDS,
    &PROCESS_VIRTUAL,
    &PROCESS_RESIDENT,
    &PROCESS_START,
];

/// The page of the documentation.
pub(super) fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    for family in ALL {
        let labels: Vec<String> = family
            .labels
            .iter()
            .map(|label| format!("`{}`: {}", label.name, label.values))
            .collect();
        let nodes = match family.scope {
            Scope::Node => "sum",
            Scope::Store => "max",
        };
        let (name, kind, help) = (family.name, family.kind.as_str(), family.help);
        let labels = labels.join("; ");
        // Writing to a text cannot fail.
        let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {nodes} | {help} |");
    }
    page
}

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask docs` from crates/server/src/metrics/catalogue.rs. -->
# Metrics

`GET /metrics` shows these in the text format of Prometheus. It needs no key: it names no tenant, no \
endpoint and nothing that came from outside, only sums over all of them. Keep it from strangers all the \
same if they are not to know how much you send.

There are as many series as this page says, however many tenants and endpoints there are: every series is \
there from the start, at 0, and none is added. What only the store knows (`postrider_deliveries`, \
`postrider_oldest_waiting_age_seconds`, `postrider_hub_lag_seconds`) is looked up at most every five \
seconds, however often the page is asked for. Counters begin at 0 when the process starts. The `process_` \
metrics are there on Linux.

Where several nodes share a store, each is scraped. *Nodes* says how to put together what they say: `sum` \
where each tells of itself, `max` where each tells of the whole store.

Alert rules and a dashboard that use them are in `ops/prometheus` and `ops/grafana`.

| metric | type | labels | nodes | what it says |
| --- | --- | --- | --- | --- |
";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_follow_the_rules_and_occur_once() {
        let mut seen = HashSet::new();
        for family in ALL {
            let name = family.name;
            assert!(seen.insert(name), "{name} twice");
            assert!(name.starts_with("postrider_") || name.starts_with("process_"), "{name}");
            let is_total = name.ends_with("_total");
            assert_eq!(is_total, family.kind == Kind::Counter, "{name}");
            let in_seconds = family.kind == Kind::Histogram(Unit::Seconds);
            assert!(!in_seconds || name.ends_with("_seconds"), "{name}");
            assert!(family.help.ends_with('.') && !family.help.contains('\n'), "{name}");
        }
    }

    #[test]
    fn no_label_is_named_after_what_comes_from_outside() {
        for label in ALL.iter().flat_map(|family| family.labels) {
            for word in ["tenant", "endpoint", "source", "event", "hub", "key", "node"] {
                assert!(!label.name.contains(word), "{}", label.name);
            }
        }
    }
}
