//! The gateway under measurement: its binary as a child process, driven over its contract.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::interval;

use super::connection::{Answer, Connection, Target};
use super::peer::KEY;
use super::process::Process;
use super::store_cycle::sealing_key;

const READY_WITHIN: Duration = Duration::from_mins(1);
const STOPPED_WITHIN: Duration = Duration::from_mins(1);
const SETTLED_WITHIN: Duration = Duration::from_mins(1);
const READY_POLL: Duration = Duration::from_millis(2);
const SETTLED_POLL: Duration = Duration::from_millis(50);
/// How much of its log is shown when it fails.
const LOG_TAIL_LINES: usize = 20;
const WHO: &str = "the gateway";

#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) process: Process,
    /// From the start of the process to its being ready.
    pub(crate) start_up: Duration,
    target: Target,
    log: PathBuf,
}

/// Where workers go.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    pub(crate) lease: Target,
    pub(crate) ack: Target,
}

/// A hub as the gateway knows it. No `Debug`: the token is a secret.
pub(crate) struct HubAccount {
    pub(crate) id: String,
    pub(crate) token: String,
}

impl Gateway {
    /// Starts it on the store in `data` (made if it is not there) and waits until it is ready.
    pub(crate) async fn start(binary: &Path, data: &Path) -> Result<Self> {
        Self::launch(binary, data, None).await
    }

    /// Starts it on the store at `url`, with the bench's own key for the secrets there, which is that
    /// of every node. What else it keeps is in `data`.
    pub(crate) async fn start_node(binary: &Path, data: &Path, url: &str) -> Result<Self> {
        Self::launch(binary, data, Some(url)).await
    }

    async fn launch(binary: &Path, data: &Path, store: Option<&str>) -> Result<Self> {
        fs::create_dir_all(data)?;
        let address = free_address()?;
        let log = data.with_extension("log");
        let output = File::create(&log)?;
        let mut command = Command::new(binary);
        command
            .args(["serve", "--listen", &address.to_string(), "--data"])
            .arg(data)
            .args(["--allow-destination", "127.0.0.0/8"])
            .env("POSTRIDER_ADMIN_KEY", KEY)
            .stdout(output.try_clone()?)
            .stderr(output);
        if let Some(store) = store {
            command.args(["--store", store]).env("POSTRIDER_SECRET_KEY", &*sealing_key().text());
        }
        let started = Instant::now();
        let process = Process::spawn(command)?;
        let target = Target::new(address, Some(KEY))?;
        let mut gateway = Self { process, start_up: Duration::ZERO, target, log };
        let ready = gateway.until_ready(started).await;
        gateway.start_up = ready.with_context(|| gateway.last_words())?;
        Ok(gateway)
    }

    /// Where producers post events.
    pub(crate) fn events(&self) -> Result<Target> {
        self.target.at(Method::POST, "/v1/events")
    }

    pub(crate) fn batches(&self) -> Result<Target> {
        self.target.at(Method::POST, "/v1/events/batch")
    }

    /// Where workers lease deliveries of a pull endpoint, and where they acknowledge them.
    pub(crate) fn desk(&self, endpoint: &str) -> Result<Desk> {
        Ok(Desk {
            lease: self.target.at(Method::POST, &format!("/v1/endpoints/{endpoint}/lease"))?,
            ack: self.target.at(Method::POST, "/v1/leases/ack")?,
        })
    }

    /// Anything else there is, without a key.
    pub(crate) fn open_target(&self) -> Result<Target> {
        Target::new(self.target.address, None)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.target.address)
    }

    pub(crate) async fn create_endpoint(&self, endpoint: &Value) -> Result<String> {
        let created = self.create("/v1/endpoints", endpoint).await?;
        text_of(&created, "id")
    }

    /// Sends one event, as a producer would, and returns its answer.
    pub(crate) async fn send_event(&self, event: &Value) -> Result<Value> {
        let answer =
            self.call(Method::POST, "/v1/events", serde_json::to_vec(event)?.into()).await?;
        answer.json(StatusCode::ACCEPTED).context("sending an event")
    }

    pub(crate) async fn create_hub(&self, name: &str) -> Result<HubAccount> {
        let created = self.create("/v1/hubs", &json!({"name": name})).await?;
        Ok(HubAccount { id: text_of(&created, "id")?, token: text_of(&created, "token")? })
    }

    pub(crate) async fn is_connected(&self, hub: &str) -> Result<bool> {
        let shown = self.read(&format!("/v1/hubs/{hub}")).await?;
        shown["connected"].as_bool().with_context(|| format!("not said in {shown}"))
    }

    /// Waits until no delivery of the endpoint is unfinished.
    pub(crate) async fn until_settled(&self, endpoint: &str) -> Result<()> {
        let started = Instant::now();
        let mut poll = interval(SETTLED_POLL);
        while !self.is_settled(endpoint).await? {
            ensure!(
                started.elapsed() < SETTLED_WITHIN,
                "deliveries that arrived were not settled within {SETTLED_WITHIN:?}"
            );
            poll.tick().await;
        }
        Ok(())
    }

    /// Asks it to drain and end; fails if it does not end well.
    pub(crate) async fn stop(self) -> Result<()> {
        let Self { process, log, .. } = self;
        let status = process.terminate(STOPPED_WITHIN).await.with_context(|| tail(WHO, &log))?;
        ensure!(status.success(), "the gateway ended with {status}; {}", tail(WHO, &log));
        Ok(())
    }

    /// What to say when something failed: the end of its log.
    pub(crate) fn last_words(&self) -> String {
        tail(WHO, &self.log)
    }

    async fn is_settled(&self, endpoint: &str) -> Result<bool> {
        let stats = self.read(&format!("/v1/endpoints/{endpoint}/stats")).await?;
        let mut unfinished = 0;
        for state in ["pending", "in_flight", "retrying"] {
            let count = stats["deliveries"][state].as_u64();
            unfinished += count.with_context(|| format!("no count of {state} in {stats}"))?;
        }
        Ok(unfinished == 0)
    }

    /// Makes something, and returns it.
    pub(crate) async fn create(&self, path: &str, what: &Value) -> Result<Value> {
        let answer = self.call(Method::POST, path, serde_json::to_vec(what)?.into()).await?;
        answer.json(StatusCode::CREATED).with_context(|| format!("creating at {path}"))
    }

    pub(crate) async fn read(&self, path: &str) -> Result<Value> {
        let answer = self.call(Method::GET, path, Bytes::new()).await?;
        answer.json(StatusCode::OK).with_context(|| format!("reading {path}"))
    }

    async fn call(&self, method: Method, path: &str, body: Bytes) -> Result<Answer> {
        let mut connection = Connection::open(self.target.address).await?;
        let answer = connection.send(self.target.at(method, path)?.request(body)).await;
        answer.with_context(|| format!("calling {path}"))
    }

    async fn until_ready(&mut self, started: Instant) -> Result<Duration> {
        let mut poll = interval(READY_POLL);
        while started.elapsed() < READY_WITHIN {
            if let Ok(answer) = self.call(Method::GET, "/readyz", Bytes::new()).await
                && answer.status == StatusCode::OK
            {
                return Ok(started.elapsed());
            }
            if let Some(status) = self.process.exited()? {
                bail!("the gateway ended with {status} before it was ready");
            }
            poll.tick().await;
        }
        bail!("the gateway was not ready within {READY_WITHIN:?}")
    }
}

/// A port that was free a moment ago; the gateway wants to be told one.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn text_of(object: &Value, field: &str) -> Result<String> {
    // The object is not shown: it may hold a token.
    object[field].as_str().map(str::to_owned).with_context(|| format!("no {field} in an answer"))
}

/// The end of the log of `who`.
pub(crate) fn tail(who: &str, log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
    format!("{who}'s last words:\n{}\n", shown.join("\n"))
}
