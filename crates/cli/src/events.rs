//! `postrider events`: sending events, looking at them, sending old ones again.

mod batch;
mod send;

use std::process::ExitCode;

use clap::Subcommand;
use postrider_core::EventId;
use serde_json::{Value, json};

use crate::Failure;
use crate::connect::Connect;
use crate::output::{OutputArgs, Table, cell, inert, moment, pairs};
use crate::resource::{ENDPOINT, ListArgs, SOURCE, block_on, refused, say_if_more};
use crate::traffic::{self, Moment, entries, get, now, one, payload, post};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send an event, or many from a file
    Send(Box<send::Args>),
    /// List events, newest first
    #[command(after_help = "\
Examples:
  postrider events list --type order.created --since 2h
  postrider events list --idempotency-key order-17 --json")]
    List(List),
    /// Show an event and what became of it
    #[command(after_help = "\
Examples:
  postrider events show evt_0d2k7f3m9qa1c
  postrider events show evt_0d2k7f3m9qa1c --payload > body.json")]
    Show(Show),
    /// Make new deliveries of an old event
    #[command(after_help = "\
Without --endpoint it goes to the endpoints that it matches now.

Example:
  postrider events replay evt_0d2k7f3m9qa1c --endpoint billing")]
    Replay(Replay),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    /// Only events of this type, such as `order.created`
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    /// Only the event with this key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    /// Only events that came in by this source: its id, or its name
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,

    /// Only events received since then: a time, or how long ago, such as `2h`
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,

    /// Only events received before then: a time, or how long ago
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,

    #[command(flatten)]
    page: ListArgs,
}

#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    /// Print its payload and nothing else, to the byte (on a terminal: as text)
    #[arg(long, conflicts_with = "json")]
    payload: bool,

    /// The event's id
    id: EventId,
}

#[derive(Debug, clap::Args)]
struct Replay {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    /// To this endpoint only, by its id or its name; repeatable
    #[arg(long, value_name = "ENDPOINT", value_delimiter = ',')]
    endpoint: Vec<String>,

    /// The event's id
    id: EventId,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Send(args) => send::run(args),
        Command::List(args) => list(args),
        Command::Show(args) => show(args),
        Command::Replay(args) => replay(args),
    }
}

fn list(args: &List) -> Result<ExitCode, Failure> {
    let gateway = args.connect.gateway()?;
    let now = now();
    let time = |moment: Option<Moment>| moment.map(|moment| moment.ago(now).to_string());
    let answer = block_on(async {
        let source = match &args.source {
            Some(source) => Some(SOURCE.id_of(&gateway, source).await?),
            None => None,
        };
        let parameters = [
            ("type", args.kind.clone()),
            ("idempotency_key", args.idempotency_key.clone()),
            ("source", source),
            ("since", time(args.since)),
            ("until", time(args.until)),
        ];
        let parameters: Vec<(&str, String)> =
            parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        traffic::list(&gateway, "/v1/events", &parameters, args.page).await
    })?;
    args.output.show(&answer, |out| {
        let mut table = Table::new(&["id", "type", "received", "status", "deliveries"]);
        for event in entries(&answer) {
            table.row([
                cell(&event["id"]),
                cell(&event["type"]),
                moment(&event["received_at"], now),
                cell(&event["status"]),
                counts(&event["counts"]),
            ]);
        }
        if table.is_empty() {
            return writeln!(out, "There are none.");
        }
        table.write(out)?;
        say_if_more(out, &answer)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `2 delivered, 1 dead`.
fn counts(counts: &Value) -> String {
    let some = counts.as_object().into_iter().flatten();
    let some = some.filter(|(_, count)| count.as_u64() != Some(0));
    some.map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
}

fn show(args: &Show) -> Result<ExitCode, Failure> {
    let gateway = args.connect.gateway()?;
    let base = format!("/v1/events/{}", args.id);
    if args.payload {
        let bytes =
            block_on(async { gateway.bytes(&format!("{base}/payload")).await.map_err(refused) })?;
        payload::write(&bytes)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (event, deliveries) = block_on(async {
        let event = get(&gateway, &base).await?;
        let deliveries = get(&gateway, &format!("{base}/deliveries?limit=250")).await?;
        Ok((event, deliveries))
    })?;
    let now = now();
    args.output.show(&event, |out| {
        let fields = [
            ("id", cell(&event["id"])),
            ("type", cell(&event["type"])),
            ("received", moment(&event["received_at"], now)),
            ("deliver at", moment(&event["deliver_at"], now)),
            ("content type", cell(&event["content_type"])),
            ("size", format!("{} bytes", cell(&event["payload_size"]))),
            ("idempotency key", cell(&event["idempotency_key"])),
            ("ordering key", cell(&event["ordering_key"])),
            ("metadata", cell(&event["metadata"])),
            ("source", cell(&event["source"])),
            ("verified", cell(&event["verified"])),
            ("filter errors", cell(&event["filter_errors"])),
            ("status", cell(&event["status"])),
        ];
        pairs(out, fields.into_iter().filter(|(_, value)| !value.is_empty()))?;
        writeln!(out)?;
        if entries(&deliveries).next().is_none() {
            return writeln!(out, "No endpoint matched it.");
        }
        one::write_list(&deliveries, now, out)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn replay(args: &Replay) -> Result<ExitCode, Failure> {
    let gateway = args.connect.gateway()?;
    let answer = block_on(async {
        let mut endpoints = Vec::with_capacity(args.endpoint.len());
        for name in &args.endpoint {
            endpoints.push(ENDPOINT.id_of(&gateway, name).await?);
        }
        let body = (!endpoints.is_empty()).then(|| json!({ "endpoints": endpoints }));
        post(&gateway, &format!("/v1/events/{}/replay", args.id), body.as_ref()).await
    })?;
    let made = answer["deliveries"].as_array().map(Vec::as_slice).unwrap_or_default();
    args.output.show(&answer, |out| match made {
        [] => writeln!(out, "No endpoint takes {}.", args.id),
        [one] => writeln!(out, "1 new delivery of {}: {}", args.id, inert(&cell(one))),
        _ => writeln!(out, "{} new deliveries of {}.", made.len(), args.id),
    })?;
    Ok(ExitCode::SUCCESS)
}
