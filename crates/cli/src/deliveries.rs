//! `postrider deliveries`: what is on its way, why it waits, what was tried; trying again, and ending it.

use clap::Subcommand;
use postrider_core::DeliveryId;

use crate::Failure;
use crate::connect::Connect;
use crate::output::OutputArgs;
use crate::resource::{ListArgs, block_on};
use crate::traffic::filter::FilterArgs;
use crate::traffic::{self, get, now, one, post};

const STATES: [&str; 7] =
    ["pending", "in_flight", "retrying", "delivered", "failed", "dead", "cancelled"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List deliveries, newest first
    #[command(after_help = "\
Examples:
  postrider deliveries list --state retrying,pending --endpoint billing
  postrider deliveries list --event evt_0d2k7f3m9qa1c --json")]
    List(List),
    /// Show why a delivery is where it is, what was tried, and what is planned
    #[command(after_help = "Example:\n  postrider deliveries show dlv_0d2k7f3m9qa1c")]
    Show(One),
    /// Begin a delivery anew: no attempts counted, due now
    #[command(after_help = "\
One that has been delivered, or is in flight, cannot be retried.

Example:
  postrider deliveries retry dlv_0d2k7f3m9qa1c")]
    Retry(One),
    /// End a delivery that has not ended; a retry brings it back
    #[command(after_help = "Example:\n  postrider deliveries cancel dlv_0d2k7f3m9qa1c")]
    Cancel(One),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    /// Only those in one of these states; repeatable
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = STATES)]
    state: Vec<String>,

    #[command(flatten)]
    filter: FilterArgs,

    #[command(flatten)]
    page: ListArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct One {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    /// The delivery's id
    id: DeliveryId,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Retry,
    Cancel,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List(args) => list(args),
        Command::Show(args) => show(args),
        Command::Retry(args) => change(args, Change::Retry),
        Command::Cancel(args) => change(args, Change::Cancel),
    }
}

fn list(args: &List) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let state = Some(args.state.join(",")).filter(|state| !state.is_empty());
    let answer = block_on(async {
        let parameters = args.filter.parameters(&gateway, state).await?;
        traffic::list(&gateway, "/v1/deliveries", &parameters, args.page).await
    })?;
    args.output.show(&answer, |out| one::write_list(&answer, now(), out))?;
    Ok(())
}

pub(crate) fn show(args: &One) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let answer = block_on(get(&gateway, &format!("/v1/deliveries/{}", args.id)))?;
    args.output.show(&answer, |out| one::write(&answer, now(), out))?;
    Ok(())
}

fn change(args: &One, change: Change) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let verb = match change {
        Change::Retry => "retry",
        Change::Cancel => "cancel",
    };
    let answer = block_on(post(&gateway, &format!("/v1/deliveries/{}/{verb}", args.id), None))?;
    args.output.show(&answer, |out| one::write(&answer, now(), out))?;
    Ok(())
}
