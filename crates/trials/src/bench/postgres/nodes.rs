//! Whether three nodes on one database do as much as one on the same machine, and what the server
//! does for each delivery with one and with three.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use postrider_core::EndpointId;
use postrider_core::lane::{DEFAULT_LANES, Lane};
use serde_json::json;
use tokio::time::interval;

use super::super::Setting;
use super::super::connection::Target;
use super::super::end_to_end::{Carried, MAX_EVENTS, MOST_ADDED_PERCENT, Route, carry_along};
use super::super::gateway::Gateway;
use super::super::process::Process;
use super::super::report::{Figure, Row, Wanted};
use super::super::sample::share;
use super::super::sink::{Manner, Sink};
use super::carrier::{SCHEMA, make_tables};
use super::cluster::{Cluster, Watch};
use super::session::Session;
use super::work::{Counters, LATCH, LOCK, Observer, Sampler, Seen};

const NODES: usize = 3;
/// How often each of the two is measured.
const TURNS: u32 = 4;
/// So many that each of three nodes is all but sure to carry some.
const ENDPOINTS: usize = 24;
const SHARED_WITHIN: Duration = Duration::from_mins(1);
const SHARED_POLL: Duration = Duration::from_millis(100);
/// Nobody waits for a lock, but a look in a hundred may meet somebody who does for a moment.
const MOST_LOCKED_PERCENT: f64 = 1.0;

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let cluster = Cluster::start(&setting.folder, Watch::Statements).await?;
    let mut one = Fleet::new(&cluster, setting, "one", 1).await?;
    let mut three = Fleet::new(&cluster, setting, "three", NODES).await?;
    // By turns, because a shared machine is not as fast in one minute as in the next: with one turn of
    // three nodes between two of one, the ratio of the same build was 0.84 and 1.03.
    let (mut alone, mut carried) = (None, None);
    for _ in 0..TURNS {
        add(&mut alone, one.run(setting.sustained / 2).await?);
        add(&mut carried, three.run(setting.sustained / 2).await?);
    }
    let (alone, carried) = alone.zip(carried).context("nothing was carried")?;
    let (one, three) = (one.finish().await?, three.finish().await?);
    eprintln!("waits of one node's connections: {}", one.seen);
    eprintln!("waits of {NODES} nodes' connections: {}", three.seen);
    Ok(rows(&carried, &three, &alone, &one))
}

/// Counts one more turn in.
fn add(mean: &mut Option<Carried>, turn: Carried) {
    *mean = Some(mean.map_or(turn, |mean| mean.mean(&turn)));
}

/// What the server did in all runs of one number of nodes.
#[derive(Debug, Clone)]
struct Done {
    deliveries: u64,
    counters: Counters,
    log_bytes: u64,
    /// None where there is no `/proc`.
    processor: Option<Duration>,
    seen: Seen,
}

impl Done {
    fn each_processor(&self) -> Option<Duration> {
        self.processor?.checked_div(u32::try_from(self.deliveries).ok()?)
    }
}

/// So many nodes on a database of their own, which run when it is their turn.
struct Fleet<'a> {
    cluster: &'a Cluster,
    setting: &'a Setting,
    database: &'static str,
    url: String,
    nodes: usize,
    sink: Sink,
    /// Made in the first run.
    endpoints: Vec<String>,
    observer: Observer,
    counters_before: Counters,
    log_bytes: u64,
    processor: Option<Duration>,
    seen: Seen,
}

impl<'a> Fleet<'a> {
    async fn new(
        cluster: &'a Cluster,
        setting: &'a Setting,
        database: &'static str,
        nodes: usize,
    ) -> Result<Self> {
        let url = cluster.database(database).await?;
        // So that the making of tables does not count.
        make_tables(&url).await?;
        let observer = Observer::new(cluster, database).await?;
        let counters_before = observer.counters().await?;
        Ok(Self {
            cluster,
            setting,
            database,
            url,
            nodes,
            sink: Sink::start(Manner::Answer, MAX_EVENTS).await?,
            endpoints: Vec::new(),
            observer,
            counters_before,
            log_bytes: 0,
            processor: Some(Duration::ZERO),
            seen: Seen::default(),
        })
    }

    /// Starts the nodes, lets producers post to all of them for `time`, and stops the nodes.
    async fn run(&mut self, time: Duration) -> Result<Carried> {
        let mut gateways = Vec::with_capacity(self.nodes);
        for number in 0..self.nodes {
            let data = self.setting.folder.join(format!("{}-{number}", self.database));
            gateways.push(Gateway::start_node(&self.setting.binary, &data, &self.url).await?);
        }
        let carried = self.carry(&gateways, time).await;
        let last_words = || gateways.iter().map(Gateway::last_words).collect::<String>();
        let carried = carried.with_context(last_words)?;
        for gateway in gateways {
            gateway.stop().await?;
        }
        Ok(carried)
    }

    async fn carry(&mut self, gateways: &[Gateway], time: Duration) -> Result<Carried> {
        let first = gateways.first().context("no node")?;
        while self.endpoints.len() < ENDPOINTS {
            let kinds = [kind(self.endpoints.len())];
            let endpoint = json!({"url": self.sink.url(), "event_types": kinds});
            self.endpoints.push(first.create_endpoint(&endpoint).await?);
        }
        if self.nodes > 1 {
            self.until_shared().await?;
        }
        self.observer.checkpoint().await?;
        let targets: Vec<Target> = gateways.iter().map(Gateway::events).collect::<Result<_>>()?;
        let carriers: Vec<&Process> = gateways.iter().map(|gateway| &gateway.process).collect();
        let route = Route {
            targets: &targets,
            carriers: &carriers,
            kinds: (0..ENDPOINTS).map(kind).collect(),
        };
        let sampler = Sampler::start(self.cluster, self.database).await?;
        let (log_before, used_before) =
            (self.observer.log_bytes().await?, self.cluster.processor());
        let arrivals = Arc::clone(&self.sink.arrivals);
        let carried = carry_along(&route, &arrivals, time, self.setting).await?;
        for endpoint in &self.endpoints {
            first.until_settled(endpoint).await?;
        }
        self.log_bytes += self.observer.log_bytes().await? - log_before;
        let used = self.cluster.processor().zip(used_before);
        let used = used.and_then(|(used, before)| used.checked_sub(before));
        self.processor = self.processor.zip(used).map(|(earlier, used)| earlier + used);
        self.seen.add_all(sampler.stop().await?);
        ensure!(arrivals.repeated() == 0, "{} events came twice", arrivals.repeated());
        Ok(carried)
    }

    /// Waits until the lanes are shared out evenly, and every node carries some of the endpoints.
    async fn until_shared(&self) -> Result<()> {
        let session = Session::open_planned(&self.url, SCHEMA).await?;
        let started = Instant::now();
        let mut poll = interval(SHARED_POLL);
        loop {
            let holders = holders(&session).await?;
            if is_even(&holders, self.nodes) {
                let carrying: BTreeSet<i64> = self
                    .endpoints
                    .iter()
                    .filter_map(|id| id.parse::<EndpointId>().ok())
                    .filter_map(|id| {
                        holders.get(usize::from(Lane::of(id, DEFAULT_LANES).0)).copied().flatten()
                    })
                    .collect();
                let nodes = self.nodes;
                ensure!(carrying.len() == nodes, "one of {nodes} nodes has no endpoint: try again");
                return Ok(());
            }
            ensure!(
                started.elapsed() < SHARED_WITHIN,
                "the lanes were not shared out within {SHARED_WITHIN:?}: {holders:?}"
            );
            poll.tick().await;
        }
    }

    /// Once nobody is connected any more.
    async fn finish(self) -> Result<Done> {
        Ok(Done {
            deliveries: self.sink.arrivals.unique(),
            counters: self.observer.counters().await?.since(self.counters_before),
            log_bytes: self.log_bytes,
            processor: self.processor,
            seen: self.seen,
        })
    }
}

fn kind(index: usize) -> String {
    format!("bench.kind{index}")
}

/// Who holds each lane.
async fn holders(session: &Session) -> Result<Vec<Option<i64>>> {
    let sql = "SELECT key, node_id FROM tenures WHERE key < $1 ORDER BY key";
    let mut holders = vec![None; usize::from(DEFAULT_LANES)];
    for row in session.client.query(sql, &[&i64::from(DEFAULT_LANES)]).await? {
        let lane = usize::try_from(row.try_get::<_, i64>(0)?)?;
        holders[lane] = row.try_get(1)?;
    }
    Ok(holders)
}

/// Whether so many nodes hold all lanes, none of them two more than another.
fn is_even(holders: &[Option<i64>], nodes: usize) -> bool {
    let mut counts = std::collections::BTreeMap::<i64, usize>::new();
    for holder in holders {
        let Some(holder) = holder else { return false };
        *counts.entry(*holder).or_default() += 1;
    }
    let (fewest, most) = (counts.values().min(), counts.values().max());
    counts.len() == nodes && fewest.zip(most).is_some_and(|(fewest, most)| most - fewest <= 1)
}

fn rows(carried: &Carried, three: &Done, alone: &Carried, one: &Done) -> Vec<Row> {
    let name = format!("{NODES} nodes");
    let mut rows = vec![
        Row::new(
            format!("{name} end to end, beside one"),
            Figure::per_second(carried.per_second),
            Some(Figure::per_second(alone.per_second)),
            Wanted::RatioAtLeast(0.9),
        ),
        Row::new(
            format!("{name}: added to the backlog, of what was accepted"),
            Figure::percent(carried.added_percent),
            Some(Figure::percent(alone.added_percent)),
            Wanted::FigureAtMost(MOST_ADDED_PERCENT),
        ),
    ];
    if let Some(processor) = carried.processor {
        rows.push(Row::new(
            format!("{name}: processor time an event in all of them"),
            Figure::microseconds(processor),
            alone.processor.map(Figure::microseconds),
            Wanted::Nothing,
        ));
    }
    if let Some((of_three, of_one)) = three.each_processor().zip(one.each_processor()) {
        rows.push(Row::new(
            "server, processor time a delivery",
            Figure::microseconds(of_three),
            Some(Figure::microseconds(of_one)),
            Wanted::Nothing,
        ));
    }
    let each = |name: &str, of: fn(&Counters) -> Option<u64>| {
        let figure = Figure::count(share(of(&three.counters)?, three.deliveries));
        let limit = Figure::count(share(of(&one.counters)?, one.deliveries));
        Some(Row::new(name, figure, Some(limit), Wanted::Nothing))
    };
    rows.extend(
        [
            each("server, transactions a delivery", |done| Some(done.transactions)),
            each("server, statements a delivery", |done| done.statements),
            each("server, rows inserted a delivery", |done| Some(done.inserted)),
            each("server, rows updated a delivery", |done| Some(done.updated)),
            each("server, rows deleted a delivery", |done| Some(done.deleted)),
            each("server, rows found by an index a delivery", |done| Some(done.fetched)),
        ]
        .into_iter()
        .flatten(),
    );
    rows.extend([
        Row::new(
            "server, log a delivery",
            Figure::bytes(share(three.log_bytes, three.deliveries)),
            Some(Figure::bytes(share(one.log_bytes, one.deliveries))),
            Wanted::Nothing,
        ),
        Row::new(
            "server, waiting for a lock, of connections at work",
            Figure::percent(three.seen.percent(LOCK)),
            Some(Figure::percent(one.seen.percent(LOCK))),
            Wanted::FigureAtMost(MOST_LOCKED_PERCENT),
        ),
        Row::new(
            "server, waiting for a latch, of connections at work",
            Figure::percent(three.seen.percent(LATCH)),
            Some(Figure::percent(one.seen.percent(LATCH))),
            Wanted::Nothing,
        ),
    ]);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_even_when_every_node_has_its_share() {
        let held = |lanes: &[i64]| lanes.iter().copied().map(Some).collect::<Vec<_>>();
        for (holders, nodes, even) in [
            (held(&[1, 2, 3, 1]), 3, true),
            (held(&[1, 2, 1, 2]), 2, true),
            (held(&[1, 1, 1, 2]), 2, false),
            (held(&[1, 2, 1, 2]), 3, false),
            (vec![Some(1), None], 1, false),
            (Vec::new(), 1, false),
        ] {
            assert_eq!(is_even(&holders, nodes), even, "{holders:?}");
        }
    }

    #[test]
    fn what_the_server_does_is_shown_for_each_delivery() {
        let carried =
            Carried { runs: 1, per_second: 1.0, added_percent: 0.0, processor: None, usage: None };
        let done = |deliveries, transactions, statements| Done {
            deliveries,
            counters: Counters { transactions, statements, ..Counters::default() },
            log_bytes: 5_000,
            processor: Some(Duration::from_millis(1)),
            seen: Seen::default(),
        };
        let rows = rows(&carried, &done(100, 50, None), &carried, &done(50, 10, Some(3)));
        let ratio = |name: &str| {
            rows.iter().find(|row| row.measure == name).map(|row| (row.figure.value, row.ratio))
        };
        assert_eq!(ratio("server, transactions a delivery"), Some((0.5, Some(2.5))));
        assert_eq!(ratio("server, statements a delivery"), None);
        assert_eq!(ratio("server, log a delivery"), Some((50.0, Some(0.5))));
        assert_eq!(
            ratio("server, processor time a delivery").and_then(|(_, ratio)| ratio),
            Some(0.5)
        );
    }
}
