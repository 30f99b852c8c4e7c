//! The programs of a trial: this one and the gateway, as they were built together, or optimised.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use xtask::cargo;

/// As it is packaged.
const PROFILE: &str = "dist";

/// The folder that this program was built into.
pub(crate) fn folder() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    Ok(this.parent().context("this program is in no folder")?.to_owned())
}

/// The gateway beside this program: `cargo xtask` builds both.
pub(crate) fn gateway() -> Result<PathBuf> {
    let binary = folder()?.join("postrider");
    ensure!(binary.is_file(), "{} is not there: build it first", binary.display());
    Ok(binary)
}

/// The gateway as it is packaged.
pub(crate) fn packaged_gateway() -> Result<PathBuf> {
    build("postrider-cli", "postrider")
}

/// The same task from an optimised build, in this process's place, so that signals reach it.
pub(crate) fn run_optimised() -> Result<()> {
    let mut command = Command::new(build("postrider-trials", "postrider-trials")?);
    command.args(std::env::args_os().skip(1));
    Err(command.exec()).context("the optimised build could not be started")
}

/// Each package by itself: built together, one would get the features that another asks for.
fn build(package: &str, program: &str) -> Result<PathBuf> {
    let build = ["build", "--locked", "--profile", PROFILE, "--package", package];
    cargo::run(cargo::command(build))?;
    Ok(cargo::target()?.join(PROFILE).join(program))
}
