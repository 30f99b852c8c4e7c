//! A program that is run for each delivery, and all that it starts.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::anyhow;
use postrider_client::pull::{MAX_ERROR_CHARS, MAX_RESULT_CHARS};
use postrider_client::worker::Work;
use postrider_core::{Trace, span};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::Failure;

/// How much is kept of the end of what a program writes: room for every character that is told of.
const TAIL_BYTES: usize = 4 * MAX_ERROR_CHARS;
const CHUNK_BYTES: usize = 4 << 10;
/// How long its streams are read on after it has ended: only what has left its group can keep them
/// open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What this command and the gateway know by such names is not for the program, least of all a key.
const OUR_VARIABLES: &str = "POSTRIDER_";
const TRACE_VARIABLES: [&str; 2] = ["TRACEPARENT", "TRACESTATE"];

#[derive(Debug)]
pub(super) struct Program {
    name: OsString,
    arguments: Vec<OsString>,
    timeout: Duration,
    /// Whether its output is passed on.
    passes_on: bool,
    withheld: Vec<OsString>,
}

/// How a run ended, and what it said.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) end: End,
    /// The end of what it wrote to its standard error, as one line.
    pub(super) complaints: String,
    /// The last line on its standard output, if it can be a result.
    pub(super) last_line: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Exited(i32),
    Signalled(i32),
    /// Killed because this is as long as it may run.
    Late(Duration),
    Unstarted(String),
}

impl Ran {
    /// What went wrong, with as much of the program's own words as an error may have.
    pub(super) fn complaint(&self) -> String {
        let said = match &self.end {
            End::Exited(code) => format!("exit code {code}"),
            End::Signalled(number) => format!("ended by signal {number}"),
            End::Late(limit) => {
                format!("did not end within {} and was killed", span::format(*limit))
            }
            End::Unstarted(reason) => format!("could not be run: {reason}"),
        };
        if self.complaints.is_empty() {
            return said;
        }
        let room = MAX_ERROR_CHARS.saturating_sub(said.chars().count() + 2);
        let surplus = self.complaints.chars().count().saturating_sub(room);
        let tail: String = self.complaints.chars().skip(surplus).collect();
        format!("{said}: {tail}")
    }
}

impl Program {
    pub(super) fn new(
        words: &[OsString],
        timeout: Duration,
        passes_on: bool,
    ) -> Result<Self, Failure> {
        let Some((name, arguments)) = words.split_first() else {
            return Err(Failure::usage(anyhow!("name a program after --")));
        };
        // Found out here rather than at the cost of the first deliveries.
        if !can_be_run(name) {
            let name = name.display();
            return Err(Failure::usage(anyhow!("`{name}` is no program that can be run")));
        }
        // What is about this program, and not about what the other one is run for.
        let ours = |name: &OsString| {
            name.as_bytes().starts_with(OUR_VARIABLES.as_bytes())
                || TRACE_VARIABLES.iter().any(|known| name == known)
        };
        Ok(Self {
            name: name.clone(),
            arguments: arguments.to_vec(),
            timeout,
            passes_on,
            withheld: env::vars_os().map(|(name, _)| name).filter(ours).collect(),
        })
    }

    /// Runs it to its end. Dropping the future kills it.
    pub(super) async fn run(&self, work: &Work) -> Ran {
        let mut child = match self.start(work) {
            Ok(child) => child,
            Err(error) => {
                let end = End::Unstarted(error.to_string());
                return Ran { end, complaints: String::new(), last_line: None };
            }
        };
        let group = Group::of(&child);
        let (mut printed, mut complaints) = (Tail::default(), Tail::default());
        let end = {
            let (stdin, stdout, stderr) =
                (child.stdin.take(), child.stdout.take(), child.stderr.take());
            let give = async {
                if let Some(mut stdin) = stdin {
                    // A program need not read its input: its exit code counts.
                    let _ = stdin.write_all(&work.event.body).await;
                }
            };
            let mut talk = pin!(async {
                tokio::join!(
                    give,
                    printed.follow(stdout, self.passes_on.then(tokio::io::stdout)),
                    complaints.follow(stderr, self.passes_on.then(tokio::io::stderr)),
                )
            });
            let mut talked = false;
            let ended = tokio::time::timeout(self.timeout, async {
                loop {
                    tokio::select! {
                        status = child.wait() => return status,
                        _ = &mut talk, if !talked => talked = true,
                    }
                }
            })
            .await;
            drop(group);
            if !talked {
                let _ = tokio::time::timeout(LAST_WORDS, talk).await;
            }
            match ended {
                Ok(Ok(status)) => End::of(status),
                Ok(Err(error)) => End::Unstarted(error.to_string()),
                Err(_) => End::Late(self.timeout),
            }
        };
        let last_line = printed.last_line();
        Ran { end, complaints: complaints.line(), last_line }
    }

    fn start(&self, work: &Work) -> io::Result<Child> {
        let event = &work.event;
        let mut command = Command::new(&self.name);
        command.args(&self.arguments);
        for name in &self.withheld {
            command.env_remove(name);
        }
        let metadata = event.metadata.as_deref().unwrap_or("{}");
        let always = [
            ("POSTRIDER_EVENT_ID", event.id.to_string()),
            ("POSTRIDER_EVENT_TYPE", event.kind.clone()),
            ("POSTRIDER_CONTENT_TYPE", event.content_type.clone()),
            ("POSTRIDER_DELIVERY_ID", work.delivery.to_string()),
            ("POSTRIDER_ENDPOINT_ID", work.endpoint.to_string()),
            ("POSTRIDER_ATTEMPT", work.attempt.to_string()),
            ("POSTRIDER_RECEIVED_AT", event.received_at.to_string()),
            ("POSTRIDER_METADATA", metadata.to_owned()),
        ];
        let sometimes = [
            ("POSTRIDER_IDEMPOTENCY_KEY", event.idempotency_key.clone()),
            ("POSTRIDER_ORDERING_KEY", event.ordering_key.clone()),
            // As programs that trace expect it.
            ("TRACEPARENT", work.trace.as_ref().map(Trace::parent)),
            ("TRACESTATE", work.trace.as_ref().and_then(Trace::state).map(str::to_owned)),
        ];
        let sometimes = sometimes.into_iter().filter_map(|(name, value)| Some((name, value?)));
        for (name, value) in always.into_iter().chain(sometimes) {
            // No variable can have a NUL in it.
            command.env(name, value.replace('\0', "\u{fffd}"));
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command.spawn()
    }
}

impl End {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(number)) => Self::Signalled(number),
            (None, None) => Self::Unstarted("how it ended is not known".to_owned()),
        }
    }
}

/// The end of a stream.
#[derive(Debug, Default)]
struct Tail(Vec<u8>);

impl Tail {
    /// Reads to the end, and copies what it reads where that is wanted.
    async fn follow<R, W>(&mut self, from: Option<R>, mut copy: Option<W>)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let Some(mut from) = from else { return };
        let mut chunk = [0; CHUNK_BYTES];
        // A stream that cannot be read any more has ended.
        while let Ok(length @ 1..) = from.read(&mut chunk).await {
            let piece = &chunk[..length];
            self.0.extend_from_slice(piece);
            let surplus = self.0.len().saturating_sub(TAIL_BYTES);
            self.0.drain(..surplus);
            if let Some(copy) = &mut copy {
                // Nobody may be listening, which does not matter to the delivery.
                let _ = copy.write_all(piece).await;
                let _ = copy.flush().await;
            }
        }
    }

    /// All of it as one line of plain text.
    fn line(&self) -> String {
        plain(String::from_utf8_lossy(&self.0).trim())
    }

    /// The last line, if it is neither empty nor longer than a result.
    fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.0);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let line = plain(text.rsplit('\n').next().unwrap_or_default().trim());
        (1..=MAX_RESULT_CHARS).contains(&line.chars().count()).then_some(line)
    }
}

/// Without anything that a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Whether the name stands for a file that may be executed, looked up as a shell would.
fn can_be_run(name: &OsStr) -> bool {
    let executable = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return executable(Path::new(name));
    }
    let search = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&search).any(|directory| executable(&directory.join(name)))
}

/// A program and what it has started, killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Where all have ended there is nobody left to kill.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(bytes: &[u8]) -> Tail {
        Tail(bytes.to_vec())
    }

    #[test]
    fn complaints_are_one_line_of_plain_text() {
        for (bytes, expected) in [
            (&b""[..], ""),
            (b"  broken\n", "broken"),
            (b"one\ntwo\r\n\x1b[31mthree\0", "one two   [31mthree "),
            (b"caf\xc3\xa9 \xff", "caf\u{e9} \u{fffd}"),
        ] {
            assert_eq!(tail(bytes).line(), expected);
        }
    }

    #[test]
    fn a_result_is_a_last_line_that_is_neither_empty_nor_long() {
        let (fits, long) = ("é".repeat(MAX_RESULT_CHARS), "é".repeat(MAX_RESULT_CHARS + 1));
        for (text, expected) in [
            ("", None),
            ("\n", None),
            ("Passed", Some("Passed")),
            ("first\nPassed\n", Some("Passed")),
            ("Passed\r\n", Some("Passed")),
            ("Passed\n\n", None),
            ("a\tb", Some("a b")),
            (&fits, Some(&*fits)),
            (&long, None),
        ] {
            assert_eq!(tail(text.as_bytes()).last_line().as_deref(), expected, "{text:?}");
        }
    }

    #[tokio::test]
    async fn only_the_end_of_a_long_stream_is_kept() {
        let mut stream = vec![b'x'; 3 * TAIL_BYTES];
        stream.extend_from_slice(b"the end");
        let mut kept = Tail::default();
        let mut copy = Vec::new();
        kept.follow(Some(&stream[..]), Some(&mut copy)).await;
        assert_eq!(kept.0.len(), TAIL_BYTES);
        assert!(kept.0.ends_with(b"the end"));
        assert_eq!(copy, stream);
    }

    #[test]
    fn an_error_has_the_code_and_as_much_of_the_tail_as_fits() {
        let ran = |complaints: String| Ran { end: End::Exited(3), complaints, last_line: None };
        assert_eq!(ran(String::new()).complaint(), "exit code 3");
        assert_eq!(ran("broken".into()).complaint(), "exit code 3: broken");
        let long = ran(format!("{}end", "é".repeat(MAX_ERROR_CHARS))).complaint();
        assert_eq!(long.chars().count(), MAX_ERROR_CHARS);
        assert!(long.starts_with("exit code 3: é") && long.ends_with("end"));
    }

    #[test]
    fn what_cannot_be_run_is_known_beforehand() {
        for (name, expected) in [
            ("sh", true),
            ("/bin/sh", true),
            ("no-such-program-anywhere", false),
            ("/", false),
            ("/etc/passwd", false),
            ("", false),
        ] {
            assert_eq!(can_be_run(OsStr::new(name)), expected, "{name}");
        }
    }
}
