//! `postrider sources`: the URLs that third parties post to.

mod fields;

use std::io::{self, Write};

use anyhow::anyhow;
use clap::Subcommand;
use postrider_client::{Gateway, Method};
use postrider_engine::ports::{Clock as _, SystemClock};
use serde_json::Value;

use crate::Failure;
use crate::connect::Connect;
use crate::output::{OutputArgs, Table, cell, moment, pairs};
use crate::prompt::YesArgs;
use crate::resource::{Many, One, Removal, SOURCE, ask, block_on, body, say_if_more};
use fields::Fields;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A source is known by its id or by its name, where no other has the same.

Exit codes: 0 done, 1 the gateway does not answer; 2 wrong usage or configuration, which includes what \
the gateway refuses.

Examples:
  postrider sources create --name github --scheme github --secret -
  postrider sources show github")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List sources, newest first
    #[command(after_help = "Example:\n  postrider sources list")]
    List(Many),
    /// Show a source, and the URL to post to
    #[command(after_help = "Example:\n  postrider sources show github")]
    Show(One),
    /// Make a source, and print the URL to post to
    #[command(after_help = "\
Whoever has the URL can post there; what is posted is verified by the scheme. Without --scheme nothing \
is: `none`.

Examples:
  echo \"$GITHUB_SECRET\" | postrider sources create --name github --scheme github --secret -
  postrider sources create --name sensors --type-from pointer:/kind --dedup-from header:x-id")]
    Create(Box<Create>),
    /// Change a source; what is not said stays as it is
    #[command(after_help = "\
Example:
  postrider sources update github --on-invalid mark")]
    Update(Box<Update>),
    /// Delete a source; its URL is dead at once, what came in by it stays
    #[command(after_help = "Example:\n  postrider sources delete github --yes")]
    Delete(Removal),
    /// Make a new URL for a source; the old one is dead at once
    #[command(after_help = "Example:\n  postrider sources rotate-token github --yes")]
    RotateToken(Rotate),
}

#[derive(Debug, clap::Args)]
struct Create {
    #[command(flatten)]
    fields: Fields,

    #[command(flatten)]
    from: body::FromArgs,

    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
struct Update {
    #[command(flatten)]
    fields: Fields,

    /// Go back to what is usual for this field, like `type-from`; may be repeated
    #[arg(long, value_name = "FIELD")]
    clear: Vec<String>,

    #[command(flatten)]
    from: body::FromArgs,

    #[command(flatten)]
    one: One,
}

#[derive(Debug, clap::Args)]
struct Rotate {
    #[command(flatten)]
    yes: YesArgs,

    #[command(flatten)]
    one: One,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    block_on(async {
        match &args.command {
            Command::List(args) => SOURCE.show_all(args, table).await,
            Command::Show(args) => SOURCE.show(args, page).await,
            Command::Create(args) => create(args).await,
            Command::Update(args) => update(args).await,
            Command::Delete(args) => SOURCE.remove(args, deleting, "Deleted").await,
            Command::RotateToken(args) => rotate_token(args).await,
        }
    })
}

fn deleting(called: &str) -> String {
    format!("Delete the source {called}, whose URL is dead then")
}

async fn create(args: &Create) -> Result<(), Failure> {
    let mut body = args.from.read()?;
    args.fields.put_into(&mut body)?;
    // To verify nothing is something that the API wants to be told.
    if !body.has("verify") {
        body.set_in("verify", "scheme", Some("none"));
    }
    let gateway = args.connect.gateway()?;
    let answer = ask(&gateway, Method::POST, SOURCE.path, Some(&body.into_value())).await?;
    Ok(args.output.show(&answer, |out| page(out, &answer, &gateway))?)
}

async fn update(args: &Update) -> Result<(), Failure> {
    let mut body = args.from.read()?;
    args.fields.put_into(&mut body)?;
    body.clear(&args.clear);
    if body.is_empty() {
        return Err(Failure::usage(anyhow!("say what to change; --help lists what can be")));
    }
    SOURCE.act(&args.one, Method::PATCH, "", Some(&body.into_value()), page).await
}

async fn rotate_token(args: &Rotate) -> Result<(), Failure> {
    let One { which, connect, output } = &args.one;
    let gateway = connect.gateway()?;
    let (path, called) = SOURCE.known(&gateway, which).await?;
    args.yes
        .confirm(&format!("Make a new URL for the source {called}, whose old one is dead then"))?;
    let path = format!("{path}/rotate-token");
    let answer = SOURCE.ask(&gateway, Method::POST, &path, None).await?;
    Ok(output.show(&answer, |out| page(out, &answer, &gateway))?)
}

fn table(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let rows = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return writeln!(
            out,
            "No sources yet: `postrider sources create --name NAME` makes the first one"
        );
    }
    let now = SystemClock.now();
    let mut table = Table::new(&["id", "name", "scheme", "invalid ones", "type from", "created"]);
    for row in rows {
        table.row([
            cell(&row["id"]),
            cell(&row["name"]),
            cell(&row["verify"]["scheme"]),
            cell(&row["on_invalid"]),
            place(&row["type_from"]),
            moment(&row["created_at"], now),
        ]);
    }
    table.write(out)?;
    say_if_more(out, answer)
}

fn page(out: &mut dyn Write, source: &Value, gateway: &Gateway) -> io::Result<()> {
    let now = SystemClock.now();
    let verify = &source["verify"];
    let options = verify.as_object().into_iter().flatten();
    let options = options
        .filter(|(name, value)| !matches!(name.as_str(), "scheme" | "secrets") && !value.is_null());
    let options: Vec<String> =
        options.map(|(name, value)| format!("{name} {}", cell(value))).collect();
    let url = source["url"].as_str().map(|path| format!("{}{path}", gateway.url()));
    let mut lines = vec![
        ("id", cell(&source["id"])),
        ("name", cell(&source["name"])),
        ("url", url.unwrap_or_default()),
        ("scheme", cell(&verify["scheme"])),
        ("options", options.join(", ")),
        ("secrets", cell(&verify["secrets"])),
        ("invalid ones", cell(&source["on_invalid"])),
        ("type from", place(&source["type_from"])),
        ("dedup from", place(&source["dedup_from"])),
        ("keeps headers", cell(&source["keep_headers"])),
        ("created", moment(&source["created_at"], now)),
        ("updated", moment(&source["updated_at"], now)),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    pairs(out, lines)
}

/// `header x-github-event`, `json_pointer /type`, `fixed webhook.received`.
fn place(place: &Value) -> String {
    let said = place.as_object().into_iter().flatten();
    said.map(|(name, value)| format!("{name} {}", cell(value))).collect::<Vec<_>>().join(", ")
}
