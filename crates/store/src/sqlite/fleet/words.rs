//! Word from one node to another: in memory, heard in the order it was told.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::fleet::{Heard, MAX_WORD, NodeId, To};

/// Nobody is kept more words than this.
const MAX_ROOM: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Words {
    hearers: Mutex<Hearers>,
}

#[derive(Default)]
struct Hearers {
    ended: bool,
    /// In the order they began: all is repeatable.
    list: Vec<Hearer>,
}

struct Hearer {
    node: NodeId,
    /// Has room for one more than the words that it may hold, so that the gap behind them always
    /// fits.
    way: mpsc::Sender<Heard>,
    /// The last that was put in was the gap.
    gap_is_last: bool,
}

impl Words {
    pub(crate) fn tell(&self, from: NodeId, to: To, word: &str) {
        if word.len() > MAX_WORD {
            return;
        }
        let mut hearers = self.lock();
        hearers.list.retain(|hearer| !hearer.way.is_closed());
        for hearer in &mut hearers.list {
            let concerns = match to {
                To::Node(node) => hearer.node == node,
                To::All => hearer.node != from,
            };
            if concerns {
                hearer.take(Heard::Word { from, word: word.to_owned() });
            }
        }
    }

    pub(crate) fn hear(&self, node: NodeId, room: usize) -> mpsc::Receiver<Heard> {
        let (way, heard) = mpsc::channel(room.clamp(1, MAX_ROOM) + 1);
        let mut hearers = self.lock();
        hearers.list.retain(|hearer| !hearer.way.is_closed());
        if !hearers.ended {
            hearers.list.push(Hearer { node, way, gap_is_last: false });
        }
        heard
    }

    /// Nobody will be told anything any more, and those who listen see it.
    pub(crate) fn end(&self) {
        let mut hearers = self.lock();
        hearers.ended = true;
        hearers.list.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Hearers> {
        self.hearers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hearer {
    fn take(&mut self, word: Heard) {
        if self.way.capacity() > 1 {
            self.put(word);
        } else if !self.gap_is_last {
            self.put(Heard::Gap);
        }
        // Otherwise the gap that it has yet to hear stands for this word too.
    }

    fn put(&mut self, heard: Heard) {
        self.gap_is_last = heard == Heard::Gap;
        // There is room: one that does not get it listens no more.
        let _ = self.way.try_send(heard);
    }
}
