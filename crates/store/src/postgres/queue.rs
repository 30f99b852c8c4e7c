//! What waits for the writers: bounded, in the order it came, and taken in as large pieces as there
//! are.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::config::{
    COMPANY, CROWD, LINGER, MAX_BYTES_PER_COMMIT, MAX_ROWS_PER_COMMIT, REGROUP, WORTH_ANOTHER,
    WRITE_QUEUE, WRITE_QUEUE_BYTES,
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
    rows: usize,
    bytes: usize,
    /// Since when the oldest has waited, and the oldest that is urgent.
    since: Option<Instant>,
    urgent_since: Option<Instant>,
    /// Batches that are being written.
    writing: usize,
    /// When the last one was, and how many commands it had together with those that waited then.
    written: Option<Instant>,
    company: usize,
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
    /// How many they were.
    commands: usize,
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
        let now = Instant::now();
        state.bytes += bytes;
        state.rows += command.cost.rows;
        state.since.get_or_insert(now);
        if command.urgency == Urgency::Now {
            state.urgent += 1;
            state.urgent_since.get_or_insert(now);
        }
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
        let mut state = self.state();
        state.writing -= 1;
        state.written = Some(Instant::now());
        state.company = batch.commands + state.free.len() + state.ordered.len();
        if batch.ordered {
            state.ordering = false;
            drop(state);
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
        let until = self.until();
        if !self.closed && until.is_some_and(|until| until > Instant::now()) {
            return Look::Wait(until);
        }
        let batch = self.gather();
        let more = !self.free.is_empty() || (!self.ordered.is_empty() && !self.ordering);
        Look::Ready(batch, more)
    }

    /// Until when what waits is to wait for company: every batch costs the server as much again as
    /// its rows do if these are few.
    ///
    /// Nobody waits for what is lazy. While another batch is being written, more is coming together
    /// by itself. And those who were answered by the last one are likely to come again at once: when
    /// they are many, a moment's patience saves a batch for each part of them.
    fn until(&self) -> Option<Instant> {
        let (Some(since), true) = (self.urgent_since, self.urgent > 0) else {
            return self.since.map(|since| since + LINGER);
        };
        if self.rows >= WORTH_ANOTHER {
            None
        } else if self.writing > 0 {
            Some(since + COMPANY)
        } else {
            let waiting = self.free.len() + self.ordered.len();
            let wanted = self.company >= CROWD && waiting < self.company;
            self.written.filter(|_| wanted).map(|written| written + REGROUP)
        }
    }

    fn gather(&mut self) -> Batch {
        let mut batch = Batch { works: Vec::new(), commands: 0, ordered: false };
        let (mut rows, mut bytes) = (0, 0);
        while rows < MAX_ROWS_PER_COMMIT && bytes < MAX_BYTES_PER_COMMIT {
            let mine = batch.ordered || !self.ordering;
            let ordered = if mine { self.ordered.pop_front() } else { None };
            batch.ordered |= ordered.is_some();
            self.ordering |= ordered.is_some();
            let Some(command) = ordered.or_else(|| self.free.pop_front()) else { break };
            rows += command.cost.rows;
            bytes += command.cost.bytes;
            self.rows -= command.cost.rows;
            self.bytes -= command.cost.bytes;
            self.urgent -= usize::from(command.urgency == Urgency::Now);
            batch.works.push(command.work);
        }
        let now = Instant::now();
        self.since = (!self.free.is_empty() || !self.ordered.is_empty()).then_some(now);
        self.urgent_since = (self.urgent > 0).then_some(now);
        self.writing += 1;
        batch.commands = batch.works.len();
        batch
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Somebody who waits for an answer, and is not there to hear it.
    fn command(rows: usize, urgency: Urgency) -> Command {
        let (reply, _) = oneshot::channel();
        Command::new(Work::Settle(Vec::new(), reply), Cost { rows, bytes: 0 }, urgency)
    }

    fn push(queue: &Queue, rows: usize) {
        queue.push(command(rows, Urgency::Now)).expect("room");
    }

    /// How many commands a batch has, and how long it took until it was there.
    async fn take(queue: &Queue) -> (usize, Duration) {
        let started = Instant::now();
        let batch = queue.take().await.expect("a batch");
        (batch.works.len(), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_urgent_goes_at_once_when_nothing_is_being_written() {
        let queue = Queue::new();
        push(&queue, 1);
        assert_eq!(take(&queue).await, (1, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_while_a_batch_is_written_waits_for_it_but_not_for_long() {
        let queue = Queue::new();
        push(&queue, 1);
        let first = queue.take().await.expect("a batch");
        push(&queue, 1);
        push(&queue, 1);
        assert!(matches!(queue.state().look(), Look::Wait(Some(_))));
        let (commands, waited) = take(&queue).await;
        assert_eq!(commands, 2);
        assert!(waited >= COMPANY, "{waited:?}");
        push(&queue, 1);
        // Two are being written: with one of them there is still another.
        queue.done(&first);
        assert!(matches!(queue.state().look(), Look::Wait(Some(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_batch_is_written_what_waited_goes_at_once() {
        let queue = Queue::new();
        push(&queue, 1);
        let first = queue.take().await.expect("a batch");
        push(&queue, 1);
        queue.done(&first);
        assert_eq!(take(&queue).await, (1, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn many_rows_are_worth_a_batch_of_their_own() {
        let queue = Queue::new();
        push(&queue, 1);
        let _first = queue.take().await.expect("a batch");
        push(&queue, WORTH_ANOTHER);
        assert_eq!(take(&queue).await, (1, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_waited_for_until_it_is_there_again() {
        let queue = Queue::new();
        for _ in 0..CROWD {
            push(&queue, 1);
        }
        let first = queue.take().await.expect("a batch");
        queue.done(&first);
        for _ in 1..CROWD {
            push(&queue, 1);
        }
        assert!(matches!(queue.state().look(), Look::Wait(Some(_))));
        push(&queue, 1);
        assert_eq!(take(&queue).await, (CROWD, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_what_is_lazy() {
        let queue = Queue::new();
        queue.push(command(1, Urgency::Lazy)).expect("room");
        let (commands, waited) = take(&queue).await;
        assert_eq!(commands, 1);
        assert!(waited >= LINGER, "{waited:?}");
    }
}
