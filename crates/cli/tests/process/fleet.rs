//! Several nodes on one database: what they do together while nodes and the database come and go.
//!
//! Every node is a process of the real binary. Producers and endpoints belong to the test's own
//! process: what was acknowledged and what arrived is written down where nobody is killed.
//!
//! With `POSTRIDER_LONG` in the environment the tests run for as long as the figures that are
//! promised were measured over; otherwise for as short as shows the same.

mod census;
mod load;
mod route;
mod tunnel;

mod database;
mod hubs;
mod killed;
mod moved;
mod paused;
mod pull;
mod rolling;
mod settings;
mod shares;
mod watching;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard, watch};

use self::census::Census;
use crate::client::Connection;
use crate::cluster::Cluster;
use crate::gateway::{Gateway, KEY, Launch, text};
use crate::{PATIENCE, within};

/// For as long a node is believed to live; short, so that tests are.
const LEASE: Duration = Duration::from_secs(3);

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How often something is looked at that nobody tells of.
const LOOK: Duration = Duration::from_millis(50);

/// Each fleet is several processes, and often a server: two at a time would make one another late.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// One time or the other, by what the environment asks for.
fn scaled(short: Duration, long: Duration) -> Duration {
    if std::env::var_os("POSTRIDER_LONG").is_some() { long } else { short }
}

/// Where the nodes listen; none where one is down.
type Roster = Vec<Option<SocketAddr>>;

struct Fleet {
    /// Without a place of their own.
    launches: Vec<Launch>,
    /// In which directory each is, one after another.
    places: Vec<usize>,
    nodes: Vec<Option<Gateway>>,
    roster: watch::Sender<Roster>,
    directory: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Fleet {
    /// All three nodes, with a short lease, on a new database of the server that tests share.
    async fn start() -> Self {
        Self::on(&Cluster::shared().database(), LEASE).await
    }

    /// All three nodes, at the same time.
    async fn on(store: &str, lease: Duration) -> Self {
        let mut fleet = Self::idle(store, lease).await;
        let starting = (0..NAMES.len()).map(|node| fleet.begin(node));
        let started = futures_util::future::join_all(starting).await;
        fleet.nodes = started.into_iter().map(Some).collect();
        fleet.announce();
        fleet
    }

    /// Nobody yet.
    async fn idle(store: &str, lease: Duration) -> Self {
        let turn = ONE_AT_A_TIME.lock().await;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let key = directory.path().join("key");
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&key);
        std::io::Write::write_all(&mut file.expect("made"), "5e".repeat(32).as_bytes())
            .expect("written");
        let lease = format!("{}ms", lease.as_millis());
        let launch = |name| {
            Launch::serving()
                .and(["--node-name", name, "--lease", &lease])
                .variable("POSTRIDER_STORE", store)
                .variable("POSTRIDER_SECRET_KEY_FILE", &key)
        };
        let launches: Vec<Launch> = NAMES.into_iter().map(launch).collect();
        let nodes = NAMES.iter().map(|_| None).collect();
        let roster = watch::Sender::new(vec![None; NAMES.len()]);
        let places = vec![0; NAMES.len()];
        Self { launches, places, nodes, roster, directory, _turn: turn }
    }

    /// Starts a node in its place.
    async fn begin(&self, node: usize) -> Gateway {
        let place = format!("{}{}", NAMES[node], self.places[node]);
        self.launches[node].clone().with_data(&self.directory.path().join(place)).start().await
    }

    fn announce(&self) {
        let address = |node: &Option<Gateway>| node.as_ref().map(|node| node.address);
        self.roster.send_replace(self.nodes.iter().map(address).collect());
    }

    fn roster(&self) -> watch::Receiver<Roster> {
        self.roster.subscribe()
    }

    fn node(&self, node: usize) -> &Gateway {
        self.nodes[node].as_ref().expect("it runs")
    }

    /// Those that run.
    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].is_some())
    }

    /// One that runs and is not this one.
    fn other_than(&self, node: usize) -> usize {
        self.running().find(|other| *other != node).expect("another one runs")
    }

    /// `kill -9`.
    fn kill(&mut self, node: usize) {
        self.nodes[node].take().expect("it runs").process.kill();
        self.announce();
    }

    /// A stop that ends well. Producers learn of it by meeting it.
    async fn stop(&mut self, node: usize) {
        self.nodes[node].take().expect("it runs").stop().await;
        self.announce();
    }

    /// Stops it where it is. Its connections stay.
    fn pause(&self, node: usize) {
        self.node(node).process.signal("STOP");
    }

    fn resume(&self, node: usize) {
        self.node(node).process.signal("CONT");
    }

    /// Starts a node where it was before: it takes back what it had.
    async fn launch(&mut self, node: usize) {
        assert!(self.nodes[node].is_none(), "it runs");
        self.nodes[node] = Some(self.begin(node).await);
        self.announce();
    }

    /// Starts a node as one that replaces it on another machine: nobody can tell that the one before
    /// is gone.
    async fn replace(&mut self, node: usize) {
        self.places[node] += 1;
        self.launch(node).await;
    }

    /// What a node says of all nodes; none while it cannot say.
    async fn census(&self, node: usize) -> Option<Census> {
        let asked = async {
            let mut connection = Connection::open(self.node(node).address, KEY).await.ok()?;
            let answer = connection.call(Method::GET, "/v1/nodes", String::new()).await.ok()?;
            answer.status.is_success().then(|| Census::read(&answer.body))
        };
        tokio::time::timeout(PATIENCE / 8, asked).await.ok().flatten()
    }

    /// Waits until those that run have all the lanes, in even shares, and agree on that.
    async fn settled(&self) {
        let names: Vec<&str> = self.running().map(|node| NAMES[node]).collect();
        let mut last = Vec::new();
        let settled = async {
            loop {
                last.clear();
                for node in self.running() {
                    last.push(self.census(node).await);
                }
                let even = |census: &Option<Census>| {
                    census.as_ref().is_some_and(|census| census.is_even_among(&names))
                };
                if last.iter().all(even) {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let settled = tokio::time::timeout(PATIENCE, settled).await;
        assert!(settled.is_ok(), "{names:?} did not come to share the lanes: {last:#?}");
    }

    /// Which node carries an endpoint that is pushed to.
    async fn carrier_of(&self, endpoint: &str) -> usize {
        let from = self.running().next().expect("one runs");
        let look = async {
            loop {
                let census = self.census(from).await;
                if let Some(name) = census.as_ref().and_then(|census| census.carrier_of(endpoint)) {
                    return NAMES.iter().position(|known| *known == name).expect("one of ours");
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        within("somebody to carry an endpoint", look).await
    }

    /// The only delivery of an event, as one node shows it. Lists do not ask the node that carries it.
    async fn delivery_of(&self, node: usize, event: &str) -> Value {
        let listed = self.node(node).delivery_of(event).await;
        self.node(node).get(&format!("/v1/deliveries/{}", text(&listed, "id"))).await
    }

    /// Waits until every node says that everything has been delivered.
    async fn all_delivered(&self, events: usize, deliveries: usize) {
        let expected = json!({
            "pending": 0, "in_flight": 0, "retrying": 0, "delivered": deliveries,
            "failed": 0, "dead": 0, "cancelled": 0,
        });
        for node in self.running() {
            let mut last = Value::Null;
            let all = async {
                loop {
                    last = self.node(node).get("/v1/stats").await;
                    if last["deliveries"] == expected && last["events"] == events {
                        return;
                    }
                    tokio::time::sleep(LOOK).await;
                }
            };
            let all = tokio::time::timeout(PATIENCE, all).await;
            assert!(all.is_ok(), "node {node}, of {events} and {deliveries}: {last:#}");
        }
    }
}

/// The name in the URL of a database.
fn database_of(store: &str) -> &str {
    let path = store.rsplit('/').find(|part| part.starts_with("test_")).expect("a test's own");
    path.split('?').next().unwrap_or(path)
}
