//! `postrider bench`: puts load on a running gateway through its API, and says what it did.

mod latency;
mod load;
mod receiver;
mod report;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use postrider_client::{Error, Gateway, Method};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Failure;
use crate::connect::Connect;
use crate::output::OutputArgs;
use crate::progress::{Bar, Unit};
use crate::signals::Signals;
use load::{Load, Pace};
use receiver::Receiver;
use report::{Delivered, Report};

/// The most connections that can be asked for.
const MAX_CONNECTIONS: i64 = 1_024;
const MAX_RATE: i64 = 1_000_000;
const MAX_SECONDS: i64 = 24 * 3_600;
const MAX_SIZE: i64 = 100 << 20;

/// How long what has been accepted may take to arrive after the last event was sent.
const DRAIN: Duration = Duration::from_secs(15);

/// Between two words of how far it is.
const TELL: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("pace").required(true).args(["rate", "max"])),
    after_help = "\
Events are sent as any producer sends them, each in a request of its own. With --receive this program \
is also an endpoint: one is made at the gateway, everything that arrives is counted, and it is deleted \
at the end, with what was still on its way to it. The gateway has to be allowed to send there: start it \
with --allow-destination, for instance 127.0.0.0/8. The events stay in the gateway's history until its \
retention removes them. Endpoints that want all types get them as well: rather not on a gateway that \
is in use.

With --rate an event is late if it could not be sent in time, and its latency counts from when it was \
due. With --max each connection sends its next one as soon as the last was answered. Ctrl-C ends it, and \
prints what was measured until then.

Exit codes: 0 something was accepted; 1 nothing was, or the gateway was lost; 2 wrong usage or \
configuration, which includes what the gateway refuses for good.

Examples:
  postrider bench --rate 500 --seconds 30
  postrider bench --max --connections 64 --size 2048 --receive 127.0.0.1:9999 --json"
)]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    /// So many events a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RATE))]
    rate: Option<u32>,

    /// As many as it takes
    #[arg(long)]
    max: bool,

    /// For how long
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_SECONDS))]
    seconds: u32,

    /// How many requests there are at the same time, at most
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_CONNECTIONS))]
    connections: u32,

    /// How large the payload of an event is, about
    #[arg(long, default_value_t = 512, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=MAX_SIZE))]
    size: u32,

    /// The type of the events
    #[arg(long = "type", default_value = "bench.tick", value_name = "TYPE")]
    kind: String,

    /// Be an endpoint too, at this address, by which the gateway reaches this machine; port 0 is a
    /// free one
    #[arg(long, value_name = "ADDRESS")]
    receive: Option<SocketAddr>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(bench(args, &gateway))?;
    args.output.show(&report.to_json(), |out| report.write(out))?;
    if report.accepted == 0 {
        return Err(Failure::from(anyhow!("no event was accepted")));
    }
    Ok(())
}

async fn bench(args: &Args, gateway: &Gateway) -> Result<Report, Failure> {
    let mut signals = Signals::catch()?;
    let receiver = match args.receive {
        Some(address) => Some(Receiver::listen(address).await?),
        None => None,
    };
    let endpoint = match &receiver {
        Some(receiver) => Some(make_endpoint(gateway, &receiver.url, &args.kind).await?),
        None => None,
    };
    let measured = measure(args, gateway, receiver.as_ref(), &mut signals).await;
    // Whatever came of it, and whoever ended it.
    let removed = match &endpoint {
        Some(endpoint) => delete_endpoint(gateway, endpoint).await,
        None => Ok(()),
    };
    match (measured, removed) {
        (Ok(report), Ok(())) => Ok(report),
        (Err(failure), _) | (Ok(_), Err(failure)) => Err(failure),
    }
}

async fn measure(
    args: &Args,
    gateway: &Gateway,
    receiver: Option<&Receiver>,
    signals: &mut Signals,
) -> Result<Report, Failure> {
    let pace = args.rate.map_or(Pace::Max, Pace::PerSecond);
    let lasts = Duration::from_secs(args.seconds.into());
    let expected = args.rate.map(|rate| u64::from(rate) * u64::from(args.seconds));
    let mut bar = Bar::start("sending", Unit::Things("events"));
    let started = Instant::now();
    let load = Load {
        kind: args.kind.clone(),
        filling: usize::try_from(args.size).unwrap_or(usize::MAX),
        connections: usize::try_from(args.connections).unwrap_or(1),
        pace,
        lasts,
        arrivals: receiver.map(|receiver| receiver.arrivals.clone()),
    };
    let mut running = load.start(gateway);
    let mut ticks = tokio::time::interval(TELL);
    let mut interrupted = false;
    loop {
        tokio::select! {
            () = running.ended() => break,
            () = signals.next(), if !interrupted => {
                interrupted = true;
                running.stop();
            }
            _ = ticks.tick() => bar.tell(running.accepted(), expected),
        }
    }
    bar.clear();
    let took = started.elapsed();
    let sent = running.finish().await?;
    let delivered = match receiver {
        None => None,
        Some(receiver) => {
            if !interrupted {
                tokio::select! {
                    _ = tokio::time::timeout(DRAIN, receiver.arrivals.all_of(sent.accepted)) => {}
                    () = signals.next() => interrupted = true,
                }
            }
            let (arrived, last) = (receiver.arrivals.count(), receiver.arrivals.last());
            let within = last.map_or(took, |last| last.duration_since(started.into_std()));
            let repeated = receiver.arrivals.repeated();
            Some(Delivered { arrived, repeated, within, times: receiver.arrivals.times() })
        }
    };
    Ok(Report {
        accepted: sent.accepted,
        deliveries: sent.deliveries,
        took,
        times: sent.times,
        errors: sent.errors,
        delivered,
        interrupted,
    })
}

/// Where what is sent shall arrive.
async fn make_endpoint(gateway: &Gateway, url: &str, kind: &str) -> Result<String, Failure> {
    let spec = json!({ "name": "postrider bench", "url": url, "event_types": [kind] });
    let made = gateway.request(Method::POST, "/v1/endpoints", Some(&spec)).await;
    let made = made.map_err(|error| match &error {
        Error::Refused { status: 422, .. } => Failure::usage(anyhow!(error).context(
            "the gateway does not send to this receiver: start it with --allow-destination and the \
             network of --receive, such as 127.0.0.0/8",
        )),
        Error::Refused { .. } if !error.is_temporary() => Failure::usage(error),
        Error::Invalid(_) => Failure::usage(error),
        Error::Refused { .. } | Error::Unreachable { .. } | Error::BadAnswer { .. } => {
            Failure::from(error)
        }
    })?;
    let id = made.get("id").and_then(Value::as_str);
    Ok(id.ok_or_else(|| anyhow!("the gateway's answer has no id"))?.to_owned())
}

/// What has been deleted by somebody else is as well.
async fn delete_endpoint(gateway: &Gateway, id: &str) -> Result<(), Failure> {
    match gateway.request(Method::DELETE, &format!("/v1/endpoints/{id}"), None).await {
        Ok(_) | Err(Error::Refused { status: 404, .. }) => Ok(()),
        Err(error) => Err(Failure::from(anyhow!(error).context(format!(
            "the endpoint {id} that was made for this could not be deleted: delete it by hand"
        )))),
    }
}
