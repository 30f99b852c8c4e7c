//! `kill -9` under load: whatever the moment, nothing that was acknowledged is lost, and nothing is
//! repeated but what was in flight.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Disk};
use crate::gateway::{Gateway, Launch, payload};
use crate::producers::{Ack, Producers};
use crate::sink::{Arrival, Reply, Sink};

const ROUNDS: usize = 20;
const PRODUCERS: usize = 4;
const MAX_IN_FLIGHT: usize = 16;
const MOST_ACKS_IN_A_ROUND: u64 = 120;
const MOST_ARRIVALS_IN_A_ROUND: u64 = 250;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_under_load_it_delivers_all_that_it_acknowledged() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    kill_again_and_again(&Launch::serve(directory.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_does_so_on_postgresql_as_well() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cluster = Cluster::start(Disk::Trusted, "");
    let launch = Launch::serve(directory.path()).variable("POSTRIDER_STORE", cluster.database());
    kill_again_and_again(&launch).await;
}

async fn kill_again_and_again(launch: &Launch) {
    let mut random = Random::seeded();
    let route = Route::start().await;
    let mut gateway = launch.start().await;
    route.create_endpoints(&gateway).await;

    let mut producers = Producers::start(PRODUCERS);
    for round in 0..ROUNDS {
        producers.turn_to(&gateway);
        let moment = Moment::draw(&mut random);
        moment.come(&producers, &route).await;
        gateway.process.kill();
        println!("round {round}: killed at {moment:?}, {} acks", producers.acknowledged());
        gateway = launch.start().await;
    }
    producers.turn_to(&gateway);
    let acks = producers.finish().await;

    route.check_arrivals(&gateway, &acks, ROUNDS).await;
    gateway.stop().await;
    // A start of its own shows what is on disk, not what is in memory.
    let gateway = launch.start().await;
    route.check_nothing_waits(&gateway).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_under_load_it_loses_nothing_and_repeats_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    stop_again_and_again(&Launch::serve(directory.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_under_load_it_repeats_nothing_on_postgresql_either() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cluster = Cluster::start(Disk::Trusted, "");
    let launch = Launch::serve(directory.path()).variable("POSTRIDER_STORE", cluster.database());
    stop_again_and_again(&launch).await;
}

async fn stop_again_and_again(launch: &Launch) {
    const STOPS: usize = 5;
    let mut random = Random::seeded();
    let route = Route::start().await;
    let mut gateway = launch.start().await;
    route.create_endpoints(&gateway).await;

    let mut producers = Producers::start(PRODUCERS);
    for _ in 0..STOPS {
        producers.turn_to(&gateway);
        Moment::draw(&mut random).come(&producers, &route).await;
        gateway.stop().await;
        gateway = launch.start().await;
    }
    producers.turn_to(&gateway);
    let acks = producers.finish().await;

    route.check_arrivals(&gateway, &acks, 0).await;
    gateway.stop().await;
    let gateway = launch.start().await;
    route.check_nothing_waits(&gateway).await;
}

/// What the server had committed when its answer got lost is carried as well, though nobody was told
/// yes: everything that is stored arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_postgresql_crashes_under_load_nothing_is_lost_or_repeated() {
    const CRASHES: usize = 10;
    let mut random = Random::seeded();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cluster = Arc::new(Cluster::start(Disk::Synced, ""));
    let launch = Launch::serve(directory.path()).variable("POSTRIDER_STORE", cluster.database());
    let route = Route::start().await;
    let gateway = launch.start().await;
    route.create_endpoints(&gateway).await;

    let mut producers = Producers::start(PRODUCERS);
    for _ in 0..CRASHES {
        let enough = producers.acknowledged() as u64 + 1 + random.below(MOST_ACKS_IN_A_ROUND);
        get_through(&mut producers, &gateway, |acks| acks.len() as u64 >= enough).await;
        let server = Arc::clone(&cluster);
        tokio::task::spawn_blocking(move || server.crash()).await.expect("it starts again");
    }
    let last = producers.acknowledged();
    get_through(&mut producers, &gateway, |acks| {
        let since = &acks[last..];
        (0..PRODUCERS).all(|producer| since.iter().any(|ack| ack.producer == producer))
    })
    .await;
    let acks = producers.finish().await;

    route.check_arrivals(&gateway, &acks, 0).await;
    gateway.stop().await;
    let gateway = launch.start().await;
    route.check_nothing_waits(&gateway).await;
}

/// A producer gives up at the first no. This sends them on again until enough was acknowledged.
async fn get_through(
    producers: &mut Producers,
    gateway: &Gateway,
    enough: impl Fn(&[Ack]) -> bool,
) {
    const BEFORE_ANOTHER_TRY: Duration = Duration::from_millis(250);
    let through = async {
        loop {
            producers.turn_to(gateway);
            let acknowledged = producers.until("acknowledgements", &enough);
            if tokio::time::timeout(BEFORE_ANOTHER_TRY, acknowledged).await.is_ok() {
                break;
            }
        }
    };
    crate::within("producers that get through", through).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_makes_its_database_it_starts_again() {
    const MOST_GLANCES: u64 = 2_000;
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let launch = Launch::serve(directory.path());
        let process = launch.spawn();
        // No event tells when the file is half made: so it is looked for, and then looked at for a
        // random while.
        crate::within("a database", until_there(&directory.path().join("postrider.db"))).await;
        for _ in 0..random.below(MOST_GLANCES) {
            tokio::task::yield_now().await;
        }
        process.kill();
        let gateway = launch.start().await;
        assert_eq!(gateway.get("/v1/stats").await["events"], 0);
    }
}

async fn until_there(path: &Path) {
    while !path.exists() {
        tokio::task::yield_now().await;
    }
}

/// When a gateway is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// When this many more events have been acknowledged; 0 is as soon as it listens.
    Acks(u64),
    /// When this many more attempts have arrived at the endpoint that fails now and then.
    Arrivals(u64),
}

impl Moment {
    fn draw(random: &mut Random) -> Self {
        if random.below(3) == 0 {
            Self::Arrivals(1 + random.below(MOST_ARRIVALS_IN_A_ROUND))
        } else {
            Self::Acks(random.below(MOST_ACKS_IN_A_ROUND))
        }
    }

    async fn come(self, producers: &Producers, route: &Route) {
        match self {
            Self::Acks(more) => {
                let enough = producers.acknowledged() as u64 + more;
                producers.until("acknowledgements", |acks| acks.len() as u64 >= enough).await;
            }
            Self::Arrivals(more) => {
                let sink = &route.failing.sink;
                let enough = sink.arrivals().len() as u64 + more;
                sink.until("arrivals", |seen| seen.arrivals.len() as u64 >= enough).await;
            }
        }
    }
}

/// Three endpoints that all get everything: one that is well, one that fails several times before
/// it takes an event, and one that wants its events in order.
struct Route {
    healthy: Target,
    failing: Target,
    ordered: Target,
}

struct Target {
    name: &'static str,
    sink: Sink,
    max_in_flight: usize,
    /// How often the event with this number is refused before it is taken.
    refusals: fn(u64) -> u32,
}

impl Route {
    async fn start() -> Self {
        Self {
            healthy: Target::start("healthy", MAX_IN_FLIGHT, |_| 0).await,
            failing: Target::start("failing", MAX_IN_FLIGHT, |number| (number % 7) as u32).await,
            ordered: Target::start("ordered", 1, |number| u32::from(number % 50 == 0)).await,
        }
    }

    async fn create_endpoints(&self, gateway: &Gateway) {
        for (target, ordering) in
            [(&self.healthy, "none"), (&self.failing, "none"), (&self.ordered, "fifo")]
        {
            let spec = json!({
                "name": target.name,
                "url": target.sink.url(),
                "policy": { "schedule": { "list": ["200ms"] }, "max_attempts": 1000 },
                "ordering": ordering,
                "max_in_flight": target.max_in_flight,
            });
            gateway.create_endpoint(spec).await;
        }
    }

    /// Waits for everything stored to be delivered, and checks what each endpoint has got.
    async fn check_arrivals(&self, gateway: &Gateway, acks: &[Ack], kills: usize) {
        let stored = gateway.get("/v1/stats").await["events"].as_u64().expect("a number");
        println!("{} acknowledged, {stored} stored", acks.len());
        for target in [&self.healthy, &self.failing, &self.ordered] {
            let all = |seen: &crate::sink::Seen| seen.delivered.len() as u64 >= stored;
            target.sink.until("the delivery of everything that is stored", all).await;
            target.check(acks, kills * target.max_in_flight);
        }
        // What was not acknowledged is there as a whole or not at all.
        let events = self.healthy.sink.delivered();
        assert_eq!(events.len() as u64, stored);
        assert_eq!(events, self.failing.sink.delivered());
        assert_eq!(events, self.ordered.sink.delivered());
        check_order(&self.ordered.sink.arrivals(), acks);
    }

    async fn check_nothing_waits(&self, gateway: &Gateway) {
        let stats = gateway.get("/v1/stats").await;
        let all = 3 * stats["events"].as_u64().expect("a number");
        let expected = json!({
            "pending": 0, "in_flight": 0, "retrying": 0, "delivered": all,
            "failed": 0, "dead": 0, "cancelled": 0,
        });
        assert_eq!(stats["deliveries"], expected, "{stats}");
        let waiting: Value = gateway.get("/v1/deliveries?state=pending,retrying").await;
        assert_eq!(waiting["data"], json!([]));
    }
}

impl Target {
    async fn start(name: &'static str, max_in_flight: usize, refusals: fn(u64) -> u32) -> Self {
        let sink = Sink::start(move |arrival| {
            let refused = arrival.attempt <= refusals(arrival.number);
            Reply::Now(if refused { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK })
        })
        .await;
        Self { name, sink, max_in_flight, refusals }
    }

    fn check(&self, acks: &[Ack], most_repeated: usize) {
        let name = self.name;
        let arrivals = self.sink.arrivals();
        let mut events: HashMap<&str, Vec<&Arrival>> = HashMap::new();
        for arrival in &arrivals {
            assert_eq!(arrival.body, payload(arrival.number), "{name}: {arrival:?}");
            events.entry(&arrival.event).or_default().push(arrival);
        }
        let mut numbers: BTreeMap<u64, &str> = BTreeMap::new();
        let mut distinct = 0;
        for (event, attempts) in &events {
            let first = attempts[0];
            let same = |arrival: &&&Arrival| {
                (arrival.number, &arrival.delivery) == (first.number, &first.delivery)
            };
            assert_eq!(
                attempts.iter().filter(same).count(),
                attempts.len(),
                "{name}: {attempts:?}"
            );
            let known = numbers.insert(first.number, event);
            assert_eq!(known, None, "{name}: {} was stored twice", first.number);
            let seen: BTreeSet<u32> = attempts.iter().map(|arrival| arrival.attempt).collect();
            let expected: BTreeSet<u32> = (1..=(self.refusals)(first.number) + 1).collect();
            assert_eq!(seen, expected, "{name}: the attempts at {event}");
            distinct += seen.len();
        }
        for ack in acks {
            let arrived = numbers.get(&ack.number).copied();
            assert_eq!(arrived, Some(ack.event.as_str()), "{name}: {ack:?} was lost");
        }
        let repeated = arrivals.len() - distinct;
        println!(
            "{name}: {} events, {} arrivals, {repeated} repeated",
            events.len(),
            arrivals.len()
        );
        assert!(repeated <= most_repeated, "{name}: {repeated} were repeated");
    }
}

/// Events reach an ordered endpoint in the order in which they were accepted: that of their ids.
fn check_order(arrivals: &[Arrival], acks: &[Ack]) {
    let mut met = BTreeSet::new();
    let first: Vec<&str> = arrivals
        .iter()
        .map(|arrival| arrival.event.as_str())
        .filter(|event| met.insert(*event))
        .collect();
    let acks: HashMap<&str, &Ack> = acks.iter().map(|ack| (ack.event.as_str(), ack)).collect();
    let mut last_sent = 0;
    for event in &first {
        let Some(ack) = acks.get(event) else { continue };
        assert!(
            ack.answered > last_sent,
            "{event} was acknowledged before another was sent, and arrived after it"
        );
        last_sent = last_sent.max(ack.sent);
    }
    for pair in first.windows(2) {
        assert!(pair[0] < pair[1], "{} arrived before {}", pair[0], pair[1]);
    }
}

/// Xorshift: enough to choose moments, and the same from the same seed.
struct Random {
    state: u64,
}

impl Random {
    /// From `POSTRIDER_TEST_SEED`, or from the clock. The seed is printed.
    fn seeded() -> Self {
        let given = std::env::var("POSTRIDER_TEST_SEED").ok();
        let seed = given.map_or_else(
            || {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
                u64::from(since.subsec_nanos()) | (since.as_secs() << 32)
            },
            |text| text.parse().expect("POSTRIDER_TEST_SEED is a number"),
        );
        println!("POSTRIDER_TEST_SEED={seed}");
        Self { state: seed.max(1) }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % bound
    }
}
