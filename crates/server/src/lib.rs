//! The HTTP API: what stands between a request and the engine.
//!
//! Reading order: the route table below; who may (`keys`, `first_key`, `auth`, `throttle`); how input is
//! taken apart (`extract`, `cursor`), served (`answer`), refused (`problem`) and described (`openapi`); then
//! one file per resource. `connection` is what carries requests here, `stopping` the word that it is about to
//! end, `changes` what is done when another node has changed something.

mod answer;
mod auth;
mod background;
mod changes;
mod connection;
mod cursor;
mod extract;
mod first_key;
mod framing;
mod keys;
mod openapi;
mod problem;
mod stopping;
mod throttle;

mod access;
mod audit;
mod dashboard;
mod dead_letters;
mod deliveries;
mod docs_page;
mod effective;
mod elsewhere;
mod endpoint_fields;
mod endpoints;
mod events;
mod filters;
mod front;
mod guide;
mod health;
mod history;
mod hub_socket;
mod hubs;
mod in_process;
mod inbound;
mod ingest;
mod jobs;
mod leases;
mod metrics;
mod new_event;
mod nodes;
mod pointer;
mod policies;
mod received;
mod source_fields;
mod sources;
mod stats;
mod stream;
mod tenants;

#[doc(hidden)]
pub mod fuzzing;

use std::sync::Arc;

use bytes::Bytes;
use postrider_engine::Engine;
use tokio::sync::{Mutex, Semaphore};

pub use connection::{Answers, ConnectionLimits, serve};
pub use effective::{EffectiveSettings, Setting, SettingOrigin, SettingsGroup};
pub use first_key::{KeyError, ensure_admin_key};
pub use front::{Answering, Front};
pub use guide::guide;
pub use in_process::{InProcess, Refusal};
pub use inbound::Inbound;
pub use keys::Keys;
pub use metrics::metrics_reference;

use background::Background;
use openapi::Api;
use problem::Problem;
use throttle::Throttle;

/// What an operator can set of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// The largest body of one event, envelope included.
    pub event_limit_bytes: usize,
    /// The largest body of a batch.
    pub batch_limit_bytes: usize,
    /// How many readers `/v1/stream` has at once.
    pub max_streams: usize,
    /// How many hubs are connected at once.
    pub max_hubs: usize,
    /// How many requests a second a key may make; none is as many as it likes.
    pub requests_per_second_per_key: Option<u32>,
    /// How many requests a second may come from an address, or from an IPv6 network of 64 bits,
    /// whatever key they show; none is as many as it likes.
    pub requests_per_second_per_address: Option<u32>,
    /// What third parties know this gateway as, like `https://hooks.example.com`: some of them sign
    /// the URL they call. None is what their requests say.
    pub public_url: Option<String>,
    /// What the dashboard shows to admins as the settings in force.
    pub settings: EffectiveSettings,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            event_limit_bytes: 1 << 20,
            batch_limit_bytes: 16 << 20,
            max_streams: 256,
            max_hubs: 1_000,
            requests_per_second_per_key: None,
            requests_per_second_per_address: None,
            public_url: None,
            settings: EffectiveSettings::default(),
        }
    }
}

/// What every handler can reach.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) keys: Keys,
    pub(crate) inbound: Inbound,
    pub(crate) throttle: Throttle,
    pub(crate) requests: metrics::Requests,
    pub(crate) options: ServerOptions,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) hubs: Arc<Semaphore>,
    /// The description of the API.
    pub(crate) document: Bytes,
    /// Held by whoever reads an endpoint in order to change it.
    pub(crate) changing: Mutex<()>,
    /// End with the last of what serves requests.
    _background: [Background; 2],
}

/// The routes of the API. Called where tasks can be spawned: one notes when keys are used, one takes
/// over what other nodes change.
pub fn router(engine: Engine, keys: Keys, inbound: Inbound, options: ServerOptions) -> Front {
    router_and_api(engine, keys, inbound, options).0
}

/// The same, and the API for this process itself.
pub fn router_and_api(
    engine: Engine,
    keys: Keys,
    inbound: Inbound,
    options: ServerOptions,
) -> (Front, InProcess) {
    let streams = Arc::new(Semaphore::new(options.max_streams));
    let hubs = Arc::new(Semaphore::new(options.max_hubs));
    let throttle = Throttle::new(&options);
    let background = [keys.note_uses(&engine), changes::take_over(&engine, &keys, &inbound)];
    let routes = routes();
    let app = Arc::new(App {
        engine,
        keys,
        inbound,
        throttle,
        requests: metrics::Requests::default(),
        options,
        streams,
        hubs,
        document: routes.document().into(),
        changing: Mutex::new(()),
        _background: background,
    });
    let api = routes
        .into_router()
        .fallback(front::nowhere)
        .method_not_allowed_fallback(async || Problem::wrong_method())
        .with_state(Arc::clone(&app));
    let within = InProcess::new(api.clone(), Arc::clone(&app));
    let pages = dashboard::pages(Arc::clone(&app), api.clone());
    (Front::new(api.merge(pages).merge(guide::pages()), app), within)
}

/// The description of the API: a document in JSON, of the standard `OpenAPI` 3.1.
pub fn openapi() -> String {
    routes().document()
}

/// The table of routes, each with what it does.
fn routes() -> Api {
    use openapi as about;
    use openapi::{delete, get, patch, post, put};

    Api::new()
        .at(
            "/v1/events",
            [
                post(events::accept, about::events::accept()),
                get(events::list, about::events::list()),
            ],
        )
        .at("/v1/events/batch", [post(events::accept_batch, about::events::accept_batch())])
        .at("/v1/events/{id}", [get(events::show, about::events::show())])
        .at("/v1/events/{id}/payload", [get(events::payload, about::events::payload())])
        .at("/v1/events/{id}/deliveries", [get(events::deliveries, about::events::deliveries())])
        .at("/v1/events/{id}/replay", [post(events::replay, about::events::replay())])
        .at(
            "/v1/endpoints",
            [
                post(endpoints::create, about::endpoints::create()),
                get(endpoints::list, about::endpoints::list()),
            ],
        )
        .at("/v1/endpoints/preview", [post(endpoints::preview, about::endpoints::preview())])
        .at(
            "/v1/endpoints/{id}",
            [
                get(endpoints::show, about::endpoints::show()),
                patch(endpoints::change, about::endpoints::change()),
                delete(endpoints::delete, about::endpoints::delete()),
            ],
        )
        .at(
            "/v1/endpoints/{id}/preview",
            [post(endpoints::preview_change, about::endpoints::preview_change())],
        )
        .at("/v1/endpoints/{id}/pause", [post(endpoints::pause, about::endpoints::pause())])
        .at("/v1/endpoints/{id}/resume", [post(endpoints::resume, about::endpoints::resume())])
        .at("/v1/endpoints/{id}/enable", [post(endpoints::enable, about::endpoints::enable())])
        .at("/v1/endpoints/{id}/test", [post(endpoints::test, about::endpoints::test())])
        .at(
            "/v1/endpoints/{id}/rotate-secret",
            [post(endpoints::rotate_secret, about::endpoints::rotate_secret())],
        )
        .at("/v1/endpoints/{id}/secret", [get(endpoints::secret, about::endpoints::secret())])
        .at("/v1/endpoints/{id}/stats", [get(stats::of_endpoint, about::endpoints::stats())])
        .at("/v1/endpoints/{id}/lease", [post(leases::lease, about::leases::lease())])
        .at("/v1/leases/ack", [post(leases::ack_batch, about::leases::ack_batch())])
        .at("/v1/leases/nack", [post(leases::nack_batch, about::leases::nack_batch())])
        .at("/v1/leases/extend", [post(leases::extend_batch, about::leases::extend_batch())])
        .at("/v1/leases/release", [post(leases::release_batch, about::leases::release_batch())])
        .at("/v1/leases/{lease}/release", [post(leases::release, about::leases::release())])
        .at("/v1/leases/{lease}/ack", [post(leases::ack, about::leases::ack())])
        .at("/v1/leases/{lease}/nack", [post(leases::nack, about::leases::nack())])
        .at("/v1/leases/{lease}/extend", [post(leases::extend, about::leases::extend())])
        .at(
            "/v1/hubs",
            [post(hubs::create, about::hubs::create()), get(hubs::list, about::hubs::list())],
        )
        .at(
            "/v1/hubs/{id}",
            [get(hubs::show, about::hubs::show()), delete(hubs::delete, about::hubs::delete())],
        )
        .at("/v1/hubs/{id}/rotate-token", [post(hubs::rotate_token, about::hubs::rotate_token())])
        .at("/v1/hub", [get(hub_socket::connect, about::hubs::connect())])
        .at(
            "/v1/sources",
            [
                post(sources::create, about::sources::create()),
                get(sources::list, about::sources::list()),
            ],
        )
        .at(
            "/v1/sources/{id}",
            [
                get(sources::show, about::sources::show()),
                patch(sources::change, about::sources::change()),
                delete(sources::delete, about::sources::delete()),
            ],
        )
        .at(
            "/v1/sources/{id}/rotate-token",
            [post(sources::rotate_token, about::sources::rotate_token())],
        )
        .at(
            "/in/{token}",
            [
                post(ingest::receive, about::sources::receive()),
                put(ingest::receive, about::sources::receive_put()),
                get(ingest::probe, about::sources::probe()),
            ],
        )
        .at("/v1/deliveries", [get(deliveries::list, about::deliveries::list())])
        .at("/v1/deliveries/{id}", [get(deliveries::show, about::deliveries::show())])
        .at("/v1/deliveries/{id}/retry", [post(deliveries::retry, about::deliveries::retry())])
        .at("/v1/deliveries/{id}/cancel", [post(deliveries::cancel, about::deliveries::cancel())])
        .at(
            "/v1/dead-letters",
            [
                get(dead_letters::list, about::dead_letters::list()),
                delete(dead_letters::purge, about::dead_letters::purge()),
            ],
        )
        .at("/v1/dead-letters/groups", [get(dead_letters::groups, about::dead_letters::groups())])
        .at("/v1/dead-letters/replay", [post(dead_letters::replay, about::dead_letters::replay())])
        .at("/v1/jobs/{id}", [get(jobs::show, about::dead_letters::job())])
        .at("/v1/policies", [get(policies::list, about::policies::list())])
        .at("/v1/policies/preview", [post(policies::preview, about::policies::preview())])
        .at("/v1/filters/preview", [post(filters::preview, about::policies::preview_filter())])
        .at(
            "/v1/keys",
            [
                post(access::create, about::access::create_key()),
                get(access::list, about::access::list_keys()),
            ],
        )
        .at(
            "/v1/keys/{id}",
            [
                get(access::show, about::access::show_key()),
                patch(access::change, about::access::change_key()),
                delete(access::revoke, about::access::revoke_key()),
            ],
        )
        .at(
            "/v1/tenants",
            [
                post(tenants::create, about::access::create_tenant()),
                get(tenants::list, about::access::list_tenants()),
            ],
        )
        .at("/v1/tenants/{name}", [get(tenants::show, about::access::show_tenant())])
        .at("/v1/audit", [get(audit::list, about::access::list_audit())])
        .at("/v1/nodes", [get(nodes::list, about::meta::nodes())])
        .at("/v1/stats", [get(stats::of_tenant, about::meta::stats())])
        .at("/v1/stats/history", [get(history::show, about::history::show())])
        .at("/v1/stream", [get(stream::follow, about::meta::stream())])
        .at("/healthz", [get(health::alive, about::meta::alive())])
        .at("/readyz", [get(health::ready, about::meta::ready())])
        .at("/metrics", [get(metrics::show, about::meta::metrics())])
        .at("/openapi.json", [get(docs_page::document, about::meta::document())])
        .at("/docs", [get(docs_page::page, about::meta::page())])
        .at("/docs/docs.css", [get(docs_page::style, about::meta::page_style())])
        .at("/docs/docs.js", [get(docs_page::script, about::meta::page_script())])
}
