//! `cargo xtask torture`: the real binary under load while it is killed, stopped, starved of disk and
//! cut off from its clock, its database and its endpoints; and a count of what was lost.
//!
//! Reading order: one round ([`round`]) and what is done in it ([`fault`]); those who send ([`load`],
//! [`ledger`]), where it goes ([`route`], [`sink`]), what the gateway says of it ([`audit`]), and who
//! compares the three ([`checker`]).

mod audit;
mod checker;
mod clock;
#[allow(dead_code, reason = "the store's own tests need the rest")]
#[path = "../../store/tests/postgres/cluster.rs"]
mod cluster;
mod database;
mod disk;
mod fault;
mod fleet;
mod kind;
mod ledger;
mod load;
mod node;
mod power;
mod proxy;
mod random;
mod report;
mod round;
mod route;
mod sink;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use xtask::cargo;

use self::database::Server;
use self::kind::{Kind, Store};
use self::report::{Played, Report};
use self::round::Plan;
use crate::programs;

/// The longest that one round may take.
const PLAYED_WITHIN: Duration = Duration::from_mins(10);
const MAX_NODES: usize = 9;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store that the gateway runs on
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    store: Store,
    /// How many rounds are played; the kinds take turns
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u64,
    /// What everything is drawn from that is left to chance [default: another one each time]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// The number of the first round: a round by its number and the seed is the same again
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Only these kinds of faults [default: all that happen on the store]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// How many nodes share the database [default: 2 on postgres, 1 on sqlite]
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// Events a second
    #[arg(long, value_name = "N", default_value_t = 300)]
    rate: u32,
    /// For how long there are faults in a round
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    /// How many times the power fails in a round of that kind
    #[arg(long, value_name = "N", default_value_t = 12)]
    cuts: usize,
    /// The gateway [default: an unoptimised build of this tree]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Write the table to this file as well
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

impl Arguments {
    /// The kinds of faults that take turns.
    fn kinds(&self) -> Result<Vec<Kind>> {
        let store = self.store;
        if let Some(kind) = self.kinds.iter().find(|kind| !kind.happens_on(store)) {
            bail!("{} does not happen on {}", kind.name(), store.name());
        }
        let happens = |kind: &Kind| {
            kind.happens_on(store) && (self.kinds.is_empty() || self.kinds.contains(kind))
        };
        Ok(Kind::ALL.into_iter().filter(happens).collect())
    }

    fn nodes(&self) -> Result<usize> {
        let nodes = match (self.store, self.nodes) {
            (Store::Sqlite, None | Some(1)) => 1,
            (Store::Sqlite, Some(_)) => {
                bail!("one node at a time can use a file: leave out --nodes")
            }
            (Store::Postgres, nodes) => nodes.unwrap_or(2),
        };
        ensure!((1..=MAX_NODES).contains(&nodes), "--nodes must be 1 to {MAX_NODES}");
        Ok(nodes)
    }

    fn length(&self) -> Result<Duration> {
        Duration::try_from_secs_f64(self.seconds).context("--seconds must be a time")
    }

    /// The command that plays this round again.
    fn command(&self, plan: &Plan, kind: Kind, round: u64) -> String {
        let mut command = format!(
            "cargo xtask torture --store {} --kinds {} --seed {} --first {round} --rounds 1 --nodes \
             {} --rate {} --seconds {} --cuts {}",
            plan.store.name(),
            kind.name(),
            plan.seed,
            plan.nodes,
            plan.rate,
            self.seconds,
            plan.cuts
        );
        if let Some(binary) = &self.binary {
            command.push_str(" --binary ");
            command.push_str(&binary.to_string_lossy());
        }
        command
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut kinds = arguments.kinds()?;
    let mut report = Report::default();
    kinds.retain(|kind| match kind.obstacle() {
        None => true,
        Some(reason) => {
            eprintln!("{} is skipped: {reason}", kind.name());
            report.skip(*kind, reason);
            false
        }
    });
    ensure!(!kinds.is_empty(), "no kind of fault is left to be tried");
    let server = match arguments.store {
        Store::Sqlite => None,
        Store::Postgres => Some(Arc::new(Server::start()?)),
    };
    let plan = Plan {
        store: arguments.store,
        nodes: arguments.nodes()?,
        rate: arguments.rate,
        length: arguments.length()?,
        cuts: arguments.cuts,
        seed: arguments.seed.unwrap_or_else(random::fresh_seed),
        binary: binary(arguments.binary.as_deref())?,
        server,
    };
    // On the disk that is built on rather than in the system's temporary folder, which may be memory.
    let work = tempfile::Builder::new().prefix("torture-").tempdir_in(cargo::target()?)?;
    println!("torture on {}, seed {}", plan.store.name(), plan.seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let started = Instant::now();
    for (turn, round) in (arguments.first..).take(usize::try_from(arguments.rounds)?).enumerate() {
        let kind = kinds[turn % kinds.len()];
        let folder = work.path().join(format!("round-{round}"));
        std::fs::create_dir(&folder)?;
        let began = Instant::now();
        let played = runtime.block_on(async {
            tokio::select! {
                played = timeout(PLAYED_WITHIN, play(&plan, kind, round, &folder)) => {
                    Ok(played.context("the round took too long").and_then(|played| played))
                }
                stopped = interrupted() => { stopped?; bail!("interrupted") }
            }
        })?;
        let failure = match &played {
            Ok(played) if played.finding.faults.count == 0 => None,
            Ok(played) => Some(told(played)),
            Err(error) => Some(format!("{error:#}")),
        };
        if let Some(failure) = failure {
            let kept = work.keep().join(format!("round-{round}"));
            let (name, kept) = (kind.name(), kept.display());
            let again = arguments.command(&plan, kind, round);
            eprintln!("\nround {round} ({name}, seed {}) failed:\n{failure}", plan.seed);
            eprintln!("what is left of it: {kept}\nonce more: {again}");
            bail!("round {round} of kind {name} failed");
        }
        let played = played?;
        progress(arguments.rounds, turn, kind, &played, began.elapsed());
        report.add(kind, &played);
        std::fs::remove_dir_all(&folder)?;
    }
    let table = report.table();
    println!("\n{table}");
    println!("{} rounds in {:.1} s, 0 lost", arguments.rounds, started.elapsed().as_secs_f64());
    if let Some(path) = &arguments.table {
        let page = page(arguments, &plan, &table)?;
        std::fs::write(path, page).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

async fn play(plan: &Plan, kind: Kind, round: u64, folder: &Path) -> Result<Played> {
    match kind {
        Kind::Kill | Kind::Stop | Kind::Disk | Kind::Restart | Kind::Proxy | Kind::Clock => {
            round::play(plan, kind, round, folder).await
        }
        Kind::Power => power::play(plan, round, plan.cuts, folder).await,
    }
}

fn progress(rounds: u64, turn: usize, kind: Kind, played: &Played, took: Duration) {
    let finding = &played.finding;
    println!(
        "round {:>4}/{rounds} {:<8} {:>3} faults, {:>5} refused, {:>4} unanswered, {:>6} \
         acknowledged, {:>6} arrived, {:>4} repeats (at most {}), 0 lost, recovery {:.2} s, {:.1} s",
        turn + 1,
        kind.name(),
        played.faults,
        finding.refused,
        finding.unanswered,
        finding.acknowledged,
        finding.arrived,
        finding.repeats,
        finding.bound,
        played.recovery.as_secs_f64(),
        took.as_secs_f64()
    );
}

/// What is wrong, in words.
fn told(played: &Played) -> String {
    let finding = &played.finding;
    let faults = &finding.faults;
    let mut lines = vec![format!(
        "{} acknowledged, {} arrived, {} lost, {} repeats (at most {}); {} faults:",
        finding.acknowledged,
        finding.arrived,
        finding.lost,
        finding.repeats,
        finding.bound,
        faults.count
    )];
    lines.extend(faults.told.iter().map(|fault| format!("  {fault}")));
    let more = faults.count.saturating_sub(faults.told.len());
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines.join("\n")
}

/// The table with what is needed to make it again.
fn page(arguments: &Arguments, plan: &Plan, table: &str) -> Result<String> {
    let kinds: Vec<&str> = arguments.kinds.iter().map(|kind| kind.name()).collect();
    let kinds =
        if kinds.is_empty() { String::new() } else { format!(" --kinds {}", kinds.join(",")) };
    let mut version = Command::new(&plan.binary);
    version.arg("--version");
    let mut commit = Command::new("git");
    commit.args(["rev-parse", "--short", "HEAD"]).current_dir(cargo::root());
    let mut date = Command::new("date");
    date.args(["-u", "+%F"]);
    Ok(format!(
        "# Torture on {store}\n\n`cargo xtask torture --store {store} --rounds {rounds} --seed {seed} \
         --nodes {nodes} --rate {rate} --seconds {seconds} --cuts {cuts}{kinds}`, {version}, commit \
         {commit}, {date}.\n\n{table}\nA repeat is an arrival of an attempt that had arrived before, or after \
         the endpoint had said yes. At most so many are allowed: for each time that something was \
         broken all that can have been in flight, and for a disturbed network whatever arrived \
         meanwhile.\n",
        store = plan.store.name(),
        rounds = arguments.rounds,
        seed = plan.seed,
        nodes = plan.nodes,
        rate = plan.rate,
        seconds = arguments.seconds,
        cuts = plan.cuts,
        version = cargo::output(version)?.trim(),
        commit = cargo::output(commit)?.trim(),
        date = cargo::output(date)?.trim(),
    ))
}

/// The gateway that is tortured.
fn binary(given: Option<&Path>) -> Result<PathBuf> {
    let Some(path) = given else { return programs::gateway() };
    let binary = std::path::absolute(path)?;
    ensure!(binary.is_file(), "{} is not there: build it first", binary.display());
    Ok(binary)
}

async fn interrupted() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(line: &[&str]) -> Arguments {
        Line::try_parse_from([&["torture"], line].concat()).expect("a line").arguments
    }

    #[test]
    fn each_store_has_its_kinds_and_its_nodes() {
        let all = |store: Store| Kind::ALL.into_iter().filter(move |kind| kind.happens_on(store));
        for (line, kinds, nodes) in [
            (&[][..], all(Store::Sqlite).collect::<Vec<_>>(), 1),
            (&["--store", "postgres"], all(Store::Postgres).collect(), 2),
            (&["--kinds", "proxy,kill"], vec![Kind::Kill, Kind::Proxy], 1),
            (
                &["--store", "postgres", "--kinds", "restart", "--nodes", "3"],
                vec![Kind::Restart],
                3,
            ),
        ] {
            let arguments = arguments(line);
            assert_eq!(arguments.kinds().expect("known"), kinds, "{line:?}");
            assert_eq!(arguments.nodes().expect("possible"), nodes, "{line:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let kinds = arguments(&["--kinds", "restart"]).kinds().expect_err("no server");
        assert!(kinds.to_string().contains("restart does not happen on sqlite"), "{kinds}");
        for line in [&["--nodes", "2"][..], &["--store", "postgres", "--nodes", "0"]] {
            assert!(arguments(line).nodes().is_err(), "{line:?}");
        }
        assert!(arguments(&["--seconds=-1"]).length().is_err());
    }
}
