//! One world from one seed: nodes, producers and endpoints at work while things go wrong; then all is
//! well again, and everything has to come to its end.

mod disturbing;
mod operating;
mod producing;
mod relaying;
mod working;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use postrider_core::endpoint::{Destination, RateLimit, Spec};
use postrider_core::pattern::Pattern;
use postrider_core::signing::Scheme;
use postrider_core::{EndpointId, HubId, TenantId};
use postrider_engine::{Acting, Private};
use postrider_store::ledger::{DeliveryQuery, Ledger as _};
use postrider_store::record::DeliveryRecord;
use postrider_store::registry::Registry as _;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::chance::Chance;
use crate::clock::TrueTime;
use crate::gate::Life;
use crate::history::{Chronicle, Fault, FaultKind, Hitch};
use crate::network::Internet;
use crate::node::{Ground, Node};
use crate::scenario::{EndpointPlan, HOUR, Scenario, Taker};
use crate::store::Frailty;
use crate::{checkers, panics};

pub(crate) const TENANT: TenantId = TenantId::DEFAULT;
const ACTING: Acting = Acting::gateway(TENANT);
/// How long everything may take to end once all is well: longer than any policy waits.
const CONVERGES_WITHIN: Duration = Duration::from_hours(24 * 40);
const LOOK_EVERY: Duration = HOUR;
/// The same where policies are brief.
const CONVERGES_SOON: Duration = HOUR;
const LOOK_SOON: Duration = Duration::from_secs(10);
/// A process that has ended is started anew after so long at most.
const RESTART_AFTER_MS: u64 = 20_000;
const RESTART_SOON_MS: u64 = 3_000;

/// How a world ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) violations: Vec<String>,
    pub(crate) lasted: Duration,
    pub(crate) events: usize,
    pub(crate) arrivals: usize,
    pub(crate) faults: Vec<Fault>,
    pub(crate) hitches: BTreeMap<Hitch, u64>,
    pub(crate) chronicle: Chronicle,
    /// Of everything that happened, in order.
    pub(crate) fingerprint: String,
}

/// What checkers look at.
pub(crate) struct Remains {
    pub(crate) scenario: Scenario,
    pub(crate) chronicle: Chronicle,
    pub(crate) store: Arc<Sqlite>,
    pub(crate) endpoints: Vec<EndpointId>,
    pub(crate) deliveries: Vec<DeliveryRecord>,
}

pub(crate) struct World {
    scenario: Scenario,
    ground: Ground,
    chance: Chance,
    nodes: Mutex<Vec<Option<Node>>>,
    endpoints: Mutex<Vec<EndpointId>>,
    /// The hubs of those endpoints that have one.
    hubs: Mutex<BTreeMap<usize, HubId>>,
    frailty: Mutex<Frailty>,
    /// An event is on its way.
    stirred: Notify,
    /// Something befalls a node.
    struck: Notify,
    healed: AtomicBool,
}

/// Lives through a scenario, on virtual time, in this thread alone.
pub(crate) fn run(scenario: &Scenario) -> Result<Ended> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let ended = runtime.block_on(World::live(scenario.clone()));
    // What dead processes wait for never comes.
    runtime.shutdown_background();
    let mut ended = ended?;
    let panics = panics::take().into_iter().map(|panic| format!("nothing panics: {panic}"));
    ended.violations.extend(panics);
    Ok(ended)
}

impl World {
    async fn live(scenario: Scenario) -> Result<Ended> {
        let world = Self::new(scenario)?;
        world.begin().await?;
        world.trouble().await;
        world.heal().await;
        world.end().await
    }

    fn new(scenario: Scenario) -> Result<Arc<Self>> {
        let chance = Chance::of(scenario.seed ^ 0x5EED);
        let time = TrueTime::begin();
        let chronicle = Chronicle::new(time);
        let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).context("no key")?;
        let options = sqlite::Options { shared: scenario.nodes > 1, ..sqlite::Options::default() };
        let store = Arc::new(Sqlite::in_memory(&options, keyring)?);
        let manners = scenario.endpoints.iter().map(|endpoint| endpoint.manner);
        let manners = manners.chain(operating::MANNERS).collect();
        let internet = Internet::new(chance.apart(), chronicle.clone(), manners, scenario.mishaps);
        let ground =
            Ground::new(&scenario, store, time, chance.apart(), chronicle.clone(), internet);
        Ok(Arc::new(Self {
            nodes: Mutex::new(vec![None; scenario.nodes]),
            endpoints: Mutex::default(),
            hubs: Mutex::default(),
            frailty: Mutex::new(Frailty::default()),
            stirred: Notify::new(),
            struck: Notify::new(),
            healed: AtomicBool::new(scenario.is_calm()),
            chance,
            ground,
            scenario,
        }))
    }

    /// Nodes start and endpoints are made while all is well.
    async fn begin(self: &Arc<Self>) -> Result<()> {
        for index in 0..self.scenario.nodes {
            let node = Node::start(&self.ground, index, Frailty::default()).await;
            let node = node.context("a node did not start")?;
            if let Some(place) = self.nodes.lock().get_mut(index) {
                *place = Some(node);
            }
        }
        let first = self.any_node().context("no node")?;
        for (index, plan) in self.scenario.endpoints.iter().enumerate() {
            let destination = match plan.taker {
                Taker::Url => Destination::Url(format!("https://sim.example.com/{index}")),
                Taker::Workers => Destination::Pull,
                Taker::Hub => {
                    let made = first.engine.create_hub(ACTING, format!("hub {index}"));
                    let (hub, _token) = made.await.context("a hub was not made")?;
                    self.hubs.lock().insert(index, hub.id);
                    Destination::Hub(hub.id)
                }
            };
            let spec = spec(index, plan, destination);
            let made = first.engine.create_endpoint(ACTING, spec, Private::default());
            let made = made.await.context("an endpoint was not made")?;
            self.endpoints.lock().push(made.id);
        }
        if self.scenario.operated {
            operating::settle_in(self, &first).await?;
        }
        if self.scenario.nodes > 1 {
            first.engine.spread().await;
        }
        Ok(())
    }

    async fn trouble(self: &Arc<Self>) {
        *self.frailty.lock() = self.scenario.frailty;
        if self.scenario.frailty != Frailty::default() {
            // Those that are there began when nothing could go wrong.
            for index in 0..self.scenario.nodes {
                self.restart(index).await;
            }
        }
        let mut busy = self.take();
        let nodes = 0..self.scenario.nodes;
        busy.extend(nodes.map(|index| tokio::spawn(disturbing::keep_up(Arc::clone(self), index))));
        busy.push(tokio::spawn(disturbing::disturb(Arc::clone(self))));
        if self.scenario.operated {
            busy.push(tokio::spawn(operating::operate(Arc::clone(self))));
        }
        producing::produce(self).await;
        let left = self.scenario.trouble.saturating_sub(self.ground.time.passed());
        sleep(left).await;
        for task in busy {
            task.abort();
        }
    }

    /// All is well from here on. Everything has to end, and does so without help.
    async fn heal(self: &Arc<Self>) {
        self.ground.internet.heal();
        self.healed.store(true, Ordering::Relaxed);
        *self.frailty.lock() = Frailty::default();
        for index in 0..self.scenario.nodes {
            match self.node(index).filter(Node::is_alive) {
                Some(node) if !self.scenario.starts_again => node.recover(),
                _ => self.restart(index).await,
            }
        }
        operating::put_right(self).await;
        let takers = self.take();
        let (within, look_every) = if self.scenario.is_brief() {
            (CONVERGES_SOON, LOOK_SOON)
        } else {
            (CONVERGES_WITHIN, LOOK_EVERY)
        };
        let mut waited = Duration::ZERO;
        while self.is_unfinished().await && waited < within {
            sleep(look_every).await;
            waited += look_every;
        }
        for taker in takers {
            taker.abort();
        }
    }

    async fn end(&self) -> Result<Ended> {
        let deliveries = self.deliveries().await?;
        let remains = Remains {
            scenario: self.scenario.clone(),
            chronicle: self.ground.chronicle.clone(),
            store: Arc::clone(&self.ground.store),
            endpoints: self.endpoints.lock().clone(),
            deliveries,
        };
        let violations = checkers::check(&remains).await?;
        let lasted = self.ground.time.passed();
        Ok(remains.chronicle.read(|history| Ended {
            violations,
            lasted,
            events: history.submitted.len(),
            arrivals: history.arrivals.len(),
            faults: history.faults.clone(),
            hitches: history.hitches.clone(),
            chronicle: remains.chronicle.clone(),
            fingerprint: history.fingerprint(),
        }))
    }

    fn any_node(&self) -> Option<Node> {
        let nodes = self.nodes.lock();
        let live: Vec<&Node> = nodes.iter().flatten().filter(|node| node.is_alive()).collect();
        self.chance.choose(&live).map(|node| (*node).clone())
    }

    fn node(&self, index: usize) -> Option<Node> {
        self.nodes.lock().get(index).cloned().flatten()
    }

    /// Ends a process and starts the next.
    async fn restart(&self, index: usize) {
        if let Some(node) = self.node(index).filter(Node::is_alive) {
            self.ground.chronicle.fault(index, FaultKind::Restart);
            node.gate.kill();
        }
        let longest = if self.scenario.is_brief() { RESTART_SOON_MS } else { RESTART_AFTER_MS };
        loop {
            sleep(Duration::from_millis(self.chance.between(100, longest))).await;
            let frailty = *self.frailty.lock();
            if let Some(node) = Node::start(&self.ground, index, frailty).await {
                if let Some(place) = self.nodes.lock().get_mut(index) {
                    *place = Some(node);
                }
                return;
            }
        }
    }

    async fn deliveries(&self) -> Result<Vec<DeliveryRecord>> {
        let mut all = Vec::new();
        for tenant in self.ground.store.tenants().await? {
            let mut query = DeliveryQuery { limit: 250, ..DeliveryQuery::default() };
            loop {
                let listed = self.ground.store.deliveries(tenant.id, query.clone()).await?;
                all.extend(listed.rows);
                match listed.next {
                    Some(next) => query.after = Some(next),
                    None => break,
                }
            }
        }
        Ok(all)
    }

    /// Whether anything of any tenant has still to end.
    async fn is_unfinished(&self) -> bool {
        let totals = self.ground.store.totals().await.unwrap_or_default();
        totals.into_iter().any(|(state, count)| count > 0 && !state.is_terminal())
    }

    /// Everybody who takes what is not pushed to a URL.
    fn take(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let plans = self.scenario.endpoints.iter().enumerate();
        plans
            .filter_map(|(index, plan)| match plan.taker {
                Taker::Url => None,
                Taker::Workers => Some(tokio::spawn(working::work(Arc::clone(self), index))),
                Taker::Hub => Some(tokio::spawn(relaying::relay(Arc::clone(self), index))),
            })
            .collect()
    }

    fn hub(&self, index: usize) -> Option<HubId> {
        self.hubs.lock().get(&index).copied()
    }

    /// Whether nothing goes wrong any more, or ever did.
    fn is_well(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    fn is_running(&self, index: usize) -> bool {
        self.node(index).is_some_and(|node| node.gate.life() == Life::Runs)
    }
}

/// Every endpoint listens to every event.
fn spec(index: usize, plan: &EndpointPlan, destination: Destination) -> Spec {
    Spec {
        name: Some(format!("endpoint {index}")),
        destination,
        event_types: vec![Pattern::Any],
        sources: Vec::new(),
        filter: None,
        policy: plan.policy.clone(),
        ordering: plan.ordering,
        rate_limit: plan.rate_per_second.map(|per_second| RateLimit { per_second, burst: 3 }),
        max_in_flight: None,
        timeout: Some(Duration::from_secs(10)),
        headers: BTreeMap::new(),
        signing: Scheme::default(),
        format: None,
        metadata: serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_core::Timestamp;
    use postrider_core::endpoint::{EndpointState, Ordering};
    use postrider_engine::EndpointAction;

    use super::*;
    use crate::history::Submitted;

    /// The first calm world of one node that is of a sort, begun; and what happens in it.
    fn in_world<F>(sort: fn(&Scenario) -> bool, happens: impl FnOnce(Arc<World>) -> F)
    where
        F: Future<Output = ()>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let calm =
                |scenario: &Scenario| scenario.nodes == 1 && scenario.is_calm() && sort(scenario);
            let scenario = (0..1_000).map(Scenario::of).find(calm).expect("a calm world");
            let world = World::new(scenario).expect("a world");
            world.begin().await.expect("begun");
            happens(world).await;
        });
        runtime.shutdown_background();
    }

    fn submitted(deliver_at: Option<Timestamp>) -> Submitted {
        Submitted {
            tenant: TENANT,
            kind: "thing.happened".to_owned(),
            body: Bytes::from_static(b"{}"),
            key: None,
            ordering_key: None,
            deliver_at,
            acknowledged: None,
        }
    }

    /// World 949 found it: an engine of which only the last step of its start failed went on without its
    /// owner, and sent what the next one sent too.
    #[test]
    fn what_could_not_be_started_is_not_at_work() {
        const FAILED_STARTS: usize = 200;
        in_world(
            |_| true,
            |world| async move {
                let node = world.any_node().expect("a node");
                let submitted = submitted(Some(world.ground.time.now().plus(HOUR)));
                let accepted = node.engine.accept(TENANT, vec![producing::submission(&submitted)]);
                accepted.await.expect("accepted");
                node.gate.kill();
                let frailty = Frailty { refused: 8, ..Frailty::default() };
                let mut failed = 0;
                while failed < FAILED_STARTS {
                    match Node::start(&world.ground, 0, frailty).await {
                        Some(node) => node.gate.kill(),
                        None => failed += 1,
                    }
                }
                sleep(3 * HOUR).await;
                let arrived = world.ground.chronicle.read(|history| history.arrivals.len());
                assert_eq!(arrived, 0);
            },
        );
    }

    /// Worlds in which nodes go on when all is well found it: the next of a line that was moved on by a
    /// commit which nobody heard of waited for a restart.
    #[test]
    fn a_line_goes_on_after_a_commit_that_nobody_heard_of() {
        const EVENTS: usize = 40;
        let in_line = |scenario: &Scenario| {
            let plans = &scenario.endpoints;
            plans.iter().all(|plan| plan.taker == Taker::Url)
                && plans.iter().any(|plan| plan.ordering == Ordering::Fifo)
        };
        in_world(in_line, |world| async move {
            let node = world.any_node().expect("a node");
            for _ in 0..EVENTS {
                let submitted = submitted(Some(world.ground.time.now().plus(HOUR)));
                let accepted = node.engine.accept(TENANT, vec![producing::submission(&submitted)]);
                accepted.await.expect("accepted");
            }
            node.gate.kill();
            let frailty = Frailty { unheard: 4, ..Frailty::default() };
            let node = loop {
                if let Some(node) = Node::start(&world.ground, 0, frailty).await {
                    break node;
                }
            };
            sleep(3 * HOUR).await;
            node.recover();
            sleep(3 * HOUR).await;
            assert!(!world.is_unfinished().await, "something waits for a restart");
        });
    }

    /// World 1432 found it: an endpoint that was resumed by a commit which nobody heard of stood still
    /// until a restart.
    #[test]
    fn a_change_of_an_endpoint_that_nobody_heard_of_is_gone_by() {
        in_world(
            |_| true,
            |world| async move {
                world.any_node().expect("a node").gate.kill();
                let mut paused = 0;
                // Some do not come as far as to be asked.
                while paused < 5 {
                    let frailty = Frailty { unheard: 2, ..Frailty::default() };
                    let Some(node) = Node::start(&world.ground, 0, frailty).await else { continue };
                    let id = *world.endpoints.lock().first().expect("an endpoint");
                    let asked =
                        node.engine.set_endpoint_state(ACTING, id, EndpointAction::Pause).await;
                    node.recover();
                    sleep(HOUR).await;
                    let stored = world.ground.store.endpoints().await.expect("endpoints");
                    let stored = stored.into_iter().find(|endpoint| endpoint.id == id);
                    let known = node.engine.endpoint(TENANT, id).expect("known");
                    assert_eq!(stored.as_ref(), Some(&*known));
                    let unheard = asked.is_err() && known.state == EndpointState::Paused;
                    paused += u32::from(unheard);
                    let resumed =
                        node.engine.set_endpoint_state(ACTING, id, EndpointAction::Resume).await;
                    resumed.expect("all is well");
                    node.gate.kill();
                }
            },
        );
    }
}
