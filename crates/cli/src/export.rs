//! `postrider export`: events and what became of them, as lines of JSON.

mod sheet;

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures_util::{StreamExt as _, stream};
use postrider_client::{Error, Gateway, Method};
use postrider_core::{EventId, Timestamp};
use serde_json::Value;

use crate::Failure;
use crate::connect::Connect;
use crate::progress::{Bar, Unit, grouped};
use crate::resource::{block_on, refused};
use crate::signals::Signals;
use crate::traffic::{Moment, entries, is_closed_pipe, note, now, page_path, payload};
use sheet::Sheet;

/// Events that are held in memory at once.
const PAGE: usize = 50;
/// Events that are asked for at the same time.
const CONCURRENT: usize = 4;
/// Deliveries of an event that are asked for at once.
const DELIVERIES: usize = 250;
/// How often one request is made while the gateway is busy or away.
const MAX_TRIES: u32 = 10;
const SHORTEST_WAIT: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
One event a line, newest first, as the API shows it, with `payload` where its bytes are JSON on one \
line, and stand there unchanged, or `payload_base64` where they are anything else. With --deliveries \
each has `deliveries`, and each of these its `attempt_log`.

What is received while it runs is left out. When it stops half-way it says after which event; --after \
goes on behind that one and adds to the file.

Exit codes: 0 all of it was written, or whoever reads the output has left; 1 failure, or it was \
stopped by Ctrl-C; 2 wrong usage or configuration.

Examples:
  postrider export --since 1d --to yesterday.ndjson
  postrider export --type order.created --deliveries | jq .status")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    /// Only events received since then: a time, or how long ago, such as `2h`
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,

    /// Only events received before then: a time, or how long ago
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,

    /// Only events of this type, such as `order.created`
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    /// With their deliveries, and every attempt of these
    #[arg(long)]
    deliveries: bool,

    /// Go on behind this event, the last one that was written
    #[arg(long, value_name = "ID")]
    after: Option<EventId>,

    /// Write to this file, which must not be there yet, unless --after adds to it [default: the
    /// standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    let mut sheet = match &args.to {
        Some(file) => Sheet::of_file(open(file, args.after.is_some())?, args.after)?,
        None => Sheet::of_stdout(args.after),
    };
    // On a terminal that shows the lines themselves, it would stand among them.
    let apart = args.to.is_some() || !io::stdout().is_terminal();
    let mut bar = apart.then(|| Bar::start("exporting", Unit::Things("events")));
    let ended = block_on(async {
        let mut signals = Signals::catch()?;
        tokio::select! {
            () = signals.next() => Err(anyhow!("stopped").into()),
            ended = export(args, &gateway, &mut sheet, bar.as_mut()) => ended,
        }
    });
    let (put, written) = sheet.finish();
    let ended = ended.and(put.map_err(Failure::from)).or_else(|failure| {
        let closed = failure.error.downcast_ref::<io::Error>().is_some_and(is_closed_pipe);
        if closed { Ok(()) } else { Err(failure) }
    });
    if let Some(bar) = &mut bar {
        bar.clear();
    }
    note(&format!("{} events", grouped(written.events)));
    if let (Err(_), Some(last)) = (&ended, written.last) {
        note(&format!("go on with --after {last}"));
    }
    ended
}

fn open(file: &Path, adds: bool) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    if adds {
        options.create(true).append(true).read(true);
    } else {
        options.create_new(true).write(true);
    }
    let unusable = || format!("cannot write to {}", file.display());
    let opened = options.open(file).with_context(unusable).map_err(Failure::usage)?;
    if adds && ends_within_a_line(&opened).with_context(unusable)? {
        return Err(Failure::usage(anyhow!(
            "{} ends in the middle of a line, as after a crash: take that line away, as `sed -i '$d'` \
             does, and go on behind the event of the one before",
            file.display()
        )));
    }
    Ok(opened)
}

fn ends_within_a_line(file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    let Some(at) = found.len().checked_sub(1).filter(|_| found.is_file()) else {
        return Ok(false);
    };
    let mut last = [0];
    file.read_exact_at(&mut last, at)?;
    Ok(last != *b"\n")
}

async fn export(
    args: &Args,
    gateway: &Gateway,
    sheet: &mut Sheet,
    mut bar: Option<&mut Bar>,
) -> Result<(), Failure> {
    let now = now();
    let until = [args.until.map(|until| until.ago(now)), args.after.map(just_after)];
    let until = until.into_iter().flatten().min();
    let parameters = [
        ("type", args.kind.clone()),
        ("since", args.since.map(|since| since.ago(now).to_string())),
        ("until", until.map(|until| until.to_string())),
    ];
    let parameters: Vec<(&str, String)> =
        parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let mut cursor = None;
    loop {
        let page = get(gateway, &page_path("/v1/events", &parameters, PAGE, cursor)).await?;
        let mut ids = Vec::with_capacity(PAGE);
        for event in entries(&page) {
            let id: Option<EventId> = event["id"].as_str().and_then(|id| id.parse().ok());
            let id = id.ok_or_else(|| anyhow!("{} lists an event without id", gateway.url()))?;
            if args.after.is_none_or(|after| id < after) {
                ids.push(id);
            }
        }
        let lines = ids.into_iter().map(async |id| (id, line(args, gateway, id).await));
        let mut lines = stream::iter(lines).buffered(CONCURRENT);
        while let Some((id, line)) = lines.next().await {
            sheet.add(id, line?.as_deref())?;
            if let Some(bar) = &mut bar {
                bar.tell(sheet.added(), None);
            }
        }
        sheet.put()?;
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// One event as a line, unless it is gone meanwhile.
async fn line(args: &Args, gateway: &Gateway, id: EventId) -> Result<Option<String>, Failure> {
    let base = format!("/v1/events/{id}");
    let Some(mut event) = find(gateway, &base).await? else { return Ok(None) };
    let Some(body) = find_bytes(gateway, &format!("{base}/payload")).await? else {
        return Ok(None);
    };
    if args.deliveries {
        event["deliveries"] = Value::Array(deliveries(gateway, &base).await?);
    }
    let mut line = event.to_string();
    line.pop();
    Ok(Some(format!("{line},{}}}", payload::field(&body))))
}

/// The deliveries of an event with all their attempts.
async fn deliveries(gateway: &Gateway, base: &str) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    let mut cursor = None;
    loop {
        let path = page_path(&format!("{base}/deliveries"), &[], DELIVERIES, cursor);
        let page = get(gateway, &path).await?;
        for delivery in entries(&page) {
            let id = delivery["id"].as_str().unwrap_or_default();
            // One that was purged meanwhile is shown as it was listed.
            let whole = find(gateway, &format!("/v1/deliveries/{id}")).await?;
            all.push(whole.unwrap_or_else(|| delivery.clone()));
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

async fn get(gateway: &Gateway, path: &str) -> Result<Value, Failure> {
    let answer = persist(|| gateway.request(Method::GET, path, None)).await;
    answer.map_err(refused)
}

/// What is not there any more is nothing.
async fn find(gateway: &Gateway, path: &str) -> Result<Option<Value>, Failure> {
    found(persist(|| gateway.request(Method::GET, path, None)).await)
}

async fn find_bytes(gateway: &Gateway, path: &str) -> Result<Option<bytes::Bytes>, Failure> {
    found(persist(|| gateway.bytes(path)).await)
}

fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Refused { status: 404, .. }) => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

/// Asks again for a while: an export takes long enough for a gateway to be restarted.
async fn persist<T>(ask: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        match ask().await {
            Err(error) if error.is_temporary() && tries < MAX_TRIES => {
                let wait = SHORTEST_WAIT.saturating_mul(tries);
                tokio::time::sleep(error.retry_after().unwrap_or_default().max(wait)).await;
            }
            answered => return answered,
        }
    }
}

/// The first time whose events all come later than this one. Events are listed by time, and ids
/// grow with it.
fn just_after(id: EventId) -> Timestamp {
    let (mut low, mut high) = (Timestamp::MIN.as_millis(), Timestamp::MAX.as_millis());
    while low < high {
        let middle = low.midpoint(high);
        if EventId::floor(Timestamp::from_millis(middle)) > id {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Timestamp::from_millis(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_behind_an_event_is_the_next_millisecond() {
        for millis in [1_704_067_200_000, 1_767_225_600_050, 1_800_000_000_000] {
            let at = Timestamp::from_millis(millis);
            let next = Timestamp::from_millis(millis + 1);
            let first = EventId::floor(at);
            assert_eq!(just_after(first), next);
            let last = EventId::from_i64(EventId::floor(next).as_i64() - 1);
            assert_eq!(just_after(last), next);
        }
    }
}
