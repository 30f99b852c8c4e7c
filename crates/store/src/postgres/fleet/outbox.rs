//! Words that wait to be sent: few, and not for long.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::fleet::{MAX_WORD, NodeId, To};
use crate::postgres::config::{COMPLAINT_INTERVAL, OUTBOX, WORD_LIFE, WORDS_AT_ONCE};

#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: bool,
    waiting: VecDeque<Outgoing>,
    /// How many were never sent, and when that was last said.
    lost: u64,
    said: Option<Instant>,
}

/// A word on its way.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) from: NodeId,
    pub(crate) to: To,
    pub(crate) word: String,
    at: Instant,
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is no room for is lost.
    pub(crate) fn put(&self, from: NodeId, to: To, word: String, at: Instant) {
        let mut state = self.state();
        if word.len() > MAX_WORD || state.ended || state.waiting.len() >= OUTBOX {
            state.lose(1, at);
        } else {
            state.waiting.push_back(Outgoing { from, to, word, at });
        }
    }

    /// What is to be sent next; nothing, if nothing waits.
    pub(crate) fn take(&self, now: Instant) -> Vec<Outgoing> {
        let mut state = self.state();
        let fresh = |out: &Outgoing| now.saturating_duration_since(out.at) < WORD_LIFE;
        let late = state.waiting.iter().take_while(|out| !fresh(out)).count();
        state.waiting.drain(..late);
        state.lose(late, now);
        let count = state.waiting.len().min(WORDS_AT_ONCE);
        state.waiting.drain(..count).collect()
    }

    /// Nothing is sent any more.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.waiting.clear();
    }
}

impl State {
    fn lose(&mut self, count: usize, now: Instant) {
        if count == 0 {
            return;
        }
        self.lost += count as u64;
        let due = |said: Instant| now.saturating_duration_since(said) >= COMPLAINT_INTERVAL;
        if self.said.is_none_or(due) {
            self.said = Some(now);
            tracing::debug!(lost = self.lost, "words to other nodes were not sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);

    #[test]
    fn what_is_too_much_too_long_or_too_late_is_lost() {
        let (outbox, now) = (Outbox::default(), Instant::now());
        outbox.put(ME, To::All, "late".to_owned(), now);
        let later = now + WORD_LIFE;
        outbox.put(ME, To::All, "x".repeat(MAX_WORD + 1), later);
        for number in 0..OUTBOX {
            outbox.put(ME, To::All, number.to_string(), later);
        }
        let mut sent = Vec::new();
        loop {
            let batch = outbox.take(later);
            if batch.is_empty() {
                break;
            }
            assert!(batch.len() <= WORDS_AT_ONCE);
            sent.extend(batch.into_iter().map(|out| out.word));
        }
        let expected: Vec<String> = (0..OUTBOX - 1).map(|number| number.to_string()).collect();
        assert_eq!(sent, expected);
        assert_eq!(outbox.state().lost, 3, "one late, one too long, one too many");
        outbox.end();
        outbox.put(ME, To::All, "x".to_owned(), later);
        assert!(outbox.take(later).is_empty());
    }
}
