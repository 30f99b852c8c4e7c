//! The `postrider` binary as a library, so that what it reads can be fuzzed: flags, environment and
//! files are read here, and the parts are put together. Only [`main`] is meant to be called.

mod backup;
mod bench;
mod completions;
mod config;
mod connect;
mod copy;
mod dead;
mod declared;
mod deliveries;
mod demo;
mod doctor;
mod endpoints;
mod events;
mod export;
mod health;
mod hub;
mod hubs;
mod jobs;
mod keys;
mod listen;
mod man;
mod mcp;
mod migrate;
mod nodes;
mod outbound;
mod output;
mod plan_view;
mod policy;
mod profile;
mod profiles;
mod progress;
mod prompt;
mod reference;
mod rekey;
mod resource;
mod secret;
mod secret_key;
mod serve;
mod settings;
mod signals;
mod sources;
mod stores;
mod tail;
mod telemetry;
mod tenants;
mod top;
mod traffic;
mod work;

#[doc(hidden)]
pub mod fuzzing;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use config::Loaded;
use settings::Inbox;

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
    /// A file of settings, and of what should be there [default: postrider.toml, if it is here]
    #[arg(long, global = true, env = "POSTRIDER_CONFIG", value_name = "PATH")]
    config: Option<PathBuf>,

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
    /// Copy the database of a gateway while it runs
    Backup(backup::Args),
    /// Check a configuration file, show what is in force, print the reference
    Config(config::Args),
    /// Ask a gateway whether it is ready, for health checks
    Health(health::Args),
    /// Find out what is wrong with a gateway or its surroundings, and what to do about it
    Doctor(doctor::Args),
    /// Send, list and look at events, and send old ones again
    Events(events::Args),
    /// List and look at deliveries, retry or cancel them
    Deliveries(deliveries::Args),
    /// Look at dead letters, send them again, or throw them away
    Dead(dead::Args),
    /// Show how far a long piece of work has come
    Jobs(jobs::Args),
    /// List and change the endpoints that events go to
    Endpoints(endpoints::Args),
    /// List and change the sources that webhooks come in by
    Sources(sources::Args),
    /// List and change hubs, the agents behind NAT
    Hubs(hubs::Args),
    /// List, make and revoke keys of the API
    Keys(keys::Args),
    /// List and make tenants
    Tenants(tenants::Args),
    /// Watch what happens as it happens
    Tail(tail::Args),
    /// Watch throughput, backlog and the worst endpoints in the terminal
    Top(top::Args),
    /// Write events and what became of them as lines of JSON
    Export(export::Args),
    /// Put load on a gateway and say what it did
    Bench(bench::Args),
    /// Let an assistant look at a gateway: the Model Context Protocol on standard input and output
    Mcp(mcp::Args),
    /// Keep the addresses and keys of several gateways
    Profile(profile::Args),
    /// Print a script that completes commands in a shell
    Completions(completions::Args),
    /// Write the manual pages
    Man(man::Args),
    /// Print the reference of every command, as docs/cli.md has it
    #[command(hide = true)]
    Reference,
}

/// Runs the command that the arguments of this process name.
pub fn main() -> ExitCode {
    run().unwrap_or_else(|failure| {
        if !output::is_unread(&failure.error) {
            eprintln!("postrider: {:#}", failure.error);
        }
        ExitCode::from(if failure.usage { EXIT_USAGE } else { EXIT_FAILURE })
    })
}

fn run() -> Result<ExitCode, Failure> {
    let (given, loaded) = config::arguments::read(Cli::command)?;
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let given = config::arguments::innermost(&given);
    obey(cli, given, loaded.as_ref()).map_err(|failure| match &loaded {
        Some(loaded) => loaded.explain(failure, given),
        None => failure,
    })
}

/// `given` is where the arguments of the command come from, and `loaded` the file that some of them
/// stand in.
fn obey(cli: Cli, given: &ArgMatches, loaded: Option<&Loaded>) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match cli.command {
        Command::Serve(args) => serve::run(*args, given, loaded).map(done),
        Command::Demo(args) => demo::run(&args).map(done),
        Command::Policy(args) => {
            let usual = Inbox::default();
            policy::run(&args, loaded.map_or(&usual, |loaded| &loaded.inbox)).map(done)
        }
        Command::Rekey(args) => rekey::run(&args).map(done),
        Command::Listen(args) => listen::run(&args).map(done),
        Command::Hub(args) => hub::run(&args).map(done),
        Command::Work(args) => work::run(&args).map(done),
        Command::Nodes(args) => nodes::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Copy(args) => copy::run(&args).map(done),
        Command::Backup(args) => backup::run(&args).map(done),
        Command::Config(args) => config::run(&args, cli.config.as_deref()),
        Command::Health(args) => health::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Deliveries(args) => deliveries::run(&args).map(done),
        Command::Dead(args) => dead::run(&args).map(done),
        Command::Jobs(args) => jobs::run(&args).map(done),
        Command::Endpoints(args) => endpoints::run(&args),
        Command::Sources(args) => sources::run(&args).map(done),
        Command::Hubs(args) => hubs::run(&args).map(done),
        Command::Keys(args) => keys::run(&args).map(done),
        Command::Tenants(args) => tenants::run(&args).map(done),
        Command::Tail(args) => tail::run(&args).map(done),
        Command::Top(args) => top::run(&args).map(done),
        Command::Export(args) => export::run(&args).map(done),
        Command::Bench(args) => bench::run(&args).map(done),
        Command::Mcp(args) => mcp::run(&args).map(done),
        Command::Profile(args) => profile::run(&args).map(done),
        Command::Completions(args) => completions::run(&args).map(done),
        Command::Man(args) => man::run(&args).map(done),
        Command::Reference => reference::run().map(done),
    }
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
