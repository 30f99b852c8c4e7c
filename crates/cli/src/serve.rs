//! `postrider serve`: the composition root.

pub(crate) mod effective;
mod node;
mod reload;
mod supervised;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{ArgAction, ArgMatches};
use postrider_core::span;
use postrider_engine::destination::Rules;
use postrider_engine::ports::{Clock as _, Entropy as _, SystemClock, SystemEntropy};
use postrider_engine::{Engine, Options, Retention, StartError};
use postrider_server::{
    ConnectionLimits, Inbound, KeyError, Keys, ServerOptions, ensure_admin_key,
};
use postrider_store::Store;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::{self, PemObject as _};
use tokio::net::TcpListener;

use crate::config::Loaded;
use crate::outbound::OutboundArgs;
use crate::settings::Inbox;
use crate::signals::Signals;
use crate::stores::{Opened, Place, StoreArgs};
use crate::telemetry::TelemetryArgs;
use crate::{Failure, settings};
use effective::Known;
use node::{NodeArgs, Spot};
use reload::Reloader;
use supervised::Supervised;

const LARGEST_EVENT: usize = 100 << 20;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The first start prints an admin key once. Send a first event with it:\n\n  curl -H \"Authorization: Bearer $KEY\" -H 'Content-Type: application/json' \\\n    -d '{\"type\":\"order.created\",\"payload\":{\"id\":1}}' http://127.0.0.1:7070/v1/events\n\nSeveral nodes share the work of one PostgreSQL when each is started on it, with the same key file:\n\n  postrider serve --store postgres://USER@HOST/NAME --secret-key-file postrider.key\n\nAny of them takes any event. `postrider nodes` shows who carries what; what one carried that ends goes to the others. A SQLite file has one node at a time.\n\nRETRY_BASE_DELAY, RETRY_MAX_DELAY and MAX_ATTEMPTS change the `inbox` policy preset.\nSIGTERM or Ctrl-C stops it: what is in flight is finished first."
)]
pub(crate) struct Args {
    /// Where to listen
    #[arg(
        long,
        env = "POSTRIDER_LISTEN",
        default_value = "127.0.0.1:7070",
        value_name = "ADDRESS"
    )]
    listen: SocketAddr,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    outbound: OutboundArgs,

    /// A program that endpoints may run for their deliveries, by its whole path; repeatable
    #[arg(long, env = "POSTRIDER_ALLOW_COMMAND", value_name = "PATH", value_delimiter = ',')]
    allow_command: Vec<PathBuf>,

    /// A file of certificate revocation lists, as PEM: what is on them is not believed; repeatable
    #[arg(long, env = "POSTRIDER_CRL_FILE", value_name = "PATH", value_delimiter = ',')]
    crl_file: Vec<PathBuf>,

    /// The address under which others reach this gateway, for providers that sign the URL they call,
    /// such as `https://hooks.example.com`
    #[arg(long, env = "POSTRIDER_PUBLIC_URL", value_name = "URL", value_parser = public_url)]
    public_url: Option<String>,

    /// The most requests a second with one key [default: no limit]
    #[arg(long, env = "POSTRIDER_REQUESTS_PER_KEY", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_key: Option<u32>,

    /// The most requests a second from one address [default: no limit]
    #[arg(long, env = "POSTRIDER_REQUESTS_PER_ADDRESS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_address: Option<u32>,

    #[command(flatten)]
    telemetry: TelemetryArgs,

    /// The first admin key (`pr_` and at least 32 characters), instead of a generated one
    #[arg(long, env = "POSTRIDER_ADMIN_KEY", hide_env_values = true, value_name = "KEY")]
    admin_key: Option<String>,

    /// The largest event accepted, in bytes (at most 100 MiB)
    #[arg(long, env = "POSTRIDER_MAX_EVENT_BYTES", default_value_t = 1 << 20, value_name = "BYTES")]
    max_event_bytes: usize,

    /// The deadline of an attempt, where its endpoint says nothing else
    #[arg(long, env = "POSTRIDER_TIMEOUT", default_value = "15s", value_parser = span::parse, value_name = "DURATION")]
    timeout: Duration,

    /// How long a stop waits for what is in flight
    #[arg(long, env = "POSTRIDER_DRAIN", default_value = "20s", value_parser = span::parse, value_name = "DURATION")]
    drain: Duration,

    /// An endpoint that has done nothing but fail for this long is disabled; 0s never does that
    #[arg(long, env = "POSTRIDER_DISABLE_AFTER", default_value = "5d", value_parser = span::parse, value_name = "DURATION")]
    disable_after: Duration,

    /// How often old deliveries are swept and history is removed
    #[arg(long, env = "POSTRIDER_HOUSEKEEPING", default_value = "1h", value_parser = span::parse, value_name = "DURATION")]
    housekeeping: Duration,

    /// How long a delivered event is kept, from its delivery
    #[arg(long, env = "POSTRIDER_KEEP_DELIVERED", default_value = "7d", value_parser = span::parse, value_name = "DURATION")]
    keep_delivered: Duration,

    /// How long a failed delivery is kept, from its last attempt
    #[arg(long, env = "POSTRIDER_KEEP_FAILED", default_value = "7d", value_parser = span::parse, value_name = "DURATION")]
    keep_failed: Duration,

    /// How long a dead delivery is kept, from its event's arrival
    #[arg(long, env = "POSTRIDER_KEEP_DEAD", default_value = "14d", value_parser = span::parse, value_name = "DURATION")]
    keep_dead: Duration,

    /// Read the configuration file again whenever it, or a file of a secret that it names, changes;
    /// SIGHUP does the same once
    #[arg(
        long,
        env = "POSTRIDER_WATCH",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        value_name = "true|false"
    )]
    watch: bool,

    #[command(flatten)]
    node: NodeArgs,
}

/// `given` is where the arguments come from, and `loaded` the file that some of them stand in.
pub(crate) fn run(args: Args, given: &ArgMatches, loaded: Option<&Loaded>) -> Result<(), Failure> {
    let usual = Inbox::default();
    let options = engine_options(&args, loaded.map_or(&usual, |loaded| &loaded.inbox))?;
    let passed_in = supervised::passed_in()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let telemetry = args.telemetry.start(&options.node.name)?;
        let options = Options { spans: telemetry.spans(), ..options };
        let served = serve(args, given, loaded, options, passed_in).await;
        telemetry.stop().await;
        served
    })
}

async fn serve(
    args: Args,
    given: &ArgMatches,
    loaded: Option<&Loaded>,
    mut options: Options,
    passed_in: Option<std::net::TcpListener>,
) -> Result<(), Failure> {
    let hangups = reload::hangups()?;
    let place = args.store.place()?;
    args.node.check(&place)?;
    if args.watch && loaded.is_none() {
        return Err(Failure::usage(anyhow!("--watch: there is no configuration file to watch")));
    }
    // Before the store is touched: a file that cannot be used changes nothing.
    let rehearsal = reload::rehearse(loaded, &options).await?;
    let Opened { store, made_key } = args.store.open_shared(&place, args.node.pool()).await?;
    // Before a key is made: a start that fails must not use up the one time it is shown.
    let listener = match passed_in {
        Some(socket) => TcpListener::from_std(socket)?,
        None => TcpListener::bind(args.listen)
            .await
            .with_context(|| format!("cannot listen on {}", args.listen))?,
    };
    let address = listener.local_addr()?;
    options.node.address = address.to_string();
    let spot = match place {
        Place::Server(_) => Spot::take(args.store.data()),
        Place::File(_) => None,
    };
    options.node.place = spot.as_ref().map(|spot| spot.name.clone());
    let known = Known { address, place: &place, node: &options.node, pool: args.node.pool() };
    let settings = effective::settings(given, &args, &known, loaded);
    let node_name = options.node.name.clone();
    // Signals are caught before anything is promised, so that a stop is always a drained one.
    let mut signals = Signals::catch()?;
    let Ready { engine, keys, inbound, new_key } =
        ready(options.clone(), Arc::clone(&store), args.admin_key.as_deref()).await?;
    let server_options = ServerOptions {
        event_limit_bytes: args.max_event_bytes,
        batch_limit_bytes: ServerOptions::default().batch_limit_bytes.max(args.max_event_bytes),
        requests_per_second_per_key: args.requests_per_key,
        requests_per_second_per_address: args.requests_per_address,
        public_url: args.public_url.clone(),
        settings,
        ..ServerOptions::default()
    };
    let (router, api) =
        postrider_server::router_and_api(engine.clone(), keys.clone(), inbound, server_options);
    let reloader = Reloader::start(api, options, loaded, &rehearsal, args.watch).await?;
    let node = match engine.nodes().await {
        Ok(shared) => shared.map(|shared| {
            let others = shared.nodes.iter().filter(|node| node.live && node.node != shared.me);
            beside_others(&node_name, others.count())
        }),
        // The engine says so itself, as often as it is so.
        Err(_) => Some(node_name),
    };
    let greeting = Greeting {
        address,
        place: &place,
        node: node.as_deref(),
        made_key: made_key.as_deref(),
        new_key: new_key.as_deref(),
    };
    greeting.print()?;
    let supervised = Supervised::ready(address);

    let stop = {
        let engine = engine.clone();
        async move {
            signals.next().await;
            Supervised::stopping();
            // While connections end: others take over what nothing is in flight of any more.
            engine.hand_over();
        }
    };
    let limits = ConnectionLimits { drain: args.drain, ..ConnectionLimits::default() };
    tokio::select! {
        served = router.serve(listener, limits, Box::pin(stop)) => served?,
        never = reloader.run(hangups) => match never {},
    }
    wind_down(&engine, &keys, args.drain).await;
    drop(supervised);
    Ok(())
}

/// What a gateway consists of, before anybody can reach it.
pub(crate) struct Ready {
    pub(crate) engine: Engine,
    pub(crate) keys: Keys,
    pub(crate) inbound: Inbound,
    /// The admin key, the first time.
    pub(crate) new_key: Option<String>,
}

/// Starts the engine on a store, to which `admin_key`, or a new one, is the key.
pub(crate) async fn ready(
    options: Options,
    store: Arc<dyn Store>,
    admin_key: Option<&str>,
) -> Result<Ready, Failure> {
    let entropy = Arc::new(SystemEntropy);
    let new_key = ensure_admin_key(&*store, SystemClock.now(), entropy.secret_bytes(), admin_key)
        .await
        .map_err(|error| match error {
            KeyError::Store(store) => Failure::from(store),
            refused @ (KeyError::Malformed | KeyError::IsATenants) => Failure::usage(refused),
        })?;
    let keys = Keys::load(&*store).await?;
    let inbound = Inbound::load(&*store).await.map_err(refused)?;
    let engine = Engine::start(options, store, Arc::new(SystemClock), entropy).await;
    let engine = engine.map_err(|error| match error {
        StartError::Store(error) => refused(error),
        bad @ StartError::Dns(_) => Failure::usage(bad),
        other @ (StartError::Tls(_) | StartError::UserAgent) => Failure::from(other),
    })?;
    Ok(Ready { engine, keys, inbound, new_key })
}

/// Finishes what is in flight, after the last request.
pub(crate) async fn wind_down(engine: &Engine, keys: &Keys, limit: Duration) {
    tracing::info!("stopping: finishing what is in flight");
    if let Err(error) = keys.flush(&**engine.store()).await {
        tracing::warn!(%error, "when keys were last used was not written down");
    }
    let drained = engine.drain(limit).await;
    if drained.abandoned > 0 {
        let abandoned = drained.abandoned;
        tracing::warn!(abandoned, "attempts were cut off at the limit and will be made again");
    }
    tracing::info!("stopped");
}

/// What the engine is started with, if everything that was said can be.
pub(crate) fn engine_options(args: &Args, inbox: &Inbox) -> Result<Options, Failure> {
    let presets = settings::presets(inbox).map_err(Failure::usage)?;
    if args.max_event_bytes == 0 || args.max_event_bytes > LARGEST_EVENT {
        return Err(Failure::usage(anyhow!("--max-event-bytes must be from 1 to {LARGEST_EVENT}")));
    }
    if args.outbound.max_in_flight == 0 {
        return Err(Failure::usage(anyhow!("--max-in-flight must be at least 1")));
    }
    if args.housekeeping.is_zero() || args.timeout.is_zero() {
        return Err(Failure::usage(anyhow!("--housekeeping and --timeout must be more than 0s")));
    }
    if let Some(relative) = args.allow_command.iter().find(|program| program.is_relative()) {
        let relative = relative.display();
        return Err(Failure::usage(anyhow!("--allow-command: `{relative}` is no whole path")));
    }
    let OutboundArgs { dns_server, egress_proxy, max_in_flight, .. } = &args.outbound;
    let Rules { networks, hosts, allow_ports, deny_ports } = args.outbound.rules();
    Ok(Options {
        presets,
        allowed: networks,
        allowed_hosts: hosts,
        allowed_ports: allow_ports,
        denied_ports: deny_ports,
        dns_servers: dns_server.clone(),
        egress_proxy: egress_proxy.clone(),
        allowed_commands: args.allow_command.clone(),
        revoked: revocation_lists(&args.crl_file)?,
        max_in_flight: *max_in_flight,
        default_timeout: args.timeout,
        disable_after: (!args.disable_after.is_zero()).then_some(args.disable_after),
        housekeeping_every: args.housekeeping,
        retention: Retention {
            delivered: args.keep_delivered,
            failed: args.keep_failed,
            dead: args.keep_dead,
        },
        node: args.node.options(),
        ..Options::default()
    })
}

fn revocation_lists(
    files: &[PathBuf],
) -> Result<Vec<CertificateRevocationListDer<'static>>, Failure> {
    let mut lists = Vec::new();
    for file in files {
        let unusable = |error: pem::Error| {
            Failure::usage(anyhow!("--crl-file: {}: {error:?}", file.display()))
        };
        let before = lists.len();
        for list in CertificateRevocationListDer::pem_file_iter(file).map_err(unusable)? {
            lists.push(list.map_err(unusable)?);
        }
        if lists.len() == before {
            let file = file.display();
            return Err(Failure::usage(anyhow!("--crl-file: {file} holds no list as PEM")));
        }
    }
    Ok(lists)
}

/// Where others reach the gateway: a scheme and a host, perhaps a port and a path before its own.
fn public_url(text: &str) -> Result<String, String> {
    let whole = |rest: &str| {
        !rest.is_empty() && !rest.contains(['?', '#', '@', ' ']) && !rest.starts_with('/')
    };
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest {
        Some(rest) if whole(rest) => Ok(text.trim_end_matches('/').to_owned()),
        Some(_) | None => Err("expected a URL such as https://hooks.example.com".to_owned()),
    }
}

/// What a store refuses is for the user to put right: another key, another file.
fn refused(error: postrider_store::Error) -> Failure {
    match error {
        refused @ postrider_store::Error::Refused(_) => Failure::usage(refused),
        other => Failure::from(other),
    }
}

/// A node, and whether it is alone.
fn beside_others(name: &str, others: usize) -> String {
    match others {
        0 => format!("{name}, alone so far"),
        others => format!("{name}, one of {} that share the store", others + 1),
    }
}

/// What somebody who starts it needs to know.
struct Greeting<'a> {
    address: SocketAddr,
    place: &'a Place,
    /// Where several can share the store.
    node: Option<&'a str>,
    /// Where the key is that was just made for all nodes.
    made_key: Option<&'a Path>,
    /// The admin key, the first time.
    new_key: Option<&'a str>,
}

impl Greeting<'_> {
    fn print(&self) -> std::io::Result<()> {
        let address = self.address;
        let mut out = std::io::stdout().lock();
        writeln!(out, "Postrider {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "  listening on  http://{address}")?;
        writeln!(out, "  data in       {}", self.place)?;
        if let Some(node) = self.node {
            writeln!(out, "  node          {node}")?;
        }
        if let Some(path) = self.made_key {
            writeln!(out, "  secret key    {}", path.display())?;
            writeln!(
                out,
                "                (just made; every other node needs a copy of this file)"
            )?;
        }
        if let Some(key) = self.new_key {
            writeln!(out, "  admin key     {key}")?;
            writeln!(out, "                (shown this once; keep it)")?;
        }
        let key = self.new_key.unwrap_or("KEY");
        writeln!(out, "\nSend a first event:\n")?;
        writeln!(
            out,
            "  curl -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\"
        )?;
        writeln!(
            out,
            "    -d '{{\"type\":\"order.created\",\"payload\":{{\"id\":1}}}}' http://{address}/v1/events\n"
        )?;
        out.flush()
    }
}
