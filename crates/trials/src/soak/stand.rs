//! The gateway of one run: its process, its store, and the books that are read beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use tokio::time::{MissedTickBehavior, interval};

use super::books::{Balance, Books};
use super::vitals::Vitals;
use crate::bench::connection::Connection;
use crate::bench::gateway::Gateway;
use crate::bench::postgres::{Cluster, Watch};

/// The name of the database in a gateway's data folder.
const FILE: &str = "postrider.db";
const POLL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

/// What every run is told.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// What starts the gateway.
    pub(crate) program: PathBuf,
    /// Empty, and on a disk; removed at the end.
    pub(crate) folder: PathBuf,
    pub(crate) store: Store,
}

impl Setting {
    /// `housekeeping` is how often the gateway looks for what has grown too old. It is a flag that
    /// nothing else needs, so the program is a script that adds it and becomes the gateway.
    pub(crate) fn new(
        binary: &Path,
        folder: &Path,
        store: Store,
        housekeeping: Duration,
    ) -> Result<Self> {
        ensure!(binary.is_file(), "{} is not there: build it first", binary.display());
        let binary = binary.canonicalize()?;
        let binary = quoted(binary.to_str().context("the path of the gateway is no UTF-8")?);
        let seconds = housekeeping.as_secs().max(1);
        let program = folder.join("gateway.sh");
        let script = format!("#!/bin/sh\nexec {binary} \"$@\" --housekeeping {seconds}s\n");
        fs::write(&program, script)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        Ok(Self { program, folder: folder.to_owned(), store })
    }
}

/// A running gateway. Gone when dropped.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) gateway: Gateway,
    pub(crate) books: Books,
    /// Stopped after the gateway.
    _cluster: Option<Cluster>,
}

impl Stand {
    pub(crate) async fn start(setting: &Setting, name: &str) -> Result<Self> {
        let data = setting.folder.join(name);
        match setting.store {
            Store::Sqlite => {
                let gateway = Gateway::start(&setting.program, &data).await?;
                Ok(Self { gateway, books: Books::Sqlite(data.join(FILE)), _cluster: None })
            }
            Store::Postgres => {
                let cluster = Cluster::start(&setting.folder, Watch::Nothing).await?;
                let url = cluster.database(name).await?;
                let gateway = Gateway::start_node(&setting.program, &data, &url).await?;
                Ok(Self { gateway, books: Books::Postgres(url), _cluster: Some(cluster) })
            }
        }
    }

    pub(crate) fn vitals(&mut self) -> Result<Vitals> {
        let vitals = Vitals::of(&mut self.gateway.process);
        vitals.with_context(|| self.gateway.last_words())
    }

    /// The sum of the series of one metric.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let target = self.gateway.open_target()?;
        let mut connection = Connection::open(target.address).await?;
        let request = target.at(Method::GET, "/metrics")?.request(bytes::Bytes::new());
        let answer = connection.send(request).await?;
        ensure!(answer.status == StatusCode::OK, "/metrics answered {}", answer.status);
        sum_of(&String::from_utf8_lossy(&answer.body), name)
            .with_context(|| format!("/metrics has no {name}"))
    }

    /// Waits until nothing waits any more, no longer than `patience`, and returns how it is then.
    pub(crate) async fn until_all_ended(&self, patience: Duration) -> Result<Balance> {
        let started = Instant::now();
        let mut poll = interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            poll.tick().await;
            let balance = self.books.balance().await?;
            if balance.waiting() == 0 || started.elapsed() > patience {
                return Ok(balance);
            }
        }
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.gateway.stop().await
    }
}

/// As one word of a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Of all lines of a page of metrics that are about `name`.
fn sum_of(page: &str, name: &str) -> Option<f64> {
    let mut values = page
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with([' ', '{']))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
        .peekable();
    values.peek()?;
    Some(values.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_the_sum_of_its_series() {
        let page = "# HELP a text\n# TYPE a gauge\na{b=\"c d\"} 1\na{b=\"e\"} 2.5\nab 7\nnone 0\n";
        for (name, sum) in [("a", Some(3.5)), ("ab", Some(7.0)), ("none", Some(0.0)), ("b", None)] {
            assert_eq!(sum_of(page, name), sum, "{name}");
        }
    }

    #[test]
    fn the_gateway_is_started_with_the_flag_added() {
        let folder = tempfile::tempdir().expect("a folder");
        let setting = |binary: &str| {
            let every = Duration::from_secs(3);
            Setting::new(Path::new(binary), folder.path(), Store::Sqlite, every)
        };
        let program = setting("/bin/echo").expect("a program").program;
        let output = std::process::Command::new("sh").arg(program).arg("serve").output();
        let said = output.expect("it runs").stdout;
        assert_eq!(String::from_utf8_lossy(&said), "serve --housekeeping 3s\n");
        let error = setting("/no/such/gateway").expect_err("refused").to_string();
        assert!(error.contains("/no/such/gateway is not there"), "{error}");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
