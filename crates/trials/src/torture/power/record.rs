//! The gateway under load while somebody writes down its calls: one recording, from which the power
//! can be taken away at any line.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::time::{interval, sleep};

use super::super::fleet::Fleet;
use super::super::ledger::{Books, Ledger};
use super::super::load::Load;
use super::super::node::{self, Launch};
use super::super::random::Random;
use super::super::round::Plan;
use super::super::route::Target;
use super::super::sink::{Clocks, Sink};
use super::history::History;

/// The load lasts at least so long that there is something to lose, and at most so long that it can
/// be worked with.
const LEAST_LOAD: Duration = Duration::from_millis(1_500);
const MOST_LOAD: Duration = Duration::from_secs(20);
/// How long an attempt that nobody answers lasts.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(700);

/// What is more is no recording but a flood.
const MAX_TRACE_BYTES: u64 = 600 << 20;
/// The longest write that is shown as a whole, in bytes.
const MAX_WRITE_BYTES: usize = 8 << 20;
/// How long the end of the trace may take after the end of the process.
const WRITTEN_WITHIN: Duration = Duration::from_mins(1);
const WRITTEN_POLL: Duration = Duration::from_millis(10);
/// The last line is no longer than this.
const LAST_LINE_BYTES: u64 = 200;

/// Everything that changes a file or its name, makes it last, or says something to somebody.
const CALLS: &str = "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,\
                     fallocate,fsync,fdatasync,sync_file_range,rename,renameat,renameat2,link,linkat,\
                     unlink,unlinkat,mkdir,mkdirat,sendto,sendmsg,copy_file_range,sendfile";

/// What was done, and what was said about it.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) history: History,
    /// The producers' own books.
    pub(super) books: Books,
    /// The ids of the endpoints.
    pub(super) endpoints: HashMap<String, Target>,
    /// Where everything went, and still goes.
    pub(super) sink: Sink,
    /// What was taken, and where, while it was recorded.
    pub(super) taken: BTreeSet<(String, Target)>,
}

impl Recording {
    pub(super) async fn make(plan: &Plan, work: &Path, random: &mut Random) -> Result<Self> {
        // The trace names files by where they really are.
        fs::create_dir_all(work)?;
        let work = work.canonicalize()?;
        let (data, trace) = (work.join("recorded"), work.join("trace"));
        let launch = Launch {
            binary: wrapper(&work, &plan.binary, &trace)?,
            data: data.clone(),
            log: work.join("recorded.log"),
            arguments: Vec::new(),
            variables: Vec::new(),
        };
        let sink = Sink::start(Clocks::True, random).await?;
        let mut fleet = Fleet::start(vec![launch]).await?;
        let endpoints = create_endpoints(&fleet, &sink).await?;
        let ledger = Arc::new(Ledger::new());
        let load = Load::start(plan.rate, &ledger, &fleet.roster(), random);
        sleep(plan.length.clamp(LEAST_LOAD, MOST_LOAD)).await;
        load.finish().await?;
        fleet.quiet().await?;
        // A stop empties the log into the database: also a moment to lose power at.
        fleet.stop_all().await?;
        until_written(&trace).await?;
        let history = History::read(&data, BufReader::new(File::open(&trace)?))
            .context("the recording is not understood")?;
        let books = ledger.read();
        let taken = sink.arrivals().into_iter().filter(|arrival| arrival.taken);
        let taken = taken.map(|arrival| (arrival.event, arrival.target)).collect();
        let recording = Self { history, books, endpoints, sink, taken };
        recording.check()?;
        fs::remove_file(trace)?;
        Ok(recording)
    }

    /// The producers and the trace have to tell the same story.
    fn check(&self) -> Result<()> {
        let complaints = &self.books.complaints;
        ensure!(complaints.is_empty(), "while it was recorded: {}", complaints.join("; "));
        let told = self.history.promised(self.history.length).filter(|id| id.starts_with("evt_"));
        let (told, heard) = (told.count(), self.books.acks.len());
        ensure!(told == heard, "{heard} events were acknowledged, and the trace shows {told}");
        ensure!(heard > 0, "nothing was acknowledged while it was recorded");
        Ok(())
    }
}

async fn create_endpoints(fleet: &Fleet, sink: &Sink) -> Result<HashMap<String, Target>> {
    let base = format!("http://{}", sink.address);
    let mut endpoints = HashMap::new();
    for target in Target::ALL {
        let spec = target.spec(&base, &sink.secret(target)?, ATTEMPT_TIMEOUT);
        let made = node::create(fleet.address()?, "/v1/endpoints", &spec).await?;
        let id = made["id"].as_str().context("an endpoint without an id")?;
        endpoints.insert(id.to_owned(), target);
    }
    Ok(endpoints)
}

/// A program that starts the gateway with somebody who watches. The one who watches is not its
/// parent, so that who starts this has the gateway itself as a child.
fn wrapper(work: &Path, binary: &Path, trace: &Path) -> Result<PathBuf> {
    let path = work.join("watched");
    let binary = binary.canonicalize().with_context(|| format!("no {}", binary.display()))?;
    let script = format!(
        "#!/bin/sh\nexec strace -D -f --seccomp-bpf -y -s {MAX_WRITE_BYTES} -e signal=none \
         -e trace={CALLS} -o {} -- {} \"$@\"\n",
        quoted(trace)?,
        quoted(&binary)?
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path)
}

/// For a shell.
fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not text", path.display()))?;
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Waits until the end of the process itself is written, which is the last thing.
async fn until_written(trace: &Path) -> Result<()> {
    let started = Instant::now();
    let mut poll = interval(WRITTEN_POLL);
    let mut file = File::open(trace)?;
    let mut first = String::new();
    file.by_ref().take(LAST_LINE_BYTES).read_to_string(&mut first)?;
    let process = first.split_whitespace().next().context("an empty trace")?.to_owned();
    loop {
        let length = file.metadata()?.len();
        ensure!(length < MAX_TRACE_BYTES, "the trace has {length} bytes: too many to work with");
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_LINE_BYTES)))?;
        let mut last = Vec::new();
        file.by_ref().take(LAST_LINE_BYTES).read_to_end(&mut last)?;
        let last = String::from_utf8_lossy(&last);
        let line = last.trim_end().rsplit('\n').next().unwrap_or_default();
        if last.ends_with('\n') && line.starts_with(&process) && line.contains(" +++ ") {
            return Ok(());
        }
        ensure!(
            started.elapsed() < WRITTEN_WITHIN,
            "strace has not ended {WRITTEN_WITHIN:?} after the gateway"
        );
        poll.tick().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_quote_is_one_word_to_a_shell() {
        assert_eq!(quoted(Path::new("/a b/c'd")).expect("text"), r"'/a b/c'\''d'");
    }

    #[tokio::test]
    async fn a_trace_is_whole_when_the_process_itself_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = folder.path().join("trace");
        let begun = "7 unlink(\"/a\") = 0\n8 +++ exited with 0 +++\n";
        fs::write(&trace, begun).expect("a trace");
        let unwritten = tokio::time::timeout(Duration::from_millis(50), until_written(&trace));
        assert!(unwritten.await.is_err());
        fs::write(&trace, format!("{begun}7 +++ exited with 0 +++\n")).expect("a trace");
        until_written(&trace).await.expect("it is whole");
    }
}
