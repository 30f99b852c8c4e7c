//! `postrider tenants`: the name spaces, for admin keys.

use clap::Subcommand;
use postrider_client::Method;
use postrider_engine::ports::{Clock as _, SystemClock};
use serde_json::json;
use url::form_urlencoded::byte_serialize;

use crate::Failure;
use crate::connect::Connect;
use crate::output::{OutputArgs, Table, cell, moment, pairs};
use crate::resource::{Many, ask, block_on, list, say_if_more};

const PATH: &str = "/v1/tenants";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A tenant has its own keys, endpoints and events. It needs an admin key to list or make them; `default` \
is there from the start. A tenant stays: revoke its keys to close it.

Exit codes: 0 done, 1 the gateway does not answer; 2 wrong usage or configuration, which includes what \
the gateway refuses.

Examples:
  postrider tenants create acme
  postrider keys create acme-producer --tenant acme")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List tenants
    #[command(after_help = "Example:\n  postrider tenants list --all")]
    List(Many),
    /// Show a tenant
    #[command(after_help = "Example:\n  postrider tenants show acme")]
    Show(One),
    /// Make a tenant
    #[command(after_help = "Example:\n  postrider tenants create acme")]
    Create(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// Its name: small letters, digits, `-` and `_`
    name: String,

    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    block_on(async {
        match &args.command {
            Command::List(args) => show_all(args).await,
            Command::Show(args) => show(args).await,
            Command::Create(args) => create(args).await,
        }
    })
}

async fn show_all(args: &Many) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let answer = list(&gateway, PATH, &[], args.list).await?;
    let now = SystemClock.now();
    Ok(args.output.show(&answer, |out| {
        let rows = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut table = Table::new(&["name", "created"]);
        for row in rows {
            table.row([cell(&row["name"]), moment(&row["created_at"], now)]);
        }
        table.write(out)?;
        say_if_more(out, &answer)
    })?)
}

async fn show(args: &One) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let name: String = byte_serialize(args.name.as_bytes()).collect();
    let answer = ask(&gateway, Method::GET, &format!("{PATH}/{name}"), None).await?;
    write(args.output, &answer)
}

async fn create(args: &One) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let body = json!({ "name": args.name });
    let answer = ask(&gateway, Method::POST, PATH, Some(&body)).await?;
    write(args.output, &answer)
}

fn write(output: OutputArgs, tenant: &serde_json::Value) -> Result<(), Failure> {
    let now = SystemClock.now();
    Ok(output.show(tenant, |out| {
        let created = moment(&tenant["created_at"], now);
        let created = if created.is_empty() { "from the start".to_owned() } else { created };
        pairs(out, [("name", cell(&tenant["name"])), ("created", created)])
    })?)
}
