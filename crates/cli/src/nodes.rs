//! `postrider nodes`: who shares the store of a gateway, and who carries what.

mod table;
mod view;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use postrider_client::{Gateway, Method};
use postrider_engine::ports::{Clock as _, SystemClock};
use serde_json::Value;

use crate::Failure;
use crate::connect::Connect;
use crate::resource::refused;
use crate::signals::Signals;
use view::Nodes;

/// Between two looks with --watch.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Moves to the top of a terminal and clears it from there on.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Endpoints are divided into lanes, and one node at a time carries a lane: it schedules the deliveries of \
its endpoints and sends them. Endpoints behind a hub are carried by the node that the hub is connected \
to. Any node takes any event, and any of them can be asked.

  node       what it was called with `postrider serve --node-name`; * marks the one that answered
  state      live, since when; or gone, since when: it left, or its lease ran out
  lanes      how many it carries, and which
  hubs       how many are connected to it
  in flight  attempts under way
  lag        how long the oldest delivery has waited that could go now

The last line says whether every lane is carried. One that is not is taken within the lease (10s, \
unless `postrider serve --lease` says otherwise), as long as there is a node to take it.

Exit codes: 0 every lane is carried, 1 some are carried by nobody, or there was no answer; 2 wrong \
usage or configuration, which includes a key that is no admin key. With --watch, Ctrl-C ends it with 0.

Example:
  export POSTRIDER_KEY=pr_…
  postrider nodes --gateway http://10.0.0.5:7070 --watch")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    /// Print what the API says, with every lane and every hub; with --watch, one line each time
    #[arg(long)]
    json: bool,

    /// Look again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let gateway = args.connect.gateway()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.watch {
        return runtime.block_on(watch(&gateway, args.json));
    }
    let (answer, nodes) = runtime.block_on(look(&gateway))?;
    let shown = if args.json { format!("{answer:#}\n") } else { text(&nodes) };
    print(&shown)?;
    Ok(if nodes.uncarried().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn look(gateway: &Gateway) -> Result<(Value, Nodes), Failure> {
    let answer = gateway.request(Method::GET, "/v1/nodes", None).await.map_err(refused)?;
    let nodes = Nodes::read(&answer)
        .with_context(|| format!("{} does not answer as this program expects", gateway.url()))?;
    Ok((answer, nodes))
}

/// A gateway that does not answer for now is looked at again: that it is being restarted may be why
/// somebody watches.
async fn watch(gateway: &Gateway, json: bool) -> Result<ExitCode, Failure> {
    let mut signals = Signals::catch()?;
    let redraws = std::io::stdout().is_terminal() && !json;
    let mut ticks = tokio::time::interval(LOOK_AGAIN);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = signals.next() => return Ok(ExitCode::SUCCESS),
            _ = ticks.tick() => {}
        }
        let seen = tokio::select! {
            () = signals.next() => return Ok(ExitCode::SUCCESS),
            seen = look(gateway) => seen,
        };
        let shown = match seen {
            Ok((answer, _)) if json => format!("{answer}\n"),
            Ok((_, nodes)) => text(&nodes),
            Err(failure) if failure.usage => return Err(failure),
            Err(failure) if redraws => format!("{:#}\n", failure.error),
            Err(failure) => {
                eprintln!("postrider: {:#}", failure.error);
                continue;
            }
        };
        if redraws {
            print(&format!("{CLEAR}{shown}"))?;
        } else if json {
            print(&shown)?;
        } else {
            print(&format!("{shown}\n"))?;
        }
    }
}

fn text(nodes: &Nodes) -> String {
    table::render(nodes, nodes.now(SystemClock.now()))
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
