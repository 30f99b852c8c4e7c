//! The `postrider` binary: reads flags, environment and files, and puts the parts together.

mod connect;
mod copy;
mod demo;
mod hub;
mod listen;
mod migrate;
mod nodes;
mod plan_view;
mod policy;
mod rekey;
mod secret;
mod secret_key;
mod serve;
mod settings;
mod signals;
mod stores;
mod work;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Small allocations by many threads are most of what the gateway asks of an allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A usage or configuration error.
const EXIT_USAGE: u8 = 2;
/// Anything else that goes wrong.
const EXIT_FAILURE: u8 = 1;

#[derive(Debug, Parser)]
#[command(
    name = "postrider",
    version,
    about = "A durable webhook gateway: stores events before it says yes, and carries each one to its endpoints.",
    after_help = "See it at work with `postrider demo`. Start with `postrider serve`, then send the event it suggests.\n\nExit codes: 0 success, 1 failure, 2 wrong usage or configuration. Some commands have more: see their help.",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    Serve(Box<serve::Args>),
    /// See a gateway at work: receivers that fail in their own ways, traffic, and the dashboard
    Demo(demo::Args),
    /// Look at retry policies
    Policy(policy::Args),
    /// Seal stored secrets with a new key
    Rekey(rekey::Args),
    /// Receive webhooks from the internet at a service on this machine, and watch them
    Listen(listen::Args),
    /// Forward deliveries to services that only this machine can reach
    Hub(Box<hub::Args>),
    /// Run a program for each delivery of a pull endpoint
    Work(Box<work::Args>),
    /// Show the nodes that share a store, and who carries what
    Nodes(nodes::Args),
    /// Bring the schema of a store up to date
    Migrate(migrate::Args),
    /// Move a whole store from a file to a database server
    Copy(copy::Args),
}

fn main() -> ExitCode {
    let mut given = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let done = |()| ExitCode::SUCCESS;
    let outcome = match cli.command {
        Command::Serve(args) => {
            // What was read from it is what it has.
            let given = given.remove_subcommand().map(|(_, given)| given).unwrap_or_default();
            serve::run(*args, given).map(done)
        }
        Command::Demo(args) => demo::run(&args).map(done),
        Command::Policy(args) => policy::run(&args).map(done),
        Command::Rekey(args) => rekey::run(&args).map(done),
        Command::Listen(args) => listen::run(&args).map(done),
        Command::Hub(args) => hub::run(&args).map(done),
        Command::Work(args) => work::run(&args).map(done),
        Command::Nodes(args) => nodes::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Copy(args) => copy::run(&args).map(done),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("postrider: {:#}", failure.error);
        ExitCode::from(if failure.usage { EXIT_USAGE } else { EXIT_FAILURE })
    })
}

/// What ended a command, and whether the user could have known.
#[derive(Debug)]
struct Failure {
    error: anyhow::Error,
    usage: bool,
}

impl Failure {
    fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { error: error.into(), usage: true }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: error.into(), usage: false }
    }
}
