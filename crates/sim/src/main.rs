//! `postrider-sim`: whole deployments on virtual time, each from one seed, with faults; what must always
//! hold is checked at the end of each. The same seed is the same world again.

mod chance;
mod checkers;
mod clock;
mod gate;
mod history;
mod network;
mod node;
mod scenario;
mod store;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use scenario::Scenario;

#[derive(Debug, Parser)]
#[command(name = "postrider-sim", about)]
struct Arguments {
    /// How many worlds to live through, from seed --from on
    #[arg(long, default_value_t = 200, value_name = "N")]
    seeds: u64,

    /// The first of them
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,

    /// One world alone, with what went wrong in it
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (from, seeds) = arguments.seed.map_or((arguments.from, arguments.seeds), |seed| (seed, 1));
    let started = Instant::now();
    let (mut lasted, mut failed) = (Duration::ZERO, 0_u32);
    for seed in from..from.saturating_add(seeds) {
        let scenario = Scenario::of(seed);
        if arguments.seed.is_some() {
            println!("{scenario:#?}");
        }
        let begun = Instant::now();
        match world::run(&scenario) {
            Ok(ended) => {
                lasted += ended.lasted;
                if arguments.seed.is_some() || !ended.violations.is_empty() {
                    println!(
                        "seed {seed}: {} nodes, {} events, {} arrivals, {} faults, {:.1} days in {:?}, {}",
                        scenario.nodes,
                        ended.events,
                        ended.arrivals,
                        ended.faults.len(),
                        ended.lasted.as_secs_f64() / 86_400.0,
                        begun.elapsed(),
                        ended.fingerprint
                    );
                }
                if arguments.seed.is_some() {
                    for fault in &ended.faults {
                        println!("  {} node {}: {:?}", fault.at, fault.node, fault.kind);
                    }
                }
                if !ended.violations.is_empty() {
                    failed += 1;
                    for violation in &ended.violations {
                        println!("  {violation}");
                    }
                    println!("  again: cargo run --profile sim -p postrider-sim -- --seed {seed}");
                }
            }
            Err(error) => {
                failed += 1;
                println!("seed {seed}: {error:#}");
            }
        }
    }
    let days = lasted.as_secs_f64() / 86_400.0;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    println!(
        "{seeds} seeds, {failed} failed; {days:.0} virtual days, {:.0} a minute",
        days / minutes
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
