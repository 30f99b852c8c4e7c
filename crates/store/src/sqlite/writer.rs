//! The one writer: a thread that puts everything waiting into one transaction, and answers only
//! when that is on disk.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{oneshot, watch};

use super::batch::Batch;
use super::checkpoint::{self, Checkpointer};
use super::config::{
    COMPLAINT_INTERVAL, LINGER, MAX_ROWS_PER_COMMIT, WRITE_QUEUE, WRITE_QUEUE_BYTES,
};
use crate::error::Error;
use crate::journal::Urgency;

/// The way to the writer.
pub(crate) struct Writer {
    queue: RwLock<Option<SyncSender<Box<dyn Work>>>>,
    queued_bytes: Arc<AtomicUsize>,
}

/// All that the thread owns, and gives up in order when it ends.
pub(crate) struct Belongings {
    pub(crate) conn: Connection,
    pub(crate) checkpointer: Checkpointer,
    /// Threads with connections of their own, which end before the database is closed.
    pub(crate) others: Vec<JoinHandle<()>>,
    pub(crate) lock: File,
    pub(crate) finished: watch::Sender<bool>,
}

/// What a command costs, to bound queues and transactions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl Writer {
    /// Starts the thread. It ends when the writer is closed and everything accepted is on disk.
    pub(crate) fn start(belongings: Belongings) -> Result<(Self, JoinHandle<()>), Error> {
        let (sender, receiver) = sync_channel(WRITE_QUEUE);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&queued_bytes);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || serve(belongings, &receiver, &taken))
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok((Self { queue: RwLock::new(Some(sender)), queued_bytes }, thread))
    }

    /// Runs `command` in the next transaction and answers when it is committed. The command may be
    /// run a second time if another one of the same transaction made it roll back.
    pub(crate) async fn submit<T: Send + 'static>(
        &self,
        cost: Cost,
        urgency: Urgency,
        command: impl FnMut(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Box::new(Command { cost, urgency, run: command, outcome: None, reply }))?;
        answer.await.map_err(|_| Error::Closed)?
    }

    fn enqueue(&self, work: Box<dyn Work>) -> Result<(), Error> {
        let bytes = work.cost().bytes;
        let before = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = if before > 0 && before.saturating_add(bytes) > WRITE_QUEUE_BYTES {
            Err(Error::Overloaded)
        } else {
            let queue = self.queue.read().unwrap_or_else(PoisonError::into_inner);
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

    pub(crate) fn close(&self) {
        self.queue.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn serve(belongings: Belongings, queue: &Receiver<Box<dyn Work>>, queued_bytes: &AtomicUsize) {
    let Belongings { conn, checkpointer, others, lock, finished } = belongings;
    let mut complaints = Complaints { last: None };
    while let Ok(first) = queue.recv() {
        let works = gather(first, queue);
        let bytes = works.iter().map(|work| work.cost().bytes).sum();
        queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        commit(&conn, works, &mut complaints);
        if let Err(error) = checkpointer.after_commit(&conn) {
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

/// Everything that waits, and if nobody waits for any of it, what else comes within [`LINGER`].
fn gather(first: Box<dyn Work>, queue: &Receiver<Box<dyn Work>>) -> Vec<Box<dyn Work>> {
    let mut urgent = first.urgency() == Urgency::Now;
    let mut rows = first.cost().rows;
    let mut works = vec![first];
    let mut take = |work: Box<dyn Work>, works: &mut Vec<Box<dyn Work>>| {
        rows += work.cost().rows;
        let urgent = work.urgency() == Urgency::Now;
        works.push(work);
        (rows >= MAX_ROWS_PER_COMMIT, urgent)
    };
    let mut deadline = None;
    loop {
        let next = match queue.try_recv() {
            Ok(work) => work,
            Err(_) if urgent => return works,
            Err(_) => {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + LINGER);
                match queue.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(work) => work,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                        return works;
                    }
                }
            }
        };
        let (full, now) = take(next, &mut works);
        urgent |= now;
        if full {
            return works;
        }
    }
}

/// Commits `works` together. If one of them cannot be done, the others are done without it; if the
/// database cannot be written at all, all of them are refused.
fn commit(conn: &Connection, mut works: Vec<Box<dyn Work>>, complaints: &mut Complaints) {
    match transact(conn, &mut works) {
        Ok(()) => {
            for work in works {
                work.answer(Ok(()));
            }
        }
        Err(error @ Error::Unavailable(_)) => {
            complaints.raise(&error);
            refuse(works, &error);
        }
        Err(error) => {
            if works.len() > 1 {
                for work in works {
                    commit(conn, vec![work], complaints);
                }
            } else {
                refuse(works, &error);
            }
        }
    }
}

fn refuse(works: Vec<Box<dyn Work>>, error: &Error) {
    for work in works {
        work.answer(Err(error.clone()));
    }
}

fn transact(conn: &Connection, works: &mut [Box<dyn Work>]) -> Result<(), Error> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let mut batch = Batch::new(&tx);
    for work in works {
        work.run(&mut batch)?;
    }
    batch.finish()?;
    Ok(tx.commit()?)
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
    reply: oneshot::Sender<Result<T, Error>>,
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
        let Self { outcome, reply, .. } = *self;
        // Whoever asked may have gone; what was committed stays.
        let _ = reply.send(committed.and_then(|()| outcome.ok_or(Error::Closed)));
    }
}

/// Keeps a lasting trouble from filling the log.
struct Complaints {
    last: Option<Instant>,
}

impl Complaints {
    fn raise(&mut self, error: &Error) {
        let now = Instant::now();
        if self.last.is_none_or(|last| now.duration_since(last) >= COMPLAINT_INTERVAL) {
            self.last = Some(now);
            tracing::warn!(%error, "the store cannot write");
        }
    }
}
