//! Builds the copy and lives through its worlds until a checker complains.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xtask::cargo;

use super::list::Mutant;
use super::tree::Tree;

/// A broken product may go round in circles: it is not waited for any longer.
const LONGEST: Duration = Duration::from_mins(20);
/// Checkers other than the expected one that are named.
const MAX_OTHERS: usize = 4;

/// What became of a mutant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The expected checker complained in the world of this seed, the first being 0.
    Caught {
        seed: u64,
    },
    /// Others complained, and it did not.
    Mistaken {
        by: Vec<String>,
    },
    Survived,
    /// It did not come to an end.
    Endless,
}

/// What it took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Living {
    pub(super) building: Duration,
    pub(super) running: Duration,
}

impl Fate {
    pub(super) fn is_caught(&self) -> bool {
        matches!(self, Self::Caught { .. })
    }

    pub(super) fn of_mutant(&self, seeds: u64) -> String {
        match self {
            Self::Caught { seed: 0 } => "in the first world".to_owned(),
            Self::Caught { seed } => format!("within {} worlds", seed + 1),
            Self::Mistaken { by } => format!("NOT in {seeds} worlds, but by {}", by.join(", ")),
            Self::Survived => format!("NOT in {seeds} worlds"),
            Self::Endless => "NOT, it went on for ever".to_owned(),
        }
    }

    /// Where nothing is broken, nobody is to complain.
    pub(super) fn of_none(&self) -> String {
        match self {
            Self::Survived => "nobody complains".to_owned(),
            Self::Mistaken { by } => format!("{} COMPLAIN", by.join(", ")),
            Self::Caught { .. } | Self::Endless => "NOT at an end".to_owned(),
        }
    }
}

/// Lives through up to so many worlds with something broken, or nothing.
pub(super) fn live(tree: &Tree, mutant: Option<&Mutant>, seeds: u64) -> Result<(Fate, Living)> {
    let name = mutant.map_or("nothing", |mutant| mutant.name);
    let _broken = mutant.map(|mutant| tree.edit(mutant)).transpose()?;
    println!("{name}: building");
    let begun = Instant::now();
    build(tree).with_context(|| format!("with {name} broken it is not built"))?;
    let building = begun.elapsed();
    println!("{name}: living, built in {:.0} s", building.as_secs_f64());
    let begun = Instant::now();
    let fate = watch(tree, mutant.map(|mutant| mutant.checker), seeds)?;
    Ok((fate, Living { building, running: begun.elapsed() }))
}

fn build(tree: &Tree) -> Result<()> {
    let mut build = cargo::command(["build", "--quiet", "--profile", "sim", "-p", "postrider-sim"]);
    build.current_dir(&tree.root);
    build.env("CARGO_TARGET_DIR", &tree.target).env("CARGO_INCREMENTAL", "1");
    // What is broken leaves things unused, and the warnings of that tell nothing.
    let told = build.output().context("cargo could not be started")?;
    ensure!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    Ok(())
}

fn watch(tree: &Tree, expected: Option<&str>, seeds: u64) -> Result<Fate> {
    let mut simulation = Command::new(tree.target.join("sim/postrider-sim"));
    simulation.args(["--no-shrink", "--seeds", &seeds.to_string()]);
    simulation.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = simulation.spawn().context("the simulation could not be started")?;
    let output = child.stdout.take().context("the simulation has no output")?;
    match listen(&lines(output), expected) {
        // Its output has ended, and so does it: well, or of something that no checker spoke of.
        Fate::Survived if !child.wait()?.success() => {
            Ok(Fate::Mistaken { by: vec!["an error".to_owned()] })
        }
        fate => {
            end(&mut child)?;
            Ok(fate)
        }
    }
}

/// Its lines, as they come.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (say, said) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if say.send(line).is_err() {
                return;
            }
        }
    });
    said
}

fn listen(said: &Receiver<String>, expected: Option<&str>) -> Fate {
    let until = Instant::now() + LONGEST;
    let (mut seed, mut others) = (0, Vec::new());
    loop {
        let line = match said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Fate::Endless,
            Err(RecvTimeoutError::Disconnected) if others.is_empty() => return Fate::Survived,
            Err(RecvTimeoutError::Disconnected) => return Fate::Mistaken { by: others },
        };
        match Said::of(&line) {
            Said::Seed(number) => seed = number,
            Said::Complaint(checker) if Some(checker) == expected => return Fate::Caught { seed },
            Said::Complaint(checker) => {
                let known = others.iter().any(|other| other == checker);
                if !known && others.len() < MAX_OTHERS {
                    others.push(checker.to_owned());
                }
            }
            Said::Nothing => {}
        }
    }
}

/// What a line of the simulation is about.
#[derive(Debug, PartialEq, Eq)]
enum Said<'a> {
    /// A world that breaks a rule.
    Seed(u64),
    /// Which rule.
    Complaint(&'a str),
    Nothing,
}

impl<'a> Said<'a> {
    fn of(line: &'a str) -> Self {
        if let Some(rest) = line.strip_prefix("seed ") {
            let digits = rest.split([' ', ':']).next().unwrap_or_default();
            return digits.parse().map_or(Self::Nothing, Self::Seed);
        }
        match line.strip_prefix("  ").and_then(|said| said.split_once(": ")) {
            Some(("again", _)) | None => Self::Nothing,
            Some((checker, _)) => Self::Complaint(checker),
        }
    }
}

/// What it has not said yet is not asked for.
fn end(child: &mut Child) -> Result<()> {
    // It may have ended already.
    drop(child.kill());
    child.wait().context("the simulation did not end")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_complaint_of_the_expected_checker_decides() {
        let world = ["seed 7 breaks a rule:", "  order: order is kept: a came at b", "  again: x"];
        let late = ["seed 9 breaks a rule:", "  due: no attempt before its time: c"];
        let cases = [
            ("order", Fate::Caught { seed: 7 }),
            ("due", Fate::Caught { seed: 9 }),
            ("kept", Fate::Mistaken { by: vec!["order".to_owned(), "due".to_owned()] }),
        ];
        for (expected, fate) in cases {
            let (say, said) = mpsc::channel();
            for line in world.iter().chain(&late) {
                say.send((*line).to_owned()).expect("somebody listens");
            }
            drop(say);
            assert_eq!(listen(&said, Some(expected)), fate);
        }
    }

    #[test]
    fn nobody_who_complains_is_a_survivor() {
        let (say, said) = mpsc::channel();
        say.send("  100 worlds, 12.0 virtual days".to_owned()).expect("somebody listens");
        drop(say);
        assert_eq!(listen(&said, Some("order")), Fate::Survived);
    }
}
