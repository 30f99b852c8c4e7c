//! `postrider events send`: one event, and perhaps what becomes of it.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use postrider_client::Gateway;
use postrider_core::span;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::batch;
use crate::Failure;
use crate::connect::Connect;
use crate::output::{OutputArgs, cell};
use crate::resource::{block_on, refused};
use crate::traffic::{Moment, entries, get, note, now, one, path};

/// The exit code of an event that did not reach every endpoint.
const EXIT_NOT_DELIVERED: u8 = 3;
/// The largest payload that is read, the largest that a gateway can be configured to take.
const MAX_DATA_BYTES: u64 = 100 << 20;
const JSON: &str = "application/json";
/// The first and the longest pause between two looks at an event that is waited for.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
--data is the payload itself, `@FILE` for what is in a file, or `-` for what comes on the standard \
input. It is JSON and is kept as it is written, unless --content-type says that it is something else: \
then the bytes are sent as they are.

--batch takes a file with an event a line, as the API takes them: {\"type\":…,\"payload\":…}, perhaps \
with idempotency_key, ordering_key, deliver_at and metadata. They are sent 1000 at a time. A line that \
is refused is named on the standard error and the others are sent all the same.

Exit codes: 0 sent (with --wait: and delivered to every endpoint that it matched), 1 failure, or a \
line of a batch was refused; 2 wrong usage or configuration, which includes an event that the gateway \
refuses; 3 with --wait: one of its deliveries has failed, or has not been made in that time.

Examples:
  postrider events send --type order.created --data '{\"order\":17}' --wait
  postrider events send --type invoice.pdf --data @invoice.pdf --content-type application/pdf
  postrider events send --batch yesterday.ndjson")]
pub(super) struct Args {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    /// What kind of event it is, such as `order.created`
    #[arg(long = "type", value_name = "TYPE", required_unless_present = "batch")]
    kind: Option<String>,

    /// The payload: JSON, `@FILE` or `-`
    #[arg(long, value_name = "DATA", default_value = "{}")]
    data: String,

    /// What the payload is, where it is not JSON
    #[arg(long, value_name = "TYPE", default_value = JSON)]
    content_type: String,

    /// The same key again is the same event, and is sent once
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    /// Events with the same key stay in order, where an endpoint asks for that
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,

    /// Not before then: a time, or how long from now, such as `30m`
    #[arg(long, value_name = "TIME")]
    deliver_at: Option<Moment>,

    /// A note that is kept with the event; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,

    /// Wait until it has been delivered, or for as long as this
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "30s", value_parser = span::parse)]
    wait: Option<Duration>,

    /// Send the events in this file, one a line; `-` is the standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["kind", "data", "content_type", "idempotency_key", "ordering_key", "deliver_at", "metadata", "wait"]
    )]
    batch: Option<PathBuf>,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected KEY=VALUE".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let gateway = args.connect.gateway()?;
    if let Some(file) = &args.batch {
        return block_on(batch::send(&gateway, file, args.output));
    }
    let data = read(&args.data)?;
    block_on(async {
        let receipt = send(&gateway, args, data).await?;
        if let Some(longest) = args.wait {
            return wait(&gateway, args.output, receipt, longest).await;
        }
        show(args.output, &receipt)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// What `--data` means.
fn read(data: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if data == "-" {
        io::stdin().lock().take(MAX_DATA_BYTES + 1).read_to_end(&mut bytes)
    } else if let Some(file) = data.strip_prefix('@') {
        let opened = std::fs::File::open(file);
        let opened =
            opened.with_context(|| format!("cannot read {file}")).map_err(Failure::usage)?;
        opened.take(MAX_DATA_BYTES + 1).read_to_end(&mut bytes)
    } else {
        return Ok(data.as_bytes().to_vec());
    };
    read.context("cannot read the data")?;
    if bytes.len() as u64 > MAX_DATA_BYTES {
        return Err(Failure::usage(anyhow!("the data are more than {MAX_DATA_BYTES} bytes")));
    }
    Ok(bytes)
}

async fn send(gateway: &Gateway, args: &Args, data: Vec<u8>) -> Result<Value, Failure> {
    let kind = args.kind.as_deref().unwrap_or_default();
    let fields = [
        ("idempotency_key", args.idempotency_key.clone()),
        ("ordering_key", args.ordering_key.clone()),
        ("deliver_at", args.deliver_at.map(|at| at.ahead(now()).to_string())),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let sent = if args.content_type.eq_ignore_ascii_case(JSON) {
        let fields = fields.map(|(name, value)| (name.to_owned(), value.into()));
        let mut fields: Map<String, Value> = fields.collect();
        fields.insert("type".to_owned(), kind.into());
        if !args.metadata.is_empty() {
            let pairs = args.metadata.iter().cloned();
            let metadata = pairs.map(|(key, value)| (key, value.into()));
            fields.insert("metadata".to_owned(), Value::Object(metadata.collect()));
        }
        let body = envelope(fields, &data).map_err(Failure::usage)?;
        gateway.post("/v1/events", JSON, body).await
    } else {
        if !args.metadata.is_empty() {
            let only = "--metadata goes with JSON only, not with another --content-type";
            return Err(Failure::usage(anyhow!(only)));
        }
        let mut parameters = vec![("type", kind.to_owned())];
        parameters.extend(fields);
        gateway.post(&path("/v1/events", &parameters), &args.content_type, data.into()).await
    };
    sent.map_err(refused)
}

/// The event as the API takes it, with the payload's text as it is.
fn envelope(fields: Map<String, Value>, payload: &[u8]) -> Result<Bytes, anyhow::Error> {
    let payload: &RawValue = serde_json::from_slice(payload).map_err(|error| {
        anyhow!("the data are no JSON ({error}); say what they are with --content-type")
    })?;
    let mut text = Value::Object(fields).to_string();
    text.pop();
    Ok(format!("{text},\"payload\":{payload}}}").into())
}

fn show(output: OutputArgs, receipt: &Value) -> io::Result<()> {
    output.show(receipt, |out| {
        let known = if receipt["duplicate"] == true { ", known already" } else { "" };
        let to = match receipt["deliveries"].as_u64() {
            Some(0) => "no endpoint matches it".to_owned(),
            Some(1) => "1 delivery".to_owned(),
            Some(count) => format!("{count} deliveries"),
            None => String::new(),
        };
        writeln!(out, "{}{known}: {to}", cell(&receipt["id"]))
    })
}

/// Waits until every delivery has ended, and shows what became of them.
async fn wait(
    gateway: &Gateway,
    output: OutputArgs,
    receipt: Value,
    longest: Duration,
) -> Result<ExitCode, Failure> {
    let id = cell(&receipt["id"]);
    let looked = tokio::time::timeout(longest, settled(gateway, &id)).await;
    let in_time = match looked {
        Ok(settled) => settled.map(|()| true)?,
        Err(_) => false,
    };
    let deliveries = get(gateway, &format!("/v1/events/{id}/deliveries?limit=250")).await?;
    let delivered = entries(&deliveries).all(|delivery| delivery["state"] == "delivered");
    let answer = json!({ "event": receipt, "deliveries": deliveries["data"] });
    output.show(&answer, |out| {
        if entries(&deliveries).next().is_none() {
            return writeln!(out, "{id}: no endpoint matches it");
        }
        one::write_list(&deliveries, now(), out)
    })?;
    if !in_time {
        note(&format!("not all had ended after {}", span::format(longest)));
    }
    Ok(if delivered { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_DELIVERED) })
}

async fn settled(gateway: &Gateway, id: &str) -> Result<(), Failure> {
    let mut pause = FIRST_LOOK;
    loop {
        let event = get(gateway, &format!("/v1/events/{id}")).await?;
        if matches!(event["status"].as_str(), Some("completed" | "failed")) {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LONGEST_LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_payload_is_sent_as_it_was_written() {
        let fields = Map::from_iter([("type".to_owned(), json!("a.b"))]);
        let body = envelope(fields.clone(), b" {\"a\":1.0, \"a\":  \"\\u0041\"}\n").expect("JSON");
        assert_eq!(body, "{\"type\":\"a.b\",\"payload\":{\"a\":1.0, \"a\":  \"\\u0041\"}}");
        for text in [&b""[..], b"{", b"{} {}", b"\xff", b"hello"] {
            let error = envelope(fields.clone(), text).expect_err("no JSON").to_string();
            assert!(error.contains("--content-type"), "{error}");
        }
    }

    #[test]
    fn metadata_are_keys_with_values() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(parse_pair("a").is_err() && parse_pair("=b").is_err());
    }
}
