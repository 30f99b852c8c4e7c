//! Several engines on one store: who carries what, how it is passed on, and that it makes no difference
//! which of them is asked. They share the machine's clock; leases are short.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../rig/mod.rs"]
mod rig;

mod carried;
mod followed;
mod moved;
mod operated;

use std::sync::Arc;
use std::time::Duration;

use postrider_core::endpoint::Spec;
use postrider_core::{DeliveryId, EndpointId, EventId, Lane, State, TenantId};
use postrider_engine::ports::{SystemClock, SystemEntropy};
use postrider_engine::{Acting, Engine, NodeOptions, Options};
use postrider_store::record::{DeliveryRecord, delivery_id};
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use postrider_store::{Ledger as _, Store};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use rig::PATIENCE;
use rig::sink::Sink;

const TENANT: TenantId = TenantId::DEFAULT;
const ACTING: Acting = Acting::gateway(TENANT);
const LEASE: Duration = Duration::from_secs(2);
/// Enough that every one of three nodes carries some.
const ENDPOINTS: usize = 24;

/// Nodes that share a store.
struct Fleet {
    store: Arc<Sqlite>,
    nodes: Vec<Option<Node>>,
    _data: TempDir,
}

/// A node in a world of its own, which can come to a sudden end.
struct Node {
    engine: Engine,
    world: Option<Runtime>,
}

impl Fleet {
    async fn of(count: usize) -> Self {
        Self::with(count, Options::default()).await
    }

    async fn with(count: usize, options: Options) -> Self {
        let data = TempDir::new().expect("a folder");
        let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key");
        let shared = sqlite::Options { shared: true, ..sqlite::Options::default() };
        let store = Sqlite::open(&data.path().join("postrider.db"), shared, keyring);
        let store = Arc::new(store.expect("a database"));
        let mut fleet = Self { store, nodes: Vec::new(), _data: data };
        for _ in 0..count {
            fleet.join(options.clone()).await;
        }
        fleet.evenly(count).await;
        fleet
    }

    async fn join(&mut self, options: Options) -> usize {
        let world = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let options = Options {
            allowed: vec!["127.0.0.0/8".parse().expect("a network")],
            node: NodeOptions {
                name: format!("node {}", self.nodes.len()),
                lease: LEASE,
                ..NodeOptions::default()
            },
            ..options
        };
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        let start = Engine::start(options, store, Arc::new(SystemClock), Arc::new(SystemEntropy));
        let engine = world.spawn(start).await.expect("no panic").expect("the engine starts");
        self.nodes.push(Some(Node { engine, world: Some(world) }));
        self.nodes.len() - 1
    }

    fn engine(&self, node: usize) -> &Engine {
        &self.nodes[node].as_ref().expect("a live node").engine
    }

    fn live(&self) -> impl Iterator<Item = &Engine> {
        self.nodes.iter().flatten().map(|node| &node.engine)
    }

    /// Ends a node as a crash would.
    fn crash(&mut self, node: usize) {
        drop(self.nodes[node].take().expect("a live node"));
    }

    /// Waits until so many live nodes share all lanes evenly.
    async fn evenly(&self, count: usize) {
        let asked = self.live().next().expect("a live node");
        until("the lanes are shared", async || {
            let nodes = asked.nodes().await.expect("readable").expect("shared");
            let lanes = usize::from(nodes.lanes);
            let live = nodes.nodes.iter().filter(|node| node.live);
            let shares: Vec<usize> = live.map(|node| node.held.len()).collect();
            shares.len() == count
                && shares.iter().sum::<usize>() == lanes
                && shares
                    .iter()
                    .all(|share| (lanes / count..=lanes.div_ceil(count)).contains(share))
        })
        .await;
    }

    /// The node that carries an endpoint.
    async fn carrier(&self, endpoint: EndpointId) -> usize {
        let asked = self.live().next().expect("a live node");
        let nodes = asked.nodes().await.expect("readable").expect("shared");
        let lane = Lane::of(endpoint, nodes.lanes);
        let holds = |node: &&postrider_store::fleet::NodeRecord| {
            let is_lane = |charge| charge == postrider_store::fleet::Charge::Lane(lane);
            node.live && node.held.iter().any(|tenure| is_lane(tenure.charge))
        };
        let holder = nodes.nodes.iter().find(holds).expect("somebody carries it");
        let names: Vec<String> = (0..self.nodes.len()).map(|node| format!("node {node}")).collect();
        names.iter().position(|name| *name == holder.name).expect("one of ours")
    }

    /// Any live node but this one.
    fn other_than(&self, node: usize) -> usize {
        let live = |other: &usize| *other != node && self.nodes[*other].is_some();
        (0..self.nodes.len()).find(live).expect("another node")
    }

    /// Endpoints that each listen to a type of their own, made on all nodes in turn.
    async fn endpoints(&self, sink: &Sink, change: impl Fn(&mut Spec)) -> Vec<EndpointId> {
        let mut endpoints = Vec::with_capacity(ENDPOINTS);
        let live: Vec<&Engine> = self.live().collect();
        for number in 0..ENDPOINTS {
            let mut spec = rig::spec(sink.url(), &kind(number));
            change(&mut spec);
            endpoints.push(rig::create(live[number % live.len()], spec).await);
        }
        endpoints
    }

    async fn record(&self, delivery: DeliveryId) -> DeliveryRecord {
        let record = self.store.delivery(TENANT, delivery).await.expect("readable");
        record.expect("known")
    }

    async fn ends(&self, delivery: DeliveryId, state: State) {
        until("it ends", async || self.record(delivery).await.state == state).await;
    }
}

/// Ends it as a crash would: a runtime must not be waited for where others are served.
impl Drop for Node {
    fn drop(&mut self) {
        if let Some(world) = self.world.take() {
            world.shutdown_background();
        }
    }
}

/// Looks until it is so.
async fn until(what: &str, so: impl AsyncFn() -> bool) {
    let looking = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, looking).await;
    assert!(found.is_ok(), "waited in vain until {what}");
}

fn kind(number: usize) -> String {
    format!("kind.{number}")
}

/// The only delivery of an event.
fn delivery_of(event: EventId) -> DeliveryId {
    delivery_id(event, 0)
}
