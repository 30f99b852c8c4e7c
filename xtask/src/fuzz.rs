//! `cargo xtask fuzz`: throws made-up bytes at everything that reads bytes, one target after another,
//! and says how far it came and what it found.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use xtask::cargo;

/// What drives the fuzzer that comes with the compiler. It asks for flags that are not stable, which
/// the stable compiler takes if it is told to.
const TOOL: (&str, &str) = ("cargo-fuzz", "0.13.2");
/// Everything is safe Rust: what a sanitizer would look for cannot be there, and without one there
/// are several times as many tries.
const SANITIZER: &str = "--sanitizer=none";
/// Whatever takes longer than this is a finding.
const TIMEOUT_SECONDS: u32 = 10;
/// And what takes more memory than this.
const MEMORY_MEBIBYTES: u32 = 2_048;
/// The longest input that is tried. What has a bound of its own has it below that, mostly.
const MAX_BYTES: u32 = 4_096;
/// How many tries a finding is made smaller by.
const SHRINKING_TRIES: u32 = 20_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// For how long each target is tried
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: u32,

    /// Only this one [default: each in turn]
    target: Option<String>,
}

/// How far one target came.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    executions: u64,
    /// Edges of the program that were seen.
    coverage: u64,
    findings: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let fuzz = cargo::root().join("fuzz");
    let known = targets(&fuzz)?;
    let chosen: Vec<String> = match &arguments.target {
        None => known,
        Some(target) if known.contains(target) => vec![target.clone()],
        Some(target) => bail!("there is no target {target}; there are {}", known.join(", ")),
    };
    let folder = cargo::target()?;
    let tools = install(&folder.join("tools"))?;
    let work = folder.join("fuzz");
    let tool = Tool { tools, fuzz, work };

    let mut found = 0;
    println!(
        "{:<14} {:>8} {:>12} {:>9} {:>9}",
        "target", "minutes", "executions", "edges", "findings"
    );
    for target in &chosen {
        let outcome = tool.try_for(arguments.minutes, target)?;
        let Outcome { executions, coverage, findings } = &outcome;
        let (minutes, count) = (arguments.minutes, findings.len());
        println!("{target:<14} {minutes:>8} {executions:>12} {coverage:>9} {count:>9}");
        for finding in findings {
            let smallest = tool.shrink(target, finding)?;
            println!("  {}", smallest.display());
        }
        found += count;
    }
    ensure!(
        found == 0,
        "{found} findings: `cargo fuzz run TARGET FILE` shows one again, and a file in \
         fuzz/corpus/TARGET keeps it found"
    );
    Ok(())
}

/// The programs of the fuzzer, by name.
fn targets(fuzz: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(fuzz.join("fuzz_targets")).context("fuzz/fuzz_targets")? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Returns the folder of its program.
fn install(root: &Path) -> Result<PathBuf> {
    let (name, version) = TOOL;
    let programs = root.join("bin");
    if !programs.join(name).is_file() {
        let mut install = cargo::command(["install", "--locked", "--root"]);
        install.arg(root).args(["--version", version, name]);
        cargo::run(install)?;
    }
    Ok(programs)
}

struct Tool {
    /// Where its program is.
    tools: PathBuf,
    fuzz: PathBuf,
    /// Where it keeps what it has learned, and what it says.
    work: PathBuf,
}

impl Tool {
    fn command(&self, subcommand: &str, target: &str) -> Result<Command> {
        let mut command = cargo::command(["fuzz", subcommand, SANITIZER, target]);
        let before = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.tools.clone()).chain(std::env::split_paths(&before));
        let path: OsString = std::env::join_paths(folders).context("PATH")?;
        command.env("PATH", path).env("RUSTC_BOOTSTRAP", "1");
        Ok(command)
    }

    fn try_for(&self, minutes: u32, target: &str) -> Result<Outcome> {
        // Built apart, so that the time is not spent on it.
        cargo::run(self.command("build", target)?)?;
        // What is learned goes where it is not committed; the corpus is only read.
        let learned = self.work.join(target);
        fs::create_dir_all(&learned)?;
        let log = self.work.join(format!("{target}.log"));
        let before = self.findings(target)?;
        let mut command = self.command("run", target)?;
        command.arg(&learned).arg(self.fuzz.join("corpus").join(target)).arg("--").args([
            format!("-max_total_time={}", u64::from(minutes) * 60),
            format!("-timeout={TIMEOUT_SECONDS}"),
            format!("-rss_limit_mb={MEMORY_MEBIBYTES}"),
            format!("-max_len={MAX_BYTES}"),
            "-print_final_stats=1".to_owned(),
        ]);
        let said = File::create(&log).with_context(|| log.display().to_string())?;
        let status = command.stdout(said.try_clone()?).stderr(said).status()?;
        let mut findings = self.findings(target)?;
        findings.retain(|finding| !before.contains(finding));
        ensure!(
            status.success() || !findings.is_empty(),
            "the fuzzer failed without a finding ({status}): see {}",
            log.display()
        );
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        Ok(Outcome { findings, ..figures(&text) })
    }

    fn findings(&self, target: &str) -> Result<Vec<PathBuf>> {
        let folder = self.fuzz.join("artifacts").join(target);
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let mut findings = Vec::new();
        for entry in fs::read_dir(&folder)? {
            findings.push(entry?.path());
        }
        findings.sort();
        Ok(findings)
    }

    /// The smallest that still shows it, or the finding itself where none was found.
    fn shrink(&self, target: &str, finding: &Path) -> Result<PathBuf> {
        let before = self.findings(target)?;
        let mut command = self.command("tmin", target)?;
        command.arg(finding).args(["--runs", &SHRINKING_TRIES.to_string()]);
        let log = File::create(self.work.join(format!("{target}.tmin.log")))?;
        // It fails where nothing smaller was found, and then there is nothing more to do.
        let _ = command.stdout(log.try_clone()?).stderr(log).status()?;
        let size = |path: &PathBuf| fs::metadata(path).map_or(u64::MAX, |found| found.len());
        let after = self.findings(target)?;
        let smaller = after.into_iter().filter(|path| !before.contains(path)).min_by_key(size);
        Ok(smaller.unwrap_or_else(|| finding.to_owned()))
    }
}

/// What the fuzzer says of itself: lines like `#524288 pulse  cov: 1203 ft: 4211 …`, and statistics
/// at the end, which are missing after a finding.
fn figures(log: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in log.lines() {
        if let Some(rest) = line.strip_prefix("stat::number_of_executed_units:") {
            outcome.executions = rest.trim().parse().unwrap_or(outcome.executions);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = words.first().and_then(|word| word.strip_prefix('#'));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            outcome.executions = outcome.executions.max(number);
        }
        for pair in words.windows(2) {
            if let ["cov:", edges] = pair {
                outcome.coverage = edges.parse().unwrap_or(outcome.coverage);
            }
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_the_last_that_were_told() {
        let log = "INFO: seed corpus: files: 79\n\
                   #2\tINITED cov: 10 ft: 11 corp: 1/1b\n\
                   #1024\tpulse  cov: 1203 ft: 4211 corp: 90/2Kb exec/s: 512\n\
                   #2000\tDONE   cov: 1204 ft: 4212 corp: 91/2Kb exec/s: 500\n\
                   stat::number_of_executed_units: 2001\n";
        let wanted = Outcome { executions: 2_001, coverage: 1_204, findings: Vec::new() };
        assert_eq!(figures(log), wanted);
        let cut = "#1024\tNEW    cov: 7 ft: 8\nthread panicked\n";
        let wanted = Outcome { executions: 1_024, coverage: 7, findings: Vec::new() };
        assert_eq!(figures(cut), wanted);
    }

    #[test]
    fn the_targets_are_the_programs_of_the_fuzzer() {
        let targets = targets(&cargo::root().join("fuzz")).expect("readable");
        assert!(targets.iter().any(|target| target == "url_guard"), "{targets:?}");
    }
}
