//! The server that the tests of the `PostgreSQL` store start for themselves: whether it is there.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::toolchain;

/// Debian starts a cluster of its own after installing a server, unless this file says not to.
const CREATE_CLUSTER: &str = "/etc/postgresql-common/createcluster.conf";

/// Finds the programs of a server, and installs them where that needs no question: as root, with apt.
pub fn require() -> Result<()> {
    if programs().is_none() {
        let settings = Path::new(CREATE_CLUSTER);
        if toolchain::is_root() && !settings.exists() {
            // The tests make clusters of their own, in temporary folders.
            if let Some(folder) = settings.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(settings, "create_main_cluster = false\n")?;
        }
        toolchain::install(
            &["postgresql"],
            "a PostgreSQL server is needed to test its store: install postgresql (Debian), or what \
             your system calls it",
        )?;
        ensure!(programs().is_some(), "the installed PostgreSQL has no initdb");
    }
    Ok(())
}

/// The folder of the server's programs: Debian keeps them out of the way, by version.
pub fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let path = std::env::var_os("PATH").unwrap_or_default();
    versions
        .map(|version| version.path().join("bin"))
        .chain(std::env::split_paths(&path))
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}
