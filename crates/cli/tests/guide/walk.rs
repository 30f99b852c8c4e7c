//! A reader with a page: goes through its commands in their order, in one terminal, and opens another for
//! each command that runs until it is stopped.

use std::collections::VecDeque;

use serde_json::Value;

use crate::script::{self, Block};
use crate::terminal::{Running, Terminal};
use crate::world::World;
use crate::{KEY, eventually};

/// What runs until it is stopped, and what shows that it is there.
const FOREVER: [(&str, Ready); 7] = [
    ("postrider serve", Ready::Says("    -d ")),
    ("-- serve", Ready::Says("    -d ")),
    ("-- demo", Ready::Says("http://")),
    ("serve_forever", Ready::Holds("exec 3<>/dev/tcp/127.0.0.1/9000")),
    ("postrider work", Ready::AtOnce),
    ("postrider hub ", Ready::AtOnce),
    ("/v1/stream", Ready::AtOnce),
];

#[derive(Debug, Clone, Copy)]
enum Ready {
    Says(&'static str),
    /// When a command succeeds.
    Holds(&'static str),
    AtOnce,
}

#[derive(Debug)]
pub(crate) struct Walk {
    page: &'static str,
    // The terminals end before the world does.
    terminal: Terminal,
    running: Vec<(String, Running)>,
    blocks: VecDeque<Block>,
    pub(crate) world: World,
}

impl Walk {
    pub(crate) fn of(page: &'static str) -> Self {
        let world = World::make();
        let terminal = world.terminal();
        Self { page, terminal, running: Vec::new(), blocks: script::read(page).into(), world }
    }

    /// Types what is next, which has to be under this heading and to contain these words. Returns what it
    /// printed; of what runs on, nothing.
    #[track_caller]
    pub(crate) fn types(&mut self, heading: &str, words: &str) -> String {
        let block = self.next(heading, words);
        let forever = FOREVER.iter().find(|(needle, _)| block.code.contains(needle));
        let Some((_, ready)) = forever else {
            let file = self.world.file(&block.code);
            return self.terminal.run(&file);
        };
        let running = self.world.start(&block.code);
        match ready {
            Ready::Says(words) => drop(running.says(words)),
            Ready::Holds(code) => {
                eventually("a receiver", || self.world.holds(code).then_some(()));
            }
            Ready::AtOnce => {}
        }
        self.running.push((words.to_owned(), running));
        String::new()
    }

    /// Leaves out what is next, for a reason.
    #[track_caller]
    pub(crate) fn leaves_out(&mut self, heading: &str, words: &str, _reason: &str) {
        self.next(heading, words);
    }

    /// What was started with these words.
    #[track_caller]
    pub(crate) fn running(&self, words: &str) -> &Running {
        let found = self.running.iter().rev().find(|(known, _)| known == words);
        &found.unwrap_or_else(|| panic!("{words} was not started")).1
    }

    /// Ctrl-C.
    #[track_caller]
    pub(crate) fn stops(&mut self, words: &str) {
        let at = self.running.iter().rposition(|(known, _)| known == words);
        let at = at.unwrap_or_else(|| panic!("{words} was not started"));
        self.running.remove(at).1.stop();
    }

    /// Waits until the gateway shows something.
    #[track_caller]
    pub(crate) fn sees<T>(&self, path: &str, mut look: impl FnMut(&Value) -> Option<T>) -> T {
        eventually(path, || look(&self.world.get(path)))
    }

    /// Nothing of the page is left.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        assert_eq!(self.blocks.pop_front().map(|block| block.code), None, "in {}", self.page);
        for (_, running) in std::mem::take(&mut self.running).into_iter().rev() {
            running.stop();
        }
    }

    #[track_caller]
    fn next(&mut self, heading: &str, words: &str) -> Block {
        let block = self.blocks.pop_front();
        let block = block.unwrap_or_else(|| panic!("{} has no more commands", self.page));
        let is_it = block.heading == heading && block.code.contains(words);
        assert!(is_it, "{}: not {words:?} under {heading:?} but {block:?}", self.page);
        block
    }
}

/// The rows of a list that have these values.
pub(crate) fn rows<'a>(list: &'a Value, wanted: &[(&str, &str)]) -> Vec<&'a Value> {
    let data = list["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    data.iter().filter(|row| wanted.iter().all(|(field, value)| row[*field] == *value)).collect()
}

/// The commands choose the key that this test asks with.
#[test]
fn every_page_uses_the_same_key() {
    for page in ["README.md", "docs/guide/quick-start.md", "docs/guide/recipe-inbox.md"] {
        let chosen = script::read(page).iter().any(|block| block.code.contains(KEY));
        assert!(chosen, "{page}");
    }
}
