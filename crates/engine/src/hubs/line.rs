//! One connection of a hub: what was sent down it and has not been answered.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use postrider_core::hub::{Answer, Deliver};
use tokio::sync::{mpsc, oneshot};

use super::{Ending, HubConnection, OutOfTurn};

#[derive(Debug)]
pub(super) struct Line {
    pub(super) connection: HubConnection,
    /// None once it has ended.
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    last: u64,
    /// In the order they were sent, in which they come back if the line ends.
    unanswered: BTreeMap<u64, oneshot::Sender<Answer>>,
    outgoing: mpsc::Sender<Deliver>,
    ending: oneshot::Sender<Ending>,
}

impl Line {
    pub(super) fn new(
        connection: HubConnection,
    ) -> (Self, mpsc::Receiver<Deliver>, oneshot::Receiver<Ending>) {
        // No more than it can hold are ever under way, so there is always room for one.
        let (outgoing, sent) = mpsc::channel(connection.capacity.max(1) as usize);
        let (ending, ended) = oneshot::channel();
        let open = Open { last: 0, unanswered: BTreeMap::new(), outgoing, ending };
        (Self { connection, open: Mutex::new(Some(open)) }, sent, ended)
    }

    /// Numbers a delivery and sends it. None if the line has ended, or the hub's hands are full.
    pub(super) fn send(&self, deliver: Deliver) -> Option<oneshot::Receiver<Answer>> {
        let mut open = self.open.lock();
        let open = open.as_mut()?;
        if open.unanswered.len() >= self.connection.capacity as usize {
            return None;
        }
        let seq = open.last + 1;
        open.outgoing.try_send(Deliver { seq, ..deliver }).ok()?;
        open.last = seq;
        let (answer, answered) = oneshot::channel();
        open.unanswered.insert(seq, answer);
        Some(answered)
    }

    pub(super) fn answer(&self, answer: Answer) -> Result<(), OutOfTurn> {
        let mut open = self.open.lock();
        // What still comes after the end is answered by nobody.
        let Some(open) = open.as_mut() else { return Ok(()) };
        let asked = open.unanswered.remove(&answer.seq).ok_or(OutOfTurn)?;
        // Whoever asked may have gone; then nobody wants to know.
        drop(asked.send(answer));
        Ok(())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.open.lock().is_none()
    }

    /// Ends the line, if it has not ended before. What is unanswered is lost.
    pub(super) fn end(&self, why: Ending) {
        let open = self.open.lock().take();
        if let Some(open) = open {
            // The other end may be gone already.
            let _gone = open.ending.send(why);
        }
    }
}
