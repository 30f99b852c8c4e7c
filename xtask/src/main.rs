//! `cargo xtask`: the checks, the benchmarks and the generated pages of this repository.

mod axe;
mod bench;
mod check;
mod docs;
mod fuzz;
mod history;
mod mutants;
mod newcomer;
mod package;
mod promtool;
mod python;
mod screenshots;
mod soak;
mod tidy;
mod torture;
#[allow(dead_code, reason = "the tests of the dashboard need the rest")]
#[path = "../../crates/cli/tests/browser/webdriver.rs"]
mod webdriver;

use std::process::ExitCode;

use clap::Parser;

/// The binary's own, so that what the bench holds it against is as fast.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", about, arg_required_else_help = true)]
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
    /// Measure the gateway against what the machine can do, side by side
    Bench(bench::Arguments),
    /// Kill, stop, starve and cut off the real gateway under load, and count what was lost
    Torture(torture::Arguments),
    /// Keep the gateway under load for long, overload it, let a herd loose on it
    Soak(soak::Arguments),
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
    /// Photograph the pages of the dashboard that the README shows, under docs/images/
    Screenshots,
    /// The guide as a folder of files (run by `docs`)
    #[command(hide = true)]
    Guide,
    /// The server that acknowledges and stores nothing (started by `bench`)
    #[command(hide = true)]
    BenchNull,
    /// The server that pushes onwards and stores nothing (started by `bench`)
    #[command(hide = true)]
    BenchPass(bench::PassArguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test => check::run(),
        Task::Tidy => tidy::check(),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Torture(arguments) => torture::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::MutantsSim(arguments) => mutants::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Docs => docs::write(),
        Task::Package => package::run(),
        Task::Newcomer => newcomer::run(),
        Task::Screenshots => screenshots::take(),
        Task::Guide => docs::write_guide(),
        Task::BenchNull => bench::serve_null(),
        Task::BenchPass(arguments) => bench::serve_pass(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
