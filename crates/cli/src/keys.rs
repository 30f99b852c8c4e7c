//! `postrider keys`: who may ask the API, and until when.

use std::io::{self, Write};

use anyhow::anyhow;
use clap::Subcommand;
use postrider_client::Method;
use postrider_core::{Timestamp, span};
use postrider_engine::ports::{Clock as _, SystemClock};
use serde_json::Value;

use crate::Failure;
use crate::connect::Connect;
use crate::output::{OutputArgs, Table, cell, moment, pairs};
use crate::resource::body::Body;
use crate::resource::{KEY, Many, One, Removal, ask, block_on, say_if_more};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A key is known by its id or by its name, where no other has the same. The key itself is shown once, when \
it is made. A tenant's key sees and makes keys of its tenant, an admin key those of all, or of the one \
that --tenant names.

Exit codes: 0 done, 1 the gateway does not answer; 2 wrong usage or configuration, which includes what \
the gateway refuses.

Example:
  postrider keys create ci --expires 90d")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List keys, newest first; those that were revoked as well
    #[command(after_help = "Example:\n  postrider keys list --tenant acme")]
    List(Many),
    /// Show what is known of a key, which is not the key itself
    #[command(after_help = "Example:\n  postrider keys show ci")]
    Show(One),
    /// Make a key, and print it, this once
    #[command(after_help = "\
It is a key of the tenant that --tenant names, or that the asking key acts in, unless --admin is given.

Examples:
  postrider keys create ci --expires 90d
  postrider keys create operator --admin
  postrider keys create acme-producer --tenant acme --json")]
    Create(Create),
    /// Change what a key is called, or when it expires
    #[command(after_help = "Example:\n  postrider keys update ci --expires 90d")]
    Update(Update),
    /// Revoke a key: it opens nothing from then on, and never will again
    #[command(after_help = "Example:\n  postrider keys revoke ci --yes")]
    Revoke(Removal),
}

#[derive(Debug, clap::Args)]
struct Create {
    /// What to call it
    name: String,

    /// One that may do everything, in every tenant
    #[arg(long)]
    admin: bool,

    #[command(flatten)]
    expiry: Expiry,

    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
struct Update {
    /// What to call it from now on
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,

    #[command(flatten)]
    expiry: Expiry,

    /// Let it expire never
    #[arg(long, conflicts_with_all = ["expires", "expires_at"])]
    never_expires: bool,

    #[command(flatten)]
    one: One,
}

#[derive(Debug, clap::Args)]
struct Expiry {
    /// How long from now it is valid, like `90d`
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    expires: Option<std::time::Duration>,

    /// Until when it is valid, like `2027-01-31T12:00:00Z`
    #[arg(long, value_name = "TIME", conflicts_with = "expires")]
    expires_at: Option<Timestamp>,
}

impl Expiry {
    fn at(&self) -> Option<String> {
        let from_now = self.expires.map(|span| SystemClock.now().plus(span));
        self.expires_at.or(from_now).map(|time| time.to_string())
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    block_on(async {
        match &args.command {
            Command::List(args) => KEY.show_all(args, table).await,
            Command::Show(args) => KEY.show(args, |out, key, _| page(out, key)).await,
            Command::Create(args) => create(args).await,
            Command::Update(args) => update(args).await,
            Command::Revoke(args) => KEY.remove(args, revoking, "Revoked").await,
        }
    })
}

fn revoking(called: &str) -> String {
    format!("Revoke the key {called}, for good")
}

async fn create(args: &Create) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let mut body = Body::default();
    body.set("name", Some(args.name.as_str()));
    body.set("role", Some(if args.admin { "admin" } else { "tenant" }));
    body.set("expires_at", args.expiry.at());
    let answer = ask(&gateway, Method::POST, KEY.path, Some(&body.into_value())).await?;
    Ok(args.output.show(&answer, |out| {
        page(out, &answer)?;
        writeln!(out, "\nThe key is shown this once.")
    })?)
}

async fn update(args: &Update) -> Result<(), Failure> {
    let mut body = Body::default();
    body.set("name", args.name.as_deref());
    body.set("expires_at", args.expiry.at());
    if args.never_expires {
        body.set("expires_at", Some(Value::Null));
    }
    if body.is_empty() {
        return Err(Failure::usage(anyhow!("say what to change; --help lists what can be")));
    }
    let body = body.into_value();
    KEY.act(&args.one, Method::PATCH, "", Some(&body), |out, key, _| page(out, key)).await
}

fn table(out: &mut dyn Write, answer: &Value) -> io::Result<()> {
    let now = SystemClock.now();
    let rows = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return writeln!(out, "No keys here: `postrider keys create NAME` makes the first one");
    }
    let mut table = Table::new(&["id", "name", "state", "role", "tenant", "last used", "expires"]);
    for row in rows {
        table.row([
            cell(&row["id"]),
            cell(&row["name"]),
            state(row, now).to_owned(),
            cell(&row["role"]),
            cell(&row["tenant"]),
            moment(&row["last_used_at"], now),
            moment(&row["expires_at"], now),
        ]);
    }
    table.write(out)?;
    say_if_more(out, answer)
}

fn page(out: &mut dyn Write, key: &Value) -> io::Result<()> {
    let now = SystemClock.now();
    let mut lines = vec![
        ("id", cell(&key["id"])),
        ("name", cell(&key["name"])),
        ("state", state(key, now).to_owned()),
        ("role", cell(&key["role"])),
        ("tenant", cell(&key["tenant"])),
        ("created", moment(&key["created_at"], now)),
        ("last used", moment(&key["last_used_at"], now)),
        ("expires", moment(&key["expires_at"], now)),
        ("revoked", moment(&key["revoked_at"], now)),
        ("key", cell(&key["key"])),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    pairs(out, lines)
}

fn state(key: &Value, now: Timestamp) -> &'static str {
    let time = |field: &str| key[field].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    if !key["revoked_at"].is_null() {
        "revoked"
    } else if time("expires_at").is_some_and(|expiry| expiry <= now) {
        "expired"
    } else {
        "active"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_is_active_until_it_is_revoked_or_its_time_is_over() {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().expect("a time");
        for (revoked, expires, expected) in [
            (json!(null), json!(null), "active"),
            (json!(null), json!("2026-06-01T00:00:00.001Z"), "active"),
            (json!(null), json!("2026-06-01T00:00:00.000Z"), "expired"),
            (json!("2026-05-01T00:00:00.000Z"), json!(null), "revoked"),
        ] {
            let key = json!({ "revoked_at": revoked, "expires_at": expires });
            assert_eq!(state(&key, now), expected, "{key}");
        }
    }
}
