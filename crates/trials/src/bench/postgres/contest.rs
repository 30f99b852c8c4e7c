//! Several designs that take turns at the same work, so that a slow moment of the machine meets all
//! of them; and the upkeep that each of them gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use super::super::batch;
use super::super::sample::per_second;
use super::session::Session;

/// How often each has its turn.
pub(crate) const ROUNDS: u32 = 5;

/// The store vacuums its busy tables after so many deliveries.
const VACUUM_EVERY: u64 = 8_192;

/// Takes a batch through once: appends its rows, and settles them.
pub(crate) trait Cycle: Send + 'static {
    /// The time that took, without the making of the rows.
    fn cycle(&mut self) -> impl Future<Output = Result<Duration>> + Send;
}

/// Workers of one design, each on a connection of its own, and what they have done so far.
#[derive(Debug)]
pub(crate) struct Team<C> {
    workers: Vec<C>,
    cycles: u64,
    /// Of all of them together.
    time: Duration,
}

impl<C: Cycle> Team<C> {
    pub(crate) fn new(workers: Vec<C>) -> Self {
        Self { workers, cycles: 0, time: Duration::ZERO }
    }

    /// Lets all of them work at once, each for at least so long.
    pub(crate) async fn work(&mut self, turn: Duration) -> Result<()> {
        let mut tasks = JoinSet::new();
        for mut worker in self.workers.drain(..) {
            tasks.spawn(async move {
                let (mut batches, mut time) = (0, Duration::ZERO);
                while time < turn {
                    time += worker.cycle().await?;
                    batches += 1;
                }
                anyhow::Ok((worker, batches, time))
            });
        }
        while let Some(ended) = tasks.join_next().await {
            let (worker, batches, time) = ended.context("a worker")??;
            self.workers.push(worker);
            self.cycles += batches * batch::SIZE as u64;
            self.time += time;
        }
        Ok(())
    }

    pub(crate) fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Deliveries a second, of all workers together.
    pub(crate) fn rate(&self) -> f64 {
        let workers = u32::try_from(self.workers.len().max(1)).unwrap_or(u32::MAX);
        per_second(self.cycles, self.time / workers)
    }
}

/// Vacuums as often as the store does, on a connection of its own: a design that is held against it
/// is not to be slowed down by what it leaves behind. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Upkeep {
    left: Arc<Left>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Left {
    rows: AtomicU64,
    enough: Notify,
}

impl Upkeep {
    pub(crate) fn start(session: Session, tables: &'static [&'static str]) -> Arc<Self> {
        let left = Arc::new(Left::default());
        let noted = Arc::clone(&left);
        let task = tokio::spawn(async move {
            loop {
                noted.enough.notified().await;
                noted.rows.store(0, Ordering::Relaxed);
                for table in tables {
                    let vacuum = format!("VACUUM (SKIP_LOCKED, TRUNCATE FALSE) {table}");
                    if let Err(error) = session.run(&vacuum).await {
                        eprintln!("the bench could not tidy up: {error:#}");
                    }
                }
            }
        });
        Arc::new(Self { left, task })
    }

    /// So many rows have been left behind.
    pub(crate) fn note(&self, rows: usize) {
        let rows = rows as u64;
        if self.left.rows.fetch_add(rows, Ordering::Relaxed) + rows >= VACUUM_EVERY {
            self.left.enough.notify_one();
        }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Takes(Duration);

    impl Cycle for Takes {
        async fn cycle(&mut self) -> Result<Duration> {
            Ok(self.0)
        }
    }

    #[tokio::test]
    async fn the_rate_is_that_of_all_workers_together() {
        let each = Duration::from_millis(256);
        for (workers, per_second) in [(1, 1_000.0), (4, 4_000.0)] {
            let mut team = Team::new((0..workers).map(|_| Takes(each)).collect());
            for _ in 0..ROUNDS {
                team.work(Duration::from_secs(1)).await.expect("work");
            }
            assert_eq!(team.cycles(), u64::from(ROUNDS) * 4 * batch::SIZE as u64 * workers);
            assert!((team.rate() - per_second).abs() < 1e-6, "{}", team.rate());
        }
    }

    #[tokio::test]
    async fn a_worker_that_fails_ends_the_turn() {
        struct Fails;
        impl Cycle for Fails {
            async fn cycle(&mut self) -> Result<Duration> {
                anyhow::bail!("no")
            }
        }
        assert!(Team::new(vec![Fails]).work(Duration::from_secs(1)).await.is_err());
    }
}
