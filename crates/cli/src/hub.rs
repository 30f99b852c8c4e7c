//! `postrider hub`: forwards a gateway's deliveries to services that only this machine can reach.

mod line;
mod routes;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use postrider_client::hub::{Agent, AgentError, AgentOptions, Routes, Timing};
use postrider_core::hub::MAX_CAPACITY;
use postrider_core::span;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use tokio::sync::oneshot;

use crate::Failure;
use crate::secret::Secret;
use crate::signals::Signals;
use crate::telemetry::LogFormat;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A hub stands where the gateway cannot reach: it dials out, and what its endpoints are sent comes to it over \
that connection. Make one on the gateway, and an endpoint that leads to it:

  curl -H \"Authorization: Bearer $KEY\" -H 'Content-Type: application/json' \\
    -d '{\"name\":\"office\"}' http://127.0.0.1:7070/v1/hubs
  curl -H \"Authorization: Bearer $KEY\" -H 'Content-Type: application/json' \\
    -d '{\"name\":\"orders\",\"hub\":\"hub_…\",\"policy\":\"edge\"}' http://127.0.0.1:7070/v1/endpoints

The first answers with the token, once. Then, here:

  export POSTRIDER_HUB_TOKEN=prh_…
  postrider hub --gateway https://hooks.example.com --to http://localhost:3000/webhooks

Several endpoints can go to several places, by a file of routes, in TOML or (as .json) in JSON, from an \
endpoint's name or id to a URL; --to takes the rest:

  orders = \"http://localhost:3000/orders\"
  ep_06dqrbzg00000 = \"http://localhost:4000/\"

Body and headers arrive unchanged, signature included. While the hub is away its deliveries wait at the \
gateway and use up no attempts. What a target answers is for the endpoint's policy to judge.

SIGTERM or Ctrl-C stops it: it takes no more, and answers for what it has in hand. A second signal ends it \
at once; what it had in hand goes again to the next one.

Exit codes: 0 after a stop; 2 for wrong usage, and if the gateway refuses the token or this version; \
1 otherwise, as when the hub is deleted or another one uses its token.")]
pub(crate) struct Args {
    /// Where the gateway listens
    #[arg(
        long,
        env = "POSTRIDER_GATEWAY",
        default_value = "http://127.0.0.1:7070",
        value_name = "URL"
    )]
    gateway: String,

    /// The hub's token. Rather set the variable: other users of this machine can see what stands on
    /// a command line
    #[arg(long, env = "POSTRIDER_HUB_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Secret,

    /// Where deliveries go that no route names
    #[arg(long, env = "POSTRIDER_HUB_TO", value_name = "URL", required_unless_present = "routes")]
    to: Option<String>,

    /// A file of routes: which endpoint goes where
    #[arg(long, env = "POSTRIDER_HUB_ROUTES", value_name = "FILE")]
    routes: Option<PathBuf>,

    /// How many deliveries it takes at once
    #[arg(long, env = "POSTRIDER_HUB_CAPACITY", default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CAPACITY)))]
    capacity: u32,

    /// A file of certificate authorities to trust beside the public ones, as PEM
    #[arg(long, env = "POSTRIDER_CA_FILE", value_name = "PATH")]
    ca_file: Option<PathBuf>,

    /// How long a stop waits for what is in hand
    #[arg(long, env = "POSTRIDER_DRAIN", default_value = "20s", value_parser = span::parse, value_name = "DURATION")]
    drain: Duration,

    /// The form of the lines on standard error
    #[arg(long, env = "POSTRIDER_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let agent = Agent::new(options(args)?).map_err(Failure::usage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(args, agent))
}

fn options(args: &Args) -> Result<AgentOptions, Failure> {
    let mut routes = match &args.routes {
        Some(file) => routes::read(file).map_err(Failure::usage)?,
        None => Routes::default(),
    };
    if let Some(url) = &args.to {
        routes.send_rest_to(url).map_err(Failure::usage)?;
    }
    let extra_roots = match &args.ca_file {
        Some(file) => authorities(file)?,
        None => Vec::new(),
    };
    Ok(AgentOptions {
        capacity: args.capacity,
        extra_roots,
        timing: Timing { drain: args.drain, ..Timing::default() },
        ..AgentOptions::new(&args.gateway, &args.token.0, routes)
    })
}

fn authorities(file: &PathBuf) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let shown = file.display();
    let unusable = |error: pem::Error| Failure::usage(anyhow!("--ca-file: {shown}: {error:?}"));
    let listed: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).map_err(unusable)?.collect();
    match listed.map_err(unusable)? {
        empty if empty.is_empty() => {
            Err(Failure::usage(anyhow!("--ca-file: {shown} holds no certificate as PEM")))
        }
        certificates => Ok(certificates),
    }
}

async fn serve(args: &Args, agent: Agent) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    let (stop, stopped) = oneshot::channel();
    let stopped = async move { stopped.await.unwrap_or(()) };
    let write = match args.log_format {
        LogFormat::Text => line::text,
        LogFormat::Json => line::json,
    };
    let tell = |happening| {
        // A log that nobody reads any more is no reason to stop forwarding.
        let _ = writeln!(std::io::stderr(), "{}", write(&happening));
    };
    let at_once = async {
        signals.next().await;
        // If nobody waits for it, the agent has ended by itself.
        let _ = stop.send(());
        signals.next().await;
    };
    tokio::select! {
        ended = agent.run(stopped, tell) => ended.map_err(ended_for_good),
        () = at_once => Err(anyhow!("ended at once by a second signal").into()),
    }
}

/// What is refused is for the user to put right; the rest has happened to a hub that was right.
fn ended_for_good(error: AgentError) -> Failure {
    match error {
        AgentError::TokenRefused { .. } | AgentError::VersionRefused { .. } => {
            Failure::usage(error)
        }
        AgentError::Revoked | AgentError::TakenOver => Failure::from(error),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Sample {
        #[command(flatten)]
        hub: Args,
    }

    const USUAL: [&str; 5] =
        ["sample", "--token", "prh_hunter2", "--to", "http://localhost:3000/in"];

    fn sample(more: &[&str]) -> Sample {
        Sample::try_parse_from(USUAL.iter().chain(more)).expect("valid arguments")
    }

    #[test]
    fn the_token_is_not_shown() {
        let sample = sample(&[]);
        assert!(!format!("{sample:?}").contains("hunter2"));
        let options = options(&sample.hub).unwrap_or_else(|failure| panic!("{failure:?}"));
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    #[test]
    fn there_is_no_hub_without_a_token_or_a_place_to_forward_to() {
        for arguments in [
            &["sample", "--to", "http://localhost:3000"][..],
            &["sample", "--token", "prh_hunter2"],
            &["sample", "--token", "prh_hunter2", "--to", "http://localhost", "--capacity", "0"],
            &["sample", "--token", "prh_hunter2", "--to", "http://localhost", "--capacity", "1001"],
        ] {
            let refused = Sample::try_parse_from(arguments).expect_err("refused").to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_option_is_a_matter_of_usage() {
        for (more, word) in [
            (&["--gateway", "nowhere"][..], "gateway's URL"),
            (&["--routes", "/does/not/exist.toml"], "/does/not/exist.toml"),
            (&["--ca-file", "/does/not/exist.pem"], "--ca-file"),
            (&["--ca-file", "Cargo.toml"], "no certificate"),
        ] {
            let sample = sample(more);
            let made = options(&sample.hub)
                .and_then(|options| Agent::new(options).map_err(Failure::usage));
            let failure = made.err().unwrap_or_else(|| panic!("{more:?} was taken"));
            let said = format!("{:#}", failure.error);
            assert!(failure.usage && said.contains(word), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn what_the_gateway_refuses_is_told_from_what_happens_to_a_hub() {
        let detail = || "no".to_owned();
        for (error, usage) in [
            (AgentError::TokenRefused { detail: detail() }, true),
            (AgentError::VersionRefused { detail: detail() }, true),
            (AgentError::Revoked, false),
            (AgentError::TakenOver, false),
        ] {
            assert_eq!(ended_for_good(error.clone()).usage, usage, "{error}");
        }
    }
}
