//! What a process writes, line by line, for tests that wait for a line or for the end.

use std::io::{BufRead as _, BufReader, Read};
use std::thread;

use tokio::sync::watch;

use crate::within;

/// A process that writes more than this is broken.
const MAX_LINES: usize = 200_000;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) lines: Vec<String>,
    pub(crate) ended: bool,
}

/// One of the two streams of a process.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    lines: watch::Receiver<Lines>,
}

impl Output {
    /// Reads until the stream ends, on a thread of its own: a full pipe would stop the process.
    pub(crate) fn of(stream: impl Read + Send + 'static) -> Self {
        let (sender, lines) = watch::channel(Lines::default());
        thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                line.clear();
                sender.send_modify(|output| {
                    assert!(output.lines.len() < MAX_LINES, "the process writes without end");
                    output.lines.push(text);
                });
            }
            sender.send_modify(|output| output.ended = true);
        });
        Self { lines }
    }

    /// The first line that `wanted` picks, or none if the stream ends without.
    pub(crate) async fn line(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let mut lines = self.lines.clone();
        let find = |output: &Lines| output.lines.iter().find(|line| wanted(line)).cloned();
        let seen = lines.wait_for(|output| output.ended || find(output).is_some());
        let output = within("a line", seen).await.expect("the reader tells when it ends");
        find(&output)
    }

    /// Waits until there are so many lines that `wanted` picks; false if the stream ends without.
    pub(crate) async fn lines_of(&self, count: usize, wanted: impl Fn(&str) -> bool) -> bool {
        let mut lines = self.lines.clone();
        let enough =
            |output: &Lines| output.lines.iter().filter(|line| wanted(line)).count() >= count;
        let seen = lines.wait_for(|output| output.ended || enough(output));
        let output = within("a line", seen).await.expect("the reader tells when it ends");
        enough(&output)
    }

    pub(crate) async fn ended(&self) {
        let mut lines = self.lines.clone();
        let ended = lines.wait_for(|output| output.ended);
        within("the end of the process", ended).await.expect("the reader tells when it ends");
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.borrow().lines.clone()
    }

    pub(crate) fn text(&self) -> String {
        self.lines.borrow().lines.join("\n")
    }
}
