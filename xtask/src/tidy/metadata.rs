//! The part of `cargo metadata` that the checks read.

use std::collections::HashSet;

use anyhow::{Context, Result};
use serde::Deserialize;
use xtask::cargo;

#[derive(Debug)]
pub(crate) struct Packages {
    /// The packages of this repository, with what they ask for.
    pub(crate) workspace: Vec<Package>,
    /// Every package that a build on this platform may take in, ours included.
    pub(crate) all: Vec<Package>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: HashSet<String>,
}

/// Asks cargo, for this platform only: the others' packages need not be on this machine.
pub(crate) fn load() -> Result<Packages> {
    let platform = host()?;
    let arguments = ["metadata", "--locked", "--format-version", "1", "--filter-platform"];
    let mut command = cargo::command(arguments);
    command.arg(platform);
    let metadata: Metadata =
        serde_json::from_str(&cargo::output(command)?).context("reading cargo metadata")?;
    let workspace = metadata
        .packages
        .iter()
        .filter(|package| metadata.workspace_members.contains(&package.id))
        .cloned()
        .collect();
    Ok(Packages { workspace, all: metadata.packages })
}

fn host() -> Result<String> {
    let version = cargo::output(cargo::command(["--version", "--verbose"]))?;
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("`cargo --version --verbose` names no host")
}
