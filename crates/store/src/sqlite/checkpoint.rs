//! Copying the write-ahead log into the database, off the writer's path.
//!
//! A thread does the bulk of it while the writer goes on. Because the writer keeps adding to the
//! log, that alone would never reach its end, and the log would grow for ever: so when the log is
//! too large and a pass of the thread has just ended, the writer itself copies the small rest
//! between two commits and lets the log start over.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::Connection;

use super::config::{Options, PAGE_BYTES};
use super::file;
use super::writer::Cost;
use crate::error::Error;

/// A pass is followed by another while it left more pages than this to the writer…
const TAIL_PAGES: i64 = 256;
/// …but no more often than this.
const MAX_PASSES: usize = 4;

/// The log never gets longer than this many times its limit: if the thread does not keep up, the
/// writer copies all of it, and everybody waits.
const HARD_LIMIT: i64 = 4;

/// The writer looks at the log again after this many rows or bytes: a look takes locks, and most
/// commits are small against the log.
const LOOK_ROWS: usize = 512;
const LOOK_BYTES: usize = 1 << 20;

/// How long the writer waits for readers to leave the log before it puts the restart off.
const RESTART_PATIENCE: Duration = Duration::from_millis(20);

/// The writer's end.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    wake: SyncSender<()>,
    /// The thread has finished a pass since the log was last restarted.
    passed: Arc<AtomicBool>,
    step_pages: i64,
    limit_pages: i64,
    busy_timeout: Duration,
    unseen: Cost,
}

impl Checkpointer {
    /// Starts the thread. It ends when the checkpointer is dropped.
    pub(crate) fn start(path: &Path, options: &Options) -> Result<(Self, JoinHandle<()>), Error> {
        let conn = file::connect_checkpointer(path, options)?;
        let (wake, woken) = sync_channel(1);
        let passed = Arc::new(AtomicBool::new(false));
        let finished = Arc::clone(&passed);
        let thread = thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || serve(&conn, &woken, &finished))
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let limit = options.wal_limit_bytes / u64::from(PAGE_BYTES);
        let checkpointer = Self {
            wake,
            passed,
            step_pages: i64::from(options.checkpoint_pages),
            limit_pages: i64::try_from(limit).unwrap_or(i64::MAX),
            busy_timeout: options.busy_timeout,
            unseen: Cost::NOTHING,
        };
        Ok((checkpointer, thread))
    }

    /// Called by the writer between two transactions.
    pub(crate) fn after_commit(&mut self, conn: &Connection, written: Cost) -> Result<(), Error> {
        self.unseen = self.unseen.plus(written);
        if self.unseen.rows < LOOK_ROWS && self.unseen.bytes < LOOK_BYTES {
            return Ok(());
        }
        self.unseen = Cost::NOTHING;
        let log = checkpoint(conn, Mode::Noop)?;
        let behind = log.pages >= self.limit_pages.saturating_mul(HARD_LIMIT);
        let large = log.pages >= self.limit_pages;
        if behind || (large && self.passed.swap(false, Ordering::AcqRel)) {
            conn.busy_timeout(RESTART_PATIENCE)?;
            let restarted = checkpoint(conn, Mode::Restart);
            conn.busy_timeout(self.busy_timeout)?;
            restarted?;
        } else if log.pages - log.copied >= self.step_pages {
            // A full channel means that the thread knows.
            let _ = self.wake.try_send(());
        }
        Ok(())
    }
}

/// Copies everything and empties the log: the last thing a closing writer does.
pub(crate) fn truncate(conn: &Connection) -> Result<(), Error> {
    checkpoint(conn, Mode::Truncate).map(drop)
}

fn serve(conn: &Connection, woken: &Receiver<()>, passed: &AtomicBool) {
    while woken.recv().is_ok() {
        for _ in 0..MAX_PASSES {
            match checkpoint(conn, Mode::Passive) {
                Ok(log) if log.pages - log.copied > TAIL_PAGES => {}
                Ok(_) => break,
                Err(error) => {
                    // The writer meets the same trouble and says so; the log only grows meanwhile.
                    tracing::debug!(%error, "the write-ahead log was not copied");
                    break;
                }
            }
        }
        passed.store(true, Ordering::Release);
    }
}

#[derive(Debug, Clone, Copy)]
enum Mode {
    Noop,
    Passive,
    Restart,
    Truncate,
}

/// The state of the write-ahead log.
struct Log {
    pages: i64,
    copied: i64,
}

fn checkpoint(conn: &Connection, mode: Mode) -> Result<Log, Error> {
    let sql = match mode {
        Mode::Noop => "PRAGMA main.wal_checkpoint(NOOP)",
        Mode::Passive => "PRAGMA main.wal_checkpoint(PASSIVE)",
        Mode::Restart => "PRAGMA main.wal_checkpoint(RESTART)",
        Mode::Truncate => "PRAGMA main.wal_checkpoint(TRUNCATE)",
    };
    let mut statement = conn.prepare_cached(sql)?;
    Ok(statement.query_row((), |row| Ok(Log { pages: row.get(1)?, copied: row.get(2)? }))?)
}
