//! `postrider endpoints`: where events go, listed, made, changed and tried out.

mod fields;
mod view;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Subcommand;
use postrider_client::Method;
use postrider_core::span;
use serde_json::{Map, Value};

use crate::Failure;
use crate::connect::Connect;
use crate::output::{OutputArgs, cell};
use crate::resource::{ENDPOINT, Many, One, Removal, ask, block_on, body, called};
use crate::secret::Secret;
use fields::Fields;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
An endpoint is known by its id or by its name, where no other has the same.

Exit codes: 0 done, 1 the gateway does not answer, or a test was not delivered; 2 wrong usage or \
configuration, which includes what the gateway refuses: a key that may not, a value that cannot be, an \
endpoint that is not there.

Examples:
  postrider endpoints create --name billing --url https://billing.example.com/hooks --type 'order.*'
  postrider endpoints test billing")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List endpoints, newest first
    #[command(after_help = "Examples:
  postrider endpoints list
  postrider endpoints list --all --json")]
    List(Many),
    /// Show an endpoint
    #[command(after_help = "Example:\n  postrider endpoints show billing")]
    Show(One),
    /// Make an endpoint
    #[command(after_help = "\
One of --url, --hub, --pull and --command says where deliveries go. The secret that signs them is shown \
when the endpoint is made, and by `postrider endpoints secret`.

Examples:
  postrider endpoints create --name billing --url https://billing.example.com/hooks --type 'order.*'
  postrider endpoints create --name printer --hub home --policy edge --rate 5
  postrider endpoints create --from endpoint.json --name billing-2")]
    Create(Box<Create>),
    /// Change an endpoint; what is not said stays as it is
    #[command(after_help = "\
Examples:
  postrider endpoints update billing --timeout 30s --type 'order.*' --type 'invoice.*'
  postrider endpoints update billing --clear filter --clear rate-limit")]
    Update(Box<Update>),
    /// Delete an endpoint; what is unfinished is cancelled, history stays until its time
    #[command(after_help = "Example:\n  postrider endpoints delete billing --yes")]
    Delete(Removal),
    /// Keep what comes for an endpoint, and send nothing
    #[command(after_help = "Example:\n  postrider endpoints pause billing")]
    Pause(One),
    /// Send again to an endpoint that was paused
    #[command(after_help = "Example:\n  postrider endpoints resume billing")]
    Resume(One),
    /// Use an endpoint again that the gateway has disabled
    #[command(after_help = "Example:\n  postrider endpoints enable billing")]
    Enable(One),
    /// Send a sample event and show what came of it
    #[command(after_help = "\
Exit codes: 0 delivered, 1 not delivered, or the gateway does not answer; 2 wrong usage or configuration.

Example:
  postrider endpoints test billing")]
    Test(One),
    /// Sign with a new secret, and with the old one for a while
    #[command(after_help = "\
Examples:
  postrider endpoints rotate-secret billing --overlap 48h
  openssl rand -base64 32 | sed s/^/whsec_/ | postrider endpoints rotate-secret billing --secret -")]
    RotateSecret(Rotate),
    /// Print the secret that signs, or the public key of it
    #[command(after_help = "\
Standard output has the newest secret and nothing else; what else there is to know of it goes to \
standard error.

Examples:
  SECRET=$(postrider endpoints secret billing)
  postrider endpoints secret billing --public-key")]
    Secret(ShowSecret),
    /// Show how many deliveries are in which state, and how the endpoint is doing
    #[command(after_help = "Example:\n  postrider endpoints stats billing")]
    Stats(One),
}

#[derive(Debug, clap::Args)]
struct Create {
    #[command(flatten)]
    fields: Fields,

    #[command(flatten)]
    from: body::FromArgs,

    /// The secret that signs, instead of one that is made: `whsec_…`. `-` reads it from standard
    /// input, where other users of this machine cannot see it
    #[arg(long, allow_hyphen_values = true, value_name = "SECRET")]
    secret: Option<Secret>,

    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
struct Update {
    #[command(flatten)]
    fields: Fields,

    /// Go back to what is usual for this field, like `filter` or `rate-limit`; may be repeated
    #[arg(long, value_name = "FIELD")]
    clear: Vec<String>,

    #[command(flatten)]
    from: body::FromArgs,

    #[command(flatten)]
    one: One,
}

#[derive(Debug, clap::Args)]
struct Rotate {
    /// How long the old secret goes on signing beside the new one [default: 24h]
    #[arg(long, value_name = "SPAN")]
    overlap: Option<String>,

    /// The new secret, instead of one that is made; `-` reads it from standard input
    #[arg(long, allow_hyphen_values = true, value_name = "SECRET")]
    secret: Option<Secret>,

    #[command(flatten)]
    one: One,
}

#[derive(Debug, clap::Args)]
struct ShowSecret {
    /// Print what receivers verify Ed25519 signatures with
    #[arg(long)]
    public_key: bool,

    #[command(flatten)]
    one: One,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    block_on(async {
        match &args.command {
            Command::List(args) => ENDPOINT.show_all(args, view::table).await.map(done),
            Command::Show(args) => {
                ENDPOINT.show(args, |out, endpoint, _| view::page(out, endpoint)).await.map(done)
            }
            Command::Create(args) => create(args).await.map(done),
            Command::Update(args) => update(args).await.map(done),
            Command::Delete(args) => ENDPOINT.remove(args, deleting, "Deleted").await.map(done),
            Command::Pause(args) => switch(args, "/pause").await.map(done),
            Command::Resume(args) => switch(args, "/resume").await.map(done),
            Command::Enable(args) => switch(args, "/enable").await.map(done),
            Command::Test(args) => test(args).await,
            Command::RotateSecret(args) => rotate_secret(args).await.map(done),
            Command::Secret(args) => show_secret(args).await.map(done),
            Command::Stats(args) => {
                let shown = ENDPOINT.act(args, Method::GET, "/stats", None, |out, stats, _| {
                    view::stats(out, stats)
                });
                shown.await.map(done)
            }
        }
    })
}

fn deleting(called: &str) -> String {
    format!("Delete the endpoint {called}, and cancel what waits for it")
}

async fn create(args: &Create) -> Result<(), Failure> {
    let mut body = args.from.read()?;
    let gateway = args.connect.gateway()?;
    args.fields.put_into(&mut body, &gateway).await?;
    body.set("secret", args.secret.as_ref().map(body::secret).transpose()?);
    if body.is_empty() {
        return Err(Failure::usage(anyhow!(
            "say where the deliveries go: --url, --hub, --pull or --command, or a file with --from"
        )));
    }
    let answer = ask(&gateway, Method::POST, ENDPOINT.path, Some(&body.into_value())).await?;
    Ok(args.output.show(&answer, |out| view::page(out, &answer))?)
}

async fn update(args: &Update) -> Result<(), Failure> {
    let One { which, connect, output } = &args.one;
    let mut body = args.from.read()?;
    let gateway = connect.gateway()?;
    args.fields.put_into(&mut body, &gateway).await?;
    body.clear(&args.clear);
    if body.is_empty() {
        return Err(Failure::usage(anyhow!("say what to change; --help lists what can be")));
    }
    let body = body.into_value();
    let answer = ENDPOINT.ask_of(&gateway, which, Method::PATCH, "", Some(&body)).await?;
    Ok(output.show(&answer, |out| view::page(out, &answer))?)
}

async fn switch(args: &One, action: &str) -> Result<(), Failure> {
    let switched = ENDPOINT.act(args, Method::POST, action, None, |out, endpoint, _| {
        writeln!(out, "{} is {}", called(endpoint), cell(&endpoint["state"]))
    });
    switched.await
}

async fn test(args: &One) -> Result<ExitCode, Failure> {
    let gateway = args.connect.gateway()?;
    let answer = ENDPOINT.ask_of(&gateway, &args.which, Method::POST, "/test", None).await?;
    args.output.show(&answer, |out| view::attempt(out, &answer))?;
    let delivered = answer["outcome"] == "delivered";
    Ok(if delivered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn rotate_secret(args: &Rotate) -> Result<(), Failure> {
    let mut body = body::Body::default();
    if let Some(overlap) = &args.overlap {
        let refuse = |error| Failure::usage(anyhow!("--overlap: {error}"));
        span::parse(overlap).map_err(refuse)?;
        body.set("overlap", Some(overlap.as_str()));
    }
    body.set("secret", args.secret.as_ref().map(body::secret).transpose()?);
    let body = body.into_value();
    let below = "/rotate-secret";
    let rotated = ENDPOINT.act(&args.one, Method::POST, below, Some(&body), |out, answer, _| {
        view::secrets(out, answer)
    });
    rotated.await
}

async fn show_secret(args: &ShowSecret) -> Result<(), Failure> {
    let One { which, connect, output } = &args.one;
    let gateway = connect.gateway()?;
    let answer = ENDPOINT.ask_of(&gateway, which, Method::GET, "/secret", None).await?;
    let field = if args.public_key { "public_key" } else { "secret" };
    let shown = cell(&answer[field]);
    if shown.is_empty() && !output.json() {
        return Err(anyhow!(
            "this endpoint has none: its signing scheme is another (`postrider endpoints show`)"
        )
        .into());
    }
    output.show(&answer, |out| writeln!(out, "{shown}"))?;
    if !output.json() {
        view::older_secrets(&answer);
    }
    Ok(())
}

/// Words and what they stand for, as an object.
fn object(pairs: &[(String, String)]) -> Value {
    let pairs = pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
    Value::Object(pairs.collect::<Map<_, _>>())
}
