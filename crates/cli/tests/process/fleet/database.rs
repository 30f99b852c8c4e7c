//! The database comes and goes under load: events are refused while they cannot be stored, and
//! everything goes on by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::load::Load;
use super::route::Route;
use super::tunnel::Tunnel;
use super::{Fleet, database_of, scaled};
use crate::cluster::{Cluster, Disk};

const PER_SECOND: u32 = 120;
/// As it is if nothing is said.
const LEASE: Duration = Duration::from_secs(10);
/// A node that could not renew its lease for so long starts nothing more.
const BELIEF: Duration = Duration::from_secs(9);
const RESTARTS: usize = 10;
const KILL_EVERY: Duration = Duration::from_secs(1);
/// How long connections are killed.
const SHORT_KILLING: Duration = Duration::from_secs(10);
const LONG_KILLING: Duration = Duration::from_mins(1);
/// How long the network carries nothing: longer than a node waits for an answer.
const SHORT_SILENCE: Duration = Duration::from_secs(15);
const LONG_SILENCE: Duration = Duration::from_secs(30);

/// When the database is there again, everything goes on within this …
const RESUMED_WITHIN: Duration = Duration::from_secs(10);
/// … on a machine that does nothing else.
const SLACK: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_restarted_again_and_again_loses_nothing() {
    let cluster = Arc::new(Cluster::start(Disk::Synced, ""));
    let trial = Trial::begin(&cluster.database()).await;
    let (mut longest, mut lapses) = (Duration::ZERO, 0);
    for round in 0..RESTARTS {
        let server = Arc::clone(&cluster);
        let restart = move || {
            if round % 2 == 0 {
                server.crash();
            } else {
                server.stop();
                server.start_again();
            }
        };
        let down = Instant::now();
        tokio::task::spawn_blocking(restart).await.expect("it starts again");
        let away = down.elapsed();
        let resumed = trial.resumed().await;
        println!("restart {round}: away for {away:?}, everything goes on {resumed:?} later");
        longest = longest.max(resumed);
        // On a machine that is busy otherwise this may take longer than nodes wait.
        lapses += usize::from(away + resumed >= BELIEF);
    }
    assert!(trial.refused() > 0, "nobody noticed");
    trial.end(lapses, longest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_killed_every_second_lose_nothing() {
    let store = Cluster::shared().database();
    let trial = Trial::begin(&store).await;
    let started = Instant::now();
    let mut kills = 0;
    while started.elapsed() < scaled(SHORT_KILLING, LONG_KILLING) {
        let name = database_of(&store).to_owned();
        let kill = move || Cluster::shared().kill_connections(&name);
        tokio::task::spawn_blocking(kill).await.expect("killed");
        kills += 1;
        tokio::time::sleep_until((started + kills * KILL_EVERY).into()).await;
    }
    let longest = trial.resumed().await;
    println!("all connections were killed {kills} times");
    trial.end(0, longest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_carries_nothing_for_a_while_loses_nothing() {
    let tunnel = Tunnel::to(Cluster::shared()).await;
    let trial = Trial::begin(tunnel.url()).await;
    let before = trial.load.acknowledged();
    tunnel.close();
    let closed = Instant::now();
    tokio::time::sleep(scaled(SHORT_SILENCE, LONG_SILENCE)).await;
    let (refused, during) = (trial.refused(), trial.load.acknowledged() - before);
    println!("{refused} refused and {during} acknowledged within {:?}", closed.elapsed());
    tunnel.clear();
    let longest = trial.resumed().await;
    assert!(refused > 0, "nobody was told that it could not be stored");
    trial.end(1, longest).await;
}

/// A fleet under load.
struct Trial {
    fleet: Fleet,
    route: Route,
    load: Load,
}

impl Trial {
    async fn begin(store: &str) -> Self {
        let fleet = Fleet::on(store, LEASE).await;
        let route = Route::open(&fleet).await;
        fleet.settled().await;
        let load = Load::start(Route::kinds(PER_SECOND), fleet.roster());
        let trial = Self { fleet, route, load };
        trial.resumed().await;
        trial
    }

    /// Waits until every node accepts events and every endpoint gets some. Returns how long that
    /// took.
    async fn resumed(&self) -> Duration {
        let since = Instant::now();
        self.load.accepted_by(&[0, 1, 2], since).await;
        self.route.reached_since(since).await;
        since.elapsed()
    }

    fn refused(&self) -> usize {
        self.load.trouble().refused.load(Ordering::Relaxed)
    }

    /// Everything that was acknowledged has arrived, and nothing was repeated but what was in flight
    /// when leases ended: others may carry it then, who do not know of it.
    async fn end(mut self, lapses: usize, longest: Duration) {
        let acks = self.load.finish().await;
        let repeats = self.route.check(&self.fleet, &acks).await;
        println!("leases ended {lapses} times; everything went on within {longest:?}");
        let silent = self.load.trouble().silent.load(Ordering::Relaxed);
        assert_eq!(silent, 0, "some producers got no answer at all");
        for (index, target) in self.route.targets.iter().enumerate() {
            let repeated = repeats.iter().filter(|repeat| repeat.target == index).count();
            assert!(repeated <= lapses * target.most_in_flight(), "{repeated} repeated");
        }
        assert!(longest <= RESUMED_WITHIN + SLACK, "{longest:?}");
    }
}
