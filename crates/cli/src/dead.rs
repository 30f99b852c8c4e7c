//! `postrider dead`: dead letters, which are looked at, sent again, or thrown away.

use anyhow::anyhow;
use clap::Subcommand;
use postrider_client::{Gateway, Method};
use postrider_core::{DeliveryId, JobId};
use serde_json::{Value, json};

use crate::connect::Connect;
use crate::output::{OutputArgs, Table, cell, moment};
use crate::progress::grouped;
use crate::prompt::YesArgs;
use crate::resource::{ListArgs, ask, block_on};
use crate::traffic::filter::{FilterArgs, as_body};
use crate::traffic::{self, entries, get, job, note, now, one, path, post};
use crate::{Failure, deliveries};

const STATES: [&str; 2] = ["failed", "dead"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List dead letters, newest first
    #[command(after_help = "Example:\n  postrider dead list --endpoint billing --since 1d")]
    List(List),
    /// Show why a delivery is dead, and what was tried
    #[command(after_help = "Example:\n  postrider dead show dlv_0d2k7f3m9qa1c")]
    Show(deliveries::One),
    /// Show dead letters put together by where they were to go and why they did not
    #[command(after_help = "Example:\n  postrider dead groups --since 1d")]
    Groups(Look),
    /// Send dead letters again, in the order of their events
    #[command(after_help = "\
First says how many there are and asks; --yes answers. The gateway sends them by itself, also through \
a restart: this command only watches, and Ctrl-C ends the watching.

Exit codes: 0 they are on their way (with --detach: will be), 1 failure, 2 wrong usage, which includes \
a missing --yes where nobody can be asked.

Examples:
  postrider dead replay --endpoint billing --since 2h --rate 50
  postrider dead replay dlv_0d2k7f3m9qa1c dlv_0d2k7f3m9qa1d --yes")]
    Replay(Replay),
    /// Throw dead letters away, for good
    #[command(after_help = "\
First says how many there are and asks; --yes answers.

Examples:
  postrider dead purge --type test.ping
  postrider dead purge --all --yes")]
    Purge(Purge),
}

/// A look at dead letters.
#[derive(Debug, clap::Args)]
struct Look {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    letters: Letters,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    look: Look,

    #[command(flatten)]
    page: ListArgs,
}

/// Which dead letters are meant.
#[derive(Debug, clap::Args)]
struct Letters {
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = STATES)]
    state: Option<String>,

    #[command(flatten)]
    filter: FilterArgs,
}

impl Letters {
    fn is_empty(&self) -> bool {
        self.state.is_none() && self.filter.is_empty()
    }

    async fn parameters(&self, gateway: &Gateway) -> Result<Vec<(&'static str, String)>, Failure> {
        self.filter.parameters(gateway, self.state.clone()).await
    }
}

/// Which dead letters something is to be done with.
#[derive(Debug, clap::Args)]
struct Chosen {
    /// These deliveries (at most 1000)
    #[arg(value_name = "ID", conflicts_with_all = ["all", "state", "endpoint", "event", "kind", "error_class", "reason", "since", "until"])]
    ids: Vec<DeliveryId>,

    /// All there are, or all that the filters leave
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    letters: Letters,

    #[command(flatten)]
    yes: YesArgs,

    /// Only say how many there are
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct Replay {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    chosen: Chosen,

    /// The most that are sent in a second [default: as fast as the endpoints take them]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,

    /// Do not wait for it to finish
    #[arg(long)]
    detach: bool,
}

#[derive(Debug, clap::Args)]
struct Purge {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    chosen: Chosen,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List(args) => list(args),
        Command::Show(args) => deliveries::show(args),
        Command::Groups(args) => groups(args),
        Command::Replay(args) => replay(args),
        Command::Purge(args) => purge(args),
    }
}

fn list(args: &List) -> Result<(), Failure> {
    let Look { connect, output, letters } = &args.look;
    let gateway = connect.gateway()?;
    let answer = block_on(async {
        let parameters = letters.parameters(&gateway).await?;
        traffic::list(&gateway, "/v1/dead-letters", &parameters, args.page).await
    })?;
    output.show(&answer, |out| one::write_list(&answer, now(), out))?;
    Ok(())
}

fn groups(args: &Look) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let answer = block_on(async {
        let parameters = args.letters.parameters(&gateway).await?;
        get(&gateway, &path("/v1/dead-letters/groups", &parameters)).await
    })?;
    args.output.show(&answer, |out| {
        let headings = ["count", "endpoint", "state", "class", "reason", "newest", "last error"];
        let mut table = Table::new(&headings);
        for group in entries(&answer) {
            table.row([
                grouped(group["deliveries"].as_u64().unwrap_or(0)),
                cell(&group["endpoint_id"]),
                cell(&group["state"]),
                cell(&group["error_class"]),
                cell(&group["reason"]),
                moment(&group["newest_at"], now()),
                cell(&group["last_error"]),
            ]);
        }
        if table.is_empty() {
            return writeln!(out, "There are none.");
        }
        table.write(out)?;
        if answer["complete"] == false {
            let looked_at = grouped(answer["looked_at"].as_u64().unwrap_or(0));
            writeln!(out, "Only the newest {looked_at} were looked at.")?;
        }
        Ok(())
    })?;
    Ok(())
}

impl Chosen {
    /// Which they are, as the API wants it, if the user means them; `question` is told how many that
    /// are. None where there are none, or only their number was wanted: then that is shown.
    async fn meant(
        &self,
        gateway: &Gateway,
        output: OutputArgs,
        question: impl FnOnce(&str) -> String,
    ) -> Result<Option<Value>, Failure> {
        let body = self.body(gateway).await?;
        let matched = self.count(gateway, &body).await?;
        let letters = letters(matched);
        if matched == 0 || self.dry_run {
            let answer = json!({ "matched": matched });
            output.show(&answer, |out| writeln!(out, "{letters} match."))?;
            return Ok(None);
        }
        self.yes.confirm(&question(&letters))?;
        Ok(Some(body))
    }

    /// As the API wants it: `ids`, or `filter`.
    async fn body(&self, gateway: &Gateway) -> Result<Value, Failure> {
        if !self.ids.is_empty() {
            return Ok(json!({ "ids": self.ids }));
        }
        // An empty filter is more often a slip than a wish.
        if self.letters.is_empty() && !self.all {
            return Err(Failure::usage(anyhow!(
                "say which dead letters: ids, a filter such as --endpoint, or --all"
            )));
        }
        let parameters = self.letters.parameters(gateway).await?;
        Ok(json!({ "filter": as_body(parameters) }))
    }

    /// How many that are.
    async fn count(&self, gateway: &Gateway, body: &Value) -> Result<u64, Failure> {
        let mut body = body.clone();
        body["dry_run"] = true.into();
        let answer = post(gateway, "/v1/dead-letters/replay", Some(&body)).await?;
        answer["matched"].as_u64().ok_or_else(|| {
            anyhow!("{} does not answer as this program expects", gateway.url()).into()
        })
    }
}

fn replay(args: &Replay) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    block_on(async {
        let question = |letters: &str| format!("Send {letters} again");
        let meant = args.chosen.meant(&gateway, args.output, question).await?;
        let Some(mut body) = meant else { return Ok(()) };
        if let Some(rate) = args.rate {
            body["rate_per_second"] = json!(rate);
        }
        let answer = post(&gateway, "/v1/dead-letters/replay", Some(&body)).await?;
        let id: Option<JobId> = answer["job"].as_str().and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| anyhow!("{} has named no job", gateway.url()))?;
        if args.detach {
            let watch = format!("watch it with `postrider jobs show {id} --follow`");
            args.output.show(&answer, |out| writeln!(out, "{id} sends them; {watch}"))?;
            return Ok(());
        }
        let Some(job) = job::follow(&gateway, id).await? else {
            note(&format!("The job goes on. Watch it with `postrider jobs show {id} --follow`"));
            return Ok(());
        };
        args.output.show(&job, |out| {
            let count = |field: &str| job[field].as_u64().unwrap_or(0);
            write!(out, "{} on their way again", grouped(count("replayed")))?;
            match count("skipped") {
                0 => writeln!(out, "."),
                skipped => writeln!(
                    out,
                    "; {} were left out, because somebody else has changed them meanwhile.",
                    grouped(skipped)
                ),
            }
        })?;
        Ok(())
    })
}

fn purge(args: &Purge) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    block_on(async {
        let question = |letters: &str| format!("Throw {letters} away, for good");
        let meant = args.chosen.meant(&gateway, args.output, question).await?;
        let Some(mut body) = meant else { return Ok(()) };
        if args.chosen.all {
            body["all"] = true.into();
        }
        let answer = ask(&gateway, Method::DELETE, "/v1/dead-letters", Some(&body)).await?;
        args.output.show(&answer, |out| {
            writeln!(out, "{} thrown away.", letters(answer["deleted"].as_u64().unwrap_or(0)))
        })?;
        Ok(())
    })
}

fn letters(count: u64) -> String {
    match count {
        0 => "No dead letters".to_owned(),
        1 => "1 dead letter".to_owned(),
        _ => format!("{} dead letters", grouped(count)),
    }
}
