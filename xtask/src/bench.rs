//! `cargo xtask bench`: the gateway measured beside what limits it, in one run on one machine.

mod accept;
mod backlog;
mod connection;
mod end_to_end;
mod event;
mod forgetful;
mod gateway;
mod hub;
mod isolation;
mod latency;
mod load;
mod peer;
mod process;
mod pull;
mod push;
mod relay;
mod report;
mod sample;
mod sink;
mod store_cycle;
mod workers;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::cargo;
pub(crate) use peer::{PassArguments, serve_null, serve_pass};
use report::{Row, Verdict, table};

/// The longest one measure may take; the largest backlog takes minutes to write.
const MEASURED_WITHIN: Duration = Duration::from_mins(45);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Shorter runs and a smaller backlog: for a first look, not for figures
    #[arg(long)]
    quick: bool,
    /// Measure only this; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<Measure>,
    /// Where the result goes as JSON [default: bench.json in the target folder]
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
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
}

/// What every measure is told.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The gateway's release binary.
    pub(crate) binary: PathBuf,
    /// An empty folder on the disk the figures are for; removed at the end.
    pub(crate) folder: PathBuf,
    pub(crate) warm_up: Duration,
    pub(crate) brief: Duration,
    pub(crate) sustained: Duration,
    /// How many deliveries wait in the two runs with a backlog.
    pub(crate) backlogs: [u64; 2],
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if cfg!(debug_assertions) {
        return run_optimised(arguments);
    }
    build()?;
    let built = std::env::current_exe()?;
    let built = built.parent().context("this program is in no folder")?;
    // Beside the binaries rather than in the system's temporary folder, which may be memory.
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(built)?;
    let setting = Setting {
        binary: built.join("postrider"),
        folder: folder.path().to_owned(),
        warm_up: Duration::from_secs(if arguments.quick { 1 } else { 2 }),
        brief: Duration::from_secs(if arguments.quick { 3 } else { 10 }),
        sustained: Duration::from_secs(if arguments.quick { 5 } else { 20 }),
        backlogs: if arguments.quick { [200_000, 1_000_000] } else { [1_000_000, 5_000_000] },
    };
    let json_path = arguments
        .json
        .clone()
        .unwrap_or_else(|| built.parent().unwrap_or(built).join("bench.json"));

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let rows = runtime.block_on(async {
        tokio::select! {
            rows = measure_all(&setting, &arguments.only) => rows,
            stopped = interrupted() => { stopped?; bail!("interrupted") }
        }
    })?;

    print!("\n{}", table(&rows));
    let result = json!({ "quick": arguments.quick, "rows": rows });
    fs::write(&json_path, serde_json::to_vec_pretty(&result)?)
        .with_context(|| json_path.display().to_string())?;
    let short = rows.iter().filter(|row| row.verdict == Verdict::Short).count();
    println!("\n{short} of {} figures short; written to {}", rows.len(), json_path.display());
    Ok(())
}

/// Both programs in one build: built one by one they would differ in features, and each build would
/// undo the other.
fn build() -> Result<()> {
    let both = ["build", "--release", "--package", "postrider-cli", "--package", "xtask"];
    cargo::run(cargo::command(both))
}

/// The same task from an optimised build, in this process's place, so that signals reach it.
fn run_optimised(arguments: &Arguments) -> Result<()> {
    build()?;
    let this = std::env::current_exe()?;
    let profiles = this.parent().and_then(Path::parent).context("this program is in no folder")?;
    let mut command = Command::new(profiles.join("release").join("xtask"));
    command.arg("bench").current_dir(cargo::root());
    // The root is cargo's folder; the path was meant from here.
    if let Some(path) = &arguments.json {
        command.arg("--json").arg(std::path::absolute(path)?);
    }
    if arguments.quick {
        command.arg("--quick");
    }
    for measure in &arguments.only {
        let value = clap::ValueEnum::to_possible_value(measure).context("a hidden measure")?;
        command.args(["--only", value.get_name()]);
    }
    Err(command.exec()).context("the optimised build could not be started")
}

async fn measure_all(setting: &Setting, only: &[Measure]) -> Result<Vec<Row>> {
    let all = <Measure as clap::ValueEnum>::value_variants();
    let mut rows = Vec::new();
    for measure in all.iter().filter(|measure| only.is_empty() || only.contains(measure)) {
        eprintln!("measuring {measure:?} …");
        let measured = timeout(MEASURED_WITHIN, measure_one(*measure, setting)).await;
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
    }
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
