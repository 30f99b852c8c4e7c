//! `postrider-sim`: whole deployments on virtual time, each from one seed, with faults; what must always
//! hold is checked at the end of each. The same seed is the same world again.

mod chance;
mod checkers;
mod clock;
mod gate;
mod hazard;
mod history;
mod network;
mod node;
mod panics;
mod report;
mod scenario;
mod shrink;
mod store;
mod world;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use postrider_core::DeliveryId;

use hazard::Cuts;
use report::Totals;
use scenario::Scenario;
use shrink::Whole;
use world::Ended;

/// Lives through whole deployments on virtual time, each drawn from one seed, and checks what must
/// always hold
///
/// A seed says how many nodes there are, which endpoints, hubs and workers, how much traffic, and what
/// goes wrong: crashes between any two operations of the store, commits that are reported as failed,
/// messages that are lost, late or doubled, partitions, pauses beyond a lease, clocks that jump, full
/// disks, outages. After that all is well, and everything has to come to its end. Then one checker for
/// each rule looks at what happened.
///
/// A world that breaks a rule is made smaller, and the command that lives through the small one again is
/// printed. It is the same world every time:
///
///   postrider-sim --seeds 1000
///   postrider-sim --seed 7
///   postrider-sim --seed 7 --events 12 --endpoints 1,3 --without pauses,jumps
#[derive(Debug, Parser)]
#[command(name = "postrider-sim", verbatim_doc_comment)]
struct Arguments {
    /// How many worlds to live through, from seed --from on
    #[arg(long, default_value_t = 200, value_name = "N")]
    seeds: u64,

    /// The first of them
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,

    /// One world alone, with all that was drawn for it and all that went wrong in it
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,

    /// Also tell all that happened to this delivery
    #[arg(long, value_name = "ID", requires = "seed")]
    delivery: Option<DeliveryId>,

    #[command(flatten)]
    cuts: Cuts,

    /// Stop at the first world that breaks a rule
    #[arg(long)]
    fail_fast: bool,

    /// Do not look for a smaller world that breaks the same rule
    #[arg(long)]
    no_shrink: bool,
}

/// A line says how far it has got, once in so many worlds.
const SAY_EVERY: u64 = 25;

fn main() -> ExitCode {
    panics::watch();
    let arguments = Arguments::parse();
    let sound = match arguments.seed {
        Some(seed) => live_once(seed, &arguments),
        None => live_many(&arguments),
    };
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn live_once(seed: u64, arguments: &Arguments) -> bool {
    let scenario = Scenario::of(seed).cut(&arguments.cuts);
    println!("{scenario:#?}");
    let mut totals = Totals::begin();
    let ended = world::run(&scenario);
    if let Ok(ended) = &ended {
        totals.add(ended);
        for fault in &ended.faults {
            println!("  {} {} of {}", fault.at, fault.kind, fault.node);
        }
        if let Some(delivery) = arguments.delivery {
            println!("{delivery}:");
            for line in ended.chronicle.read(|history| history.story(delivery)) {
                println!("  {line}");
            }
        }
        println!("fingerprint {}", ended.fingerprint);
    }
    let sound = judge(seed, &ended, arguments);
    totals.broken += u64::from(!sound);
    println!("{totals}");
    sound
}

fn live_many(arguments: &Arguments) -> bool {
    let mut totals = Totals::begin();
    for seed in arguments.from..arguments.from.saturating_add(arguments.seeds) {
        let ended = world::run(&Scenario::of(seed));
        if let Ok(ended) = &ended {
            totals.add(ended);
        }
        if !judge(seed, &ended, arguments) {
            totals.broken += 1;
            if arguments.fail_fast {
                break;
            }
        }
        if (seed + 1 - arguments.from).is_multiple_of(SAY_EVERY) {
            println!("{}", totals.line());
        }
    }
    println!("{totals}");
    totals.broken == 0
}

/// Says what was wrong with a world, and how it is seen again with as little else as possible.
fn judge(seed: u64, ended: &Result<Ended>, arguments: &Arguments) -> bool {
    let again = |cuts: &Cuts| {
        println!("  again: cargo run --profile sim -p postrider-sim -- --seed {seed}{cuts}");
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            println!("seed {seed}: {error:#}");
            again(&arguments.cuts);
            return false;
        }
    };
    let Some(first) = ended.violations.first() else { return true };
    println!("seed {seed} breaks a rule:");
    for violation in &ended.violations {
        println!("  {violation}");
    }
    if arguments.no_shrink || arguments.cuts != Cuts::default() {
        again(&arguments.cuts);
    } else {
        again(&shrink(seed, rule(first)));
    }
    false
}

/// What a violation begins with, up to the colon, is the rule that it breaks.
fn rule(violation: &str) -> &str {
    violation.split(':').next().unwrap_or(violation)
}

fn shrink(seed: u64, broken: &str) -> Cuts {
    let scenario = Scenario::of(seed);
    let whole = Whole { events: scenario.events, endpoints: scenario.endpoints.len() };
    shrink::smallest(whole, |cuts| {
        let ended = world::run(&scenario.clone().cut(cuts));
        ended.is_ok_and(|ended| ended.violations.iter().any(|found| rule(found) == broken))
    })
}

#[cfg(test)]
mod tests;
