//! `postrider migrate`: brings the schema of a store up to date, or tells what that would take.

mod file;

use std::path::Path;
use std::process::ExitCode;

use postrider_store::postgres::{self, Migrated, Pending};

use crate::Failure;
use crate::stores::{Place, StoreArgs, unconnected};

/// With --check: there is something to do.
const EXIT_PENDING: u8 = 3;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A schema has a version, and every change of it is a numbered migration: applied once, in order, each \
whole or not at all, and never taken back. `postrider serve` applies what is missing when it starts; \
this does so apart from a start, for instance before new nodes are rolled out. Of several that try at \
once, one does it and the others wait. A schema of a newer postrider than this one is left alone.

PostgreSQL: it works while nodes run, where they can live with the change. Where they cannot, --check \
says so: stop them first, or it is refused. Nothing of it needs the key of stored secrets.
SQLite: the file must not be in use: stop the gateway first. It has to be there already.

Exit codes: 0 the schema is up to date, or has been brought up to date; 1 failure; 2 wrong usage or \
configuration, which includes a store that is newer or not Postrider's, and a file that is in use; 3 \
with --check: there is something to do.

Examples:
  postrider migrate --store postgres://USER@HOST/NAME --check
  postrider migrate --store sqlite:postrider-data/postrider.db")]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,

    /// Change nothing: say what there is to do
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let place = args.store.place()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.check {
        let pending = match &place {
            Place::File(path) => file::pending(path)?,
            Place::Server(url) => runtime
                .block_on(postgres::pending(url, postgres::Options::default()))
                .map(Step::to_be_taken)
                .map_err(|error| unconnected(error, &place))?,
        };
        print!("{}", pending.told(&place));
        return Ok(if pending.is_needed() { EXIT_PENDING.into() } else { ExitCode::SUCCESS });
    }
    let taken = match &place {
        Place::File(path) => runtime.block_on(migrate_file(args, path, &place))?,
        Place::Server(url) => runtime
            .block_on(postgres::migrate(url, postgres::Options::default()))
            .map(Step::taken)
            .map_err(|error| unconnected(error, &place))?,
    };
    print!("{}", taken.told(&place));
    Ok(ExitCode::SUCCESS)
}

/// Whoever opens a file brings it up to date.
async fn migrate_file(args: &Args, path: &Path, place: &Place) -> Result<Step, Failure> {
    let pending = file::pending(path)?;
    let store = args.store.open(place).await?;
    store.close().await;
    Ok(Step { tense: Tense::Done, ..pending })
}

/// From one version to another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    /// 0, where there is no schema.
    from: i64,
    to: i64,
    /// What the migrations are called, as far as they have names, the last one last.
    names: Vec<&'static str>,
    tense: Tense,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tense {
    Done,
    ToDo { needs_stop: bool },
}

impl Step {
    fn taken(migrated: Migrated) -> Self {
        let Migrated { from, to, applied: names } = migrated;
        Self { from: from.into(), to: to.into(), names, tense: Tense::Done }
    }

    fn to_be_taken(pending: Pending) -> Self {
        let Pending { version, wanted, names, needs_stop } = pending;
        Self { from: version.into(), to: wanted.into(), names, tense: Tense::ToDo { needs_stop } }
    }

    fn is_needed(&self) -> bool {
        self.to > self.from
    }

    fn told(&self, place: &Place) -> String {
        let Self { from, to, names, tense } = self;
        if !self.is_needed() {
            return format!("The schema of {place} is up to date, at version {from}.\n");
        }
        let mut text = match tense {
            Tense::Done => format!("The schema of {place} went from version {from} to {to}.\n"),
            Tense::ToDo { .. } => {
                format!("The schema of {place} is at version {from}, and has to be at {to}.\n")
            }
        };
        let verb = match tense {
            Tense::Done => "applied",
            Tense::ToDo { .. } => "to apply",
        };
        for version in from + 1..=*to {
            let before_last = usize::try_from(to - version).unwrap_or(usize::MAX);
            let name = names.iter().rev().nth(before_last).copied().unwrap_or_default();
            text.push_str(format!("  {verb} {version} {name}").trim_end());
            text.push('\n');
        }
        match tense {
            Tense::ToDo { needs_stop: true } => {
                text.push_str("Nodes that use it as it is have to be stopped first.\n");
            }
            Tense::ToDo { needs_stop: false } | Tense::Done => {}
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(step: &Step) -> String {
        step.told(&Place::Server("postgres://me:hunter2@db/hooks".to_owned()))
    }

    #[test]
    fn what_was_done_and_what_is_to_do_is_told_step_by_step() {
        let pending =
            Pending { version: 1, wanted: 3, names: vec!["nodes", "x"], needs_stop: false };
        let schema = "The schema of postgres://me@db/hooks";
        for (step, expected) in [
            (
                Step::to_be_taken(pending.clone()),
                "is at version 1, and has to be at 3.\n  to apply 2 nodes\n  to apply 3 x\n",
            ),
            (
                Step::to_be_taken(Pending { needs_stop: true, ..pending }),
                "is at version 1, and has to be at 3.\n  to apply 2 nodes\n  to apply 3 x\n\
                 Nodes that use it as it is have to be stopped first.\n",
            ),
            (
                Step::taken(Migrated { from: 0, to: 1, applied: vec!["start"] }),
                "went from version 0 to 1.\n  applied 1 start\n",
            ),
            (
                Step::taken(Migrated { from: 2, to: 2, applied: vec![] }),
                "is up to date, at version 2.\n",
            ),
            (
                Step { from: 2, to: 4, names: vec![], tense: Tense::Done },
                "went from version 2 to 4.\n  applied 3\n  applied 4\n",
            ),
        ] {
            assert_eq!(told(&step), format!("{schema} {expected}"));
        }
    }
}
