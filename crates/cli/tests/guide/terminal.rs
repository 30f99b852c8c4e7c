//! A shell that types what it is given: one that goes on from block to block, or one for a command that
//! runs until it is stopped.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::eventually;

/// Said by the shell when a block has been run.
const ENDED: &str = "__the_block_has_ended__";

/// What a stream has said so far.
#[derive(Debug, Clone, Default)]
struct Said(Arc<Mutex<Stream>>);

#[derive(Debug, Default)]
struct Stream {
    text: String,
    is_over: bool,
}

impl Said {
    /// Reads until the end, on a thread of its own: a full pipe would stop the process.
    fn of(stream: impl Read + Send + 'static) -> Self {
        let said = Self::default();
        let writing = said.clone();
        thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                writing.change(|stream| stream.text.push_str(&String::from_utf8_lossy(&line)));
                line.clear();
            }
            writing.change(|stream| stream.is_over = true);
        });
        said
    }

    fn change(&self, change: impl FnOnce(&mut Stream)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
    }

    fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_over
    }
}

/// A process and all that it has started, gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdout: Said,
    stderr: Said,
}

impl Running {
    /// Starts a command, as the first of a group of its own.
    pub(crate) fn start(command: &mut Command) -> Self {
        use std::os::unix::process::CommandExt as _;
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = Said::of(child.stdout.take().expect("piped"));
        let stderr = Said::of(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    pub(crate) fn output(&self) -> String {
        self.stdout.text()
    }

    /// Waits until it has said something.
    #[track_caller]
    pub(crate) fn says(&self, wanted: &str) -> String {
        eventually(wanted, || {
            let text = self.stdout.text();
            if text.contains(wanted) {
                return Some(text);
            }
            assert!(!self.stdout.is_over(), "it ended: {text}\n{}", self.stderr.text());
            None
        })
    }

    /// What Ctrl-C does, to all of the group; returns when they are gone.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::INT);
        eventually("the end of a process", || self.child.try_wait().ok().flatten());
    }

    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // The group may be gone already.
        let _ = group.map(|group| kill_process_group(group, signal));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A shell whose variables stay from block to block. A command that fails ends it.
#[derive(Debug)]
pub(crate) struct Terminal {
    running: Running,
    stdin: ChildStdin,
    seen: usize,
}

impl Terminal {
    /// `command` is a shell that reads what to do from its input.
    pub(crate) fn open(command: &mut Command) -> Self {
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        let stdin = running.child.stdin.take().expect("piped");
        Self { running, stdin, seen: 0 }
    }

    /// Runs the commands of a file and returns what they printed.
    #[track_caller]
    pub(crate) fn run(&mut self, file: &str) -> String {
        writeln!(self.stdin, "source {file} < /dev/null; echo {ENDED}").expect("the shell reads");
        let said = eventually(file, || {
            let text = self.running.stdout.text();
            if let Some((said, _)) = text[self.seen..].split_once(ENDED) {
                return Some(said.to_owned());
            }
            let over = self.running.stdout.is_over();
            assert!(!over, "{file} failed: {text}\n{}", self.running.stderr.text());
            None
        });
        self.seen += said.len() + ENDED.len() + 1;
        said
    }
}
