//! `postrider demo`: a gateway on a temporary store, with receivers that fail in ways of their own and
//! traffic to all of them, to be looked at in its dashboard.

mod receivers;
mod scene;
mod traffic;

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use postrider_client::Gateway;
use postrider_engine::Options;
use postrider_engine::ports::{Clock as _, Entropy as _, SystemClock, SystemEntropy};
use postrider_server::{
    ConnectionLimits, EffectiveSettings, ServerOptions, Setting, SettingOrigin, SettingsGroup,
};
use postrider_store::Store;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::Failure;
use crate::serve::{Ready, ready, wind_down};
use crate::signals::Signals;
use crate::telemetry::{LogFormat, log_to_stderr};
use receivers::Receivers;

/// Where it listens if nothing else does, and nothing else is said.
const USUAL: &str = "127.0.0.1:7070";
/// Any port of this machine that is free.
const ANY: &str = "127.0.0.1:0";
/// The receivers are here; nothing else can be sent to.
const LOOPBACK: &str = "127.0.0.0/8";
const DATABASE: &str = "postrider.db";
/// How long the end waits for what is in flight: longer than the slowest receiver takes.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
It needs nothing and leaves nothing behind: the store is in a temporary folder, which is removed at the end, \
and the receivers are in the process itself. They are

  orders      healthy: takes everything, in order per customer
  billing     flaky: fails two times out of five, and is tried again
  warehouse   slow: takes a second or two, so that some wait
  crm         dead: nobody listens there, so its deliveries end as dead letters
  newsletter  rate limiting: answers 429 and says how long to wait
  partner     picky: refuses some for good with 422
  office      behind a hub, which is connected

Open the address that it prints: you are signed in by it, once and within ten minutes. The admin key beside \
it signs in again, and is good for the API:

  curl -H \"Authorization: Bearer $KEY\" http://127.0.0.1:7070/v1/dead-letters

Example:
  postrider demo --seconds 60

Ctrl-C ends it, and so does the end of --seconds. Exit code 0 after either.")]
pub(crate) struct Args {
    /// Where to listen [default: 127.0.0.1:7070, or another port if that one is taken]
    #[arg(long, env = "POSTRIDER_DEMO_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// End after so many seconds [default: at Ctrl-C]
    #[arg(long, env = "POSTRIDER_DEMO_SECONDS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,

    /// How many events are sent in a second
    #[arg(long, env = "POSTRIDER_DEMO_RATE", default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    rate: u32,

    /// What is logged: error, warn, info, debug, or a filter such as `info,postrider_engine=debug`
    #[arg(long, env = "POSTRIDER_LOG", default_value = "error", value_name = "FILTER")]
    log: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    log_to_stderr(&args.log, LogFormat::Text)?;
    let folder = tempfile::Builder::new()
        .prefix("postrider-demo-")
        .tempdir()
        .context("cannot make a temporary folder")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(show(args, folder.path()));
    // The store is closed with what used it, so that nothing is written into a folder that is going.
    drop(runtime);
    let removed = folder.close().context("cannot remove the temporary folder");
    ended?;
    Ok(removed?)
}

async fn show(args: &Args, folder: &Path) -> Result<(), Failure> {
    let listener = listen(args.listen).await?;
    let address = listener.local_addr()?;
    let mut signals = Signals::catch()?;
    let store = open(folder)?;
    let options =
        Options { allowed: vec![LOOPBACK.parse().context("no network")?], ..Options::default() };
    let Ready { engine, keys, inbound, new_key } = ready(options, Arc::clone(&store), None).await?;
    let key = new_key.ok_or_else(|| anyhow!("the new store had a key already"))?;
    let admin = store.keys().await?.into_iter().next();
    let admin = admin.ok_or_else(|| anyhow!("the new store has no key"))?;
    let options = ServerOptions { settings: settings(address, folder), ..ServerOptions::default() };
    let router = postrider_server::router(engine.clone(), keys.clone(), inbound, options);
    let (stop, stopped) = watch::channel(false);
    let limits = ConnectionLimits { drain: DRAIN, ..ConnectionLimits::default() };
    let server = tokio::spawn(router.serve(listener, limits, Box::pin(until(stopped.clone()))));

    let gateway = Gateway::new(&format!("http://{address}"), &key)?;
    let receivers = Receivers::start().await?;
    let scene = scene::set(&gateway, &receivers).await?;
    let hub = tokio::spawn(scene::run_hub(scene.hub, until(stopped.clone())));
    greet(address, &keys.one_time_link(admin.id, SystemClock.now()), &key, args.seconds)?;
    let traffic = traffic::send(gateway, scene.posting, args.rate, until(stopped));
    let traffic = tokio::spawn(traffic);

    let time = async {
        match args.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds.into())).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = time => {}
        () = signals.next() => {}
    }
    stop.send_replace(true);
    // Nothing is sent any more, before the gateway stops taking anything.
    traffic.await?;
    server.await??;
    wind_down(&engine, &keys, DRAIN).await;
    hub.await?;
    drop(receivers);
    writeln!(std::io::stdout(), "The demo has ended; nothing of it is left.")?;
    Ok(())
}

/// Waits for the word to stop.
async fn until(mut stopped: watch::Receiver<bool>) {
    // Whoever would have given it is gone, which is a stop as well.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn listen(wanted: Option<SocketAddr>) -> Result<TcpListener, Failure> {
    let bound = match wanted {
        Some(address) => TcpListener::bind(address).await,
        None => match TcpListener::bind(USUAL).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse => TcpListener::bind(ANY).await,
            bound => bound,
        },
    };
    let place = wanted.map_or_else(|| USUAL.to_owned(), |address| address.to_string());
    Ok(bound.with_context(|| format!("cannot listen on {place}"))?)
}

/// The key that its secrets are sealed with is nowhere but in memory: the store does not outlive it.
fn open(folder: &Path) -> Result<Arc<dyn Store>, Failure> {
    let key = SealingKey::from_bytes(SystemEntropy.secret_bytes());
    let keyring = Keyring::new(vec![key]).context("no key to seal with")?;
    let path = folder.join(DATABASE);
    let store = Sqlite::open(&path, sqlite::Options::default(), keyring);
    Ok(Arc::new(store.with_context(|| format!("cannot open {}", path.display()))?))
}

fn settings(address: SocketAddr, folder: &Path) -> EffectiveSettings {
    let found = |name: &str, about: &str, value: String| Setting {
        name: name.to_owned(),
        about: about.to_owned(),
        value,
        origin: SettingOrigin::Found,
    };
    let settings = vec![
        found("--listen", "Where it listens", address.to_string()),
        found("--data", "Its store, removed at the end", folder.display().to_string()),
        found("--allow-destination", "What may be sent to", LOOPBACK.to_owned()),
    ];
    let name = "This is a demo: `postrider serve` has more".to_owned();
    EffectiveSettings { groups: vec![SettingsGroup { name, settings }] }
}

/// What somebody who starts it needs to know.
fn greet(address: SocketAddr, link: &str, key: &str, seconds: Option<u32>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "Postrider {}: a demo", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "\n  Open this, and you are signed in (once, within ten minutes):\n")?;
    writeln!(out, "    http://{address}{link}\n")?;
    writeln!(out, "  admin key     {key}")?;
    writeln!(out, "\nWhat to look at:\n")?;
    for line in [
        "Overview      unhealthy endpoints come first: crm is dead, billing is flaky",
        "Deliveries    one that is retrying: its attempts, its plan, and why it waits",
        "Dead letters  what crm and partner did not take; replay one, or all of them",
        "Endpoints     newsletter is held by Retry-After, warehouse has a queue",
        "Sources       webshop gets webhooks, and some with a wrong token are marked",
    ] {
        writeln!(out, "  {line}")?;
    }
    match seconds {
        Some(seconds) => writeln!(out, "\nIt ends after {seconds} s, or at Ctrl-C."),
        None => writeln!(out, "\nCtrl-C ends it."),
    }?;
    out.flush()
}
