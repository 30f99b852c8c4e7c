//! `postrider backup`: copies the database of a gateway while it runs.

mod key;

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::anyhow;
use postrider_store::sqlite::{self, BackupError, Existing, Phase, Report, Sealed};

use crate::Failure;
use crate::progress::{Bar, Unit, size};
use crate::secret_key::{self, KeyArgs};
use crate::signals::Signals;
use crate::stores::{Place, Whereabouts};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The copy is of one moment: everything that was acknowledged before it began is in it, whole, and the \
gateway goes on meanwhile. It is written under another name, checked, and gets its own when it is on \
disk; an interrupted backup leaves nothing behind. Only its owner can read it.

The key of stored secrets is a file of its own, and a backup is worth little without it. Keep it apart \
from the backups: who has both has every secret. --with-key copies it to FILE.key all the same.

To restore, stop the gateway and start one on the copy. Never run both: what waits would be delivered \
twice. A PostgreSQL has tools of its own: pg_dump, or base backups with a log archive.

Exit codes: 0 the copy is there and sound; 1 failure, which includes an interruption; 2 wrong usage or \
configuration, which includes a file that is there already.

Examples:
  postrider backup --data /var/lib/postrider --to /backup/postrider-$(date +%F).db
  postrider serve --store sqlite:/backup/postrider-2026-11-16.db --secret-key-file postrider.key")]
pub(crate) struct Args {
    /// The file to write
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    #[command(flatten)]
    whereabouts: Whereabouts,

    #[command(flatten)]
    secret_key: KeyArgs,

    /// Replace what is there under that name
    #[arg(long)]
    force: bool,

    /// Copy the file with the key of stored secrets too, to FILE.key
    #[arg(long)]
    with_key: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let from = match args.whereabouts.place()? {
        Place::File(path) => path,
        server @ Place::Server(_) => {
            return Err(Failure::usage(anyhow!(
                "{server} is a PostgreSQL, which has tools of its own: use pg_dump, or base backups \
                 with an archive of its log; and keep a copy of the key file"
            )));
        }
    };
    let existing = if args.force { Existing::Replace } else { Existing::Refuse };
    // First, because a backup without the key that was asked for is not what was asked for.
    let plan = || key::Copy::plan(&from, args.secret_key.file(), &args.to, existing);
    let key = args.with_key.then(plan).transpose()?;
    let started = Instant::now();
    let report = copy(&from, &args.to, existing)?;
    if let Some(key) = &key {
        key.make()?;
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(conclude(&from, &args.to, report, key.as_ref(), seconds)?)
}

fn copy(from: &Path, to: &Path, existing: Existing) -> Result<Report, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let wanted = Arc::new(AtomicBool::new(true));
        let (from, to, still) = (from.to_owned(), to.to_owned(), Arc::clone(&wanted));
        let mut copying = tokio::task::spawn_blocking(move || {
            let mut copied = Bar::start("copying", Unit::Bytes);
            let mut checked = Bar::start("checking", Unit::Bytes);
            let outcome = sqlite::backup(&from, &to, existing, |progress| {
                match progress.phase {
                    Phase::Copying => copied.tell(progress.bytes, Some(progress.of)),
                    Phase::Checking => {
                        copied.clear();
                        checked.tell(progress.of, None);
                    }
                }
                if still.load(Ordering::Relaxed) {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            copied.clear();
            checked.clear();
            outcome
        });
        let outcome = tokio::select! {
            outcome = &mut copying => outcome,
            () = signals.next() => {
                wanted.store(false, Ordering::Relaxed);
                copying.await
            }
        };
        outcome?.map_err(failure)
    })
}

fn failure(error: BackupError) -> Failure {
    match error {
        exists @ BackupError::Exists(_) => {
            Failure::usage(anyhow!("{exists}: choose another name, or replace it with --force"))
        }
        refused @ BackupError::Refused(_) => Failure::usage(refused),
        unsound @ BackupError::Unsound(_) => Failure::from(anyhow!(unsound).context(
            "nothing was kept: look at the database with `postrider doctor`, and keep the last good \
             backup",
        )),
        other @ (BackupError::Source(_) | BackupError::Target(_) | BackupError::Interrupted) => {
            Failure::from(other)
        }
    }
}

/// What was done, and what goes with it.
fn conclude(
    from: &Path,
    to: &Path,
    report: Report,
    key: Option<&key::Copy>,
    seconds: f64,
) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "Copied {} to {} ({}) in {seconds:.1} s; the copy is sound, at schema version {}.",
        from.display(),
        to.display(),
        size(report.bytes),
        report.version
    )?;
    let with = match (key, report.sealed) {
        (Some(key), _) => {
            writeln!(
                out,
                "The key of its secrets is in {}: keep it apart from the copy.",
                key.to.display()
            )?;
            format!(" --secret-key-file '{}'", key.to.display())
        }
        (None, Sealed::Some) => {
            writeln!(
                out,
                "Its secrets are sealed and cannot be read without the key, which is not in it: keep \
                 a copy of the key file ({}, unless configured otherwise) somewhere else.",
                secret_key::beside(from).display()
            )?;
            " --secret-key-file KEYFILE".to_owned()
        }
        (None, Sealed::None) => String::new(),
    };
    writeln!(out, "To restore it, with the gateway that it is of stopped for good:\n")?;
    writeln!(out, "  postrider serve --store 'sqlite:{}'{with}", to.display())?;
    out.flush()
}
