//! The one writer: a thread that puts everything waiting into one transaction, and answers only
//! when that is on disk.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{oneshot, watch};

use super::batch::Batch;
use super::checkpoint::{self, Checkpointer};
use super::config::{
    COMPLAINT_INTERVAL, CROWD, LINGER, MAX_ROWS_PER_COMMIT, REGROUP, WRITE_QUEUE, WRITE_QUEUE_BYTES,
};
use super::file::Lock;
use crate::error::Error;
use crate::journal::Urgency;
use crate::vitals::{Load, Vitals};

/// The way to the writer.
pub(crate) struct Writer {
    way: Way,
    queued_bytes: Arc<AtomicUsize>,
    vitals: Arc<Vitals>,
}

enum Way {
    /// To a thread that serves everybody who waits.
    Queue(RwLock<Option<SyncSender<Box<dyn Work>>>>),
    /// Whoever asks does it, at once and alone.
    Inline(Inline),
}

/// A connection that whoever asks uses for a moment; none when it is closed.
pub(crate) type Inline = Arc<Mutex<Option<Connection>>>;

/// All that the thread owns, and gives up in order when it ends.
pub(crate) struct Belongings {
    pub(crate) conn: Connection,
    pub(crate) checkpointer: Checkpointer,
    /// Threads with connections of their own, which end before the database is closed.
    pub(crate) others: Vec<JoinHandle<()>>,
    pub(crate) lock: Lock,
    pub(crate) finished: watch::Sender<bool>,
    pub(crate) vitals: Arc<Vitals>,
}

/// What a command costs, to bound queues and transactions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl Cost {
    pub(crate) const NOTHING: Self = Self { rows: 0, bytes: 0 };

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows.saturating_add(other.rows),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl Writer {
    /// Starts the thread. It ends when the writer is closed and everything accepted is on disk.
    pub(crate) fn start(belongings: Belongings) -> Result<(Self, JoinHandle<()>), Error> {
        let (sender, receiver) = sync_channel(WRITE_QUEUE);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&queued_bytes);
        let vitals = Arc::clone(&belongings.vitals);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || serve(belongings, &receiver, &taken))
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let way = Way::Queue(RwLock::new(Some(sender)));
        Ok((Self { way, queued_bytes, vitals }, thread))
    }

    /// Without a thread: every command is a commit of its own, done when it is submitted. The same
    /// calls in the same order come to the same, which a simulation needs.
    pub(crate) fn inline(conn: Inline, vitals: Arc<Vitals>) -> Self {
        Self { way: Way::Inline(conn), queued_bytes: Arc::default(), vitals }
    }

    /// Runs `command` in the next transaction and answers when it is committed. The command is run a
    /// second time if another one of the same transaction made it roll back.
    pub(crate) fn submit<T, F>(
        &self,
        cost: Cost,
        urgency: Urgency,
        command: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnMut(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let work = Command { cost, urgency, run: command, outcome: None, reply };
        let queued = self.enqueue(Box::new(work));
        let vitals = Arc::clone(&self.vitals);
        async move {
            let answer = match queued {
                // With the answer comes the command, whose memory is given free here: everybody waits for
                // the writer.
                Ok(()) => answer.await.map_or(Err(Error::Closed), |(answer, _done)| answer),
                Err(error) => Err(error),
            };
            vitals.watch(answer)
        }
    }

    fn enqueue(&self, work: Box<dyn Work>) -> Result<(), Error> {
        let queue = match &self.way {
            Way::Queue(queue) => queue,
            Way::Inline(conn) => return self.do_now(conn, work),
        };
        let bytes = work.cost().bytes;
        let before = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = if before > 0 && before.saturating_add(bytes) > WRITE_QUEUE_BYTES {
            Err(Error::Overloaded)
        } else {
            let queue = queue.read().unwrap_or_else(PoisonError::into_inner);
            queue.as_ref().ok_or(Error::Closed).and_then(|sender| {
                sender.try_send(work).map_err(|error| match error {
                    TrySendError::Full(_) => Error::Overloaded,
                    TrySendError::Disconnected(_) => Error::Closed,
                })
            })
        };
        if sent.is_err() {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent
    }

    fn do_now(&self, conn: &Mutex<Option<Connection>>, work: Box<dyn Work>) -> Result<(), Error> {
        let conn = conn.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = conn.as_ref().ok_or(Error::Closed)?;
        commit(conn, vec![work], &mut Complaints::default(), &self.vitals, || {});
        Ok(())
    }

    pub(crate) fn close(&self) {
        match &self.way {
            Way::Queue(queue) => {
                queue.write().unwrap_or_else(PoisonError::into_inner).take();
            }
            Way::Inline(conn) => {
                conn.lock().unwrap_or_else(PoisonError::into_inner).take();
            }
        }
    }
}

fn serve(belongings: Belongings, queue: &Receiver<Box<dyn Work>>, queued_bytes: &AtomicUsize) {
    let Belongings { conn, mut checkpointer, others, lock, finished, vitals } = belongings;
    let mut complaints = Complaints::default();
    let mut company = 1;
    while let Ok(first) = queue.recv() {
        let works = gather(first, queue, company);
        company = works.len();
        let cost = works.iter().map(|work| work.cost()).fold(Cost::NOTHING, Cost::plus);
        commit(&conn, works, &mut complaints, &vitals, || {
            queued_bytes.fetch_sub(cost.bytes, Ordering::Relaxed);
        });
        if let Err(error) = checkpointer.after_commit(&conn, cost) {
            complaints.raise(&error);
        }
    }
    drop(checkpointer);
    for other in others {
        if other.join().is_err() {
            tracing::error!("a thread of the store panicked");
        }
    }
    if let Err(error) = checkpoint::truncate(&conn) {
        tracing::warn!(%error, "the write-ahead log stays beside the database");
    }
    drop(conn);
    drop(lock);
    finished.send_replace(true);
}

/// Everything that waits; if nobody waits for any of it, also what comes within [`LINGER`].
///
/// Those who were answered by the last commit, `company` in number, are likely to come again at
/// once. When they are many, a moment's patience for them saves a commit of its own for each half
/// of them; when they are few it would only cost time.
fn gather(
    first: Box<dyn Work>,
    queue: &Receiver<Box<dyn Work>>,
    company: usize,
) -> Vec<Box<dyn Work>> {
    let start = Instant::now();
    let mut urgent = first.urgency() == Urgency::Now;
    let mut rows = first.cost().rows;
    let mut works = vec![first];
    while rows < MAX_ROWS_PER_COMMIT {
        let next = match queue.try_recv() {
            Ok(work) => work,
            Err(_) if urgent && (company < CROWD || works.len() >= company) => break,
            Err(_) => {
                let patience = if urgent { REGROUP } else { LINGER };
                match queue.recv_timeout(patience.saturating_sub(start.elapsed())) {
                    Ok(work) => work,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
        };
        urgent |= next.urgency() == Urgency::Now;
        rows += next.cost().rows;
        works.push(next);
    }
    works
}

/// Commits `works` together. If one of them cannot be done, the others are done without it; if the
/// database cannot be written at all, all of them are refused. What is being written takes as much
/// memory as what waits, so its place is given free only then; but before anybody is answered, who
/// may come again at once.
fn commit(
    conn: &Connection,
    mut works: Vec<Box<dyn Work>>,
    complaints: &mut Complaints,
    vitals: &Vitals,
    give_free: impl FnOnce(),
) {
    let started = Instant::now();
    let outcomes = match together(conn, &mut works) {
        Ok(load) => Ok((load, vec![Ok(()); works.len()])),
        Err(error @ Error::Unavailable(_)) => Err(error),
        Err(_) => each_by_itself(conn, &mut works),
    };
    give_free();
    match outcomes {
        Ok((load, outcomes)) => {
            vitals.committed(load, started.elapsed());
            for (work, outcome) in works.into_iter().zip(outcomes) {
                work.answer(outcome);
            }
        }
        Err(error) => {
            complaints.raise(&error);
            for work in works {
                work.answer(Err(error.clone()));
            }
        }
    }
}

fn together(conn: &Connection, works: &mut [Box<dyn Work>]) -> Result<Load, Error> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let mut batch = Batch::new(&tx);
    for work in works {
        work.run(&mut batch)?;
    }
    let load = batch.load;
    batch.finish()?;
    tx.commit()?;
    Ok(load)
}

/// Still one commit, but what a failing command did is taken back alone. Savepoints cost too much
/// to have them always.
fn each_by_itself(
    conn: &Connection,
    works: &mut [Box<dyn Work>],
) -> Result<(Load, Vec<Result<(), Error>>), Error> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(works.len());
    let mut load = Load::default();
    for work in works {
        tx.execute_batch("SAVEPOINT command")?;
        let mut batch = Batch::new(&tx);
        let outcome = work.run(&mut batch);
        let its = batch.load;
        let outcome = outcome.and_then(|()| batch.finish());
        match outcome {
            Ok(()) => load = load.plus(its),
            Err(error @ Error::Unavailable(_)) => return Err(error),
            Err(_) => tx.execute_batch("ROLLBACK TO command")?,
        }
        tx.execute_batch("RELEASE command")?;
        outcomes.push(outcome);
    }
    tx.commit()?;
    Ok((load, outcomes))
}

/// A command in the queue, whatever it answers with.
trait Work: Send {
    fn cost(&self) -> Cost;
    fn urgency(&self) -> Urgency;
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), Error>;
    fn answer(self: Box<Self>, committed: Result<(), Error>);
}

struct Command<T, F> {
    cost: Cost,
    urgency: Urgency,
    run: F,
    outcome: Option<T>,
    reply: oneshot::Sender<(Result<T, Error>, F)>,
}

impl<T: Send, F: FnMut(&mut Batch<'_>) -> Result<T, Error> + Send> Work for Command<T, F> {
    fn cost(&self) -> Cost {
        self.cost
    }

    fn urgency(&self) -> Urgency {
        self.urgency
    }

    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), Error> {
        self.outcome = Some((self.run)(batch)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), Error>) {
        let Self { outcome, reply, run, .. } = *self;
        // Whoever asked may have gone; what was committed stays.
        let _ = reply.send((committed.and_then(|()| outcome.ok_or(Error::Closed)), run));
    }
}

/// Keeps a lasting trouble from filling the log.
#[derive(Default)]
struct Complaints {
    last: Option<Instant>,
}

impl Complaints {
    fn raise(&mut self, error: &Error) {
        if self.is_due(Instant::now()) {
            tracing::warn!(%error, "the store cannot write");
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now.duration_since(last) >= COMPLAINT_INTERVAL);
        if due {
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lasting_trouble_is_logged_once_a_second() {
        let start = Instant::now();
        let mut complaints = Complaints::default();
        let logged: Vec<u64> = (0..3_000)
            .filter(|millis| complaints.is_due(start + Duration::from_millis(*millis)))
            .collect();
        assert_eq!(logged, [0, 1_000, 2_000]);
    }
}
