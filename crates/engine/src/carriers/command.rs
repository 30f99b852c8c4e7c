//! Runs a local program for each delivery: the event's bytes on its input, what is known of the
//! event in its environment, its exit code as the answer.
//!
//! Only programs that the operator has allowed, by their whole path; no shell; nothing of the
//! gateway's own environment. A program and all it has started end with the attempt.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use postrider_core::outcome::Sighting;
use postrider_core::span;
use postrider_store::record::Response;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use crate::carrier::{Parcel, Report};
use crate::error::Error;

/// Programs that run at the same time, over all endpoints.
const MAX_AT_ONCE: usize = 32;
/// Words of one command, and the length of each.
const MAX_WORDS: usize = 64;
const MAX_WORD_BYTES: usize = 4 << 10;
/// How much is kept of what a program prints; the rest is read and dropped.
const OUTPUT_KEPT_BYTES: usize = 16 << 10;
/// How much of the end of its complaints stands in `last_error`.
const ERROR_TAIL_CHARS: usize = 300;
const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The programs that may be run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowed(Arc<[PathBuf]>);

impl Allowed {
    pub(crate) fn new(programs: &[PathBuf]) -> Self {
        Self(programs.into())
    }

    fn has(&self, program: &Path) -> bool {
        self.0.iter().any(|allowed| allowed == program)
    }

    /// Judges a command as it is configured.
    pub(crate) fn check(&self, words: &[String]) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::invalid("command", message));
        let Some(program) = words.first() else {
            return refuse("must name a program".into());
        };
        if words.len() > MAX_WORDS {
            return refuse(format!("must have at most {MAX_WORDS} words"));
        }
        let bad = |word: &String| word.len() > MAX_WORD_BYTES || word.contains('\0');
        if words.iter().any(bad) {
            return refuse(format!(
                "has a word of more than {MAX_WORD_BYTES} bytes, or with a NUL in it"
            ));
        }
        if !self.has(Path::new(program)) {
            return refuse(
                "names a program that may not be run here: the operator allows programs by their \
                 whole path with --allow-command"
                    .into(),
            );
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct CommandCarrier {
    allowed: Allowed,
    places: Arc<Semaphore>,
}

impl CommandCarrier {
    pub(crate) fn new(allowed: Allowed) -> Self {
        Self { allowed, places: Arc::new(Semaphore::new(MAX_AT_ONCE)) }
    }

    pub(crate) fn carry(&self, parcel: Parcel, words: Arc<[String]>) -> BoxFuture<'static, Report> {
        // It may have been allowed when the endpoint was made, and not be any more.
        if let Err(error) = self.allowed.check(&words) {
            let report = failed(Sighting::Network, error.to_string());
            return Box::pin(std::future::ready(report));
        }
        let places = Arc::clone(&self.places);
        Box::pin(async move {
            // The semaphore is never closed.
            let _place = places.acquire_owned().await;
            run(&parcel, &words).await
        })
    }
}

async fn run(parcel: &Parcel, words: &[String]) -> Report {
    let mut child = match start(parcel, words) {
        Ok(child) => child,
        Err(error) => {
            return failed(Sighting::Network, format!("could not be started: {error}"));
        }
    };
    // Whatever happens to this attempt, nothing it has started goes on.
    let group = Group::of(&child);
    let limit = parcel.route.timeout;
    let body = parcel.event.body.clone();
    let finished = tokio::time::timeout(limit, exchange(&mut child, body)).await;
    drop(group);
    match finished {
        Ok(Ok((status, printed, complaints))) => report(status, printed, &complaints),
        Ok(Err(error)) => failed(Sighting::Network, format!("was lost: {error}")),
        Err(_) => failed(Sighting::Timeout, ran_too_long(limit)),
    }
}

fn ran_too_long(limit: Duration) -> String {
    format!("did not end within {} and was killed", span::format(limit))
}

fn start(parcel: &Parcel, words: &[String]) -> io::Result<Child> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program is named"));
    };
    let event = &parcel.event;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("POSTRIDER_EVENT_ID", event.id.to_string())
        .env("POSTRIDER_EVENT_TYPE", &event.kind)
        .env("POSTRIDER_CONTENT_TYPE", &event.content_type)
        .env("POSTRIDER_DELIVERY_ID", parcel.delivery.to_string())
        .env("POSTRIDER_ENDPOINT_ID", parcel.route.id().to_string())
        .env("POSTRIDER_ATTEMPT", parcel.number.to_string())
        .env("POSTRIDER_RECEIVED_AT", event.received_at.to_string())
        .env("POSTRIDER_METADATA", OsStr::new(event.metadata.as_deref().unwrap_or("{}")))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(trace) = &parcel.trace {
        command.env("TRACEPARENT", trace.parent());
        if let Some(state) = trace.state() {
            command.env("TRACESTATE", state);
        }
    }
    command.spawn()
}

/// Gives it the body, takes what it prints, and waits for its end.
async fn exchange(child: &mut Child, body: Bytes) -> io::Result<(ExitStatus, Kept, Kept)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let give = async move {
        if let Some(mut stdin) = stdin {
            // A program need not read its input: its exit code counts.
            let _ = stdin.write_all(&body).await;
        }
    };
    let ((), printed, complaints, status) =
        tokio::join!(give, Kept::first(stdout), Kept::last(stderr), child.wait());
    Ok((status?, printed?, complaints?))
}

/// What is kept of what a program prints.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Kept {
    async fn first(from: Option<impl AsyncRead + Unpin>) -> io::Result<Self> {
        Self::read(from, |kept, piece| {
            let room = OUTPUT_KEPT_BYTES - kept.bytes.len();
            kept.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
            kept.truncated |= piece.len() > room;
        })
        .await
    }

    /// The end tells more of a failure than the beginning.
    async fn last(from: Option<impl AsyncRead + Unpin>) -> io::Result<Self> {
        Self::read(from, |kept, piece| {
            kept.bytes.extend_from_slice(piece);
            let surplus = kept.bytes.len().saturating_sub(OUTPUT_KEPT_BYTES);
            kept.truncated |= surplus > 0;
            kept.bytes.drain(..surplus);
        })
        .await
    }

    async fn read(
        from: Option<impl AsyncRead + Unpin>,
        mut keep: impl FnMut(&mut Self, &[u8]),
    ) -> io::Result<Self> {
        let mut kept = Self::default();
        let Some(mut from) = from else { return Ok(kept) };
        let mut buffer = [0; 4096];
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return Ok(kept);
            }
            keep(&mut kept, &buffer[..length]);
        }
    }
}

fn report(status: ExitStatus, printed: Kept, complaints: &Kept) -> Report {
    let response = (!printed.bytes.is_empty()).then(|| Response {
        headers: Vec::new(),
        body: printed.bytes.into(),
        truncated: printed.truncated,
    });
    match status.code() {
        Some(0) => Report {
            sighting: Sighting::Exit(0),
            retry_after: None,
            error: None,
            response,
            result: None,
        },
        Some(code) => {
            let error = with_tail(format!("exit code {code}"), complaints);
            Report { response, ..failed(Sighting::Exit(code), error) }
        }
        None => {
            let error = with_tail("ended by a signal".to_owned(), complaints);
            Report { response, ..failed(Sighting::Network, error) }
        }
    }
}

fn failed(sighting: Sighting, error: String) -> Report {
    Report { sighting, retry_after: None, error: Some(error), response: None, result: None }
}

fn with_tail(said: String, complaints: &Kept) -> String {
    let text = String::from_utf8_lossy(&complaints.bytes);
    let text: Vec<char> = text.trim().chars().collect();
    let tail: String = text[text.len().saturating_sub(ERROR_TAIL_CHARS)..]
        .iter()
        .map(|char| if char.is_control() { ' ' } else { *char })
        .collect();
    if tail.is_empty() { said } else { format!("{said}: {tail}") }
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
