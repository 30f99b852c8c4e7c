//! The HTTP API: what stands between a request and the engine.
//!
//! Reading order: the route table below; who may (`keys`, `auth`); how input is taken apart
//! (`extract`, `cursor`), served (`answer`) and refused (`problem`); then one file per resource. `connection` is
//! what carries requests here.

mod answer;
mod auth;
mod connection;
mod cursor;
mod extract;
mod keys;
mod problem;

mod dead_letters;
mod deliveries;
mod endpoint_fields;
mod endpoints;
mod events;
mod health;
mod jobs;
mod new_event;
mod policies;
mod stats;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use postrider_engine::Engine;
use tokio::sync::{Mutex, Semaphore};

pub use connection::{ConnectionLimits, serve};
pub use keys::{KeyError, Keys, ensure_admin_key};

use problem::Problem;

/// What an operator can set of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerOptions {
    /// The largest body of one event, envelope included.
    pub event_limit_bytes: usize,
    /// The largest body of a batch.
    pub batch_limit_bytes: usize,
    /// How many readers `/v1/stream` has at once.
    pub max_streams: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { event_limit_bytes: 1 << 20, batch_limit_bytes: 16 << 20, max_streams: 256 }
    }
}

/// What every handler can reach.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) keys: Keys,
    pub(crate) options: ServerOptions,
    pub(crate) streams: Arc<Semaphore>,
    /// Held by whoever reads an endpoint in order to change it.
    pub(crate) changing: Mutex<()>,
}

pub fn router(engine: Engine, keys: Keys, options: ServerOptions) -> Router {
    let streams = Arc::new(Semaphore::new(options.max_streams));
    let app = Arc::new(App { engine, keys, options, streams, changing: Mutex::new(()) });
    Router::new()
        .route("/v1/events", post(events::accept).get(events::list))
        .route("/v1/events/batch", post(events::accept_batch))
        .route("/v1/events/{id}", get(events::show))
        .route("/v1/events/{id}/payload", get(events::payload))
        .route("/v1/events/{id}/deliveries", get(events::deliveries))
        .route("/v1/events/{id}/replay", post(events::replay))
        .route("/v1/endpoints", post(endpoints::create).get(endpoints::list))
        .route(
            "/v1/endpoints/{id}",
            get(endpoints::show).patch(endpoints::change).delete(endpoints::delete),
        )
        .route("/v1/endpoints/{id}/pause", post(endpoints::pause))
        .route("/v1/endpoints/{id}/resume", post(endpoints::resume))
        .route("/v1/endpoints/{id}/enable", post(endpoints::enable))
        .route("/v1/endpoints/{id}/test", post(endpoints::test))
        .route("/v1/endpoints/{id}/rotate-secret", post(endpoints::rotate_secret))
        .route("/v1/endpoints/{id}/secret", get(endpoints::secret))
        .route("/v1/endpoints/{id}/stats", get(stats::of_endpoint))
        .route("/v1/deliveries", get(deliveries::list))
        .route("/v1/deliveries/{id}", get(deliveries::show))
        .route("/v1/deliveries/{id}/retry", post(deliveries::retry))
        .route("/v1/deliveries/{id}/cancel", post(deliveries::cancel))
        .route("/v1/dead-letters", get(dead_letters::list).delete(dead_letters::purge))
        .route("/v1/dead-letters/replay", post(dead_letters::replay))
        .route("/v1/jobs/{id}", get(jobs::show))
        .route("/v1/policies", get(policies::list))
        .route("/v1/policies/preview", post(policies::preview))
        .route("/v1/stats", get(stats::of_tenant))
        .route("/v1/stream", get(stream::follow))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .fallback(async || Problem::no_route())
        .method_not_allowed_fallback(async || Problem::wrong_method())
        .with_state(app)
}
