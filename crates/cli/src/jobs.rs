//! `postrider jobs`: how far a long piece of work has come.

use clap::Subcommand;
use postrider_core::JobId;

use crate::Failure;
use crate::connect::Connect;
use crate::output::OutputArgs;
use crate::resource::block_on;
use crate::traffic::{job, note, now};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a job, or watch it to its end
    #[command(after_help = "\
Ctrl-C ends the watching, not the job.

Example:
  postrider jobs show job_0d2k7f3m9qa1c --follow")]
    Show(Show),
}

#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    /// Wait until it has finished, and show how far it is meanwhile
    #[arg(long)]
    follow: bool,

    /// The job's id
    id: JobId,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Command::Show(args) = &args.command;
    let gateway = args.connect.gateway()?;
    let answer = block_on(async {
        if args.follow {
            job::follow(&gateway, args.id).await
        } else {
            job::show(&gateway, args.id).await.map(Some)
        }
    })?;
    match answer {
        Some(job) => args.output.show(&job, |out| job::write(&job, now(), out))?,
        None => note("the job goes on without being watched"),
    }
    Ok(())
}
