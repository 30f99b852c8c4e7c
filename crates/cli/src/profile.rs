//! `postrider profile`: keeps the addresses and keys of several gateways, so that a name is enough.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use clap::Subcommand;
use postrider_client::Gateway;
use serde_json::{Value, json};

use crate::Failure;
use crate::output::{OutputArgs, Table, cell, pairs};
use crate::profiles::{self, Profile, Profiles, check_name};
use crate::prompt::{self, YesArgs};
use crate::resource::body;
use crate::secret::Secret;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Profiles are in $XDG_CONFIG_HOME/postrider/profiles.toml (or ~/.config/…), which only you can read; a \
file that others can read is refused.

What holds, the first that is there: a flag, a variable (POSTRIDER_GATEWAY, POSTRIDER_KEY, \
POSTRIDER_TENANT), the profile that --profile or POSTRIDER_PROFILE names or else the default one, what \
is usual. The default profile is set aside where --gateway names another gateway than it has, so that \
no gateway is sent the key of another.

Examples:
  postrider profile add prod --gateway https://hooks.example.com
  postrider endpoints list --profile prod")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Keep the address of a gateway, and the key to it
    #[command(after_help = "\
The key is asked for on a terminal if neither --key nor POSTRIDER_KEY has it; nothing typed is no key. \
The first profile becomes the default one.

Examples:
  postrider profile add prod --gateway https://hooks.example.com
  pass show postrider/prod | postrider profile add prod --gateway https://hooks.example.com --key -")]
    Add(Add),
    /// List the profiles; of a key, its first characters
    #[command(after_help = "Example:\n  postrider profile list")]
    List(List),
    /// Show a profile
    #[command(after_help = "Example:\n  postrider profile show prod")]
    Show(Show),
    /// Make a profile the default one
    #[command(after_help = "Example:\n  postrider profile use prod")]
    Use {
        /// The profile's name
        name: String,
    },
    /// Forget a profile and its key
    #[command(after_help = "\
The key stays valid: `postrider keys revoke` ends it.

Example:
  postrider profile remove staging --yes")]
    Remove {
        /// The profile's name
        name: String,

        #[command(flatten)]
        yes: YesArgs,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// What to call it: letters, digits, `-` and `_`
    #[arg(value_parser = check_name)]
    name: String,

    /// Where the gateway listens
    #[arg(long, env = "POSTRIDER_GATEWAY", value_name = "URL")]
    gateway: String,

    /// A key of its API; `-` reads it from standard input
    #[arg(
        long,
        env = "POSTRIDER_KEY",
        hide_env_values = true,
        allow_hyphen_values = true,
        value_name = "KEY"
    )]
    key: Option<Secret>,

    /// The tenant to act in, where the key is an admin key
    #[arg(long, env = "POSTRIDER_TENANT", value_name = "NAME")]
    tenant: Option<String>,

    /// Replace a profile of this name
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// The profile's name; the default one if it is left out
    name: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = profiles::path().ok_or_else(|| {
        Failure::usage(anyhow!("there is no place for profiles: set HOME or XDG_CONFIG_HOME"))
    })?;
    let profiles = Profiles::read(&path)?;
    match &args.command {
        Command::Add(add) => keep(&path, profiles, add),
        Command::List(List { output }) => list(&profiles, *output),
        Command::Show(Show { name, output }) => show(&profiles, name.as_deref(), *output),
        Command::Use { name } => prefer(&path, profiles, name),
        Command::Remove { name, yes } => forget(&path, profiles, name, *yes),
    }
}

fn keep(path: &Path, mut profiles: Profiles, add: &Add) -> Result<(), Failure> {
    let Add { name, gateway, key, tenant, replace } = add;
    if profiles.named.contains_key(name) && !replace {
        return Err(Failure::usage(anyhow!(
            "there is a profile `{name}` already: --replace puts this one in its place"
        )));
    }
    let key = match key {
        Some(given) => Some(Secret(body::secret(given)?)),
        None if prompt::can_ask() => prompt::secret("Key of the gateway's API (not shown)")?,
        None => None,
    };
    // Whatever is wrong with them is better said here than at every use.
    let Secret(tried) = key.clone().unwrap_or_else(|| Secret("pr_none".to_owned()));
    let tried = Gateway::new(gateway, &tried).map_err(Failure::usage)?;
    let gateway = tried.url().to_owned();
    if let Some(tenant) = tenant {
        tried.in_tenant(tenant).map_err(Failure::usage)?;
    }
    let keyless = key.is_none();
    profiles.named.insert(name.clone(), Profile { gateway, key, tenant: tenant.clone() });
    let first = profiles.default.is_none();
    if first {
        profiles.default = Some(name.clone());
    }
    profiles.write(path)?;
    let role = if first { ", as the default" } else { "" };
    println!("Kept as `{name}`{role}, in {}", path.display());
    if keyless {
        println!(
            "It has no key yet: set POSTRIDER_KEY when you use it, or add one with --replace."
        );
    }
    Ok(())
}

fn list(profiles: &Profiles, output: OutputArgs) -> Result<(), Failure> {
    let all = profiles.named.iter().map(|(name, profile)| view(profiles, name, profile));
    let answer = json!({ "data": all.collect::<Vec<_>>() });
    output.show(&answer, |out| {
        let rows = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        if rows.is_empty() {
            return writeln!(out, "No profiles yet: `postrider profile add NAME --gateway URL`");
        }
        let mut table = Table::new(&["name", "gateway", "key", "tenant"]);
        for row in rows {
            let mark = if row["default"] == true { " *" } else { "" };
            let name = format!("{}{mark}", cell(&row["name"]));
            table.row([name, cell(&row["gateway"]), cell(&row["key"]), cell(&row["tenant"])]);
        }
        table.write(out)?;
        match &profiles.default {
            Some(_) => writeln!(out, "\n* is used where no profile is named"),
            None => Ok(()),
        }
    })?;
    Ok(())
}

fn show(profiles: &Profiles, name: Option<&str>, output: OutputArgs) -> Result<(), Failure> {
    let name = name.or(profiles.default.as_deref());
    let name = name.context("say which: there is no default profile").map_err(Failure::usage)?;
    let answer = view(profiles, name, profiles.get(name)?);
    output.show(&answer, |out| {
        let fields = ["name", "gateway", "key", "tenant", "default"];
        pairs(out, fields.map(|field| (field, cell(&answer[field]))))
    })?;
    Ok(())
}

/// A profile for those who look, which is without its key.
fn view(profiles: &Profiles, name: &str, profile: &Profile) -> Value {
    json!({
        "name": name,
        "gateway": profile.gateway,
        "key": profile.key_hint(),
        "tenant": profile.tenant,
        "default": profiles.default.as_deref() == Some(name),
    })
}

fn prefer(path: &Path, mut profiles: Profiles, name: &str) -> Result<(), Failure> {
    let gateway = profiles.get(name)?.gateway.clone();
    profiles.default = Some(name.to_owned());
    profiles.write(path)?;
    println!("`{name}` ({gateway}) is used where no profile is named");
    Ok(())
}

fn forget(path: &Path, mut profiles: Profiles, name: &str, yes: YesArgs) -> Result<(), Failure> {
    let gateway = profiles.get(name)?.gateway.clone();
    yes.confirm(&format!("Forget the profile `{name}` ({gateway}) and its key"))?;
    profiles.named.remove(name);
    if profiles.default.as_deref() == Some(name) {
        profiles.default = None;
    }
    profiles.write(path)?;
    println!("Forgot `{name}`");
    Ok(())
}
