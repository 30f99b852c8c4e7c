//! The file: whether it is ours, who has it open, and how connections to it are set up.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::config::{Options, PAGE_BYTES, PREPARED_STATEMENTS, READER_CACHE_KIB, WRITER_CACHE_KIB};
use super::schema;
use crate::error::Error;

const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const USER_VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;

const JOURNAL_MAGIC: &[u8; 8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
/// Where a journal says how many pages the database had before.
const JOURNAL_PAGES_AT: usize = 16;

/// A database that is ours, locked against other processes and of the current version.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) lock: Lock,
    pub(crate) writer: Connection,
}

/// Held for as long as the database is open. It is given up by saying so: a program that is just being
/// started has the file open as well for a moment, and the lock would stay with it if the file were
/// only closed here.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file, which follows, does the same but for that moment.
        let _ = self.0.unlock();
    }
}

/// Opens or makes the database at `path`. A file that is not ours is left exactly as it is.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Opened, Error> {
    // Two names of one file must meet at one lock.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // A lock is looked at first where there is one: closing a file that this very process has open
    // would give up the database's own locks on it. None is made beside a file that is not ours.
    let held = lock(&path, Missing::Leave)?;
    // Only a postrider makes a lock, and it does so first: what stands beside one is its own.
    if held.is_none() || !is_half_made(&path)? {
        inspect(&path)?;
    }
    let lock = match held {
        Some(held) => held,
        None => lock(&path, Missing::Make)?.ok_or_else(|| in_use(&path))?,
    };
    create(&path)?;
    let writer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    set_up_writer(&writer, &path, options)?;
    Ok(Opened { path, lock, writer })
}

/// A database that is nowhere but in memory, and gone when it is closed.
pub(crate) fn in_memory(options: &Options) -> Result<Connection, Error> {
    let conn = Connection::open_in_memory()?;
    // It stands for the writer's connection and for those of all readers.
    conn.set_prepared_statement_cache_capacity(4 * PREPARED_STATEMENTS);
    // Without this a statement is prepared anew whenever a value is bound to it that a partial index
    // might have to do with, which is more than a third of all that a simulation does.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "foreign_keys", false)?;
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    schema::migrate(&conn)?;
    if let Some(max) = options.max_pages {
        conn.pragma_update_and_check(None, "max_page_count", max, |_| Ok(()))?;
    }
    Ok(conn)
}

/// A connection that only reads.
pub(crate) fn connect_reader(path: &Path, options: &Options) -> Result<Connection, Error> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)?;
    set_cache(&conn, READER_CACHE_KIB)?;
    Ok(conn)
}

/// A connection for copying the write-ahead log into the database.
pub(crate) fn connect_checkpointer(path: &Path, options: &Options) -> Result<Connection, Error> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options)?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    set_cache(&conn, READER_CACHE_KIB)?;
    Ok(conn)
}

/// Whether the power went while the database was being made: whatever the file holds by then, the
/// journal beside it says that it was empty before, and `SQLite` makes it so.
fn is_half_made(path: &Path) -> Result<bool, Error> {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    let header = beginning(Path::new(&journal))?;
    let pages_before = header.get(JOURNAL_PAGES_AT..JOURNAL_PAGES_AT + 4);
    Ok(header.starts_with(JOURNAL_MAGIC) && pages_before == Some(&[0; 4]))
}

/// The first bytes of a file, none if there is no file.
fn beginning(path: &Path) -> Result<Vec<u8>, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(out_of_reach(path, &error)),
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    let read = file.take(HEADER_BYTES as u64).read_to_end(&mut bytes);
    read.map_err(|error| out_of_reach(path, &error))?;
    Ok(bytes)
}

/// Looks at the first bytes of the file without `SQLite`, which might write to it.
fn inspect(path: &Path) -> Result<(), Error> {
    let header = beginning(path)?;
    if header.is_empty() {
        return Ok(());
    }
    if header.len() < HEADER_BYTES || !header.starts_with(MAGIC) {
        return Err(Error::Refused(format!(
            "{} is not a database: choose another path, or move the file away",
            path.display()
        )));
    }
    let number = |at: usize| {
        header[at..].first_chunk().map_or(0, |bytes: &[u8; 4]| u32::from_be_bytes(*bytes))
    };
    check_ours(path, number(APPLICATION_ID_AT), number(USER_VERSION_AT))
}

fn check_ours(path: &Path, application_id: u32, version: u32) -> Result<(), Error> {
    if application_id != schema::APPLICATION_ID {
        return Err(Error::Refused(format!(
            "{} is a database of another program: choose another path",
            path.display()
        )));
    }
    if version > schema::VERSION {
        return Err(Error::Refused(format!(
            "{} was written by a newer postrider (schema version {version}, this one knows {}): \
             use that version or a later one",
            path.display(),
            schema::VERSION
        )));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Leave,
    Make,
}

/// Takes the lock on the file beside the database, if that is there or may be made.
fn lock(path: &Path, missing: Missing) -> Result<Option<Lock>, Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let mut options = OpenOptions::new();
    options.create(missing == Missing::Make).truncate(false).write(true);
    let file = match options.open(&name) {
        Ok(file) => file,
        Err(error) if missing == Missing::Leave && error.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(out_of_reach(&name, &error)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock(file))),
        Err(TryLockError::WouldBlock) => Err(in_use(path)),
        Err(TryLockError::Error(error)) => Err(out_of_reach(&name, &error)),
    }
}

fn in_use(path: &Path) -> Error {
    Error::Refused(format!("{} is in use by another postrider", path.display()))
}

/// Makes an empty file that only its owner may read, because signing secrets will be in it. The
/// database gives the files beside it the same permissions.
fn create(path: &Path) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(out_of_reach(path, &error)),
    }
}

fn connect(path: &Path, access: OpenFlags, options: &Options) -> Result<Connection, Error> {
    let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(options.busy_timeout)?;
    conn.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

fn set_up_writer(conn: &Connection, path: &Path, options: &Options) -> Result<(), Error> {
    let pages: u32 = conn.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if pages == 0 {
        conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    } else {
        check_log(conn, path)?;
    }
    // Until secrets are sealed, what is rewritten or dropped must not stay readable in the file.
    conn.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    // A new database gets its tables before it gets a write-ahead log, so that the first bytes of
    // the file say whose it is from the first moment on.
    let changed = schema::migrate(conn)?;
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(Error::Unavailable(format!(
            "{} cannot have a write-ahead log beside it",
            path.display()
        )));
    }
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", false)?;
    conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
    let limit = i64::try_from(options.wal_limit_bytes).unwrap_or(i64::MAX);
    conn.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
    set_cache(conn, WRITER_CACHE_KIB)?;
    if changed {
        // The version in the first bytes of the file has to be the true one.
        conn.query_row("PRAGMA main.wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
    }
    if let Some(max) = options.max_pages {
        conn.pragma_update_and_check(None, "max_page_count", max, |_| Ok(()))?;
    }
    Ok(())
}

/// Checks again what [`inspect`] read from the file: a newer program may have died and left its
/// version in the write-ahead log only.
fn check_log(conn: &Connection, path: &Path) -> Result<(), Error> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let id = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    check_ours(path, id, schema::version(conn)?)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

fn set_cache(conn: &Connection, kib: u32) -> Result<(), Error> {
    Ok(conn.pragma_update(None, "cache_size", -i64::from(kib))?)
}

fn out_of_reach(path: &Path, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_being_started_does_not_keep_the_lock() {
        let directory = tempfile::TempDir::new().expect("a directory");
        let path = directory.path().join("postrider.db");
        let options = Options::default();
        let opened = open(&path, &options).expect("free");
        // What a child has of the file until it becomes another program.
        let inherited = opened.lock.0.try_clone().expect("another descriptor");
        open(&path, &options).expect_err("in use");
        drop(opened);
        drop(open(&path, &options).expect("free again"));
        drop(inherited);
    }
}
