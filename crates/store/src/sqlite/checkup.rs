//! Looking at a database without changing it, whether or not a gateway has it.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::backup::beside;
use super::{Sealed, configuration, schema, sources};
use crate::error::Error;
use crate::sealing::Keyring;

/// How long a question waits for a lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks at whether a check is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// How many faults are told of.
const MAX_FAULTS: u32 = 3;

/// What need not be encoded in the path of a URI.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// The schema version that this program makes of every database it opens.
pub const KNOWN_VERSION: u32 = schema::VERSION;

/// What a check of a whole database came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Soundness {
    Sound,
    /// What is wrong.
    Damaged(String),
    /// It was ended before it was through.
    Unfinished,
}

/// A database that is looked at.
#[derive(Debug)]
pub struct Checkup {
    conn: Connection,
    rest: Option<Rest>,
}

impl Checkup {
    /// Opens the database at `path`; one that is not there, or is not ours, is refused. Nothing is
    /// written, not even the files beside it that a reader needs where there is a log.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let path = path.canonicalize().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::Refused(format!("there is no database at {}", path.display()))
            }
            _ => Error::Unavailable(format!("{}: {error}", path.display())),
        })?;
        let rest = Rest::of(&path);
        let conn = if rest.is_some() { connect_at_rest(&path)? } else { connect(&path)? };
        ours(&conn, &path)?;
        Ok(Self { conn, rest })
    }

    /// Whether somebody has begun to write to it who was not there when it was opened: what was seen
    /// of it means nothing then, and it has to be opened anew.
    pub fn is_outdated(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| !rest.lasts())
    }

    /// Of the schema.
    pub fn version(&self) -> Result<u32, Error> {
        schema::version(&self.conn)
    }

    /// The version has to be [`KNOWN_VERSION`].
    pub fn sealed(&self) -> Result<Sealed, Error> {
        Ok(if sources::has_sealed(&self.conn)? { Sealed::Some } else { Sealed::None })
    }

    /// Opens every secret, and says of how many endpoints and sources they are. The version has to be
    /// [`KNOWN_VERSION`].
    pub fn open_secrets(&self, keyring: &Keyring) -> Result<usize, Error> {
        let endpoints = configuration::endpoints(&self.conn, keyring)?;
        let sources = sources::sources(&self.conn, keyring)?;
        Ok(endpoints.len() + sources.len())
    }

    /// Reads every page, until `go_on` has enough of it.
    pub fn quick_check(
        &mut self,
        go_on: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Soundness, Error> {
        quick_check(&mut self.conn, go_on)
    }
}

/// A database that nobody writes to: it has no log beside it. Whoever opens one of ours to write makes
/// a log, and only the last to close it takes it away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rest {
    path: PathBuf,
    written: Option<SystemTime>,
    bytes: u64,
}

impl Rest {
    /// None if somebody may be writing.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        if beside(path, "-wal").exists() {
            return None;
        }
        let file = std::fs::metadata(path).ok()?;
        Some(Self { path: path.to_owned(), written: file.modified().ok(), bytes: file.len() })
    }

    /// Whether nobody has come, or come and gone, since.
    pub(crate) fn lasts(&self) -> bool {
        Self::of(&self.path).as_ref() == Some(self)
    }
}

/// A connection that reads beside a gateway.
pub(crate) fn connect(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    set_up(Connection::open_with_flags(path, flags)?)
}

/// A connection to a database that nobody changes: it takes no locks and makes no files.
pub(crate) fn connect_at_rest(path: &Path) -> Result<Connection, Error> {
    let encoded = percent_encode(path.as_os_str().as_bytes(), PATH);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    set_up(Connection::open_with_flags(format!("file:{encoded}?immutable=1"), flags)?)
}

fn set_up(conn: Connection) -> Result<Connection, Error> {
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

/// The version of a database that is ours and not newer than this program.
pub(crate) fn version_of_ours(conn: &Connection, path: &Path) -> Result<u32, Error> {
    ours(conn, path)?;
    let version = schema::version(conn)?;
    if version > KNOWN_VERSION {
        return Err(Error::Refused(format!(
            "{} was written by a newer postrider (schema version {version}, this one knows \
             {KNOWN_VERSION}): use that version or a later one",
            path.display()
        )));
    }
    Ok(version)
}

fn ours(conn: &Connection, path: &Path) -> Result<(), Error> {
    let id = conn.pragma_query_value(None, "application_id", |row| row.get::<_, u32>(0));
    let id = id.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            Error::Refused(format!("{} is not a database", path.display()))
        }
        Some(_) | None => error.into(),
    })?;
    if id == schema::APPLICATION_ID {
        return Ok(());
    }
    Err(Error::Refused(format!("{} is a database of another program", path.display())))
}

/// Reads every page of a database, and asks `go_on` now and then whether that is still wanted.
pub(crate) fn quick_check(
    conn: &mut Connection,
    mut go_on: impl FnMut() -> ControlFlow<()>,
) -> Result<Soundness, Error> {
    let interrupt = conn.get_interrupt_handle();
    thread::scope(|scope| {
        let (done, checked) = sync_channel(1);
        scope.spawn(move || {
            // Whoever asked waits for the answer.
            let _ = done.send(faults(conn));
        });
        loop {
            match checked.recv_timeout(LOOK) {
                Ok(outcome) => return outcome,
                // It may not have begun when it was first told to end.
                Err(RecvTimeoutError::Timeout) if go_on().is_break() => interrupt.interrupt(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Unavailable("the check broke off".to_owned()));
                }
            }
        }
    })
}

fn faults(conn: &Connection) -> Result<Soundness, Error> {
    let found = conn
        .prepare(&format!("PRAGMA quick_check({MAX_FAULTS})"))
        .and_then(|mut check| check.query_map((), |row| row.get(0))?.collect());
    let found: Vec<String> = match found {
        Ok(found) => found,
        Err(error) => {
            return match error.sqlite_error_code() {
                Some(ErrorCode::OperationInterrupted) => Ok(Soundness::Unfinished),
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    Ok(Soundness::Damaged(error.to_string()))
                }
                Some(_) | None => Err(error.into()),
            };
        }
    };
    Ok(match &*found {
        [fine] if fine == "ok" => Soundness::Sound,
        faults => Soundness::Damaged(faults.join("; ")),
    })
}
