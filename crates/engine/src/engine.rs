//! Starts the engine, offers its operations, and stops it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::{Either, select};
use http::HeaderValue;
use ipnet::IpNet;
use parking_lot::Mutex;
use postrider_core::endpoint::EndpointState;
use postrider_core::id::Sequence;
use postrider_core::policy::Presets;
use postrider_core::{DeliveryId, EndpointId, SourceId, TenantId, Timestamp};
use postrider_store::Store;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::accept::{self, Accepted, Submission};
use crate::breaker::BreakerOptions;
use crate::carriers::Carriers;
use crate::carriers::command::{Allowed, CommandCarrier};
use crate::carriers::handler::HandlerCarrier;
use crate::carriers::http::{HttpCarrier, Way};
use crate::carriers::hub::HubCarrier;
use crate::carriers::letter::Stationery;
use crate::destination::{BadNameServers, Guard, HostPattern, NameServers, Rules};
use crate::embedded::Handlers;
use crate::endpoints::Check;
use crate::error::Error;
use crate::failing::{self, Failing};
use crate::fleet::{Fleet, NodeOptions, beats, hearing, looks, outbox, reload};
use crate::http_client::{Client, ClientOptions, EgressProxy};
use crate::hubs::Hubs;
use crate::intake::Intake;
use crate::jobs::Jobs;
use crate::leases::Leasing;
use crate::measures::Measuring;
use crate::metrics::Metrics;
use crate::notices::{Audience, Draft, Notice, NoticeKind, Notices};
use crate::operator::Operators;
use crate::ports::{Clock, Entropy, Network};
use crate::route::Routes;
use crate::sampled::Sampled;
use crate::scheduler::{EndpointHealth, Scheduler};
use crate::settler::Settler;
use crate::shared::{self, PAGES_AT_ONCE, Shared};
use crate::spans::Spans;
use crate::via::Instance;
use crate::{endpoints, housekeeping, jobs, leases, measures, operator, sampled, settler};

/// How the engine is set up.
#[derive(Debug, Clone)]
pub struct Options {
    pub presets: Presets,
    /// Networks that may be sent to although they are not public.
    pub allowed: Vec<IpNet>,
    /// Names that may be sent to although they stand for addresses that are not public.
    pub allowed_hosts: Vec<HostPattern>,
    /// Ports that may be sent to beside the usual ones.
    pub allowed_ports: Vec<u16>,
    /// Ports that may not be sent to, whatever else is allowed.
    pub denied_ports: Vec<u16>,
    /// Who is asked for the addresses of names; none means the system's resolver.
    pub dns_servers: Vec<SocketAddr>,
    /// Programs that endpoints may run, by their whole path.
    pub allowed_commands: Vec<PathBuf>,
    /// Functions of this program that endpoints may call.
    pub handlers: Handlers,
    /// What every push goes through, if anything.
    pub egress_proxy: Option<EgressProxy>,
    /// In flight over all endpoints.
    pub max_in_flight: usize,
    /// In flight to an endpoint that says nothing else.
    pub default_endpoint_in_flight: u32,
    /// The deadline of an attempt where the endpoint says nothing else.
    pub default_timeout: Duration,
    /// An endpoint of which every attempt has failed for so long is disabled; none is never.
    pub disable_after: Option<Duration>,
    pub housekeeping_every: Duration,
    pub retention: Retention,
    pub breaker: BreakerOptions,
    pub user_agent: String,
    /// How this node appears to others, where several share a store.
    pub node: NodeOptions,
    /// Certificate authorities trusted beside the public ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Lists of certificates that their authorities have taken back.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
    /// Where spans for traces go, if anywhere.
    pub spans: Option<Spans>,
    /// What requests go through instead of sockets.
    pub network: Option<Arc<dyn Network>>,
}

/// How long history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// After it was delivered or cancelled.
    pub delivered: Duration,
    /// After the last attempt of a failed one.
    pub failed: Duration,
    /// After the event of a dead one was received.
    pub dead: Duration,
}

const DAY: Duration = Duration::from_hours(24);

impl Default for Options {
    fn default() -> Self {
        Self {
            presets: Presets::default(),
            allowed: Vec::new(),
            allowed_hosts: Vec::new(),
            allowed_ports: Vec::new(),
            denied_ports: Vec::new(),
            dns_servers: Vec::new(),
            allowed_commands: Vec::new(),
            handlers: Handlers::default(),
            egress_proxy: None,
            max_in_flight: 1_024,
            default_endpoint_in_flight: 128,
            default_timeout: Duration::from_secs(15),
            disable_after: Some(5 * DAY),
            housekeeping_every: Duration::from_hours(1),
            retention: Retention::default(),
            breaker: BreakerOptions::default(),
            user_agent: concat!("Postrider/", env!("CARGO_PKG_VERSION")).to_owned(),
            node: NodeOptions::default(),
            extra_roots: Vec::new(),
            revoked: Vec::new(),
            spans: None,
            network: None,
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { delivered: 7 * DAY, failed: 7 * DAY, dead: 14 * DAY }
    }
}

/// Why the engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] postrider_store::Error),
    #[error("the TLS set-up is unusable: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Dns(#[from] BadNameServers),
    #[error("the user agent is no header value")]
    UserAgent,
}

/// The running engine. Clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Attempts that were still under way at the limit: they will be made again.
    pub abandoned: usize,
}

impl Engine {
    /// Loads the configuration and begins to deliver. What is not due yet stays in the store.
    pub async fn start(
        options: Options,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, StartError> {
        let guard = Arc::new(guard(&options)?);
        let client = Client::new(ClientOptions {
            guard: Arc::clone(&guard),
            extra_roots: options.extra_roots.clone(),
            revoked: options.revoked.clone(),
            egress_proxy: options.egress_proxy.clone(),
        })?;
        let way = options.network.clone().map_or(Way::Sockets(client), Way::Given);
        let user_agent =
            HeaderValue::from_str(&options.user_agent).map_err(|_| StartError::UserAgent)?;
        let commands = Allowed::new(&options.allowed_commands);
        let (settler, verdicts) = Settler::new();
        let (operators, told) = Operators::new();
        let (fleet, first) = match store.fleet() {
            None => (None, None),
            Some(nodes) => {
                let joined = Fleet::join(nodes, options.node.clone(), Arc::clone(&clock)).await?;
                (Some(joined.0), Some(joined.1))
            }
        };
        let clock = fleet.as_ref().map_or(clock, Fleet::clock);
        let now = clock.now();
        let mut candidate = [0; 16];
        candidate.copy_from_slice(&entropy.secret_bytes()[..16]);
        let instance = Instance::new(store.instance(candidate).await?);
        let stationery = Stationery::new(user_agent, instance.clone());
        let hubs = Arc::new(Hubs::of(store.hubs().await?));
        let mut scheduler = Scheduler::new(options.max_in_flight, options.breaker);
        let highest = store.highest_id().await?;
        let first_notice = u64::try_from(now.as_millis()).unwrap_or(0) << 10;
        let (ids, notices) = match &fleet {
            None => (Sequence::after(highest), Notices::starting_at(first_notice)),
            Some(fleet) => {
                scheduler.share(fleet.lanes());
                let number = fleet.number();
                let ids = Sequence::of_node(number, highest);
                (ids, Notices::of_node(number, first_notice))
            }
        };
        let shared = Arc::new(Shared {
            scheduler: Mutex::new(scheduler),
            intake: Mutex::new(Intake::new(ids)),
            notices,
            fleet,
            carrier: Arc::new(Carriers {
                http: HttpCarrier::new(way, stationery.clone()),
                command: CommandCarrier::new(commands.clone()),
                hub: HubCarrier::new(Arc::clone(&hubs), stationery, Arc::clone(&clock)),
                handler: HandlerCarrier::new(options.handlers.clone()),
            }),
            hubs,
            leasing: Leasing::default(),
            measures: Measuring::default(),
            metrics: Metrics::default(),
            sampled: Sampled::default(),
            jobs: Jobs::default(),
            commands,
            instance,
            routes: ArcSwap::from_pointee(Routes::default()),
            runtime: Handle::current(),
            configuring: tokio::sync::Mutex::new(()),
            unsure: Notify::new(),
            settled: Notify::new(),
            wake: Notify::new(),
            asleep_until: AtomicI64::new(0),
            pages: Semaphore::new(PAGES_AT_ONCE),
            complained_at: AtomicI64::new(i64::MIN),
            failing: Mutex::new(Failing::new(options.disable_after)),
            options,
            store,
            clock,
            entropy,
            guard,
            settler,
            operators,
        });
        load_endpoints(&shared).await?;
        // Whatever can fail comes before anything is at work: an engine that could not be started would
        // go on without its owner, beside the next one.
        let jobs = shared.store.open_jobs().await?;
        if let Some(first) = first {
            let early = [
                shared.runtime.spawn(hearing::run(Arc::clone(&shared))),
                shared.runtime.spawn(outbox::run(Arc::clone(&shared))),
            ];
            if let Err(error) = beats::begin(&shared, first).await {
                early.iter().for_each(JoinHandle::abort);
                return Err(error.into());
            }
            shared.runtime.spawn(beats::run(Arc::clone(&shared)));
            shared.runtime.spawn(looks::run(Arc::clone(&shared)));
        }
        shared.runtime.spawn(reload::run(Arc::clone(&shared)));
        shared.runtime.spawn(settler::run(Arc::clone(&shared), verdicts));
        shared.runtime.spawn(operator::run(Arc::clone(&shared), told));
        shared.runtime.spawn(shared::drive(Arc::clone(&shared)));
        shared.runtime.spawn(leases::watch(Arc::clone(&shared)));
        shared.runtime.spawn(housekeeping::run(Arc::clone(&shared)));
        shared.runtime.spawn(measures::run(Arc::clone(&shared)));
        shared.runtime.spawn(sampled::run(Arc::clone(&shared)));
        jobs::begin_all(&shared, jobs);
        Ok(Self { shared })
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.shared.entropy
    }

    /// The gateway's name on the way of an event.
    pub fn instance(&self) -> &Instance {
        &self.shared.instance
    }

    /// Tells the world that something came in by `source` that its sender cannot have signed.
    pub fn signature_failed(&self, tenant: TenantId, source: SourceId, detail: String) {
        self.shared.publish([Draft {
            at: self.shared.clock.now(),
            tenant,
            kind: NoticeKind::SignatureFailed,
            endpoint: None,
            source: Some(source),
            hub: None,
            delivery: None,
            detail: Some(detail),
            audience: Audience::Everyone,
        }]);
    }

    pub fn presets(&self) -> &Presets {
        &self.shared.options.presets
    }

    pub fn notices(&self) -> &Notices {
        &self.shared.notices
    }

    /// How many events for operators were given up because too many waited to be stored.
    pub fn operator_events_lost(&self) -> u64 {
        self.shared.operators.lost()
    }

    /// Stores events, all in one commit, and hands their deliveries over. A type that is reserved for
    /// the gateway is refused, or, where a source made it of what it received, changed.
    pub async fn accept(
        &self,
        tenant: TenantId,
        mut submissions: Vec<Submission>,
    ) -> Result<Vec<Accepted>, Error> {
        operator::keep_out(&mut submissions)?;
        accept::accept(&self.shared, tenant, submissions).await
    }

    /// Whether a delivery is in flight, on whatever node.
    pub async fn is_in_flight(&self, endpoint: EndpointId, delivery: DeliveryId) -> bool {
        self.shared.flies(endpoint, delivery).await
    }

    /// How an endpoint stands with the node that carries it.
    pub async fn endpoint_health(&self, endpoint: EndpointId) -> Option<EndpointHealth> {
        let elsewhere = self.shared.ask_carrier(endpoint, None).await;
        let health = elsewhere.and_then(|(_, health, _)| health);
        health.or_else(|| self.shared.scheduler.lock().health(endpoint))
    }

    /// Reserves `count` consecutive ids, and returns the first.
    pub fn take_ids(&self, count: u32) -> i64 {
        self.shared.take_ids(count)
    }

    /// What happened after the notice `id`, on all nodes, oldest first, as far as it is remembered.
    pub async fn notices_since(&self, id: u64) -> Vec<Arc<Notice>> {
        let elsewhere = self.shared.recall(id).await;
        let mut notices = self.shared.notices.since(id);
        if !elsewhere.is_empty() {
            notices.extend(elsewhere.into_iter().map(Arc::new));
            notices.sort_by_key(|notice| notice.id);
            notices.dedup_by_key(|notice| notice.id);
        }
        notices
    }

    /// Starts no more attempts, waits for those under way, settles, and closes the store.
    pub async fn drain(&self, limit: Duration) -> Drained {
        let shared = &self.shared;
        self.hand_over();
        shared.scheduler.lock().stop();
        let idle = async {
            loop {
                let settled = shared.settled.notified();
                tokio::pin!(settled);
                // Registered before looking, so that no wake-up falls in between.
                settled.as_mut().enable();
                if shared.scheduler.lock().in_flight() == 0 {
                    break;
                }
                settled.await;
            }
            // What the last attempts came to is told to operators, if only after the next start.
            shared.operators.stored().await;
            failing::write(shared).await;
        };
        let limit = tokio::time::sleep(limit);
        let abandoned = match select(std::pin::pin!(idle), std::pin::pin!(limit)).await {
            Either::Left(_) => 0,
            Either::Right(_) => shared.scheduler.lock().in_flight(),
        };
        shared.hubs.stop();
        beats::leave(shared).await;
        shared.sampled.finish();
        measures::finish(shared).await;
        shared.store.close().await;
        Drained { abandoned }
    }
}

fn guard(options: &Options) -> Result<Guard, BadNameServers> {
    let rules = Rules {
        networks: options.allowed.clone(),
        hosts: options.allowed_hosts.clone(),
        allow_ports: options.allowed_ports.clone(),
        deny_ports: options.denied_ports.clone(),
    };
    if options.dns_servers.is_empty() {
        return Ok(Guard::with_rules(rules));
    }
    let servers = NameServers::new(&options.dns_servers)?;
    Ok(Guard::with_resolver(rules, Arc::new(servers)))
}

/// Compiles what is configured. Destinations are judged when they are dialled: an endpoint that was
/// allowed when it was made goes on receiving deliveries, and its attempts say why they fail.
async fn load_endpoints(shared: &Arc<Shared>) -> Result<(), StartError> {
    let now = shared.clock.now();
    let mut routes = Vec::new();
    for endpoint in shared.store.endpoints().await? {
        let id = endpoint.id;
        if endpoint.state == EndpointState::Deleted {
            if shared.fleet.is_none() {
                shared.runtime.spawn(endpoints::cancel_unfinished(Arc::clone(shared), id));
            }
            continue;
        }
        match endpoints::compile(shared, Arc::new(endpoint), Check::AtDial) {
            Ok(route) => routes.push(Arc::new(route)),
            Err(error) => {
                tracing::error!(endpoint = %id, %error, "cannot be sent to as configured; its deliveries wait");
            }
        }
    }
    let mut dues: Vec<(EndpointId, Option<Timestamp>)> = Vec::with_capacity(routes.len());
    let mut legacies = HashMap::new();
    if shared.fleet.is_none() {
        // Where there are others, each endpoint comes with its lane.
        let failing = shared.store.failing().await?;
        shared.failing.lock().restore(failing, now);
        legacies = beats::legacies(shared).await?;
        for route in &routes {
            dues.push((route.id(), shared.store.next_due(route.id()).await?));
        }
    }
    let mut scheduler = shared.scheduler.lock();
    for route in &routes {
        scheduler.put_route(route, now);
    }
    for (id, legacy) in legacies {
        scheduler.inherit(id, &legacy, now);
    }
    for (id, due) in dues {
        if let Some(due) = due {
            scheduler.note_stored(id, Some(due), now);
        }
    }
    shared.routes.store(Arc::new(Routes::of(routes)));
    Ok(())
}
