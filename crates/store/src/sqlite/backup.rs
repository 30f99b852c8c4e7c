//! Copying a database while a gateway writes to it.
//!
//! Pages are copied by `SQLite`'s backup interface, in steps, from a connection that is in a read
//! transaction all the while. That transaction is what makes it right for a write-ahead log and a busy
//! writer: every step reads the same snapshot, so what comes out is the database as it was at one
//! moment, with every commit before it. Without it each step would see the newest commit and the copy
//! would begin anew after every change, which under load means never to end. `VACUUM INTO` reads one
//! snapshot as well, but it writes every row and every index anew: several times the work on a machine
//! that also has deliveries to make, nothing to tell how far it is, and other pages than those that
//! were checked in service.
//!
//! What it costs the gateway: the log cannot start over while somebody reads its beginning, so it
//! grows by what is written meanwhile, and is copied and shortened when the backup has ended.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use tempfile::NamedTempFile;

use super::checkup::{self, Rest, Soundness};
use super::{Sealed, schema, sources};
use crate::error::Error;

/// How much is copied between two looks at whether anybody still wants it: 4 MiB.
const STEP_PAGES: i32 = 512;

/// A copy that cannot get on is given up after this many tries, with [`BUSY_PAUSE`] in between.
const MAX_BUSY: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// What to do about a file that is where the copy shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    Replace,
}

/// How far a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    pub bytes: u64,
    pub of: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Copying,
    /// The copy is read from its beginning to its end. How far that is cannot be told.
    Checking,
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    pub bytes: u64,
    /// Of the schema.
    pub version: u32,
    pub sealed: Sealed,
}

/// Why there is no copy. Nothing is left of what was begun.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// What was asked for cannot be done.
    #[error("{0}")]
    Refused(String),
    /// Something has that name.
    #[error("{0} is there already")]
    Exists(String),
    #[error("the database could not be read: {0}")]
    Source(#[source] Error),
    #[error("the copy could not be written: {0}")]
    Target(String),
    #[error("the copy is not sound: {0}")]
    Unsound(String),
    #[error("the backup was interrupted")]
    Interrupted,
}

/// Copies the database `from` to the file `to`, which only its owner can read. It is there whole,
/// checked and on disk, or not at all. `progress` can end it.
pub fn backup(
    from: &Path,
    to: &Path,
    existing: Existing,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report, BackupError> {
    check_place(from, to, existing)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let unwritten =
        |error: &std::io::Error| BackupError::Target(format!("{}: {error}", folder.display()));
    // Readable for its owner only, and removed again if anything goes wrong.
    let draft = tempfile::Builder::new()
        .prefix(".postrider-backup-")
        .tempfile_in(folder)
        .map_err(|error| unwritten(&error))?;
    let report = copy_whole(from, &draft, &mut progress)?;
    check(draft.path(), report, &mut progress)?;
    draft.as_file().sync_all().map_err(|error| unwritten(&error))?;
    put(draft, to, existing)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| unwritten(&error))?;
    Ok(report)
}

/// Looks at where the copy shall be before anything is copied.
fn check_place(from: &Path, to: &Path, existing: Existing) -> Result<(), BackupError> {
    let source = fs::metadata(from).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            BackupError::Refused(format!("there is no database at {}", from.display()))
        }
        _ => BackupError::Source(Error::Unavailable(format!("{}: {error}", from.display()))),
    })?;
    let shown = to.display();
    // A log that is not the copy's own would be read into it by whoever opens it.
    for ending in ["-wal", "-journal"] {
        let beside = beside(to, ending);
        if fs::metadata(&beside).is_ok_and(|log| log.len() > 0) {
            return Err(BackupError::Refused(format!(
                "{} belongs to another database at that place: choose another name",
                beside.display()
            )));
        }
    }
    let target = match fs::metadata(to) {
        Ok(target) => target,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(BackupError::Target(format!("{shown}: {error}"))),
    };
    if (source.dev(), source.ino()) == (target.dev(), target.ino()) {
        return Err(BackupError::Refused(format!("{shown} is the database itself")));
    }
    if !target.is_file() {
        return Err(BackupError::Refused(format!("{shown} is no file")));
    }
    match existing {
        Existing::Refuse => Err(taken(to)),
        Existing::Replace if is_in_use(to) => {
            Err(BackupError::Refused(format!("{shown} is in use by another postrider")))
        }
        Existing::Replace => Ok(()),
    }
}

fn taken(to: &Path) -> BackupError {
    BackupError::Exists(to.display().to_string())
}

/// Whether a gateway has the database at `path`.
fn is_in_use(path: &Path) -> bool {
    let Ok(lock) = File::open(beside(path, ".lock")) else { return false };
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// The file with the same name and something behind it.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A database that nobody uses is read as it lies there: a reader that takes part in a log would have
/// to make one, and leave it behind. If somebody comes meanwhile, it is copied once more, beside them.
fn copy_whole(
    from: &Path,
    draft: &NamedTempFile,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report, BackupError> {
    let real = from.canonicalize().unwrap_or_else(|_| from.to_owned());
    if let Some(rest) = Rest::of(&real) {
        let source = checkup::connect_at_rest(&real).map_err(unreadable)?;
        let copied = copy(&source, from, draft.path(), progress);
        if rest.lasts() || matches!(copied, Err(BackupError::Interrupted)) {
            return copied;
        }
        let emptied = draft.as_file().set_len(0);
        emptied.map_err(|error| BackupError::Target(error.to_string()))?;
    }
    let source = checkup::connect(&real).map_err(unreadable)?;
    copy(&source, from, draft.path(), progress)
}

fn copy(
    source: &Connection,
    from: &Path,
    draft: &Path,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report, BackupError> {
    let read = || -> Result<(u32, u32, Sealed), Error> {
        // The first question begins the snapshot, and it lasts until the connection is closed.
        source.execute_batch("BEGIN")?;
        let version = checkup::version_of_ours(source, from)?;
        let page: u32 = source.pragma_query_value(None, "page_size", |row| row.get(0))?;
        // What an older version has of secrets is not looked at: it is safe to say that there are some.
        let sealed = version < schema::VERSION || sources::has_sealed(source)?;
        Ok((version, page, if sealed { Sealed::Some } else { Sealed::None }))
    };
    let (version, page_bytes, sealed) = read().map_err(unreadable)?;
    let unwritten = |error: rusqlite::Error| BackupError::Target(error.to_string());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(draft, flags).map_err(unwritten)?;
    // Whatever a crash leaves of a draft is never used: it needs no journal, and one sync at the end.
    let quick = target.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF");
    quick.map_err(unwritten)?;
    let mut busy = 0;
    let bytes = {
        let copying = Backup::new(source, &mut target).map_err(unwritten)?;
        loop {
            let stepped = copying.step(STEP_PAGES).map_err(unwritten)?;
            let pages = copying.progress();
            let bytes = |pages: i32| u64::from(pages.unsigned_abs()) * u64::from(page_bytes);
            let of = bytes(pages.pagecount);
            let done = of.saturating_sub(bytes(pages.remaining));
            if progress(Progress { phase: Phase::Copying, bytes: done, of }).is_break() {
                return Err(BackupError::Interrupted);
            }
            match stepped {
                StepResult::Done => break of,
                StepResult::More => busy = 0,
                _ if busy == MAX_BUSY => {
                    let locked = "somebody else has it locked".to_owned();
                    return Err(BackupError::Source(Error::Unavailable(locked)));
                }
                _ => {
                    busy += 1;
                    std::thread::sleep(BUSY_PAUSE);
                }
            }
        }
    };
    target.close().map_err(|(_, error)| unwritten(error))?;
    Ok(Report { bytes, version, sealed })
}

fn unreadable(error: Error) -> BackupError {
    match error {
        Error::Refused(why) => BackupError::Refused(why),
        other => BackupError::Source(other),
    }
}

/// Reads the copy as if it were all there is: it has no log beside it, and gets none.
fn check(
    draft: &Path,
    report: Report,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), BackupError> {
    let unsound = |error: Error| BackupError::Unsound(error.to_string());
    let mut conn = checkup::connect_at_rest(draft).map_err(unsound)?;
    let version = schema::version(&conn).map_err(unsound)?;
    if version != report.version {
        let expected = report.version;
        return Err(BackupError::Unsound(format!("its version is {version}, not {expected}")));
    }
    let told = Progress { phase: Phase::Checking, bytes: report.bytes, of: report.bytes };
    match checkup::quick_check(&mut conn, || progress(told)).map_err(unsound)? {
        Soundness::Sound => Ok(()),
        Soundness::Damaged(what) => Err(BackupError::Unsound(what)),
        Soundness::Unfinished => Err(BackupError::Interrupted),
    }
}

/// Gives the draft its name.
fn put(draft: NamedTempFile, to: &Path, existing: Existing) -> Result<(), BackupError> {
    let put = match existing {
        Existing::Refuse => draft.persist_noclobber(to),
        Existing::Replace => draft.persist(to),
    };
    match put {
        Ok(_) => Ok(()),
        // It has come since it was looked for.
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Err(taken(to)),
        Err(error) => Err(BackupError::Target(format!("{}: {}", to.display(), error.error))),
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Copying => "copying",
            Self::Checking => "checking",
        })
    }
}
