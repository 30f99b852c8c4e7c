//! The tasks of `cargo xtask` that need the gateway and its crates: it measures, tortures, soaks and
//! photographs the real binary. `cargo xtask` builds this program, and then it runs in its place.

mod bench;
mod guide;
mod history;
mod programs;
mod screenshots;
mod soak;
mod torture;
#[allow(dead_code, reason = "the tests of the dashboard need the rest")]
#[path = "../../cli/tests/browser/webdriver.rs"]
mod webdriver;

use std::process::ExitCode;

use clap::Parser;
use xtask::tasks;

/// The binary's own, so that what the bench holds it against is as fast.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    #[command(about = tasks::BENCH)]
    Bench(bench::Arguments),
    #[command(about = tasks::TORTURE)]
    Torture(torture::Arguments),
    #[command(about = tasks::SOAK)]
    Soak(soak::Arguments),
    #[command(about = tasks::SCREENSHOTS)]
    Screenshots,
    /// The guide as a folder of files (run by `docs`)
    #[command(hide = true)]
    Guide,
    /// The server that acknowledges and stores nothing (started by `bench`)
    #[command(hide = true)]
    BenchNull,
    /// The server that pushes onwards and stores nothing, or by hand (started by `bench`)
    #[command(hide = true)]
    BenchPass(bench::PassArguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Torture(arguments) => torture::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::Screenshots => screenshots::take(),
        Task::Guide => guide::write(),
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
