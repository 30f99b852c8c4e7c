//! `postrider copy`: moves a whole store from a file to a server.

mod progress;

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use postrider_store::copy::{self, Found, Plan};
use postrider_store::postgres::{self, Target};
use postrider_store::sqlite::{self, Origin};

use self::progress::Meter;
use crate::Failure;
use crate::progress::{grouped, rate};
use crate::secret::Secret;
use crate::secret_key::{self, KeyArgs};
use crate::signals::Signals;
use crate::stores::{Place, unconnected};

/// The most rows in one transaction that can be asked for.
const MAX_CHUNK_ROWS: i64 = 1_000_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything moves: tenants, keys, endpoints, sources, hubs, jobs, the audit trail, events, deliveries \
with their attempts, and what is still to be delivered. Ids, keys and secrets stay what they are, so \
producers, receivers and workers notice nothing.

  1. Stop the gateway: nothing else may use the file, or the database, meanwhile.
  2. Copy. It can be interrupted at any moment, and the same command goes on where it was. At the end \
both sides are read and compared; until they are found to be the same, no gateway opens the database.
  3. Start a gateway on the database, with the key of the old one: secrets stay sealed with it. Never \
start one on the file again: what waits would be delivered twice.

The database has to be empty, or to hold an unfinished copy of the same file as it still is; anything \
else is refused and left alone. The file is read only, once it has been brought to the newest schema. \
The URL of the database is better set in POSTRIDER_COPY_TO if it holds a password.

Exit codes: 0 everything was copied and is the same; 1 failure, which includes an interruption; 2 \
wrong usage or configuration, which includes a file or a database that cannot be used for it.

Examples:
  postrider copy --from sqlite:postrider-data/postrider.db --to postgres://USER@HOST/NAME --dry-run
  POSTRIDER_COPY_TO=postgres://USER:PASSWORD@HOST/NAME \\
    postrider copy --from sqlite:postrider-data/postrider.db")]
pub(crate) struct Args {
    /// The store to copy: `sqlite:PATH`
    #[arg(long, env = "POSTRIDER_COPY_FROM", value_name = "URL")]
    from: String,

    /// Where to: `postgres://USER@HOST/NAME`
    #[arg(
        long,
        env = "POSTRIDER_COPY_TO",
        hide_env_values = true,
        value_name = "URL",
        required_unless_present = "dry_run"
    )]
    to: Option<Secret>,

    #[command(flatten)]
    secret_key: KeyArgs,

    /// Copy nothing: say what there is to copy and, with --to, whether it could be copied there
    #[arg(long)]
    dry_run: bool,

    /// How many rows are written in one transaction, at most
    #[arg(
        long,
        env = "POSTRIDER_COPY_CHUNK_ROWS",
        default_value_t = 10_000,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=MAX_CHUNK_ROWS)
    )]
    chunk_rows: u32,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = match Place::parse(&args.from) {
        Some(Place::File(path)) => path,
        Some(Place::Server(_)) | None => {
            return Err(Failure::usage(anyhow!("--from: expected sqlite:PATH")));
        }
    };
    let to = match args.to.as_ref().map(|to| Place::parse(&to.0)) {
        None => None,
        Some(Some(place @ Place::Server(_))) => Some(place),
        // What was given may hold a password.
        Some(Some(Place::File(_)) | None) => {
            return Err(Failure::usage(anyhow!("--to: expected postgres://USER@HOST/NAME")));
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // From here on a signal ends it in its own words.
        let mut signals = Signals::catch()?;
        let from = Place::File(path.clone());
        eprintln!("Looking at {from} …");
        let origin = open(&path, &args.secret_key)?;
        let target = match &to {
            Some(place) => Some(connect(place).await?),
            None => None,
        };
        if args.dry_run {
            return say_what_there_is(&from, &origin, to.as_ref().zip(target.as_ref())).await;
        }
        let (Some(place), Some(target)) = (to, target) else {
            return Err(Failure::usage(anyhow!("--to is missing")));
        };
        let options = copy::Options {
            chunk_rows: usize::try_from(args.chunk_rows).unwrap_or(usize::MAX),
            ..copy::Options::default()
        };
        let plan = origin.plan();
        let found = copy::look(&origin, &target).await.map_err(failure)?;
        let mut meter = begin(&from, &place, &plan, found);
        let copied = {
            let tell = |progress| {
                meter.tell(&progress);
                ControlFlow::Continue(())
            };
            tokio::select! {
                copied = copy::copy(origin, target, options, tell) => Some(copied),
                () = signals.next() => None,
            }
        };
        meter.clear();
        match copied {
            Some(Ok(())) => Ok(conclude(&path, &place, &plan, &meter)?),
            Some(Err(error)) => Err(failure(error)),
            None => Err(Failure::from(anyhow!(
                "stopped: {} of {} rows are there; the same command goes on from them",
                grouped(meter.copied),
                grouped(plan.rows())
            ))),
        }
    })
}

fn open(path: &Path, key: &KeyArgs) -> Result<Origin, Failure> {
    let opened = Origin::open(path, sqlite::Options::default(), |sealed| {
        secret_key::keyring(key, path, sealed).map_err(Unopened::Key)
    });
    opened.map_err(|error| match error {
        Unopened::Key(failure) => failure,
        Unopened::File(refused @ postrider_store::Error::Refused(_)) => Failure::usage(refused),
        Unopened::File(other) => {
            Failure::from(anyhow!(other).context(format!("cannot read {}", path.display())))
        }
    })
}

/// Why a file was not opened.
enum Unopened {
    Key(Failure),
    File(postrider_store::Error),
}

impl From<postrider_store::Error> for Unopened {
    fn from(error: postrider_store::Error) -> Self {
        Self::File(error)
    }
}

async fn connect(place: &Place) -> Result<Target, Failure> {
    let Place::Server(url) = place else { return Err(Failure::usage(anyhow!("no server"))) };
    let connected = Target::connect(url, postgres::Options::default()).await;
    connected.map_err(|error| unconnected(error, place))
}

fn failure(error: copy::Error) -> Failure {
    match error {
        refused @ copy::Error::Refused(_) => Failure::usage(refused),
        lost @ (copy::Error::Target(_) | copy::Error::Origin(_)) => {
            Failure::from(anyhow!(lost).context("the copy ended; the same command goes on with it"))
        }
        other @ (copy::Error::Differs(_) | copy::Error::Interrupted) => Failure::from(other),
    }
}

async fn say_what_there_is(
    from: &Place,
    origin: &Origin,
    to: Option<(&Place, &Target)>,
) -> Result<(), Failure> {
    let plan = origin.plan();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{from} holds")?;
    for (table, rows) in &plan.tables {
        writeln!(out, "  {table:<12} {:>15}", grouped(*rows))?;
    }
    writeln!(out, "  {:<12} {:>15}", "rows in all", grouped(plan.rows()))?;
    if let Some((place, target)) = to {
        match copy::look(origin, target).await.map_err(failure)? {
            Found::Nothing => writeln!(out, "{place} is empty: it can be copied there.")?,
            Found::Part { rows } => writeln!(
                out,
                "{place} holds an unfinished copy of it, with {} rows: it can be gone on with.",
                grouped(rows)
            )?,
        }
    }
    writeln!(out, "Nothing was copied.")?;
    Ok(())
}

fn begin(from: &Place, to: &Place, plan: &Plan, found: Found) -> Meter {
    let all = grouped(plan.rows());
    match found {
        Found::Nothing => {
            eprintln!("Copying {all} rows from {from} to {to}.");
            Meter::start(0)
        }
        Found::Part { rows } => {
            let there = grouped(rows);
            eprintln!("Going on with the copy of {from} to {to}: {there} of {all} rows are there.");
            Meter::start(rows)
        }
    }
}

/// What was done, and what is to be done next.
fn conclude(path: &Path, to: &Place, plan: &Plan, meter: &Meter) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "  {:<12} {:>15} {:>10} {:>12}", "table", "rows", "seconds", "rows/s")?;
    for (table, rows) in &plan.tables {
        let time = meter.times.iter().find(|time| time.table == *table);
        let (seconds, pace) = match time {
            Some(time) => {
                (format!("{:.1}", time.took.as_secs_f64()), grouped(rate(time.rows, time.took)))
            }
            // It was empty, or copied before.
            None => (String::new(), String::new()),
        };
        writeln!(out, "  {table:<12} {:>15} {seconds:>10} {pace:>12}", grouped(*rows))?;
    }
    let (seconds, pace) = (meter.checking.as_secs_f64(), rate(plan.rows(), meter.checking));
    let (all, pace) = (grouped(plan.rows()), grouped(pace));
    writeln!(out, "  {:<12} {all:>15} {seconds:>10.1} {pace:>12}", "compared")?;
    writeln!(out, "\nEverything is on {to}, and the same as in the file.")?;
    let mut next = format!("postrider serve --store '{to}'");
    if !plan.keys.is_empty() {
        let keys: Vec<String> = plan.keys.iter().map(ToString::to_string).collect();
        writeln!(
            out,
            "Its secrets are sealed as before: every node needs the key that was used here ({}).",
            keys.join(", ")
        )?;
        let beside = path.with_file_name("postrider.key");
        let file = if beside.exists() { beside } else { PathBuf::from("KEYFILE") };
        next = format!("{next} --secret-key-file '{}'", file.display());
    }
    // What is shown of a URL is without its password and settings.
    let whole = matches!(to, Place::Server(url) if *url == to.to_string());
    let with = if whole { "" } else { ", with the whole of the URL" };
    writeln!(out, "Start a gateway on it{with}:\n\n  {next}\n")?;
    writeln!(
        out,
        "Never start one on {} again: what waits would be delivered twice.",
        path.display()
    )?;
    out.flush()
}
