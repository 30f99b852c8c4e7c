//! Space in the small, busy tables is given back as fast as it is used up.
//!
//! Every delivery leaves a dead row where it waited. The server's own vacuum comes by once a minute,
//! and in a minute a busy gateway has passed a million of them through a table of ten thousand. So
//! this one comes by after so many rows, which takes a few milliseconds; the server's own still sees
//! to everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use super::config::VACUUM_EVERY;
use super::link::{Base, Link};
use crate::error::Error;

/// Leaves the end of the table as it is: taking it away would lock out everybody else. A table that
/// another node is at is passed over.
const VACUUM: &str = "VACUUM (SKIP_LOCKED, TRUNCATE FALSE)";

const TABLES: [&str; 3] = ["unfinished", "delivery_counts", "event_counts"];

const ROWS: &str =
    "SELECT greatest(reltuples, 0)::int8 FROM pg_class WHERE oid = 'unfinished'::regclass";

/// Going through the indexes of a long backlog takes its time: it is done after this part of it has
/// been replaced.
const PART: u64 = 4;

/// How many rows have been left behind.
pub(crate) struct Leftovers {
    rows: AtomicU64,
    limit: AtomicU64,
    enough: Notify,
    closed: AtomicBool,
}

impl Leftovers {
    pub(crate) fn new() -> Self {
        Self {
            rows: AtomicU64::new(0),
            limit: AtomicU64::new(VACUUM_EVERY),
            enough: Notify::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Called by the writers.
    pub(crate) fn add(&self, rows: usize) {
        let rows = rows as u64;
        if self.rows.fetch_add(rows, Ordering::Relaxed) + rows >= self.limit.load(Ordering::Relaxed)
        {
            self.enough.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.enough.notify_one();
    }
}

/// Works until there is nothing left to wait for.
pub(crate) async fn serve(base: Arc<Base>, leftovers: Arc<Leftovers>) {
    let mut link = Link::default();
    loop {
        leftovers.enough.notified().await;
        if leftovers.closed.load(Ordering::Relaxed) {
            break;
        }
        leftovers.rows.store(0, Ordering::Relaxed);
        match vacuum(&base, &mut link).await {
            Ok(live) => {
                leftovers.limit.store((live / PART).max(VACUUM_EVERY), Ordering::Relaxed);
            }
            // Nothing depends on it; those that write meet the same trouble and say so.
            Err(error) => tracing::debug!(%error, "the tables could not be vacuumed"),
        }
    }
    if let Some(session) = link.take() {
        session.close().await;
    }
}

/// Returns how many rows are left in use.
async fn vacuum(base: &Base, link: &mut Link) -> Result<u64, Error> {
    let session = link.session(base).await?;
    for table in TABLES {
        session.script(&format!("{VACUUM} {table}")).await?;
    }
    let live = session.row(ROWS, &[]).await?;
    let live: i64 = live.map_or(Ok(0), |row| super::rows::get(&row, 0))?;
    Ok(live.unsigned_abs())
}
