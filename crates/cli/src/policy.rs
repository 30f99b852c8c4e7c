//! `postrider policy`: shows what a policy will do.

use std::io::Write as _;

use anyhow::anyhow;
use clap::Subcommand;
use postrider_core::policy::Preset;

use crate::plan_view::render;
use crate::{Failure, settings};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a policy's attempts, when each is made, and when it gives up
    #[command(
        after_help = "Presets: standard (the default), inbox, dispatch, runs, edge, router.\n`inbox` follows RETRY_BASE_DELAY, RETRY_MAX_DELAY and MAX_ATTEMPTS in the environment, and [inbox] in postrider.toml.\n\nExample:\n  postrider policy show router"
    )]
    Show {
        /// The name of a preset
        name: String,
    },
    /// List the presets
    #[command(after_help = "Example:\n  postrider policy list")]
    List,
}

pub(crate) fn run(args: &Args, inbox: &settings::Inbox) -> Result<(), Failure> {
    let presets = settings::presets(inbox).map_err(Failure::usage)?;
    let mut out = std::io::stdout().lock();
    match &args.command {
        Command::Show { name } => {
            let known = || Preset::ALL.map(Preset::as_str).join(", ");
            let preset = Preset::named(name).ok_or_else(|| {
                Failure::usage(anyhow!("no policy is called `{name}`; there are {}", known()))
            })?;
            write!(out, "{}", render(preset, &presets.policy(preset)))?;
        }
        Command::List => {
            for preset in Preset::ALL {
                writeln!(out, "{:<10} {}", preset.as_str(), preset.about())?;
            }
        }
    }
    Ok(())
}
