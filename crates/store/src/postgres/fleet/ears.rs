//! Those in this process who hear, and what they have yet to take.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::fleet::{Heard, NodeId, To};
use crate::postgres::config::MAX_ROOM;

/// All hearers, and the nodes whose words are to be listened for.
#[derive(Default)]
pub(crate) struct Ears {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: bool,
    hearers: Vec<Hearer>,
    wanted: BTreeSet<NodeId>,
    /// Grows with every change of what is wanted.
    serial: u64,
}

struct Hearer {
    node: NodeId,
    /// Has room for one more than the words that it may hold, so that the gap behind them fits.
    way: mpsc::Sender<Heard>,
    /// The last that was put in is the gap.
    gap_is_last: bool,
}

/// Whose words are to be listened for.
pub(crate) struct Wanted {
    pub(crate) nodes: BTreeSet<NodeId>,
    pub(crate) serial: u64,
}

impl Ears {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Words to `node` are to be listened for. Returns the serial of the change.
    pub(crate) fn want(&self, node: NodeId) -> u64 {
        let mut state = self.state();
        state.want(node);
        state.serial
    }

    /// Nobody is `node` any more.
    pub(crate) fn forget(&self, node: NodeId) {
        let mut state = self.state();
        if state.wanted.remove(&node) {
            state.serial += 1;
        }
    }

    pub(crate) fn wanted(&self) -> Wanted {
        let state = self.state();
        Wanted { nodes: state.wanted.clone(), serial: state.serial }
    }

    pub(crate) fn hear(&self, node: NodeId, room: usize) -> mpsc::Receiver<Heard> {
        let (way, heard) = mpsc::channel(room.clamp(1, MAX_ROOM) + 1);
        let mut state = self.state();
        state.drop_closed();
        if !state.ended {
            state.want(node);
            state.hearers.push(Hearer { node, way, gap_is_last: false });
        }
        heard
    }

    /// Hands a word to those whom it concerns.
    pub(crate) fn take(&self, from: NodeId, to: To, word: &str) {
        let mut state = self.state();
        state.drop_closed();
        for hearer in &mut state.hearers {
            let concerned = match to {
                To::Node(node) => hearer.node == node,
                To::All => hearer.node != from,
            };
            if concerned {
                hearer.take(Heard::Word { from, word: word.to_owned() });
            }
        }
    }

    /// Something may have been missed that was told to one of `nodes`.
    pub(crate) fn gap(&self, nodes: &BTreeSet<NodeId>) {
        let mut state = self.state();
        for hearer in &mut state.hearers {
            if nodes.contains(&hearer.node) {
                hearer.gap();
            }
        }
    }

    /// Something may have been missed by everybody.
    pub(crate) fn gap_for_all(&self) {
        self.state().hearers.iter_mut().for_each(Hearer::gap);
    }

    /// Nobody will be told anything any more, and those who hear see it.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.hearers.clear();
    }
}

impl State {
    fn want(&mut self, node: NodeId) {
        if self.wanted.insert(node) {
            self.serial += 1;
        }
    }

    /// Those who have gone need nothing to be listened for.
    fn drop_closed(&mut self) {
        let Self { hearers, wanted, serial, .. } = self;
        let gone: Vec<NodeId> = hearers
            .extract_if(.., |hearer| hearer.way.is_closed())
            .map(|hearer| hearer.node)
            .collect();
        for node in gone {
            if hearers.iter().all(|hearer| hearer.node != node) && wanted.remove(&node) {
                *serial += 1;
            }
        }
    }
}

impl Hearer {
    fn take(&mut self, word: Heard) {
        if self.way.capacity() > 1 {
            self.gap_is_last = self.way.try_send(word).is_err();
        } else {
            self.gap();
        }
    }

    fn gap(&mut self) {
        // A gap that is yet to be heard stands for this one too.
        let told = self.gap_is_last && self.way.capacity() < self.way.max_capacity();
        if !told {
            self.gap_is_last = self.way.try_send(Heard::Gap).is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    fn word(word: &str) -> Heard {
        Heard::Word { from: OTHER, word: word.to_owned() }
    }

    fn drain(heard: &mut mpsc::Receiver<Heard>) -> Vec<Heard> {
        std::iter::from_fn(|| heard.try_recv().ok()).collect()
    }

    #[test]
    fn what_nobody_takes_ends_in_one_gap() {
        let ears = Ears::default();
        let mut heard = ears.hear(ME, 2);
        for number in 0..10 {
            ears.take(OTHER, To::All, &number.to_string());
        }
        ears.gap_for_all();
        assert_eq!(drain(&mut heard), [word("0"), word("1"), Heard::Gap]);
        ears.take(OTHER, To::Node(ME), "a");
        ears.gap_for_all();
        ears.gap_for_all();
        assert_eq!(drain(&mut heard), [word("a"), Heard::Gap]);
        ears.gap_for_all();
        assert_eq!(drain(&mut heard), [Heard::Gap], "the one before was heard");
    }

    #[test]
    fn whose_words_are_wanted_follows_who_hears() {
        let ears = Ears::default();
        let wanted = || ears.wanted().nodes.into_iter().collect::<Vec<_>>();
        let first = ears.want(ME);
        assert_eq!((wanted(), ears.want(ME)), (vec![ME], first));
        let heard = [ears.hear(ME, 1), ears.hear(ME, 1), ears.hear(OTHER, 1)];
        assert_eq!(wanted(), [ME, OTHER]);
        let [one, two, _still] = heard;
        drop(one);
        ears.take(OTHER, To::All, "");
        assert_eq!(wanted(), [ME, OTHER], "there is another");
        drop(two);
        ears.take(OTHER, To::All, "");
        assert_eq!(wanted(), [OTHER]);
        ears.forget(OTHER);
        assert!(wanted().is_empty());
    }
}
