//! What waits for the writers: bounded, in the order it came, and taken in as large pieces as there
//! are.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::config::{
    LINGER, MAX_BYTES_PER_COMMIT, MAX_ROWS_PER_COMMIT, WRITE_QUEUE, WRITE_QUEUE_BYTES,
};
use crate::error::Error;
use crate::journal::{Appended, Urgency};
use crate::record::{NewEvent, Settle, Settled};

pub(crate) struct Queue {
    state: Mutex<State>,
    /// Told when there may be something for another writer to do.
    wake: Notify,
}

#[derive(Default)]
struct State {
    free: VecDeque<Command>,
    /// Appends to lines. One writer at a time has any of them: lines are formed in the order of the
    /// calls.
    ordered: VecDeque<Command>,
    ordering: bool,
    /// In both.
    urgent: usize,
    bytes: usize,
    /// Since when the oldest has waited, while none is urgent.
    since: Option<Instant>,
    closed: bool,
}

/// What a command costs, to bound queues and transactions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

/// Something to be written, and who waits for it.
pub(crate) struct Command {
    pub(crate) work: Work,
    cost: Cost,
    urgency: Urgency,
}

pub(crate) enum Work {
    Append(Vec<NewEvent>, oneshot::Sender<Result<Vec<Appended>, Error>>),
    Settle(Vec<Settle>, oneshot::Sender<Result<Vec<Settled>, Error>>),
}

impl Work {
    pub(crate) fn refuse(self, error: Error) {
        // Nobody to hear it is no failure.
        match self {
            Self::Append(_, reply) => drop(reply.send(Err(error))),
            Self::Settle(_, reply) => drop(reply.send(Err(error))),
        }
    }
}

impl Command {
    pub(crate) fn new(work: Work, cost: Cost, urgency: Urgency) -> Self {
        Self { work, cost, urgency }
    }

    fn is_ordered(&self) -> bool {
        match &self.work {
            Work::Append(events, _) => {
                events.iter().flat_map(|new| &new.deliveries).any(|new| new.line.is_some())
            }
            Work::Settle(..) => false,
        }
    }
}

/// What one writer commits at a time.
pub(crate) struct Batch {
    pub(crate) works: Vec<Work>,
    /// It has appends to lines, which nobody else may have meanwhile.
    ordered: bool,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), wake: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, command: Command) -> Result<(), Error> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::Closed);
        }
        let bytes = command.cost.bytes;
        let full = state.free.len() + state.ordered.len() >= WRITE_QUEUE;
        if full || (state.bytes > 0 && state.bytes.saturating_add(bytes) > WRITE_QUEUE_BYTES) {
            return Err(Error::Overloaded);
        }
        state.bytes += bytes;
        state.urgent += usize::from(command.urgency == Urgency::Now);
        state.since.get_or_insert_with(Instant::now);
        if command.is_ordered() {
            state.ordered.push_back(command);
        } else {
            state.free.push_back(command);
        }
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// The next that is to be written; none when the queue is closed and empty.
    pub(crate) async fn take(&self) -> Option<Batch> {
        loop {
            let told = self.wake.notified();
            let patience = match self.state().look() {
                Look::Ready(batch, more) => {
                    if more {
                        self.wake.notify_one();
                    }
                    return Some(batch);
                }
                Look::Through => {
                    // The others are to see it too.
                    self.wake.notify_one();
                    return None;
                }
                Look::Wait(until) => until,
            };
            match patience {
                // Either way, it is time to look again.
                Some(until) => drop(timeout_at(until, told).await),
                None => told.await,
            }
        }
    }

    /// Called when a batch has been written, or not.
    pub(crate) fn done(&self, batch: &Batch) {
        if batch.ordered {
            self.state().ordering = false;
            self.wake.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.wake.notify_one();
    }
}

enum Look {
    /// And whether there is more for somebody else.
    Ready(Batch, bool),
    Wait(Option<Instant>),
    Through,
}

impl State {
    fn look(&mut self) -> Look {
        let ordered = !self.ordered.is_empty() && !self.ordering;
        if self.free.is_empty() && !ordered {
            return if self.closed && self.ordered.is_empty() {
                Look::Through
            } else {
                Look::Wait(None)
            };
        }
        let until = self.since.map(|since| since + LINGER);
        if self.urgent == 0 && !self.closed && until.is_some_and(|until| until > Instant::now()) {
            return Look::Wait(until);
        }
        let batch = self.gather();
        let more = !self.free.is_empty() || (!self.ordered.is_empty() && !self.ordering);
        Look::Ready(batch, more)
    }

    fn gather(&mut self) -> Batch {
        let mut batch = Batch { works: Vec::new(), ordered: false };
        let (mut rows, mut bytes) = (0, 0);
        while rows < MAX_ROWS_PER_COMMIT && bytes < MAX_BYTES_PER_COMMIT {
            let mine = batch.ordered || !self.ordering;
            let ordered = if mine { self.ordered.pop_front() } else { None };
            batch.ordered |= ordered.is_some();
            self.ordering |= ordered.is_some();
            let Some(command) = ordered.or_else(|| self.free.pop_front()) else { break };
            rows += command.cost.rows;
            bytes += command.cost.bytes;
            self.bytes -= command.cost.bytes;
            self.urgent -= usize::from(command.urgency == Urgency::Now);
            batch.works.push(command.work);
        }
        self.since = (!self.free.is_empty() || !self.ordered.is_empty()).then(Instant::now);
        batch
    }
}
