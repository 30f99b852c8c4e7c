//! The tasks that crates/trials has: its program is built here, together with the gateway that it tries,
//! and then started.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use xtask::cargo;

/// Both programs as `cargo test --workspace` has built them, so that nothing is built twice. Features are
/// chosen for all that is asked for at once, and those that only tests need are among them as soon as one
/// test is, whichever.
const BUILD: [&str; 10] = [
    "build",
    "--quiet",
    "--locked",
    "--workspace",
    "--bin",
    "postrider",
    "--bin",
    "postrider-trials",
    "--test",
    "tasks",
];

/// What comes after the name of such a task; the program itself says what it takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Does a task in this process's place, so that signals reach it and its status is this one's.
pub(crate) fn replace(task: &str, arguments: &Arguments) -> Result<()> {
    let mut command = command([task])?;
    command.args(&arguments.arguments);
    Err(command.exec()).context("the trials could not be started")
}

/// Does a task as one of several.
pub(crate) fn run(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<()> {
    cargo::run(command(arguments)?)
}

/// The gateway that is tried.
pub(crate) fn gateway() -> Result<PathBuf> {
    built("postrider")
}

fn command(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Command> {
    let mut command = Command::new(built("postrider-trials")?);
    command.args(arguments);
    Ok(command)
}

fn built(program: &str) -> Result<PathBuf> {
    cargo::run(cargo::command(BUILD))?;
    Ok(cargo::target()?.join("debug").join(program))
}
