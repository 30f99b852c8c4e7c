//! The hub under measurement: `postrider hub` of the same binary, as a child process that dials the
//! gateway and forwards to the sink.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::time::interval;

use super::Setting;
use super::gateway::{Gateway, tail};
use super::process::Process;

const CONNECTED_WITHIN: Duration = Duration::from_secs(30);
const STOPPED_WITHIN: Duration = Duration::from_mins(1);
const CONNECTED_POLL: Duration = Duration::from_millis(5);
const NAME: &str = "bench";
const WHO: &str = "the hub";

#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) id: String,
    pub(crate) process: Process,
    log: PathBuf,
}

impl Hub {
    /// Makes a hub at the gateway, starts it, and waits until it is connected.
    pub(crate) async fn start(
        setting: &Setting,
        gateway: &Gateway,
        to: &str,
        capacity: u32,
    ) -> Result<Self> {
        let account = gateway.create_hub(NAME).await?;
        let log = setting.folder.join("hub.log");
        let output = File::create(&log)?;
        let mut command = Command::new(&setting.binary);
        command
            .args(["hub", "--gateway", &gateway.url(), "--to", to])
            .args(["--capacity", &capacity.to_string()])
            .env("POSTRIDER_HUB_TOKEN", account.token)
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut hub = Self { id: account.id, process: Process::spawn(command)?, log };
        let connected = hub.until_connected(gateway).await;
        connected.with_context(|| hub.last_words())?;
        Ok(hub)
    }

    /// Asks it to answer what it has and end; fails if it does not end well.
    pub(crate) async fn stop(self) -> Result<()> {
        let Self { process, log, .. } = self;
        let status = process.terminate(STOPPED_WITHIN).await.with_context(|| tail(WHO, &log))?;
        ensure!(status.success(), "the hub ended with {status}; {}", tail(WHO, &log));
        Ok(())
    }

    /// What to say when something failed: the end of its log.
    pub(crate) fn last_words(&self) -> String {
        tail(WHO, &self.log)
    }

    async fn until_connected(&mut self, gateway: &Gateway) -> Result<()> {
        let started = Instant::now();
        let mut poll = interval(CONNECTED_POLL);
        while !gateway.is_connected(&self.id).await? {
            if let Some(status) = self.process.exited()? {
                anyhow::bail!("the hub ended with {status} before it was connected");
            }
            ensure!(
                started.elapsed() < CONNECTED_WITHIN,
                "the hub was not connected within {CONNECTED_WITHIN:?}"
            );
            poll.tick().await;
        }
        Ok(())
    }
}
