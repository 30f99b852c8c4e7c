//! `cargo xtask bench`: the gateway measured beside what limits it, in one run on one machine.

mod accept;
pub(crate) mod backlog;
mod batch;
mod builds;
pub(crate) mod connection;
mod durable;
mod end_to_end;
pub(crate) mod event;
mod forgetful;
pub(crate) mod gateway;
mod hub;
mod isolation;
mod latency;
pub(crate) mod load;
mod pages;
pub(crate) mod peer;
pub(crate) mod postgres;
pub(crate) mod process;
mod pull;
mod push;
mod relay;
mod report;
pub(crate) mod sample;
pub(crate) mod sink;
pub(crate) mod store_cycle;
mod workers;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use xtask::cargo;

use crate::programs;
pub(crate) use peer::{PassArguments, serve_null, serve_pass};
use report::{Row, Verdict, table};

/// The longest one measure may take; the largest backlog takes minutes to write.
const MEASURED_WITHIN: Duration = Duration::from_mins(45);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The store that the gateway is measured on; each has measures of its own
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    store: Backend,
    /// Shorter runs and a smaller backlog: for a first look, not for figures
    #[arg(long)]
    quick: bool,
    /// Measure only this; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<Measure>,
    /// Measure nothing but this other build of the gateway and the usual one, end to end, by many
    /// short turns; may be given several times
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["store", "only", "quick"])]
    beside: Vec<PathBuf>,
    /// Where the result goes as JSON [default: bench.json, or bench-postgres.json, in the target
    /// folder]
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Run what is built already, optimised or not: to try the bench itself, not for figures
    #[arg(long)]
    as_built: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    Sqlite,
    Postgres,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Measure {
    Accept,
    EndToEnd,
    StoreCycle,
    Latency,
    Pull,
    Relay,
    Backlog,
    Isolation,
    Pages,
    Nodes,
    Claims,
    Bloat,
    DueScan,
}

impl Backend {
    /// What is measured on it, in this order.
    fn measures(self) -> &'static [Measure] {
        match self {
            Self::Sqlite => &[
                Measure::Accept,
                Measure::EndToEnd,
                Measure::StoreCycle,
                Measure::Latency,
                Measure::Pull,
                Measure::Relay,
                Measure::Backlog,
                Measure::Isolation,
                Measure::Pages,
            ],
            Self::Postgres => &[
                Measure::EndToEnd,
                Measure::StoreCycle,
                Measure::Nodes,
                Measure::Claims,
                Measure::Bloat,
                Measure::DueScan,
            ],
        }
    }

    fn result_file(self) -> &'static str {
        match self {
            Self::Sqlite => "bench.json",
            Self::Postgres => "bench-postgres.json",
        }
    }

    /// What its server was set to, if it has one.
    fn server(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => Some(postgres::SETTINGS),
        }
    }
}

impl Arguments {
    /// What is to be measured, in the store's own order.
    fn wanted(&self) -> Result<Vec<Measure>> {
        let measures = self.store.measures();
        if let Some(other) = self.only.iter().find(|measure| !measures.contains(measure)) {
            let known: Vec<String> = measures.iter().map(name).collect();
            let (store, other) = (name(&self.store), name(other));
            bail!("{other} is not measured on {store}, but {}", known.join(", "));
        }
        let wanted = |measure: &&Measure| self.only.is_empty() || self.only.contains(measure);
        Ok(measures.iter().filter(wanted).copied().collect())
    }
}

/// As it is given on the command line.
fn name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// What every measure is told.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// The gateway's binary, as it is packaged.
    pub(crate) binary: PathBuf,
    /// An empty folder on the disk the figures are for; removed at the end.
    pub(crate) folder: PathBuf,
    pub(crate) warm_up: Duration,
    pub(crate) brief: Duration,
    pub(crate) sustained: Duration,
    /// How many deliveries wait in the two runs with a backlog.
    pub(crate) backlogs: [u64; 2],
    /// How many deliveries go through a database whose size is watched.
    pub(crate) passing: u64,
    /// How many deliveries wait in the database that is searched for what is due.
    pub(crate) waiting: u64,
    /// How many deliveries are in the store that pages are shown of.
    pub(crate) shown: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let wanted = arguments.wanted()?;
    if arguments.store == Backend::Postgres {
        xtask::postgres::require()?;
    }
    let binary = if arguments.as_built {
        programs::gateway()?
    } else if cfg!(debug_assertions) {
        return programs::run_optimised();
    } else {
        programs::packaged_gateway()?
    };
    // Beside the binaries rather than in the system's temporary folder, which may be memory.
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(programs::folder()?)?;
    let setting = Setting {
        binary,
        folder: folder.path().to_owned(),
        warm_up: Duration::from_secs(if arguments.quick { 1 } else { 2 }),
        brief: Duration::from_secs(if arguments.quick { 3 } else { 10 }),
        sustained: Duration::from_secs(if arguments.quick { 5 } else { 20 }),
        backlogs: if arguments.quick { [200_000, 1_000_000] } else { [1_000_000, 5_000_000] },
        passing: if arguments.quick { 100_000 } else { 1_000_000 },
        waiting: if arguments.quick { 500_000 } else { 5_000_000 },
        shown: if arguments.quick { 100_000 } else { 1_000_000 },
    };
    let json_path = match &arguments.json {
        Some(path) => path.clone(),
        None => cargo::target()?.join(arguments.store.result_file()),
    };

    let others = &arguments.beside;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let rows = runtime.block_on(async {
        tokio::select! {
            rows = measure_all(&setting, arguments.store, &wanted), if others.is_empty() => rows,
            rows = builds::measure(&setting, others), if !others.is_empty() => rows,
            stopped = interrupted() => { stopped?; bail!("interrupted") }
        }
    })?;

    print!("\n{}", table(&rows));
    let result = json!({
        "store": name(&arguments.store),
        "server": arguments.store.server(),
        "quick": arguments.quick,
        "optimised": !cfg!(debug_assertions),
        "rows": rows,
    });
    fs::write(&json_path, serde_json::to_vec_pretty(&result)?)
        .with_context(|| json_path.display().to_string())?;
    let short = rows.iter().filter(|row| row.verdict == Verdict::Short).count();
    println!("\n{short} of {} figures short; written to {}", rows.len(), json_path.display());
    Ok(())
}

async fn measure_all(setting: &Setting, store: Backend, wanted: &[Measure]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for measure in wanted {
        eprintln!("measuring {measure:?} …");
        let measuring = async {
            match store {
                Backend::Sqlite => measure_one(*measure, setting).await,
                Backend::Postgres => measure_on_postgres(*measure, setting).await,
            }
        };
        let measured = timeout(MEASURED_WITHIN, measuring).await;
        let measured = measured.context("took too long").and_then(|measured| measured);
        let measured = measured.with_context(|| format!("measuring {measure:?}"))?;
        eprint!("{}", table(&measured));
        rows.extend(measured);
    }
    Ok(rows)
}

async fn measure_one(measure: Measure, setting: &Setting) -> Result<Vec<Row>> {
    match measure {
        Measure::Accept => accept::measure(setting).await,
        Measure::EndToEnd => end_to_end::measure(setting).await,
        Measure::StoreCycle => store_cycle::measure(setting).await,
        Measure::Latency => latency::measure(setting).await,
        Measure::Pull => pull::measure(setting).await,
        Measure::Relay => relay::measure(setting).await,
        Measure::Backlog => backlog::measure(setting).await,
        Measure::Isolation => isolation::measure(setting).await,
        Measure::Pages => pages::measure(setting).await,
        Measure::Nodes | Measure::Claims | Measure::Bloat | Measure::DueScan => {
            bail!("only measured on PostgreSQL")
        }
    }
}

async fn measure_on_postgres(measure: Measure, setting: &Setting) -> Result<Vec<Row>> {
    match measure {
        Measure::EndToEnd => postgres::end_to_end::measure(setting).await,
        Measure::StoreCycle => postgres::store_cycle::measure(setting).await,
        Measure::Nodes => postgres::nodes::measure(setting).await,
        Measure::Claims => postgres::claims::measure(setting).await,
        Measure::Bloat => postgres::bloat::measure(setting).await,
        Measure::DueScan => postgres::due_scan::measure(setting).await,
        Measure::Accept
        | Measure::Latency
        | Measure::Pull
        | Measure::Relay
        | Measure::Backlog
        | Measure::Isolation
        | Measure::Pages => bail!("only measured on SQLite"),
    }
}

pub(crate) async fn interrupted() -> Result<()> {
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

    fn wanted(line: &[&str]) -> Result<Vec<Measure>> {
        let line = Line::try_parse_from([&["bench"], line].concat()).expect("a line");
        line.arguments.wanted()
    }

    #[test]
    fn each_store_has_measures_of_its_own() {
        for (line, measures) in [
            (&[][..], Backend::Sqlite.measures()),
            (&["--store", "sqlite"], Backend::Sqlite.measures()),
            (&["--store", "postgres"], Backend::Postgres.measures()),
            (&["--only", "latency", "--only", "accept"], &[Measure::Accept, Measure::Latency]),
            (&["--store", "postgres", "--only", "due-scan"], &[Measure::DueScan]),
        ] {
            assert_eq!(wanted(line).expect("known"), measures, "{line:?}");
        }
    }

    #[test]
    fn another_build_is_measured_by_itself() {
        let parsed =
            |line: &[&str]| Line::try_parse_from([&["bench", "--beside", "a"], line].concat());
        assert!(parsed(&["--beside", "b", "--as-built"]).is_ok());
        for line in [&["--quick"][..], &["--only", "pull"], &["--store", "postgres"]] {
            assert!(parsed(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn a_measure_of_another_store_is_refused_with_those_there_are() {
        for (line, says) in [
            (&["--only", "bloat"][..], "bloat is not measured on sqlite, but accept"),
            (
                &["--store", "postgres", "--only", "pull"],
                "not measured on postgres, but end-to-end",
            ),
        ] {
            let error = wanted(line).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
