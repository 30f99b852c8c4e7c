//! `postrider top`: a gateway's throughput, backlog and worst endpoints, live in the terminal.

mod keys;
mod look;
mod snapshot;
mod stage;
mod view;

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::Failure;
use crate::connect::Connect;
use crate::signals::Signals;
use keys::{Input, Ui};
use look::Looker;
use snapshot::Snapshot;
use stage::Stage;

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q quit, p pause, s sort in another order, arrows or page keys scroll, ? help.

  in, out    events taken and deliveries made a second, over the last minute; the line shows the last \
hour, a minute each
  waiting    deliveries that are not at their end: new ones, those that are tried again, and those \
under way; oldest is how long the longest has waited
  latency    from the arrival of an event to its delivery, over the last hour
  failures   attempts of the last hour that failed; dead are deliveries given up

Without a terminal, or with --once, one picture is printed as text. A gateway that does not answer is \
asked again until it does.

Exit codes: 0 ended by q or a signal, or one picture printed; 1 failure; 2 wrong usage or \
configuration, which includes a key that the gateway refuses.

Example:
  export POSTRIDER_KEY=pr_…
  postrider top --gateway http://10.0.0.5:7070")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    /// Print one picture as text, and end
    #[arg(long)]
    once: bool,
}

/// What is known of the gateway.
#[derive(Debug, Default)]
struct Seen {
    gateway: String,
    snapshot: Option<Snapshot>,
    /// Why there is no newer one.
    trouble: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let looker = Looker::new(args.connect.gateway()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.once || !std::io::stdout().is_terminal() {
        runtime.block_on(once(looker))
    } else {
        runtime.block_on(live(looker))
    }
}

async fn once(mut looker: Looker) -> Result<(), Failure> {
    let gateway = looker.url().to_owned();
    let mut signals = Signals::catch()?;
    let snapshot = tokio::select! {
        snapshot = looker.look() => snapshot?,
        () = signals.next() => return Ok(()),
    };
    let seen = Seen { gateway, snapshot: Some(snapshot), trouble: None };
    let mut out = std::io::stdout().lock();
    out.write_all(view::text(&seen).as_bytes())?;
    Ok(out.flush()?)
}

async fn live(looker: Looker) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    let mut seen = Seen { gateway: looker.url().to_owned(), ..Seen::default() };
    let mut ui = Ui::default();
    let (ask, mut looks) = start(looker);
    let mut ticks = tokio::time::interval(LOOK_AGAIN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stage = Stage::open()?;
    let mut inputs = keys::listen();
    loop {
        stage.draw(|frame| view::draw(frame, &seen, &mut ui))?;
        tokio::select! {
            () = signals.next() => return Ok(()),
            input = inputs.recv() => match input {
                Some(Input::Do(action)) => {
                    if ui.take(action).is_break() {
                        return Ok(());
                    }
                }
                // The next picture has the new size.
                Some(Input::Resized) => {}
                // The terminal is gone.
                None => return Ok(()),
            },
            _ = ticks.tick(), if !ui.paused => {
                // One that is still under way is waited for instead.
                let _under_way = ask.try_send(());
            }
            Some(look) = looks.recv() => match look {
                Ok(snapshot) => {
                    seen.snapshot = Some(snapshot);
                    seen.trouble = None;
                }
                Err(failure) if failure.usage => return Err(failure),
                Err(failure) => seen.trouble = Some(format!("{:#}", failure.error)),
            },
        }
    }
}

/// Looks when it is asked to, apart from the terminal, which must not wait for a gateway.
fn start(mut looker: Looker) -> (mpsc::Sender<()>, mpsc::Receiver<Result<Snapshot, Failure>>) {
    let (ask, mut asked) = mpsc::channel(1);
    let (tell, told) = mpsc::channel(1);
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            if tell.send(looker.look().await).await.is_err() {
                return;
            }
        }
    });
    (ask, told)
}
