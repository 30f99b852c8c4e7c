//! `cargo xtask`: the checks, the benchmarks and the generated pages of this repository.

mod axe;
mod check;
mod docs;
mod fuzz;
mod mutants;
mod newcomer;
mod package;
mod promtool;
mod python;
mod suites;
mod tidy;
mod trials;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use xtask::tasks;

#[derive(Debug, Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    about,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Run every check: formatting, tidiness, lints, tests
    Test,
    /// Run only the checks of the repository itself: edges, licences, leftovers
    Tidy,
    #[command(about = tasks::BENCH, disable_help_flag = true)]
    Bench(trials::Arguments),
    #[command(about = tasks::TORTURE, disable_help_flag = true)]
    Torture(trials::Arguments),
    #[command(about = tasks::SOAK, disable_help_flag = true)]
    Soak(trials::Arguments),
    /// Break rules on purpose, one by one, and see the simulation's checkers complain
    MutantsSim(mutants::Arguments),
    /// Throw made-up bytes at everything that reads bytes, for minutes
    Fuzz(fuzz::Arguments),
    /// Write the generated pages under docs/ again, and the guide under target/guide/
    Docs,
    /// Make a static binary, a Debian package and a list of what is in them, and try them
    Package,
    /// Clone into an empty folder, build there, and go through the README with what was built
    Newcomer,
    #[command(about = tasks::SCREENSHOTS, disable_help_flag = true)]
    Screenshots(trials::Arguments),
    /// Print this message or the help of the given subcommand(s)
    Help {
        #[arg(value_name = "COMMAND")]
        task: Option<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Test => check::run(),
        Task::Tidy => tidy::check(),
        Task::Bench(arguments) => trials::replace("bench", &arguments),
        Task::Torture(arguments) => trials::replace("torture", &arguments),
        Task::Soak(arguments) => trials::replace("soak", &arguments),
        Task::MutantsSim(arguments) => mutants::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Docs => docs::write(),
        Task::Package => package::run(),
        Task::Newcomer => newcomer::run(),
        Task::Screenshots(arguments) => trials::replace("screenshots", &arguments),
        // As if it was asked for by the flag, which each task has, wherever it is.
        Task::Help { task } => {
            let line = ["xtask".to_owned()].into_iter().chain(task);
            run(Arguments::parse_from(line.chain(["--help".to_owned()])).task)
        }
    }
}
