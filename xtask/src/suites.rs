//! Runs the tests of the workspace, several programs of them at a time: most of them wait for processes,
//! browsers and servers for longer than they compute.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context as _, Result, bail};
use xtask::cargo;

/// The programs that take longest, each beside the other and beside all the rest. What they start has
/// ports and folders of its own.
const APART: [&[&str]; 2] = [&["process"], &["browser", "postgres"]];

/// All that is built, so that what follows only runs it. Features that only tests need are part of it,
/// and so the programs that are tried afterwards are built as well.
pub(crate) fn build() -> Result<()> {
    cargo::run(cargo::command(["build", "--workspace", "--all-targets", "--locked"]))
}

pub(crate) fn run() -> Result<()> {
    let rest =
        rest(&cargo::output(cargo::command(["metadata", "--format-version", "1", "--no-deps"]))?)?;
    let mut shelves: Vec<Vec<String>> = APART.iter().map(|names| targets(names)).collect();
    let few: Vec<&str> = rest.iter().map(String::as_str).collect();
    let mut others = targets(&few);
    others.extend(["--lib".to_owned(), "--bins".to_owned(), "--examples".to_owned()]);
    shelves.push(others);
    let done = thread::scope(|scope| {
        let begun: Vec<_> = shelves.iter().map(|shelf| scope.spawn(|| run_shelf(shelf))).collect();
        begun.into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let mut failed = 0;
    for one in done {
        let Ok(passed) = one else { bail!("a thread that runs tests panicked") };
        failed += u32::from(!passed?);
    }
    if failed > 0 {
        bail!("{failed} of {} programs of tests failed", shelves.len());
    }
    cargo::run(cargo::command(["test", "--workspace", "--locked", "--doc"]))
}

/// What a shelf says comes in one piece, when it is through. True if all of it passed.
fn run_shelf(targets: &[String]) -> Result<bool> {
    let mut command = cargo::command(["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(targets).stdin(Stdio::null());
    let output = command.output().context("cargo could not be started")?;
    print!(
        "{}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(output.status.success())
}

fn targets(names: &[&str]) -> Vec<String> {
    names.iter().flat_map(|name| ["--test".to_owned(), (*name).to_owned()]).collect()
}

/// The programs of tests that have no place of their own.
fn rest(metadata: &str) -> Result<BTreeSet<String>> {
    let metadata: serde_json::Value = serde_json::from_str(metadata)?;
    let packages = metadata["packages"].as_array().context("cargo names no packages")?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let tests = targets.filter(|target| {
        target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"))
    });
    let names = tests.filter_map(|target| target["name"].as_str().map(str::to_owned));
    Ok(names.filter(|name| !APART.concat().contains(&name.as_str())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_of_tests_is_on_some_shelf() {
        let metadata = r#"{"packages":[{"targets":[{"kind":["lib"],"name":"a"},
            {"kind":["test"],"name":"process"},{"kind":["test"],"name":"guide"}]},
            {"targets":[{"kind":["test"],"name":"seeds"},{"kind":["bin"],"name":"b"}]}]}"#;
        let rest = rest(metadata).expect("readable");
        assert_eq!(rest, BTreeSet::from(["guide".to_owned(), "seeds".to_owned()]));
    }
}
