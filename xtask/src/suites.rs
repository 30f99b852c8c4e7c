//! Runs the tests of the workspace, several programs of them at a time: most of them wait for processes,
//! browsers and servers for longer than they compute.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::process::Stdio;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context as _, Result, bail};
use xtask::cargo;

/// The programs that take longest, each beside the other and beside all the rest, and how many of their
/// tests go on at a time: those that start processes wait for them most of the time. What they start has
/// ports and folders of its own.
const APART: [(&[&str], usize); 2] = [(&["process"], 6), (&["browser", "postgres"], 2)];
/// The same for the rest.
const THREADS: usize = 2;

/// All that is built, so that what follows only runs it. Features that only tests need are part of it,
/// and so the programs that are tried afterwards are built as well.
pub(crate) fn build() -> Result<()> {
    cargo::run(cargo::command(["build", "--workspace", "--all-targets", "--locked"]))
}

/// Programs that are run one after the other.
struct Shelf {
    targets: Vec<String>,
    threads: usize,
}

pub(crate) fn run() -> Result<()> {
    let metadata = cargo::command(["metadata", "--format-version", "1", "--no-deps"]);
    let rest = rest(&cargo::output(metadata)?)?;
    let mut others = targets(rest.iter());
    others.extend(["--lib", "--bins", "--examples"].map(str::to_owned));
    let mut shelves: Vec<Shelf> = APART
        .iter()
        .map(|(names, threads)| Shelf { targets: targets(names.iter()), threads: *threads })
        .collect();
    shelves.push(Shelf { targets: others, threads: THREADS });
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
        bail!("tests failed in {failed} of {} parts", shelves.len());
    }
    cargo::run(cargo::command(["test", "--workspace", "--locked", "--doc"]))
}

/// What a shelf says comes in one piece, when it is through. True if all of it passed.
fn run_shelf(shelf: &Shelf) -> Result<bool> {
    let mut command = cargo::command(["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(&shelf.targets).args(["--", "--test-threads", &shelf.threads.to_string()]);
    // Which program is running and what its tests came to are said in two ways, and belong together.
    let (mut said, ear) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(ear.try_clone()?).stderr(ear);
    let mut child = command.spawn().context("cargo could not be started")?;
    // It has an end of the pipe, which would otherwise never end.
    drop(command);
    let mut text = Vec::new();
    said.read_to_end(&mut text)?;
    println!("{}", String::from_utf8_lossy(&text));
    Ok(child.wait()?.success())
}

fn targets(names: impl Iterator<Item = impl AsRef<str>>) -> Vec<String> {
    names.flat_map(|name| ["--test".to_owned(), name.as_ref().to_owned()]).collect()
}

/// The programs of tests that have no place of their own.
fn rest(metadata: &str) -> Result<BTreeSet<String>> {
    let metadata: serde_json::Value = serde_json::from_str(metadata)?;
    let packages = metadata["packages"].as_array().context("cargo names no packages")?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let tests = targets.filter(|target| {
        target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"))
    });
    let names = tests.filter_map(|target| target["name"].as_str());
    let is_apart = |name: &str| APART.iter().any(|(names, _)| names.contains(&name));
    Ok(names.filter(|name| !is_apart(name)).map(str::to_owned).collect())
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
