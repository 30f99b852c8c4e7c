//! Counts requests by what they were for, which is one of a few, whatever path was asked for.

use std::time::Duration;

use http::{Method, StatusCode};
use postrider_store::meter::{Counter, Histogram};

/// Microseconds from a request to the head of its answer.
const SPANS: &[u64] = &[
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000, 30_000_000,
];

/// The first digit of a status.
const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Events,
    EventBatches,
    Inbound,
    Leases,
    HubSocket,
    Stream,
    /// The rest of the API.
    Reading,
    Changing,
    /// Who watches the process.
    Health,
    /// For people: the dashboard and the documentation.
    Pages,
    /// None that there is.
    Unknown,
}

/// What they are called, for people.
pub(super) const ROUTES: &str = "events, event_batches, inbound, leases, hub_socket, stream, \
                                 reading, changing, health, pages, unknown";

impl Route {
    pub(super) const ALL: [Self; 11] = [
        Self::Events,
        Self::EventBatches,
        Self::Inbound,
        Self::Leases,
        Self::HubSocket,
        Self::Stream,
        Self::Reading,
        Self::Changing,
        Self::Health,
        Self::Pages,
        Self::Unknown,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::EventBatches => "event_batches",
            Self::Inbound => "inbound",
            Self::Leases => "leases",
            Self::HubSocket => "hub_socket",
            Self::Stream => "stream",
            Self::Reading => "reading",
            Self::Changing => "changing",
            Self::Health => "health",
            Self::Pages => "pages",
            Self::Unknown => "unknown",
        }
    }

    /// What a request is for, if there is anything at its path.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let reads = *method == Method::GET || *method == Method::HEAD;
        match path {
            "/v1/events" if !reads => Self::Events,
            "/v1/events/batch" => Self::EventBatches,
            "/v1/hub" => Self::HubSocket,
            "/v1/stream" => Self::Stream,
            "/healthz" | "/readyz" | "/metrics" => Self::Health,
            path if path.starts_with("/in/") => Self::Inbound,
            path if path.starts_with("/v1/leases/") => Self::Leases,
            path if path.starts_with("/v1/endpoints/") && path.ends_with("/lease") => Self::Leases,
            path if !path.starts_with("/v1/") => Self::Pages,
            _ if reads => Self::Reading,
            _ => Self::Changing,
        }
    }
}

/// Requests since the start.
#[derive(Debug)]
pub(crate) struct Requests {
    /// As [`Route::ALL`].
    routes: [Answered; 11],
}

#[derive(Debug)]
struct Answered {
    /// As [`STATUSES`].
    by_status: [Counter; 5],
    spans: Histogram,
}

impl Default for Requests {
    fn default() -> Self {
        let answered = |_| Answered { by_status: Default::default(), spans: Histogram::new(SPANS) };
        Self { routes: Route::ALL.map(answered) }
    }
}

impl Requests {
    pub(crate) fn note(&self, route: Route, status: StatusCode, took: Duration) {
        let answered = &self.routes[route as usize];
        let class = usize::from(status.as_u16() / 100).clamp(1, STATUSES.len()) - 1;
        answered.by_status[class].one();
        answered.spans.observe_span(took);
    }

    /// Each route with each class of answers.
    pub(super) fn counts(&self) -> impl Iterator<Item = (Route, &'static str, u64)> {
        let routes = Route::ALL.into_iter().zip(&self.routes);
        routes.flat_map(|(route, answered)| {
            let counts = STATUSES.into_iter().zip(&answered.by_status);
            counts.map(move |(status, count)| (route, status, count.get()))
        })
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = (Route, &Histogram)> {
        Route::ALL.into_iter().zip(self.routes.iter().map(|answered| &answered.spans))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_what_they_are_for() {
        for (method, path, expected) in [
            (Method::POST, "/v1/events", Route::Events),
            (Method::GET, "/v1/events", Route::Reading),
            (Method::GET, "/v1/events/evt_1", Route::Reading),
            (Method::POST, "/v1/events/batch", Route::EventBatches),
            (Method::PUT, "/in/token", Route::Inbound),
            (Method::POST, "/v1/endpoints/ep_1/lease", Route::Leases),
            (Method::POST, "/v1/endpoints/ep_1/pause", Route::Changing),
            (Method::POST, "/v1/leases/token/ack", Route::Leases),
            (Method::GET, "/v1/hub", Route::HubSocket),
            (Method::GET, "/v1/hubs", Route::Reading),
            (Method::DELETE, "/v1/hubs/hub_1", Route::Changing),
            (Method::GET, "/v1/stream", Route::Stream),
            (Method::GET, "/metrics", Route::Health),
            (Method::GET, "/endpoints/ep_1", Route::Pages),
            (Method::GET, "/", Route::Pages),
        ] {
            assert_eq!(Route::of(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn each_route_counts_for_itself_and_is_named() {
        let requests = Requests::default();
        for route in Route::ALL {
            requests.note(route, StatusCode::NOT_FOUND, Duration::ZERO);
        }
        requests.note(Route::Inbound, StatusCode::OK, Duration::ZERO);
        for (route, status, count) in requests.counts() {
            let expected = status == "4xx" || (route == Route::Inbound && status == "2xx");
            assert_eq!(count, u64::from(expected), "{route:?} {status}");
        }
        let names: Vec<&str> = Route::ALL.iter().map(|route| route.as_str()).collect();
        assert_eq!(names.join(", "), ROUTES);
    }
}
