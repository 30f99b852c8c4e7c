//! `postrider listen`: a public URL for a provider, and what arrives there shown as it is forwarded to
//! a service on this machine.

mod keys;
mod setup;
mod show;

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use postrider_client::hub::{Agent, AgentOptions, Happening, Routes};
use postrider_client::{Gateway, Method};
use postrider_core::EventId;
use postrider_core::hub::{Answer, Deliver};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::Failure;
use crate::connect::Connect;
use crate::output::Style;
use crate::signals::Signals;
use keys::{Command, Keyboard};
use setup::Ears;

/// Webhooks that can be named by their number.
const REMEMBERED: usize = 1_000;
/// What has happened and is not shown yet. What is more than that is counted, not kept.
const BACKLOG: usize = 1_024;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What it makes on the gateway is a source (the URL to paste into a provider), a hub (this process) and an \
endpoint that leads from the one to the other, all under one name. They stay when it ends: what arrives \
while nobody listens is kept, and delivered on return.

Keys: r replay the last webhook, i inspect it; a number before the letter chooses another one (12r); \
q quit.

Example:
  export POSTRIDER_KEY=pr_…
  postrider listen --to http://localhost:3000/webhooks")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    /// Where webhooks go: a service on this machine, or one it can reach
    #[arg(long, value_name = "URL")]
    to: String,

    /// What the source, the hub and the endpoint are called; another name is another URL
    #[arg(long, default_value = "listen", value_name = "NAME")]
    name: String,

    /// Listen to a source that is there already, by its id or its name, rather than to a new one
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,

    /// Take back at the end what was made on the gateway, and what waits there with it
    #[arg(long)]
    temporary: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(listen(args))
}

async fn listen(args: &Args) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let routes = Routes::to(&args.to).map_err(Failure::usage)?;
    let ears = setup::prepare(&gateway, &args.name, args.source.as_deref()).await?;
    let options = AgentOptions::new(gateway.url(), &ears.token, routes);
    let agent = Agent::new(options).map_err(Failure::usage)?;
    let style = Style::of_stdout();
    show::greeting(style, &ears.url, &args.to);

    let (happened, mut happenings) = mpsc::channel(BACKLOG);
    let (stop, stopped) = oneshot::channel::<()>();
    let mut stop = Some(stop);
    let missed = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&missed);
    // A task of its own: what is asked of the gateway meanwhile must not hold up its heartbeat.
    let mut running = tokio::spawn(async move {
        let on = move |happening| {
            if happened.try_send(happening).is_err() {
                counting.fetch_add(1, Ordering::Relaxed);
            }
        };
        // Dropped without a word, it is a stop as well.
        agent.run(stopped.map(|_| ()), on).await
    });
    let mut signals = Signals::catch()?;
    let mut keyboard = Keyboard::open()?;
    let mut screen =
        Screen { gateway: &gateway, ears: &ears, style, seen: VecDeque::new(), count: 0 };
    let ended = loop {
        tokio::select! {
            ended = &mut running => break ended?,
            Some(happening) = happenings.recv() => screen.show(happening),
            command = keyboard.next(), if stop.is_some() => match command {
                Command::Quit => stop = None,
                Command::Replay(number) => screen.replay(number).await,
                Command::Inspect(number) => screen.inspect(number).await,
                Command::Help => show::help(style),
            },
            () = signals.next(), if stop.is_some() => stop = None,
        }
    };
    while let Ok(happening) = happenings.try_recv() {
        screen.show(happening);
    }
    drop(keyboard);
    let missed = missed.load(Ordering::Relaxed);
    if missed > 0 {
        show::note(style, &format!("{missed} lines were too fast to be shown"));
    }
    if args.temporary {
        ears.take_down(&gateway).await?;
    }
    ended.map_err(Failure::from)
}

/// What the user sees, and can refer to.
struct Screen<'a> {
    gateway: &'a Gateway,
    ears: &'a Ears,
    style: Style,
    /// Oldest first, each with its number.
    seen: VecDeque<(usize, EventId)>,
    count: usize,
}

impl Screen<'_> {
    fn show(&mut self, happening: Happening) {
        match happening {
            Happening::Connected { .. } => show::note(self.style, "connected to the gateway"),
            Happening::Disconnected { reason, unanswered: _, retry_in } => {
                show::disconnected(self.style, &reason, retry_in);
            }
            Happening::Answered { deliver, answer } => self.answered(&deliver, &answer),
            Happening::Stopping { in_hand } => show::stopping(self.style, in_hand),
            Happening::Received(_) | Happening::Stopped { .. } => {}
        }
        // A terminal that is gone is noticed by the next thing that is read from it.
        let _closed = std::io::stdout().flush();
    }

    fn answered(&mut self, deliver: &Arc<Deliver>, answer: &Answer) {
        self.count += 1;
        if self.seen.len() == REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back((self.count, deliver.event));
        show::webhook(self.style, self.count, deliver, answer);
    }

    /// The webhook with this number, or the last one.
    fn find(&self, number: Option<usize>) -> Option<EventId> {
        let found = match number {
            None => self.seen.back(),
            Some(number) => self.seen.iter().find(|(known, _)| *known == number),
        };
        if found.is_none() {
            show::note(self.style, "there is no such webhook yet");
        }
        found.map(|(_, event)| *event)
    }

    async fn replay(&mut self, number: Option<usize>) {
        let Some(event) = self.find(number) else { return };
        let body = json!({ "endpoints": [self.ears.endpoint] });
        let path = format!("/v1/events/{event}/replay");
        match self.gateway.request(Method::POST, &path, Some(&body)).await {
            Ok(_) => show::note(self.style, &format!("{event} goes once more")),
            Err(error) => show::trouble(self.style, &error.to_string()),
        }
    }

    async fn inspect(&mut self, number: Option<usize>) {
        let Some(event) = self.find(number) else { return };
        let path = format!("/v1/events/{event}");
        let shown = self.gateway.request(Method::GET, &path, None).await;
        let payload = self.gateway.bytes(&format!("{path}/payload")).await;
        match (shown, payload) {
            (Ok(shown), Ok(payload)) => show::event(self.style, &shown, &payload),
            (Err(error), _) | (_, Err(error)) => show::trouble(self.style, &error.to_string()),
        }
    }
}
