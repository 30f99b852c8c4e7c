//! The `PostgreSQL` of a run: a server of its own, reached by TCP so that something can stand in
//! between, and a new database for each round.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use xtask::{cargo, postgres};

use super::cluster::{Cluster, Disk, USER};

/// Stopped, and its folder gone, when the last of its databases is dropped.
pub(crate) struct Server {
    cluster: Cluster,
    address: SocketAddr,
}

#[derive(Clone)]
pub(crate) struct Database {
    server: Arc<Server>,
    name: String,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Server {
    /// With the durability that a server comes with.
    pub(crate) fn start() -> Result<Self> {
        postgres::require()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = format!("listen_addresses = '127.0.0.1'\nport = {port}");
        let rules = "local all all trust\nhost all all 127.0.0.1/32 trust\n";
        let cluster = Cluster::start_with(Disk::Synced, &settings, &[], rules);
        Ok(Self { cluster, address: (Ipv4Addr::LOCALHOST, port).into() })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Database {
    /// A new one.
    pub(crate) fn new(server: &Arc<Server>) -> Result<Self> {
        let url = server.cluster.database();
        let name = url.split(['/', '?']).find(|part| part.starts_with("test_"));
        let name = name.context("a database without a name")?.to_owned();
        Ok(Self { server: Arc::clone(server), name })
    }

    /// The way to it by this address: the server's own, or that of something in between.
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        format!("postgres://{USER}@{address}/{}?sslmode=disable", self.name)
    }

    pub(crate) fn crash(&self) {
        self.server.cluster.crash();
    }

    pub(crate) fn restart(&self, away: Duration) {
        self.server.cluster.stop();
        std::thread::sleep(away);
        self.server.cluster.start_again();
    }

    pub(crate) fn kill_connections(&self) {
        self.server.cluster.kill_connections(&self.name);
    }

    /// Writes everything in it to a file, as SQL.
    pub(crate) fn save(&self, to: &Path) -> Result<()> {
        let programs = postgres::programs().context("a PostgreSQL server is not installed")?;
        let mut dump = Command::new(programs.join("pg_dump"));
        dump.arg("--dbname").arg(self.url(self.server.address)).arg("--file").arg(to);
        cargo::run(dump)
    }

    /// Removes it, once nobody is connected any more.
    pub(crate) fn remove(&self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        self.server.cluster.sql("postgres", &sql);
    }
}
