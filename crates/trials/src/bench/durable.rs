//! Storing without a gateway around it: one writer with hand-written SQL, in the tables of the store,
//! that commits for everybody who waits, each commit on disk. A peer of the gateway that has it stores an
//! event and its delivery before it says yes, and notes that it was delivered; it routes, signs,
//! schedules and retries nothing.
//!
//! It is written as one would first write it. The writer copies its log into the database itself, which
//! the store leaves to a thread beside it: so this is not the most that storing allows.

use std::fmt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use postrider_core::EventId;
use postrider_core::id::Sequence;
use postrider_engine::ports::{Clock as _, SystemClock};
use rusqlite::Connection as Database;
use tokio::sync::oneshot;

use super::store_cycle::{Arrived, ByHand, Delivered, open_by_hand};

/// Commands that may wait for the writer: more than there are producers and pushes.
const QUEUE: usize = 8_192;
/// The most that go into one commit.
const MOST_TOGETHER: usize = 1_024;

/// The way to the writer, which ends with it.
#[derive(Debug)]
pub(crate) struct Durable {
    queue: SyncSender<Command>,
}

enum Command {
    Append(Append),
    Settle(Delivered),
}

struct Append {
    kind: String,
    body: Bytes,
    deliveries: usize,
    stored: oneshot::Sender<EventId>,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").finish_non_exhaustive()
    }
}

impl Durable {
    /// Opens the database in `folder`, which the store has made.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let database = open_by_hand(folder)?;
        let (queue, commands) = sync_channel(QUEUE);
        thread::Builder::new().name("writer".to_owned()).spawn(move || {
            if let Err(error) = serve(database, &commands) {
                eprintln!("the writer could not write: {error:#}");
            }
        })?;
        Ok(Self { queue })
    }

    /// Returns when the event and so many deliveries of it are on disk.
    pub(crate) async fn append(
        &self,
        kind: String,
        body: Bytes,
        deliveries: usize,
    ) -> Result<EventId> {
        let (stored, done) = oneshot::channel();
        self.send(Command::Append(Append { kind, body, deliveries, stored }))?;
        done.await.context("the writer has ended")
    }

    /// It is on disk with one of the next commits.
    pub(crate) fn settle(&self, delivered: Delivered) -> Result<()> {
        self.send(Command::Settle(delivered))
    }

    fn send(&self, command: Command) -> Result<()> {
        self.queue.try_send(command).map_err(|error| anyhow!("the writer's queue: {error}"))
    }
}

fn serve(mut database: Database, commands: &Receiver<Command>) -> Result<()> {
    let mut ids = Sequence::after(0);
    while let Ok(first) = commands.recv() {
        let others = commands.try_iter().take(MOST_TOGETHER - 1);
        let mut stored = Vec::new();
        let transaction = database.transaction()?;
        let mut by_hand = ByHand::new(&transaction)?;
        for command in std::iter::once(first).chain(others) {
            match command {
                Command::Append(Append { kind, body, deliveries, stored: reply }) => {
                    let at = SystemClock.now();
                    let id = EventId::from_i64(ids.take(at, 2));
                    by_hand.append(Arrived { id, at, kind: &kind, body: &body, deliveries })?;
                    stored.push((reply, id));
                }
                Command::Settle(delivered) => by_hand.settle(&delivered)?,
            }
        }
        by_hand.finish()?;
        transaction.commit()?;
        for (reply, id) in stored {
            // A producer that has gone does not want to know.
            let _ = reply.send(id);
        }
    }
    Ok(())
}
