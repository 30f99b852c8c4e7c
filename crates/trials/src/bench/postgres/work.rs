//! What the server does for a database: transactions, statements, rows and log, and who waits for
//! whom meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_postgres::Row;

use super::super::sample::share;
use super::cluster::Cluster;
use super::session::Session;

/// A connection's counts are to be seen at the latest when it has ended, and so long after that.
const COUNTED_WITHIN: Duration = Duration::from_secs(1);

/// How often is looked at who waits.
const SAMPLED_EVERY: Duration = Duration::from_millis(50);

const COUNTERS: &str = "SELECT xact_commit + xact_rollback, tup_inserted, tup_updated, tup_deleted, \
     tup_fetched FROM pg_stat_database WHERE datname = $1";

const STATEMENTS: &str = "SELECT coalesce(sum(s.calls), 0)::int8 FROM pg_stat_statements s \
     JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1";

const LOG: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8";

const ACTIVITY: &str = "SELECT wait_event_type, wait_event, count(*) FROM pg_stat_activity \
     WHERE datname = $1 AND state = 'active' AND backend_type = 'client backend' \
     GROUP BY wait_event_type, wait_event";

/// Counts from the outside, over a connection to another database.
#[derive(Debug)]
pub(crate) struct Observer {
    session: Session,
    database: &'static str,
    counts_statements: bool,
}

/// How far the server's counters of one database are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counters {
    pub(crate) transactions: u64,
    /// None where the server cannot count them.
    pub(crate) statements: Option<u64>,
    pub(crate) inserted: u64,
    pub(crate) updated: u64,
    pub(crate) deleted: u64,
    /// Found by an index.
    pub(crate) fetched: u64,
}

impl Counters {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            transactions: self.transactions.saturating_sub(earlier.transactions),
            statements: self
                .statements
                .zip(earlier.statements)
                .map(|(later, earlier)| later.saturating_sub(earlier)),
            inserted: self.inserted.saturating_sub(earlier.inserted),
            updated: self.updated.saturating_sub(earlier.updated),
            deleted: self.deleted.saturating_sub(earlier.deleted),
            fetched: self.fetched.saturating_sub(earlier.fetched),
        }
    }
}

impl Observer {
    pub(crate) async fn new(cluster: &Cluster, database: &'static str) -> Result<Self> {
        let session = cluster.first().await?;
        let counts_statements = cluster.counts_statements();
        if counts_statements {
            session.run("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await?;
        }
        Ok(Self { session, database, counts_statements })
    }

    /// Whole once nobody else is connected to the database.
    pub(crate) async fn counters(&self) -> Result<Counters> {
        sleep(COUNTED_WITHIN).await;
        let row = self.session.client.query_one(COUNTERS, &[&self.database]).await?;
        let statements = if self.counts_statements {
            Some(self.session.client.query_one(STATEMENTS, &[&self.database]).await?)
        } else {
            None
        };
        Ok(Counters {
            transactions: count(&row, 0)?,
            statements: statements.map(|row| count(&row, 0)).transpose()?,
            inserted: count(&row, 1)?,
            updated: count(&row, 2)?,
            deleted: count(&row, 3)?,
            fetched: count(&row, 4)?,
        })
    }

    /// How many bytes of log the server has written, of all databases.
    pub(crate) async fn log_bytes(&self) -> Result<u64> {
        Ok(self.session.number(LOG).await?.unsigned_abs())
    }

    /// Has everything on disk, so that no checkpoint that was due before comes into a measure.
    pub(crate) async fn checkpoint(&self) -> Result<()> {
        self.session.run("CHECKPOINT").await
    }
}

/// What connections were seen at, a look after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    /// How often each wait was met, and how often none: connections at work that waited for nothing.
    waits: BTreeMap<Option<Wait>, u64>,
}

/// What the server calls a wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    kind: String,
    event: String,
}

/// Held by a transaction to its end.
pub(crate) const LOCK: &str = "Lock";
/// Held by the server itself, for a moment.
pub(crate) const LATCH: &str = "LWLock";

impl Seen {
    pub(crate) fn add(&mut self, wait: Option<Wait>, times: u64) {
        *self.waits.entry(wait).or_default() += times;
    }

    pub(crate) fn add_all(&mut self, other: Self) {
        for (wait, times) in other.waits {
            self.add(wait, times);
        }
    }

    /// How many of those at work waited for something of this kind.
    pub(crate) fn percent(&self, kind: &str) -> f64 {
        let of_kind = |wait: &Option<Wait>| wait.as_ref().is_some_and(|wait| wait.kind == kind);
        let waits = self.waits.iter().filter(|(wait, _)| of_kind(wait)).map(|(_, times)| times);
        match self.waits.values().sum::<u64>() {
            0 => 0.0,
            all => share(waits.sum(), all) * 100.0,
        }
    }
}

/// Every wait with its part of all connections at work, for those who look for the reason.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.waits.values().sum::<u64>();
        for (index, (wait, times)) in self.waits.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let percent = share(*times, all) * 100.0;
            match wait {
                None => write!(f, "{comma}no wait {percent:.1} %")?,
                Some(Wait { kind, event }) => write!(f, "{comma}{kind}:{event} {percent:.1} %")?,
            }
        }
        Ok(())
    }
}

/// Looks again and again who waits, until it is asked.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Seen>>,
}

impl Sampler {
    pub(crate) async fn start(cluster: &Cluster, database: &'static str) -> Result<Self> {
        let session = cluster.first().await?;
        let statement = session.client.prepare(ACTIVITY).await?;
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut seen = Seen::default();
            let mut clock = interval(SAMPLED_EVERY);
            clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = clock.tick() => {}
                    _ = &mut stopped => return Ok(seen),
                }
                for row in session.client.query(&statement, &[&database]).await? {
                    let (kind, event): (Option<String>, _) = (row.try_get(0)?, row.try_get(1)?);
                    let wait = kind.zip(event).map(|(kind, event)| Wait { kind, event });
                    seen.add(wait, count(&row, 2)?);
                }
            }
        });
        Ok(Self { stop, task })
    }

    pub(crate) async fn stop(self) -> Result<Seen> {
        // One that has ended says why.
        let _ = self.stop.send(());
        self.task.await.context("looking who waits")?
    }
}

fn count(row: &Row, column: usize) -> Result<u64> {
    Ok(row.try_get::<_, i64>(column)?.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::super::cluster::Watch;
    use super::*;

    #[tokio::test]
    async fn what_a_database_does_is_counted_apart_from_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = Cluster::start(folder.path(), Watch::Statements).await.expect("a server");
        let (one, other) = (cluster.database("one").await, cluster.database("other").await);
        let observer = Observer::new(&cluster, "one").await.expect("an observer");
        let (before, log_before) = (observer.counters().await, observer.log_bytes().await);

        for (url, rows) in [(one, 1_000), (other, 50_000)] {
            let session = Session::open(&url.expect("a database")).await.expect("a connection");
            session.run("CREATE TABLE a (n integer)").await.expect("a table");
            let fill = format!("INSERT INTO a SELECT generate_series(1, {rows})");
            session.run(&fill).await.expect("rows");
        }
        let done = observer.counters().await.expect("counters").since(before.expect("counters"));
        assert!((1_000..50_000).contains(&done.inserted), "{done:?}");
        assert!((2..100).contains(&done.transactions), "{done:?}");
        if cluster.counts_statements() {
            assert_eq!(done.statements, Some(2));
        }
        let log = observer.log_bytes().await.expect("log") - log_before.expect("log");
        assert!(log > 50_000, "{log}");
    }

    #[tokio::test]
    async fn those_who_wait_for_a_lock_are_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = Cluster::start(folder.path(), Watch::Nothing).await.expect("a server");
        let url = cluster.database("one").await.expect("a database");
        let holder = Session::open(&url).await.expect("a connection");
        holder.run("CREATE TABLE a ()").await.expect("a table");
        holder.run("BEGIN; LOCK TABLE a").await.expect("a lock");
        let sampler = Sampler::start(&cluster, "one").await.expect("a sampler");
        let waiter = Session::open(&url).await.expect("a connection");
        let waiting = tokio::spawn(async move { waiter.run("SELECT FROM a").await });
        // It is let go after ten looks, most of which have met it.
        sleep(SAMPLED_EVERY * 10).await;
        holder.run("COMMIT").await.expect("let go");
        waiting.await.expect("no panic").expect("it gets its turn");
        let seen = sampler.stop().await.expect("what it saw");
        assert!(seen.percent(LOCK) > 0.0, "{seen:?}");
        assert!(seen.to_string().contains("Lock:relation"), "{seen}");
    }

    #[test]
    fn waits_are_shown_as_parts_of_all_at_work() {
        let mut seen = Seen::default();
        assert_eq!((seen.percent(LOCK), seen.to_string()), (0.0, String::new()));
        let wait = |kind: &str, event: &str| Some(Wait { kind: kind.into(), event: event.into() });
        for (wait, times) in
            [(wait(LOCK, "tuple"), 1), (wait(LOCK, "object"), 2), (wait(LATCH, "WALWrite"), 1)]
        {
            seen.add(wait, times);
        }
        seen.add_all(Seen { waits: [(None, 4)].into() });
        assert_eq!((seen.percent(LOCK), seen.percent(LATCH)), (37.5, 12.5));
        let shown = "no wait 50.0 %, LWLock:WALWrite 12.5 %, Lock:object 25.0 %, Lock:tuple 12.5 %";
        assert_eq!(seen.to_string(), shown);
    }
}
