//! Counts requests by what they were for: the route that was matched, never the path that was asked
//! for.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, StatusCode};
use postrider_store::meter::{Counter, Histogram};

use crate::App;

/// Microseconds from a request to the head of its answer.
const SPANS: &[u64] = &[
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000, 30_000_000,
];

/// The first digit of a status.
const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
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

    pub(super) const fn as_str(self) -> &'static str {
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

    /// By the path as it stands in the table of routes.
    fn of(method: &Method, matched: Option<&str>) -> Self {
        let Some(path) = matched else { return Self::Unknown };
        let reads = *method == Method::GET || *method == Method::HEAD;
        match path {
            "/v1/events" if !reads => Self::Events,
            "/v1/events/batch" => Self::EventBatches,
            "/in/{token}" => Self::Inbound,
            "/v1/hub" => Self::HubSocket,
            "/v1/stream" => Self::Stream,
            "/v1/endpoints/{id}/lease" => Self::Leases,
            "/healthz" | "/readyz" | "/metrics" => Self::Health,
            path if path.starts_with("/v1/leases/") => Self::Leases,
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
    fn note(&self, route: Route, status: StatusCode, took: Duration) {
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

/// Counts a request, and says at the level `debug` what it came to.
pub(crate) async fn watch(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let matched = matched.as_ref().map(MatchedPath::as_str);
    let route = Route::of(request.method(), matched);
    let method = tracing::enabled!(tracing::Level::DEBUG).then(|| request.method().clone());
    let clock = app.engine.clock();
    let started = clock.monotonic();
    let response = next.run(request).await;
    let took = clock.monotonic().saturating_sub(started);
    let status = response.status();
    app.requests.note(route, status, took);
    if let Some(method) = method {
        let path = matched.unwrap_or_default();
        tracing::debug!(%method, path, status = status.as_u16(), ?took, "request answered");
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_the_route_they_matched() {
        for (method, matched, expected) in [
            (Method::POST, Some("/v1/events"), Route::Events),
            (Method::GET, Some("/v1/events"), Route::Reading),
            (Method::POST, Some("/v1/events/batch"), Route::EventBatches),
            (Method::PUT, Some("/in/{token}"), Route::Inbound),
            (Method::POST, Some("/v1/endpoints/{id}/lease"), Route::Leases),
            (Method::POST, Some("/v1/leases/{lease}/ack"), Route::Leases),
            (Method::GET, Some("/v1/hub"), Route::HubSocket),
            (Method::GET, Some("/v1/hubs"), Route::Reading),
            (Method::DELETE, Some("/v1/hubs/{id}"), Route::Changing),
            (Method::GET, Some("/v1/stream"), Route::Stream),
            (Method::GET, Some("/metrics"), Route::Health),
            (Method::GET, Some("/endpoints/{id}"), Route::Pages),
            (Method::GET, Some("/"), Route::Pages),
            (Method::GET, None, Route::Unknown),
        ] {
            assert_eq!(Route::of(&method, matched), expected, "{method} {matched:?}");
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
