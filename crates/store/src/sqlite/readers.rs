//! Threads that answer questions, each with a connection of its own. They see a snapshot of the
//! last commit, and never hold up the writer.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::config::{Options, READ_QUEUE};
use super::file;
use super::writer::Inline;
use crate::error::Error;
use crate::vitals::Vitals;

type Question = Box<dyn FnOnce(&Connection) + Send>;

/// A queue of questions and the threads that serve it.
pub(crate) struct Readers {
    way: Way,
    vitals: Arc<Vitals>,
}

enum Way {
    Queue(RwLock<Option<SyncSender<Question>>>),
    /// Whoever asks finds the answer too.
    Inline(Inline),
}

impl Readers {
    /// Starts `count` threads. They end when the readers are closed and the queue is empty.
    pub(crate) fn start(
        name: &str,
        count: usize,
        path: &Path,
        options: &Options,
        vitals: &Arc<Vitals>,
    ) -> Result<(Self, Vec<JoinHandle<()>>), Error> {
        let (sender, receiver) = sync_channel(READ_QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let conn = file::connect_reader(path, options)?;
            let receiver = Arc::clone(&receiver);
            let thread = thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || serve(&conn, &receiver))
                .map_err(|error| Error::Unavailable(error.to_string()))?;
            threads.push(thread);
        }
        let way = Way::Queue(RwLock::new(Some(sender)));
        Ok((Self { way, vitals: Arc::clone(vitals) }, threads))
    }

    /// Without threads: on the connection that the writer uses.
    pub(crate) fn inline(conn: Inline, vitals: &Arc<Vitals>) -> Self {
        Self { way: Way::Inline(conn), vitals: Arc::clone(vitals) }
    }

    /// Answers `question` from one snapshot.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.vitals.watch(self.pose(question).await)
    }

    async fn pose<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let queue = match &self.way {
            Way::Queue(queue) => queue,
            Way::Inline(conn) => {
                // Nobody writes while it is locked, so what is read is of one moment.
                let conn = conn.lock().unwrap_or_else(PoisonError::into_inner);
                return question(conn.as_ref().ok_or(Error::Closed)?);
            }
        };
        let (reply, answer) = oneshot::channel();
        let asked: Question = Box::new(move |conn| {
            if !reply.is_closed() {
                // Nobody to hear the answer is no failure.
                let _ = reply.send(in_snapshot(conn, question));
            }
        });
        {
            let questions = queue.read().unwrap_or_else(PoisonError::into_inner);
            let sender = questions.as_ref().ok_or(Error::Closed)?;
            sender.try_send(asked).map_err(|error| match error {
                TrySendError::Full(_) => Error::Overloaded,
                TrySendError::Disconnected(_) => Error::Closed,
            })?;
        }
        answer.await.map_err(|_| Error::Closed)?
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

fn serve(conn: &Connection, questions: &Mutex<Receiver<Question>>) {
    loop {
        let next = questions.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(question) => question(conn),
            Err(_) => return,
        }
    }
}

fn in_snapshot<T>(
    conn: &Connection,
    question: impl FnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    let tx = conn.unchecked_transaction()?;
    let answer = question(&tx)?;
    tx.commit()?;
    Ok(answer)
}
