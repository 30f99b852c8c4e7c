//! One round: a gateway on a new store, producers, endpoints, faults of one kind, then peace; and
//! what is left is checked.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::audit::audit;
use super::checker::{Order, Terms, check, repeated};
use super::clock::Clock;
use super::database::{Database, Server};
use super::disk::Disk;
use super::fault::{LEASE, Props, Stage, Toll};
use super::fleet::Fleet;
use super::kind::{Kind, Store};
use super::ledger::Ledger;
use super::load::Load;
use super::node::{self, Launch};
use super::proxy::Proxy;
use super::random::Random;
use super::report::Played;
use super::route::Target;
use super::sink::{Clocks, Sink};

/// How long an attempt lasts that is not answered, where nothing but the endpoint is to blame …
const LONG: Duration = Duration::from_secs(10);
/// … and where that happens all the time.
const SHORT: Duration = Duration::from_secs(2);

/// What all rounds of a run have in common.
pub(crate) struct Plan {
    pub(crate) store: Store,
    pub(crate) nodes: usize,
    /// Events a second.
    pub(crate) rate: u32,
    /// For how long faults go on.
    pub(crate) length: Duration,
    /// How many times the power fails in a round of that kind.
    pub(crate) cuts: usize,
    pub(crate) seed: u64,
    pub(crate) binary: PathBuf,
    pub(crate) server: Option<Arc<Server>>,
}

/// Plays a round in a new folder, where everything is that can be looked at when it failed.
pub(crate) async fn play(plan: &Plan, kind: Kind, round: u64, folder: &Path) -> Result<Played> {
    let mut random = Random::of_round(plan.seed, round);
    let clocks = match kind {
        Kind::Clock => Clocks::Stepped,
        Kind::Kill | Kind::Stop | Kind::Disk | Kind::Restart | Kind::Proxy | Kind::Power => {
            Clocks::True
        }
    };
    let sink = Sink::start(clocks, &mut random).await?;
    let props = props(plan, kind, folder, sink.address)?;
    let played = play_with(plan, kind, folder, &sink, &props, &mut random).await;
    // A round that went well leaves nothing behind.
    let well = played.as_ref().is_ok_and(|played| played.finding.faults.count == 0);
    if let Some(disk) = props.disk.as_ref().filter(|_| !well) {
        disk.save(folder)?;
    }
    if let Some(database) = &props.database {
        if !well {
            database.save(&folder.join("database.sql"))?;
        }
        database.remove();
    }
    played
}

async fn play_with(
    plan: &Plan,
    kind: Kind,
    folder: &Path,
    sink: &Sink,
    props: &Props,
    random: &mut Random,
) -> Result<Played> {
    let mut fleet = Fleet::start(launches(plan, props, folder)).await?;
    let endpoints = create_endpoints(&fleet, kind, sink, props).await?;
    let ledger = Arc::new(Ledger::new());
    let load = Load::start(plan.rate, &ledger, &fleet.roster(), random);
    let toll = Toll::default();
    let mut stage = Stage { fleet: &mut fleet, ledger: &ledger, sink, props, random, toll };
    stage.play(kind, plan.length).await?;
    let Toll { faults, interruptions, recovery } = stage.toll;

    load.finish().await?;
    // Where something never ends, what arrived and what is stored still tell more about it.
    let quiet = fleet.quiet().await;
    fleet.stop_all().await?;
    // A start of its own shows what is on disk, not what is in memory.
    fleet.launch_missing().await?;
    if quiet.is_ok() {
        fleet.quiet().await?;
    }
    let arrivals = sink.arrivals();
    let again: HashSet<String> =
        repeated(&arrivals).map(|arrival| arrival.delivery.clone()).collect();
    let stored = audit(fleet.address()?, &endpoints, &again, random).await?;
    let one_node = fleet.len() == 1;
    let terms = Terms { order: order(kind, one_node), one_node, interruptions };
    let mut finding = check(&ledger.read(), &sink.arrivals(), &stored, terms);
    if let Err(error) = quiet {
        finding.faults.add(format!("{error:#}"));
    }
    Ok(Played { faults, finding, recovery })
}

/// An attempt that was given up may still be on its way where the network is slow, and where a node
/// sleeps that others have taken over from.
fn order(kind: Kind, one_node: bool) -> Order {
    match kind {
        Kind::Proxy => Order::FirstArrivals,
        Kind::Stop | Kind::Restart if !one_node => Order::FirstArrivals,
        Kind::Kill | Kind::Stop | Kind::Disk | Kind::Restart | Kind::Clock | Kind::Power => {
            Order::Strict
        }
    }
}

fn props(plan: &Plan, kind: Kind, folder: &Path, sink: SocketAddr) -> Result<Props> {
    let mut props = Props::default();
    if let Some(server) = &plan.server {
        props.database = Some(Arc::new(Database::new(server)?));
    }
    match kind {
        Kind::Disk => props.disk = Some(Disk::mount(&folder.join("disk"))?),
        Kind::Clock => props.clock = Some(Clock::new(folder)?),
        Kind::Proxy => {
            props.to_endpoints = Some(Proxy::start(sink)?);
            if let Some(server) = &plan.server {
                props.to_database = Some(Proxy::start(server.address())?);
            }
        }
        Kind::Kill | Kind::Stop | Kind::Restart | Kind::Power => {}
    }
    Ok(props)
}

fn launches(plan: &Plan, props: &Props, folder: &Path) -> Vec<Launch> {
    (0..plan.nodes).map(|node| launch(plan, props, folder, node)).collect()
}

fn launch(plan: &Plan, props: &Props, folder: &Path, node: usize) -> Launch {
    let name = format!("node-{node}");
    let data = match &props.disk {
        Some(disk) => disk.data(),
        None => folder.join(&name),
    };
    let mut arguments: Vec<OsString> = Vec::new();
    let mut variables = props.clock.as_ref().map(Clock::variables).unwrap_or_default();
    if let (Some(database), Some(server)) = (&props.database, &plan.server) {
        let address = props.to_database.as_ref().map_or(server.address(), Proxy::address);
        variables.push(("POSTRIDER_STORE", database.url(address).into()));
        variables.push(("POSTRIDER_SECRET_KEY", "5e".repeat(32).into()));
        let lease = format!("{}ms", LEASE.as_millis());
        arguments.extend(["--node-name", &name, "--lease", &lease].map(OsString::from));
    }
    let log = folder.join(format!("{name}.log"));
    Launch { binary: plan.binary.clone(), data, log, arguments, variables }
}

/// Makes the endpoints; returns which is which.
async fn create_endpoints(
    fleet: &Fleet,
    kind: Kind,
    sink: &Sink,
    props: &Props,
) -> Result<BTreeMap<String, Target>> {
    let address = props.to_endpoints.as_ref().map_or(sink.address, Proxy::address);
    let base = format!("http://{address}");
    let mut endpoints = BTreeMap::new();
    for target in Target::ALL {
        let timeout = match kind {
            Kind::Proxy => SHORT,
            // It is the one that does not answer now and then.
            _ if target == Target::Retrying => SHORT,
            Kind::Kill | Kind::Stop | Kind::Disk | Kind::Restart | Kind::Clock | Kind::Power => {
                LONG
            }
        };
        let spec = target.spec(&base, &sink.secret(target)?, timeout);
        let made = node::create(fleet.address()?, "/v1/endpoints", &spec).await?;
        let id = made["id"].as_str().context("an endpoint without an id")?;
        endpoints.insert(id.to_owned(), target);
    }
    Ok(endpoints)
}
