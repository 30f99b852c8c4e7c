//! Operators, who stop and start endpoints, delete one, cancel, retry and replay deliveries while all the
//! rest goes on; and a second tenant, with endpoints and bursts of events of its own, who tries to get
//! at what is the first one's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use postrider_core::endpoint::{Destination, EndpointState, Ordering, RateLimit, Spec};
use postrider_core::pattern::Pattern;
use postrider_core::policy::{self, Preset};
use postrider_core::signing::Scheme;
use postrider_core::{EndpointId, State, TenantId};
use postrider_engine::{Acting, EndpointAction, Error, Private};
use postrider_store::audit::{Actor, Audit};
use postrider_store::ledger::{DeliveryFilter, DeliveryQuery, Ledger as _};
use postrider_store::record::DeliveryRecord;
use postrider_store::registry::Registry as _;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{ACTING, TENANT, World, producing};
use crate::chance::Chance;
use crate::history::{Deed, Holding, Neighbour, Submitted};
use crate::network::Manner;
use crate::node::Node;

/// How the endpoints of the second tenant behave, in the order in which they are made.
pub(super) const MANNERS: [Manner; 2] =
    [Manner::Healthy, Manner::Flapping { period: Duration::from_secs(7) }];
/// How long an operator waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Events with large bodies that come at once: more than a window has room for.
const HEAVY_EVENTS: u64 = 12;
const HEAVY_BYTES: usize = 128 << 10;
/// Events that come at once for an endpoint which takes one a second.
const NARROW_EVENTS: u64 = 30;
/// Looks at whether everything goes on again, a second apart.
const MAX_LOOKS: u32 = 3_600;

/// Makes the second tenant, with one endpoint that gets large bodies and one that takes little at a
/// time.
pub(super) async fn settle_in(world: &World, node: &Node) -> Result<()> {
    let at = world.ground.time.now();
    let audit = Audit {
        at,
        tenant: None,
        actor: Actor::Gateway,
        action: "tenant.create",
        subject: "neighbour".to_owned(),
        detail: None,
    };
    let tenant = world.ground.store.make_tenant("neighbour".to_owned(), at, audit).await?.id;
    let first = world.scenario.endpoints.len();
    let heavy = Wanted { kind: "heavy.made", max_in_flight: 2, body_bytes: HEAVY_BYTES };
    let narrow = Wanted { kind: "narrow.made", max_in_flight: 128, body_bytes: 1 };
    for (index, wanted) in [heavy, narrow].into_iter().enumerate() {
        let acting = Acting::gateway(tenant);
        let spec = wanted.spec(first + index);
        let made = node.engine.create_endpoint(acting, spec, Private::default()).await;
        let endpoint = made.context("an endpoint of the second tenant was not made")?.id;
        let Wanted { kind, max_in_flight, body_bytes } = wanted;
        let neighbour = Neighbour { tenant, endpoint, kind, max_in_flight, body_bytes };
        world.ground.chronicle.settled_in(neighbour);
    }
    Ok(())
}

struct Wanted {
    kind: &'static str,
    max_in_flight: u32,
    body_bytes: usize,
}

impl Wanted {
    /// It listens to its kind by two patterns, and is to get each event once all the same.
    fn spec(&self, place: usize) -> Spec {
        let narrow = self.body_bytes < HEAVY_BYTES;
        let family = self.kind.split('.').next().unwrap_or_default();
        Spec {
            name: Some(self.kind.to_owned()),
            destination: Destination::Url(format!("https://sim.example.com/{place}")),
            event_types: vec![
                Pattern::Exact(self.kind.to_owned()),
                Pattern::Prefix(format!("{family}.")),
            ],
            sources: Vec::new(),
            filter: None,
            policy: policy::Spec { preset: Some(Preset::Dispatch), ..policy::Spec::default() },
            ordering: Ordering::None,
            rate_limit: narrow.then_some(RateLimit { per_second: 1.0, burst: 1 }),
            max_in_flight: Some(self.max_in_flight),
            timeout: Some(Duration::from_secs(10)),
            headers: BTreeMap::new(),
            signing: Scheme::default(),
            format: None,
            metadata: serde_json::Map::new(),
        }
    }
}

/// Goes on until it is aborted.
pub(super) async fn operate(world: Arc<World>) {
    let chance = world.chance.apart();
    let operator = Operator { world, chance };
    let pace = operator.world.scenario.trouble
        / u32::try_from(operator.chance.between(8, 24)).unwrap_or(8);
    for turn in 0.. {
        let part = u32::try_from(operator.chance.below(1_000)).unwrap_or(0);
        sleep(pace.mul_f64(0.5 + f64::from(part) / 1_000.0)).await;
        operator.act(turn).await;
        operator.look_at_memory().await;
    }
}

/// Everything that was stopped goes on: by an operator, or by the gateway because an endpoint said that
/// it is gone. Ends when that is so and no replay is under way.
pub(super) async fn put_right(world: &World) {
    for _ in 0..MAX_LOOKS {
        let endpoints = world.ground.store.endpoints().await.unwrap_or_default();
        let mut stopped = 0;
        for endpoint in endpoints {
            let action = match endpoint.state {
                EndpointState::Paused => EndpointAction::Resume,
                EndpointState::Disabled => EndpointAction::Enable,
                EndpointState::Active | EndpointState::Deleted => continue,
            };
            stopped += 1;
            let Some(node) = world.any_node() else { continue };
            let asked = world.ground.chronicle.asked(Deed::Resume(endpoint.id));
            let acting = Acting::gateway(endpoint.tenant);
            let changing = node.engine.set_endpoint_state(acting, endpoint.id, action);
            // Otherwise it is looked at again.
            if let Ok(Ok(_)) = timeout(PATIENCE, changing).await {
                world.ground.chronicle.heard(asked);
            }
        }
        let replays = world.ground.store.open_jobs().await.unwrap_or_default();
        if stopped == 0 && replays.is_empty() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

struct Operator {
    world: Arc<World>,
    chance: Chance,
}

impl Operator {
    async fn act(&self, turn: u64) {
        match self.chance.below(10) {
            0 | 1 => self.pause().await,
            2 | 3 => self.resume().await,
            4 => self.cancel().await,
            5 => self.retry().await,
            6 => self.replay().await,
            7 => self.rotate().await,
            8 => self.trespass().await,
            _ => self.delete().await,
        }
        // The second tenant does not wait for chance.
        match turn % 4 {
            1 => self.send_heavy(turn).await,
            2 => self.send_narrow(turn).await,
            _ => {}
        }
    }

    async fn pause(&self) {
        if let Some(endpoint) = self.any_endpoint() {
            self.set(ACTING, endpoint, EndpointAction::Pause).await;
        }
    }

    /// One of those that were paused last.
    async fn resume(&self) {
        let paused = self.world.ground.chronicle.read(|history| {
            let asked = history.operations.asked.iter().rev();
            let last = asked.filter_map(|one| match one.deed {
                Deed::Pause(endpoint) => Some(endpoint),
                Deed::Resume(_)
                | Deed::Delete(_)
                | Deed::Rotate(_)
                | Deed::Cancel(_)
                | Deed::Retry(_)
                | Deed::Replay => None,
            });
            last.take(3).collect::<Vec<_>>()
        });
        if let Some(endpoint) = self.chance.choose(&paused) {
            self.set(ACTING, *endpoint, EndpointAction::Resume).await;
        }
    }

    async fn cancel(&self) {
        if let Some(record) = self.any_delivery(vec![State::Pending, State::Retrying]).await {
            let node = self.world.any_node();
            self.ask(Deed::Cancel(record.id), node, |node| async move {
                node.engine.cancel(ACTING, record.id).await.map(drop)
            })
            .await;
        }
    }

    async fn retry(&self) {
        let states = vec![State::Retrying, State::Failed, State::Dead, State::Cancelled];
        if let Some(record) = self.any_delivery(states).await {
            let node = self.world.any_node();
            self.ask(Deed::Retry(record.id), node, |node| async move {
                node.engine.retry(ACTING, record.id).await.map(drop)
            })
            .await;
        }
    }

    async fn replay(&self) {
        let rate = self.chance.once_in(2).then_some(5.0);
        let node = self.world.any_node();
        self.ask(Deed::Replay, node, |node| async move {
            let filter = DeliveryFilter::default();
            node.engine.replay_dead_letters(ACTING, filter, rate).await.map(drop)
        })
        .await;
    }

    async fn rotate(&self) {
        if let Some(endpoint) = self.any_endpoint() {
            let overlap = Duration::from_secs(self.chance.between(0, 3_600));
            let node = self.world.any_node();
            self.ask(Deed::Rotate(endpoint), node, |node| async move {
                node.engine.rotate_secret(ACTING, endpoint, overlap, None).await.map(drop)
            })
            .await;
        }
    }

    /// One at most, and never the only one.
    async fn delete(&self) {
        let endpoints = self.world.endpoints.lock().clone();
        let gone = self.world.ground.chronicle.read(|history| {
            endpoints.iter().any(|id| history.operations.is_asked(Deed::Delete(*id)))
        });
        if gone || endpoints.len() < 2 {
            return;
        }
        if let Some(endpoint) = self.chance.choose(&endpoints).copied() {
            let node = self.world.any_node();
            self.ask(Deed::Delete(endpoint), node, |node| async move {
                node.engine.delete_endpoint(ACTING, endpoint).await
            })
            .await;
        }
    }

    /// The second tenant asks for what is the first one's. It is to be told that there is no such thing.
    async fn trespass(&self) {
        let (Some(second), Some(endpoint)) = (self.second(), self.any_endpoint()) else { return };
        let all = State::ALL.to_vec();
        let (Some(node), Some(record)) = (self.world.any_node(), self.any_delivery(all).await)
        else {
            return;
        };
        let (engine, acting) = (&node.engine, Acting::gateway(second));
        let pausing = EndpointAction::Pause;
        let tried = timeout(PATIENCE, async {
            let store = engine.store();
            [
                ("see an endpoint", engine.endpoint(second, endpoint).is_some()),
                ("see a delivery", matches!(store.delivery(second, record.id).await, Ok(Some(_)))),
                ("see an event", matches!(store.event(second, record.event).await, Ok(Some(_)))),
                ("cancel a delivery", engine.cancel(acting, record.id).await.is_ok()),
                ("retry a delivery", engine.retry(acting, record.id).await.is_ok()),
                (
                    "pause an endpoint",
                    engine.set_endpoint_state(acting, endpoint, pausing).await.is_ok(),
                ),
                ("delete an endpoint", engine.delete_endpoint(acting, endpoint).await.is_ok()),
            ]
        });
        for (what, succeeded) in tried.await.into_iter().flatten() {
            if succeeded {
                let whose = format!("{endpoint}, {}", record.id);
                self.world.ground.chronicle.trespassed(format!("{what} of another ({whose})"));
            }
        }
    }

    /// While nothing is sent, so that it is memory or disk that it waits in.
    async fn send_heavy(&self, turn: u64) {
        let Some(heavy) = self.neighbour(|one| one.body_bytes >= HEAVY_BYTES) else { return };
        let acting = Acting::gateway(heavy.tenant);
        self.set(acting, heavy.endpoint, EndpointAction::Pause).await;
        self.send(turn, &heavy, HEAVY_EVENTS).await;
        self.look_at_memory().await;
        self.set(acting, heavy.endpoint, EndpointAction::Resume).await;
        self.look_at_memory().await;
    }

    async fn send_narrow(&self, turn: u64) {
        let Some(narrow) = self.neighbour(|one| one.body_bytes < HEAVY_BYTES) else { return };
        self.send(turn, &narrow, NARROW_EVENTS).await;
    }

    async fn send(&self, turn: u64, to: &Neighbour, events: u64) {
        let mut sending = JoinSet::new();
        for number in 0..events {
            let name = format!("{} {turn} {number}", to.kind);
            let body =
                format!("{{\"name\":\"{name}\",\"load\":\"{}\"}}", "x".repeat(to.body_bytes));
            let submitted = Submitted {
                tenant: to.tenant,
                kind: to.kind.to_owned(),
                body: Bytes::from(body),
                key: Some(name),
                ordering_key: None,
                deliver_at: None,
                acknowledged: None,
            };
            sending.spawn(producing::send(Arc::clone(&self.world), submitted));
        }
        sending.join_all().await;
    }

    /// What a node has of each endpoint.
    async fn look_at_memory(&self) {
        let Some(node) = self.world.any_node() else { return };
        let mut endpoints = self.world.endpoints.lock().clone();
        let chronicle = &self.world.ground.chronicle;
        endpoints.extend(chronicle.read(|history| {
            history.operations.neighbours.iter().map(|one| one.endpoint).collect::<Vec<_>>()
        }));
        for endpoint in endpoints {
            let looked = timeout(PATIENCE, node.engine.endpoint_health(endpoint)).await;
            if let Ok(Some(health)) = looked {
                let (window, in_flight) = (health.window, health.in_flight);
                chronicle.held(Holding { at: chronicle.now(), endpoint, window, in_flight });
            }
        }
    }

    async fn set(&self, acting: Acting, endpoint: EndpointId, action: EndpointAction) {
        let deed = match action {
            EndpointAction::Pause => Deed::Pause(endpoint),
            EndpointAction::Resume | EndpointAction::Enable => Deed::Resume(endpoint),
        };
        let node = self.world.any_node();
        self.ask(deed, node, |node| async move {
            node.engine.set_endpoint_state(acting, endpoint, action).await.map(drop)
        })
        .await;
    }

    /// Asks a node for something, and remembers whether it said that it was done.
    async fn ask<F>(&self, deed: Deed, node: Option<Node>, asking: impl FnOnce(Node) -> F)
    where
        F: Future<Output = Result<(), Error>>,
    {
        let Some(node) = node else { return };
        let chronicle = &self.world.ground.chronicle;
        let index = chronicle.asked(deed);
        let gate = Arc::clone(&node.gate);
        let answer = timeout(PATIENCE, async {
            let answer = asking(node).await;
            gate.pass().await;
            answer
        });
        if let Ok(Ok(())) = answer.await {
            chronicle.heard(index);
        }
    }

    fn second(&self) -> Option<TenantId> {
        self.neighbour(|_| true).map(|neighbour| neighbour.tenant)
    }

    fn neighbour(&self, is: impl Fn(&Neighbour) -> bool) -> Option<Neighbour> {
        self.world
            .ground
            .chronicle
            .read(|history| history.operations.neighbours.iter().find(|one| is(one)).copied())
    }

    fn any_endpoint(&self) -> Option<EndpointId> {
        self.chance.choose(&self.world.endpoints.lock()).copied()
    }

    async fn any_delivery(&self, states: Vec<State>) -> Option<DeliveryRecord> {
        let filter = DeliveryFilter { states, ..DeliveryFilter::default() };
        let query = DeliveryQuery { filter, limit: 250, ..DeliveryQuery::default() };
        let listed = self.world.ground.store.deliveries(TENANT, query).await.ok()?;
        self.chance.choose(&listed.rows).cloned()
    }
}
