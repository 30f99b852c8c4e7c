//! `cargo xtask soak`: the gateway under a mixed load for long, under ten times what it can take, and
//! with a herd let loose on it. Each run says what it wanted and what it found.

mod books;
mod chart;
mod findings;
mod flood;
mod herd;
mod mix;
mod overload;
mod passage;
mod place;
mod producer;
mod stand;
mod steady;
mod vitals;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::json;
use xtask::{cargo, postgres};

use crate::{bench, programs};
use chart::Chart;
use findings::{Finding, Judged, Weight, judge, table};
use stand::{Setting, Store};

/// A day; the numbers of events are kept in memory.
const MOST_MINUTES: i64 = 24 * 60;
const MOST_PER_SECOND: i64 = 5_000;
/// Below this some endpoints would get an event only now and then.
const LEAST_PER_SECOND: i64 = 20;
const LARGEST_HERD: u64 = 5_000_000;
/// Few enough that the result can be committed.
const MOST_SAMPLES: u32 = 360;
const SAMPLED_AT_MOST_EVERY: Duration = Duration::from_secs(5);
const HOUSEKEEPING: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
pub(crate) struct Arguments {
    /// How long the mixed load lasts; less than ten minutes say little about growth
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=MOST_MINUTES)
    )]
    minutes: u32,
    /// Events a second of the mixed load
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(LEAST_PER_SECOND..=MOST_PER_SECOND)
    )]
    rate: u32,
    /// The store that the gateway runs on
    #[arg(long, value_name = "STORE", default_value = "sqlite")]
    store: Store,
    /// Send ten times what the gateway can take, instead of the mixed load
    #[arg(long)]
    overload: bool,
    /// Make very many deliveries due at one moment after an outage, instead of the mixed load
    #[arg(long, conflicts_with = "overload")]
    herd: bool,
    /// How many deliveries the herd has
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(100..=LARGEST_HERD)
    )]
    herd_size: u64,
    /// All three for a few seconds at the same time, as `test` runs them
    #[arg(long, conflicts_with_all = ["overload", "herd", "binary", "out"])]
    short: bool,
    /// Where the result goes, as JSON and as a picture [default: the target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run what is built already, optimised or not: to try the soak itself, not for figures
    #[arg(long)]
    as_built: bool,
    /// The gateway to run, instead of one that is built; the load comes from this build
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Soak,
    Overload,
    Herd,
}

impl Run {
    /// What its files are called.
    fn name(self) -> &'static str {
        match self {
            Self::Soak => "soak",
            Self::Overload => "overload",
            Self::Herd => "herd",
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.short {
        return in_tests();
    }
    match arguments.store {
        Store::Sqlite => {}
        Store::Postgres => postgres::require()?,
    }
    let binary = match &arguments.binary {
        Some(binary) => binary.clone(),
        None if arguments.as_built => programs::gateway()?,
        None if cfg!(debug_assertions) => return programs::run_optimised(),
        None => programs::packaged_gateway()?,
    };
    let folder = empty_folder()?;
    let setting = Setting::new(&binary, folder.path(), arguments.store, HOUSEKEEPING)?;
    let out = match &arguments.out {
        Some(out) => out.clone(),
        None => cargo::target()?,
    };
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;

    let run = match (arguments.overload, arguments.herd) {
        (true, _) => Run::Overload,
        (false, true) => Run::Herd,
        (false, false) => Run::Soak,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let findings = runtime.block_on(async {
        tokio::select! {
            findings = run_one(run, arguments, &setting, &out) => findings,
            stopped = bench::interrupted() => { stopped?; bail!("interrupted") }
        }
    })?;
    print!("\n{}", table(&findings));
    println!("\nwritten to {}", out.display());
    judge(&findings, Judged::All)
}

async fn run_one(
    run: Run,
    arguments: &Arguments,
    setting: &Setting,
    out: &Path,
) -> Result<Vec<Finding>> {
    match run {
        Run::Soak => {
            let lasts = Duration::from_mins(arguments.minutes.into());
            let plan = steady::Plan {
                lasts,
                per_second: arguments.rate,
                looked_at_every: (lasts / MOST_SAMPLES).max(SAMPLED_AT_MOST_EVERY),
                age: Duration::from_secs(15),
                let_go_within: Duration::from_secs(90),
            };
            let soaked = steady::soak(setting, plan).await?;
            let (minutes, rate) = (arguments.minutes, arguments.rate);
            let title = format!("{rate} events a second for {minutes} min, mixed endpoints");
            write(run, arguments, out, &soaked, Some(&soaked.chart(title)))?;
            Ok(soaked.findings)
        }
        Run::Overload => {
            let plan = overload::Plan {
                capacity_for: Duration::from_secs(5),
                small_for: Duration::from_secs(20),
                large_for: Duration::from_secs(5),
                delivered_within: Duration::from_mins(5),
            };
            let overloaded = overload::overload(setting, plan).await?;
            write(run, arguments, out, &overloaded, None)?;
            Ok(overloaded.findings)
        }
        Run::Herd => {
            let plan = herd::Plan {
                size: arguments.herd_size,
                calm_for: Duration::from_secs(20),
                out_for: Duration::from_secs(2),
                delivered_within: Duration::from_mins(30),
            };
            let herded = herd::herd(setting, plan).await?;
            let size = findings::thousands(arguments.herd_size);
            let title = format!("{size} deliveries due at one moment after an outage");
            write(run, arguments, out, &herded, Some(&herded.chart(title)))?;
            Ok(herded.findings)
        }
    }
}

/// The result beside how it was come by.
fn write(
    run: Run,
    arguments: &Arguments,
    out: &Path,
    result: &impl Serialize,
    chart: Option<&Chart>,
) -> Result<()> {
    let store = match arguments.store {
        Store::Sqlite => "sqlite",
        Store::Postgres => "postgres",
    };
    // The default store has the plain name.
    let name = match arguments.store {
        Store::Sqlite => run.name().to_owned(),
        Store::Postgres => format!("{}-{store}", run.name()),
    };
    let whole = json!({
        "run": run.name(),
        "store": store,
        "optimised": !cfg!(debug_assertions),
        "result": result,
    });
    fs::write(out.join(format!("{name}.json")), serde_json::to_vec(&whole)?)?;
    if let Some(chart) = chart {
        fs::write(out.join(format!("{name}.svg")), chart.render())?;
    }
    Ok(())
}

/// Short forms of all three at the same time, on the gateway as tests build it. What has to hold on
/// every machine is asserted; figures are not.
fn in_tests() -> Result<()> {
    let binary = programs::gateway()?;
    let folder = empty_folder()?;
    let housekeeping = Duration::from_secs(2);
    let setting = Setting::new(&binary, folder.path(), Store::Sqlite, housekeeping)?;
    let soak = steady::Plan {
        lasts: Duration::from_secs(20),
        per_second: 60,
        looked_at_every: Duration::from_secs(1),
        age: Duration::from_secs(5),
        let_go_within: Duration::ZERO,
    };
    let overload = overload::Plan {
        capacity_for: Duration::from_secs(1),
        small_for: Duration::from_secs(5),
        large_for: Duration::from_secs(2),
        delivered_within: Duration::from_mins(2),
    };
    let herd = herd::Plan {
        size: 3_000,
        calm_for: Duration::from_secs(2),
        out_for: Duration::ZERO,
        delivered_within: Duration::from_mins(2),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (soaked, overloaded, herded) = runtime.block_on(async {
        tokio::try_join!(
            steady::soak(&setting, soak),
            overload::overload(&setting, overload),
            herd::herd(&setting, herd),
        )
    })?;
    for (run, findings) in [
        (Run::Soak, &soaked.findings),
        (Run::Overload, &overloaded.findings),
        (Run::Herd, &herded.findings),
    ] {
        let promises = findings.iter().filter(|finding| finding.weight == Weight::Promise);
        println!("{}:\n{}", run.name(), table(&promises.cloned().collect::<Vec<_>>()));
        judge(findings, Judged::Promises).context(run.name())?;
    }
    Ok(())
}

/// Beside the binaries rather than in the system's temporary folder, which may be memory.
fn empty_folder() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("soak-").tempdir_in(programs::folder()?)?)
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

    #[test]
    fn arguments_out_of_bounds_are_refused() {
        for (line, taken) in [
            (&[][..], true),
            (&["--minutes", "60", "--rate", "500"], true),
            (&["--overload", "--store", "postgres"], true),
            (&["--herd", "--herd-size", "3000"], true),
            (&["--minutes", "0"], false),
            (&["--rate", "1"], false),
            (&["--herd-size", "1"], false),
            (&["--overload", "--herd"], false),
            (&["--short"], true),
            (&["--short", "--herd"], false),
        ] {
            let parsed = Line::try_parse_from([&["soak"], line].concat());
            assert_eq!(parsed.is_ok(), taken, "{line:?}");
        }
    }
}
