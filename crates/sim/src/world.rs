//! One world from one seed: nodes, producers and endpoints at work while things go wrong; then all is
//! well again, and everything has to come to its end.

mod disturbing;
mod producing;
mod working;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use postrider_core::endpoint::{Destination, RateLimit, Spec};
use postrider_core::pattern::Pattern;
use postrider_core::signing::Scheme;
use postrider_core::{EndpointId, State, TenantId};
use postrider_engine::{Acting, Private};
use postrider_store::ledger::{DeliveryQuery, Ledger as _};
use postrider_store::record::DeliveryRecord;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use tokio::time::sleep;

use crate::chance::Chance;
use crate::checkers;
use crate::clock::TrueTime;
use crate::gate::Life;
use crate::history::{Chronicle, Fault};
use crate::network::Internet;
use crate::node::{Ground, Node};
use crate::scenario::{EndpointPlan, Scenario, Taker};
use crate::store::Frailty;

pub(crate) const TENANT: TenantId = TenantId::DEFAULT;
const ACTING: Acting = Acting::gateway(TENANT);
/// How long everything may take to end once all is well: longer than any policy waits.
const CONVERGES_WITHIN: Duration = Duration::from_hours(24 * 40);
const LOOK_EVERY: Duration = Duration::from_hours(1);
/// A process that has ended is started anew after so long.
const RESTART_AFTER_MS: u64 = 20_000;

/// How a world ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) violations: Vec<String>,
    pub(crate) lasted: Duration,
    pub(crate) events: usize,
    pub(crate) arrivals: usize,
    pub(crate) faults: Vec<Fault>,
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
    frailty: Mutex<Frailty>,
}

/// Lives through a scenario, on virtual time, in this thread alone.
pub(crate) fn run(scenario: &Scenario) -> Result<Ended> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let ended = runtime.block_on(World::live(scenario.clone()));
    // What dead processes wait for never comes.
    runtime.shutdown_background();
    ended
}

impl World {
    async fn live(scenario: Scenario) -> Result<Ended> {
        let chance = Chance::of(scenario.seed ^ 0x5EED);
        let time = TrueTime::begin();
        let chronicle = Chronicle::new(time);
        let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).context("no key")?;
        let options = sqlite::Options { shared: scenario.nodes > 1, ..sqlite::Options::default() };
        let store = Arc::new(Sqlite::in_memory(&options, keyring)?);
        let manners = scenario.endpoints.iter().map(|endpoint| endpoint.manner).collect();
        let internet = Internet::new(chance.apart(), chronicle.clone(), manners, scenario.loss);
        let ground =
            Ground::new(&scenario, store, time, chance.apart(), chronicle.clone(), internet);
        let world = Arc::new(Self {
            nodes: Mutex::new(vec![None; scenario.nodes]),
            endpoints: Mutex::default(),
            frailty: Mutex::new(Frailty::default()),
            chance,
            ground,
            scenario,
        });
        world.begin().await?;
        world.trouble().await;
        let violations = world.heal().await;
        world.end(violations).await
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
            let made = first.engine.create_endpoint(ACTING, spec(index, plan), Private::default());
            let made = made.await.context("an endpoint was not made")?;
            self.endpoints.lock().push(made.id);
        }
        if self.scenario.nodes > 1 {
            first.engine.spread().await;
        }
        Ok(())
    }

    async fn trouble(self: &Arc<Self>) {
        *self.frailty.lock() = self.scenario.frailty;
        if self.scenario.frailty.crash > 0 || self.scenario.frailty.unavailable > 0 {
            // Those that are there began when nothing could go wrong.
            for index in 0..self.scenario.nodes {
                self.restart(index).await;
            }
        }
        let upkeep = tokio::spawn(disturbing::keep_up(Arc::clone(self)));
        let disturbances = tokio::spawn(disturbing::disturb(Arc::clone(self)));
        let workers = self.work();
        let producing = producing::produce(self);
        producing.await;
        let left = self.scenario.trouble.saturating_sub(self.ground.time.passed());
        sleep(left).await;
        disturbances.abort();
        upkeep.abort();
        for worker in workers {
            worker.abort();
        }
    }

    /// All is well from here on. Everything has to end, and does so without help.
    async fn heal(self: &Arc<Self>) -> Vec<String> {
        self.ground.internet.heal();
        *self.frailty.lock() = Frailty::default();
        for index in 0..self.scenario.nodes {
            // One that has not died is still as frail as it began.
            self.restart(index).await;
        }
        let workers = self.work();
        let mut waited = Duration::ZERO;
        let mut unfinished = self.unfinished().await;
        let look_every = if self.scenario.nodes > 1 { LOOK_EVERY / 20 } else { LOOK_EVERY };
        while !unfinished.is_empty() && waited < CONVERGES_WITHIN {
            sleep(look_every).await;
            waited += look_every;
            unfinished = self.unfinished().await;
        }
        for worker in workers {
            worker.abort();
        }
        unfinished
            .into_iter()
            .map(|record| {
                format!(
                    "none is stranded: {} of {} is {:?} since all is well, due {:?}, parked {}",
                    record.id, record.endpoint, record.state, record.due, record.parked
                )
            })
            .collect()
    }

    async fn end(&self, mut violations: Vec<String>) -> Result<Ended> {
        let deliveries = self.deliveries().await?;
        let remains = Remains {
            scenario: self.scenario.clone(),
            chronicle: self.ground.chronicle.clone(),
            store: Arc::clone(&self.ground.store),
            endpoints: self.endpoints.lock().clone(),
            deliveries,
        };
        violations.extend(checkers::check(&remains).await?);
        let (events, arrivals, faults, fingerprint) = remains.chronicle.read(|history| {
            let (submitted, arrivals) = (history.submitted.len(), history.arrivals.len());
            (submitted, arrivals, history.faults.clone(), history.fingerprint())
        });
        let lasted = self.ground.time.passed();
        Ok(Ended { violations, lasted, events, arrivals, faults, fingerprint })
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
        if let Some(node) = self.node(index) {
            node.gate.kill();
        }
        let frailty = *self.frailty.lock();
        loop {
            sleep(Duration::from_millis(self.chance.between(100, RESTART_AFTER_MS))).await;
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
        let mut query = DeliveryQuery { limit: 250, ..DeliveryQuery::default() };
        loop {
            let listed = self.ground.store.deliveries(TENANT, query.clone()).await?;
            all.extend(listed.rows);
            match listed.next {
                Some(next) => query.after = Some(next),
                None => return Ok(all),
            }
        }
    }

    async fn unfinished(&self) -> Vec<DeliveryRecord> {
        let ended = |state: State| match state {
            State::Delivered | State::Failed | State::Dead | State::Cancelled => true,
            State::Pending | State::Retrying | State::InFlight => false,
        };
        let all = self.deliveries().await.unwrap_or_default();
        all.into_iter().filter(|record| !ended(record.state)).collect()
    }

    fn work(self: &Arc<Self>) -> Vec<tokio::task::JoinHandle<()>> {
        let plans = self.scenario.endpoints.iter().enumerate();
        let pulled = plans.filter(|(_, plan)| plan.taker == Taker::Workers);
        pulled.map(|(index, _)| tokio::spawn(working::work(Arc::clone(self), index))).collect()
    }

    fn is_running(&self, index: usize) -> bool {
        self.node(index).is_some_and(|node| node.gate.life() == Life::Runs)
    }
}

/// Every endpoint listens to every event, or to those of its own.
fn spec(index: usize, plan: &EndpointPlan) -> Spec {
    Spec {
        name: Some(format!("endpoint {index}")),
        destination: match plan.taker {
            Taker::Url => Destination::Url(format!("https://sim.example.com/{index}")),
            Taker::Workers => Destination::Pull,
        },
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
    use super::*;

    /// Worlds of one node that the tests live through: unoptimised, each takes seconds.
    /// `cargo run --profile sim -p postrider-sim -- --seeds N` goes through more, and through those of
    /// several nodes.
    const WORLDS: usize = 5;

    fn worlds() -> impl Iterator<Item = Scenario> {
        (0..).map(Scenario::of).filter(|scenario| scenario.nodes == 1)
    }

    #[test]
    fn what_must_hold_holds_in_every_world() {
        for scenario in worlds().take(WORLDS) {
            let ended = run(&scenario).expect("a world");
            let seed = scenario.seed;
            let again = format!("cargo run --profile sim -p postrider-sim -- --seed {seed}");
            assert_eq!(ended.violations, [] as [String; 0], "{again}");
        }
    }

    #[test]
    fn the_same_seed_is_the_same_world() {
        let scenario = worlds().find(|scenario| !scenario.is_calm()).expect("a troubled world");
        let both = [run(&scenario), run(&scenario)].map(|ended| ended.expect("a world"));
        let [first, second] = both.map(|ended| (ended.fingerprint, ended.lasted));
        assert_eq!(first, second, "seed {}", scenario.seed);
    }
}
