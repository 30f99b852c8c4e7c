//! Moving a whole store from one backend to another: every row, in chunks that each are one
//! transaction, with the position in it; then both sides are read and compared.
//!
//! The origin is a file that no gateway uses, the target a database that holds nothing else. A copy
//! that was interrupted, however, goes on where it was. Until the last word is written, which is the
//! name of the store, the target is not opened by anybody else.
//!
//! Reading order: what is copied (`table`), how far a copy has come (`standing`), what a row is
//! (`value`); then `sqlite/copy.rs`, which reads, and `postgres/copy.rs`, which writes.

pub(crate) mod standing;
pub(crate) mod table;
pub(crate) mod value;

use std::fmt;
use std::ops::ControlFlow;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::postgres::Target;
use crate::sealing::SealingKeyId;
use crate::sqlite::Origin;
use standing::{Standing, Survey};
use table::{TABLES, Table};
use value::{Row, Tally};

/// Chunks that are read ahead of what is written: with the one that is being written and the one
/// that is being read, all that is ever in memory.
const CHUNKS_AHEAD: usize = 1;

/// How much is written in one transaction. A chunk ends when it has reached either, so it is larger
/// by one row at most.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub chunk_rows: usize,
    pub chunk_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { chunk_rows: 10_000, chunk_bytes: 8 << 20 }
    }
}

/// What there is to copy.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The tables in the order of their copying, and how many rows they have.
    pub tables: Vec<(&'static str, u64)>,
    /// The keys that secrets are sealed with. They stay sealed with them.
    pub keys: Vec<SealingKeyId>,
}

impl Plan {
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|(_, rows)| rows).sum()
    }
}

/// What is in the database to copy to, if it will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// A copy of the same store that was interrupted after so many rows.
    Part {
        rows: u64,
    },
}

/// Where a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    pub table: &'static str,
    /// Rows of this table so far, and in all.
    pub rows: u64,
    pub of: u64,
    /// The same of all tables.
    pub all_rows: u64,
    pub of_all: u64,
    /// Bytes that were copied since it was begun or resumed.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Copying,
    /// Both sides are read and compared.
    Checking,
}

/// Why a copy ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be made as things are. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    #[error("the store cannot be read: {0}")]
    Origin(#[source] crate::Error),
    #[error("the database cannot be written to: {0}")]
    Target(#[source] crate::Error),
    /// What was copied is not what is there. The database stays closed to everybody.
    #[error(
        "the copy is not what was copied: {}. The database stays refused; drop its schema \
         `postrider` and copy anew", list(.0)
    )]
    Differs(Vec<Difference>),
    /// The caller asked for it.
    #[error("the copy was interrupted")]
    Interrupted,
}

/// A table that is not the same on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    pub table: &'static str,
    pub origin_rows: u64,
    pub target_rows: u64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, origin_rows, target_rows } = self;
        if origin_rows == target_rows {
            write!(f, "`{table}` has {origin_rows} rows on both sides, but not the same")
        } else {
            write!(f, "`{table}` has {target_rows} rows instead of {origin_rows}")
        }
    }
}

fn list(differences: &[Difference]) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join("; ")
}

/// Rows of one table, in the order of their keys.
pub(crate) struct Chunk {
    pub(crate) table: &'static Table,
    pub(crate) rows: Vec<Row>,
    pub(crate) bytes: usize,
    /// The key of the last one.
    pub(crate) last: Vec<i64>,
}

/// Looks whether `origin` can be copied to `target`, and how much of it is there. Nothing is changed.
pub async fn look(origin: &Origin, target: &Target) -> Result<Found, Error> {
    target.look(origin.survey()).await
}

/// Copies `origin` to `target`, or goes on with that, and compares the two. `progress` is called
/// after every chunk, and interrupts the copy when it breaks off.
pub async fn copy(
    origin: Origin,
    mut target: Target,
    options: Options,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let survey = origin.survey().clone();
    let mut standing = target.begin(&survey).await?;
    let origin = copy_rows(origin, &mut target, options, &mut standing, &mut progress).await?;
    target.count().await.map_err(Error::Target)?;
    compare(origin, &target, &mut progress).await?;
    target.complete(&survey).await.map_err(Error::Target)?;
    target.close().await;
    Ok(())
}

async fn copy_rows(
    origin: Origin,
    target: &mut Target,
    options: Options,
    standing: &mut Standing,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Origin, Error> {
    let (sender, mut chunks) = mpsc::channel::<Chunk>(CHUNKS_AHEAD);
    let (table, after) = (standing.table().map_err(Error::Target)?, standing.after.clone());
    let reading = spawn_blocking(move || {
        let read = origin.read(table, &after, options, |chunk| match sender.blocking_send(chunk) {
            Ok(()) => ControlFlow::Continue(()),
            // Nobody writes any more.
            Err(_) => ControlFlow::Break(()),
        });
        read.map(|()| origin)
    });
    let written = write_all(&mut chunks, target, standing, progress).await;
    // Whoever reads ends with the next row, and gives the origin back.
    drop(chunks);
    let read = ended(reading).await;
    written?;
    read
}

async fn write_all(
    chunks: &mut mpsc::Receiver<Chunk>,
    target: &mut Target,
    standing: &mut Standing,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut bytes = 0;
    while let Some(Chunk { table, rows, bytes: more, last }) = chunks.recv().await {
        standing.advance(table, rows.len() as u64, last);
        target.write(table, &rows, standing).await.map_err(Error::Target)?;
        bytes += more as u64;
        let now = Progress {
            phase: Phase::Copying,
            table: table.name,
            rows: standing.rows,
            of: standing.origin.rows(table),
            all_rows: standing.rows_done(),
            of_all: standing.origin.all_rows(),
            bytes,
        };
        if progress(now).is_break() {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

/// Reads both sides and adds up what is there.
async fn compare(
    origin: Origin,
    target: &Target,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let survey = origin.survey().clone();
    let (sender, mut tallies) = mpsc::channel::<Tally>(1);
    let reading = spawn_blocking(move || {
        for table in TABLES {
            let Some(tally) = origin.tally(table, || sender.is_closed())? else { break };
            if sender.blocking_send(tally).is_err() {
                break;
            }
        }
        Ok(())
    });
    let differences = differences(&survey, &mut tallies, target, progress).await;
    drop(tallies);
    let read = ended(reading).await;
    match differences? {
        Some(differences) if differences.is_empty() => read,
        Some(differences) => Err(Error::Differs(differences)),
        None => read.and(Err(Error::Origin(crate::Error::Closed))),
    }
}

/// The tables that are not the same; none, if the origin could not be read to its end.
async fn differences(
    survey: &Survey,
    tallies: &mut mpsc::Receiver<Tally>,
    target: &Target,
    progress: &mut impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Option<Vec<Difference>>, Error> {
    let (mut differences, mut done) = (Vec::new(), 0);
    for table in TABLES {
        let tell = |rows: u64| {
            progress(Progress {
                phase: Phase::Checking,
                table: table.name,
                rows,
                of: survey.rows(table),
                all_rows: done + rows,
                of_all: survey.all_rows(),
                bytes: 0,
            })
        };
        let there = target.tally(table, tell).await?;
        let Some(here) = tallies.recv().await else { return Ok(None) };
        if here != there {
            differences.push(Difference {
                table: table.name,
                origin_rows: here.rows,
                target_rows: there.rows,
            });
        }
        done += there.rows;
    }
    Ok(Some(differences))
}

/// The outcome of a thread that read.
async fn ended<T>(reading: JoinHandle<Result<T, crate::Error>>) -> Result<T, Error> {
    let read = reading.await.map_err(|_| Error::Origin(crate::Error::Closed))?;
    read.map_err(Error::Origin)
}
