//! `cargo xtask test`: every check in one order, the cheap ones first, stopping at the first failure.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use xtask::{cargo, chromium, postgres, toolchain};

use crate::{axe, promtool, python, suites, tidy, trials};

/// Worlds that the simulation lives through.
const SEEDS: &str = "200";

/// Rounds of torture on either store, and what each round is like.
const ROUNDS: [[&str; 4]; 2] =
    [["--store", "sqlite", "--rounds", "20"], ["--store", "postgres", "--rounds", "6"]];
const ROUND: [&str; 6] = ["--seconds", "1", "--rate", "200", "--cuts", "3"];

pub(crate) fn run() -> Result<()> {
    toolchain::require()?;
    postgres::require()?;
    chromium::require()?;
    axe::require()?;
    toolchain::require_languages()?;
    let mut taken = Vec::new();
    let mut step = |name: &'static str, check: fn() -> Result<()>| -> Result<()> {
        println!("\n== {name}");
        let started = Instant::now();
        check().with_context(|| format!("cargo xtask test stopped at {name}"))?;
        let time = started.elapsed();
        println!("-- {name}: ok, {}", seconds(time));
        taken.push((name, time));
        Ok(())
    };
    step("format", || cargo::run(cargo::command(["fmt", "--all", "--check"])))?;
    step("tidy", tidy::check)?;
    step("clippy", || {
        let lint = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
        cargo::run(cargo::command(lint))
    })?;
    step("build", suites::build)?;
    step("tests", suites::run)?;
    step("simulation", simulate)?;
    step("torture", || {
        for rounds in ROUNDS {
            trials::run(["torture"].into_iter().chain(rounds).chain(ROUND))?;
        }
        Ok(())
    })?;
    step("soak", || trials::run(["soak", "--short"]))?;
    step("libraries", python::check_libraries)?;
    step("schema", python::check_schema)?;
    step("prometheus", promtool::check)?;

    println!("\n== summary");
    for (name, time) in &taken {
        println!("{name:<10} ok {:>10}", seconds(*time));
    }
    println!("every check passed in {}", seconds(taken.iter().map(|(_, time)| *time).sum()));
    Ok(())
}

/// As tests build it: the worlds are soon lived through, and an optimised build would take longer than
/// it saves.
fn simulate() -> Result<()> {
    let mut command = Command::new(cargo::target()?.join("debug/postrider-sim"));
    command.args(["--seeds", SEEDS]);
    cargo::run(command)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
