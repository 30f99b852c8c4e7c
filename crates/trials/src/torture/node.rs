//! One gateway as a process of the real binary: how it is started, and all that is done to it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{interval, timeout};

use crate::bench::connection::{Connection, Target};
use crate::bench::gateway::tail;
use crate::bench::peer::KEY;
use crate::bench::process::Process;

const READY_WITHIN: Duration = Duration::from_mins(1);
const READY_POLL: Duration = Duration::from_millis(4);
const STOPPED_WITHIN: Duration = Duration::from_mins(1);
const ANSWERED_WITHIN: Duration = Duration::from_secs(25);
/// What it says before its address.
const GREETING: &str = "listening on  http://";
/// The most that is read of what it says at a start.
const MAX_GREETING_BYTES: u64 = 1 << 20;

/// How a node is started, each time.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) data: PathBuf,
    /// What all its lives have said, one after another.
    pub(crate) log: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(&'static str, OsString)>,
}

/// A process that may not listen yet; killed when dropped.
#[derive(Debug)]
pub(crate) struct Starting {
    process: Process,
    log: PathBuf,
    /// Where this life begins in the log.
    from: u64,
}

/// One that is ready.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    process: Process,
    log: PathBuf,
}

impl Launch {
    pub(crate) fn spawn(&self) -> Result<Starting> {
        fs::create_dir_all(&self.data)?;
        let output = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let from = output.metadata()?.len();
        let mut command = Command::new(&self.binary);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--allow-destination", "127.0.0.0/8"])
            .arg("--data")
            .arg(&self.data)
            .args(&self.arguments)
            .env_clear()
            .env("POSTRIDER_ADMIN_KEY", KEY)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        Ok(Starting { process: Process::spawn(command)?, log: self.log.clone(), from })
    }

    pub(crate) async fn start(&self) -> Result<Node> {
        self.spawn()?.ready().await
    }
}

impl Starting {
    /// Waits until it listens and is ready.
    pub(crate) async fn ready(self) -> Result<Node> {
        let Self { mut process, log, from } = self;
        let started = Instant::now();
        let mut poll = interval(READY_POLL);
        let mut address = None;
        while started.elapsed() < READY_WITHIN {
            if address.is_none() {
                address = greeting(&log, from)?;
            }
            if let Some(address) = address
                && is_ready(address).await
            {
                return Ok(Node { address, process, log });
            }
            if let Some(status) = process.exited()? {
                bail!("a node ended with {status} before it was ready; {}", tail("the node", &log));
            }
            poll.tick().await;
        }
        bail!("a node was not ready within {READY_WITHIN:?}; {}", tail("the node", &log))
    }
}

impl Node {
    /// `kill -9`; returns when it is gone.
    pub(crate) fn kill(self) {
        drop(self.process);
    }

    /// Stops it where it is. Its connections stay.
    pub(crate) fn pause(&mut self) -> Result<()> {
        self.signal("STOP")
    }

    pub(crate) fn resume(&mut self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&mut self, name: &str) -> Result<()> {
        let id = self.process.child().id();
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status()?;
        ensure!(sent.success(), "a node could not be sent SIG{name}");
        Ok(())
    }

    /// Asks it to drain and end; fails if it does not end well.
    pub(crate) async fn stop(self) -> Result<()> {
        let status = self.process.terminate(STOPPED_WITHIN).await;
        let status = status.with_context(|| tail("the node", &self.log))?;
        ensure!(status.success(), "a node ended with {status}; {}", tail("the node", &self.log));
        Ok(())
    }

    /// Fails if it has ended by itself.
    pub(crate) fn require_life(&mut self) -> Result<()> {
        if let Some(status) = self.process.exited()? {
            bail!("a node ended by itself with {status}; {}", tail("the node", &self.log));
        }
        Ok(())
    }
}

/// Reads something of the API.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<Value> {
    ask(address, Method::GET, path, Bytes::new(), StatusCode::OK).await
}

pub(crate) async fn create(address: SocketAddr, path: &str, what: &Value) -> Result<Value> {
    ask(address, Method::POST, path, serde_json::to_vec(what)?.into(), StatusCode::CREATED).await
}

async fn ask(
    address: SocketAddr,
    method: Method,
    path: &str,
    body: Bytes,
    wanted: StatusCode,
) -> Result<Value> {
    let asking = async {
        let mut connection = Connection::open(address).await?;
        let target = Target::new(address, Some(KEY))?.at(method, path)?;
        connection.send(target.request(body)).await?.json(wanted)
    };
    let asked = timeout(ANSWERED_WITHIN, asking).await;
    asked.context("no answer").and_then(|answer| answer).with_context(|| format!("asking {path}"))
}

async fn is_ready(address: SocketAddr) -> bool {
    get_status(address).await.is_some_and(|status| status == StatusCode::OK)
}

async fn get_status(address: SocketAddr) -> Option<StatusCode> {
    let asking = async {
        let mut connection = Connection::open(address).await?;
        let target = Target::new(address, None)?.at(Method::GET, "/readyz")?;
        anyhow::Ok(connection.send(target.request(Bytes::new())).await?.status)
    };
    timeout(ANSWERED_WITHIN, asking).await.ok()?.ok()
}

/// Where it says that it listens, once it has said so in this life.
fn greeting(log: &Path, from: u64) -> Result<Option<SocketAddr>> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(from))?;
    let mut said = Vec::new();
    file.take(MAX_GREETING_BYTES).read_to_end(&mut said)?;
    Ok(address_in(&String::from_utf8_lossy(&said)))
}

fn address_in(said: &str) -> Option<SocketAddr> {
    let (_, rest) = said.split_once(GREETING)?;
    // A line that is not at its end may lack a part of the port.
    let (address, _) = rest.split_once('\n')?;
    address.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_believed_once_its_line_is_whole() {
        for (said, expected) in [
            ("", None),
            ("postrider\n  listening on  http://127.0.0.1:70", None),
            ("  listening on  http://127.0.0.1:7070\n  key", Some("127.0.0.1:7070")),
        ] {
            let expected = expected.map(|address| address.parse().expect("an address"));
            assert_eq!(address_in(said), expected, "{said:?}");
        }
    }
}
