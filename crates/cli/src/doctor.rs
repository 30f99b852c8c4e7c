//! `postrider doctor`: looks at a gateway and its surroundings, and says what to do about what is
//! wrong. It changes nothing.

mod check;
mod destinations;
mod dial;
mod gateway;
mod machine;
mod store;

use std::io::{self, Write};
use std::process::ExitCode;

use postrider_engine::destination::Guard;
use serde_json::json;

use crate::connect::Connect;
use crate::outbound::OutboundArgs;
use crate::output::{Colour, OutputArgs, Style, inert_to};
use crate::secret_key::KeyArgs;
use crate::stores::Whereabouts;
use crate::{EXIT_FAILURE, Failure};
use check::{Check, Status};

/// The longest sentence that is shown.
const MAX_SENTENCE_CHARS: usize = 600;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Run it on the machine of the gateway, as the user that the gateway runs as, with the flags, the \
environment or the file that the gateway was started with. Each check is ok, warn or fail, and says \
what to do unless it is ok. Nothing is changed and nothing is sent: destinations are connected to, and \
left again.

  store        there, readable for its owner only, of this version, sound, with room on its disk
  secret key   there, private, and the one that the secrets are sealed with
  clock        plausible, and the same as the gateway's and the database's
  file limit   enough for all that can be in flight
  gateway      alive, ready, of this version; its key valid; what waits, what is disabled, whose breaker \
is open; every lane carried. Of one tenant: the key's, or --tenant
  dns          each name server answers, and each destination has an address
  destination  allowed by the guard, and reachable (TCP, and TLS for https; not tried where it \
all goes through --egress-proxy)

Without a key of the API only the machine and the store are looked at; without a store only the \
machine and the gateway.

Exit codes: 0 nothing failed, whether or not there are warnings; 1 something failed; 2 wrong usage or \
configuration.

Examples:
  POSTRIDER_KEY=pr_… postrider doctor --data /var/lib/postrider
  postrider doctor --gateway https://hooks.example.com --json")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    whereabouts: Whereabouts,

    #[command(flatten)]
    secret_key: KeyArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    outbound: OutboundArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let place = args.whereabouts.place()?;
    let guard = args.outbound.guard()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // A signal ends it on the spot: there is nothing to put back.
    let checks = runtime.block_on(look(args, &place, &guard));
    // A name that is being looked up cannot be called off.
    runtime.shutdown_background();
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    args.output.show(&to_json(&checks), |out| write(&checks, Style::of_stdout(), out))?;
    Ok(if failed { EXIT_FAILURE.into() } else { ExitCode::SUCCESS })
}

async fn look(args: &Args, place: &crate::stores::Place, guard: &Guard) -> Vec<Check> {
    let mut checks = store::look(place, args).await;
    checks.push(machine::clock(place));
    checks.push(machine::file_limit(args.outbound.max_in_flight));
    checks.extend(destinations::name_servers(&args.outbound.dns_server).await);
    let gateway = match args.connect.gateway() {
        Ok(gateway) => gateway,
        Err(failure) => {
            checks.push(Check::warn(
                "gateway",
                format!("not looked at: {:#}", failure.error),
                "say where it listens with --gateway, and give a key of its API with POSTRIDER_KEY",
            ));
            return checks;
        }
    };
    let seen = gateway::look(&gateway).await;
    checks.extend(seen.checks);
    let through = args.outbound.egress_proxy.is_some();
    checks.extend(destinations::look(&gateway, guard, &seen.endpoints, through).await);
    checks
}

fn to_json(checks: &[Check]) -> serde_json::Value {
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let all: Vec<_> = checks.iter().map(Check::to_json).collect();
    json!({
        "checks": all,
        "ok": count(Status::Ok),
        "warn": count(Status::Warn),
        "fail": count(Status::Fail),
    })
}

fn write(checks: &[Check], style: Style, out: &mut dyn Write) -> io::Result<()> {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    for check in checks {
        let (word, colour) = match check.status {
            Status::Ok => ("ok  ", Colour::Green),
            Status::Warn => ("warn", Colour::Yellow),
            Status::Fail => ("fail", Colour::Red),
        };
        let says = inert_to(&check.says, MAX_SENTENCE_CHARS);
        writeln!(out, "{}  {:<width$}  {says}", style.paint(colour, word), check.name)?;
        if let Some(advice) = &check.advice {
            writeln!(out, "{:width$}        → {}", "", inert_to(advice, MAX_SENTENCE_CHARS))?;
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (ok, warn, fail) = (count(Status::Ok), count(Status::Warn), count(Status::Fail));
    writeln!(out, "\n{ok} ok, {warn} to look at, {fail} failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_told_with_what_to_do() {
        let checks = [
            Check::ok("store", "it is there"),
            Check::warn("disk", "it is \x1b[2Jnearly full", "make room"),
            Check::fail("clock", "it is 1970", "set it"),
        ];
        let mut out = Vec::new();
        write(&checks, Style::of_stdout(), &mut out).expect("written");
        let shown = String::from_utf8(out).expect("text");
        for line in [
            "ok    store  it is there",
            "fail  clock  it is 1970",
            "             → set it",
            "1 ok, 1 to look at, 1 failed",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line:?}: {shown}");
        }
        assert!(!shown.contains('\x1b'), "{shown}");
        let json = to_json(&checks);
        assert_eq!((&json["ok"], &json["warn"], &json["fail"]), (&1.into(), &1.into(), &1.into()));
        assert_eq!(json["checks"][2]["status"], "fail");
        assert_eq!(json["checks"][0]["advice"], serde_json::Value::Null);
    }
}
