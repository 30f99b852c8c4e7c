//! `postrider hubs`: the agents behind NAT, listed, made and deleted.

use std::io::{self, Write};

use clap::Subcommand;
use postrider_client::Method;
use postrider_engine::ports::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::Failure;
use crate::connect::Connect;
use crate::output::{OutputArgs, Table, cell, moment, pairs};
use crate::resource::{HUB, Many, One, Removal, ask, block_on, say_if_more};
use crate::secret::Secret;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A hub is known by its id or by its name, where no other has the same. `postrider hub` is the agent \
itself.

Exit codes: 0 done, 1 the gateway does not answer; 2 wrong usage or configuration, which includes what \
the gateway refuses.

Example:
  postrider hubs create home")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List hubs, newest first, and how they are doing
    #[command(after_help = "Example:\n  postrider hubs list")]
    List(Many),
    /// Show a hub
    #[command(after_help = "Example:\n  postrider hubs show home")]
    Show(One),
    /// Make a hub, and print its token, which is shown this once
    #[command(after_help = "\
Example:
  postrider hubs create home
  postrider endpoints create --name printer --hub home")]
    Create(Create),
    /// Give a hub another token; its connection ends, and the old token opens nothing
    #[command(after_help = "Example:\n  postrider hubs rotate-token home")]
    RotateToken(RotateToken),
    /// Delete a hub; its connection ends, its endpoints stay, and what goes to them waits
    #[command(after_help = "Example:\n  postrider hubs delete home --yes")]
    Delete(Removal),
}

#[derive(Debug, clap::Args)]
struct TokenArgs {
    /// The token, `prh_` and at least 32 characters, instead of one that is made. Rather set the
    /// variable: other users of this machine can see what stands on a command line
    #[arg(long, env = "POSTRIDER_NEW_HUB_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<Secret>,
}

#[derive(Debug, clap::Args)]
struct RotateToken {
    #[command(flatten)]
    token: TokenArgs,

    #[command(flatten)]
    one: One,
}

#[derive(Debug, clap::Args)]
struct Create {
    /// What to call it
    name: String,

    #[command(flatten)]
    token: TokenArgs,

    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    block_on(async {
        match &args.command {
            Command::List(args) => HUB.show_all(args, table).await,
            Command::Show(args) => HUB.show(args, |out, hub, _| page(out, hub)).await,
            Command::Create(args) => create(args).await,
            Command::RotateToken(args) => rotate_token(args).await,
            Command::Delete(args) => HUB.remove(args, deleting, "Deleted").await,
        }
    })
}

fn deleting(called: &str) -> String {
    format!("Delete the hub {called}; what goes to its endpoints waits then")
}

async fn create(args: &Create) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let mut body = args.token.body();
    body["name"] = json!(args.name);
    let answer = ask(&gateway, Method::POST, HUB.path, Some(&body)).await?;
    Ok(args.output.show(&answer, |out| made(out, &answer))?)
}

async fn rotate_token(args: &RotateToken) -> Result<(), Failure> {
    let body = args.token.body();
    HUB.act(&args.one, Method::POST, "/rotate-token", Some(&body), |out, hub, _| made(out, hub))
        .await
}

impl TokenArgs {
    fn body(&self) -> Value {
        match &self.token {
            Some(Secret(token)) => json!({ "token": token }),
            None => json!({}),
        }
    }
}

fn made(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    pairs(out, ["id", "name", "token"].map(|field| (field, cell(&answer[field]))))?;
    writeln!(out, "\nThe token is shown this once. Give it to `postrider hub` on that machine.")
}

fn table(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let rows = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return writeln!(out, "No hubs yet: `postrider hubs create NAME` makes the first one");
    }
    let now = SystemClock.now();
    let headings = ["id", "name", "state", "since", "in flight", "waiting", "lag"];
    let mut table = Table::new(&headings);
    for row in rows {
        table.row([
            cell(&row["id"]),
            cell(&row["name"]),
            state(row),
            moment(&row["since"], now),
            cell(&row["in_flight"]),
            cell(&row["waiting"]),
            lag(row),
        ]);
    }
    table.write(out)?;
    say_if_more(out, answer)
}

fn page(out: &mut dyn Write, hub: &Value) -> io::Result<()> {
    let now = SystemClock.now();
    let mut lines = vec![
        ("id", cell(&hub["id"])),
        ("name", cell(&hub["name"])),
        ("state", state(hub)),
        ("since", moment(&hub["since"], now)),
        ("agent", cell(&hub["agent"])),
        ("capacity", cell(&hub["capacity"])),
        ("in flight", cell(&hub["in_flight"])),
        ("waiting", cell(&hub["waiting"])),
        ("lag", lag(hub)),
        ("created", moment(&hub["created_at"], now)),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    pairs(out, lines)
}

fn state(hub: &Value) -> String {
    if hub["connected"] == true { "connected" } else { "offline" }.to_owned()
}

/// How long the oldest that waits has waited.
fn lag(hub: &Value) -> String {
    hub["lag_seconds"].as_f64().map(|seconds| format!("{seconds:.1} s")).unwrap_or_default()
}
