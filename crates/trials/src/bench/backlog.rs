//! Whether what waits for later slows what goes now: the end-to-end rate with millions of
//! deliveries waiting, beside the rate with none; and what those cost in memory and at start-up.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use postrider_core::{EndpointId, Timestamp};
use postrider_store::Journal as _;
use postrider_store::journal::Page;
use serde_json::json;

use super::Setting;
use super::end_to_end::{Carried, MAX_EVENTS, carry};
use super::event;
use super::gateway::Gateway;
use super::load::Producers;
use super::report::{Figure, Row, Wanted};
use super::sink::{Manner, Sink};
use super::store_cycle;

const BATCH: u64 = 1_000;
const PRELOADERS: usize = 4;
/// The deliveries that are looked for among the others: they are due sooner.
const DUE: u64 = 1_000;
const SOONER: Duration = Duration::from_hours(24);
const LATER: Duration = Duration::from_hours(48);
const BETWEEN: Duration = Duration::from_hours(36);
const SEARCHES: usize = 10;

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let [some, many] = setting.backlogs;
    let data = setting.folder.join("backlog");
    let sink = Sink::start(Manner::Answer, MAX_EVENTS).await?;
    let gateway = Gateway::start(&setting.binary, &data).await?;
    let live = json!({"url": sink.url(), "event_types": ["bench.live"]});
    let live = gateway.create_endpoint(&live).await?;
    let later = json!({"url": sink.url(), "event_types": ["later.*"]});
    let later = gateway.create_endpoint(&later).await?;

    let empty = carry_live(&gateway, &sink, &live, setting).await?;
    let now = now();
    preload(&gateway, 0..DUE, now.plus(SOONER)).await?;
    preload(&gateway, DUE..some, now.plus(LATER)).await?;
    gateway.stop().await?;
    let gateway = Gateway::start(&setting.binary, &data).await?;
    let start_up = gateway.start_up;
    let with_some = carry_live(&gateway, &sink, &live, setting).await?;
    preload(&gateway, some..many, now.plus(LATER)).await?;
    gateway.stop().await?;
    let gateway = Gateway::start(&setting.binary, &data).await?;
    let with_many = carry_live(&gateway, &sink, &live, setting).await?;
    gateway.stop().await?;
    ensure!(sink.arrivals.repeated() == 0, "{} events came twice", sink.arrivals.repeated());
    let search = search(&data, later.parse()?, now.plus(BETWEEN)).await?;

    let rate = |waiting, carried: Carried| {
        Row::new(
            format!("end to end, {} waiting", in_words(waiting)),
            Figure::per_second(carried.per_second),
            Some(Figure::per_second(empty.per_second)),
            Wanted::RatioAtLeast(0.9),
        )
    };
    let mut rows = vec![rate(some, with_some), rate(many, with_many)];
    if let Some(usage) = with_some.usage {
        rows.push(Row::new(
            format!("resident memory, peak, {} waiting", in_words(some)),
            Figure::mebibytes(usage.peak_mebibytes),
            None,
            Wanted::FigureAtMost(200.0),
        ));
    }
    rows.extend([
        Row::new(
            format!("start-up, {} waiting", in_words(some)),
            Figure::seconds(start_up),
            None,
            Wanted::FigureAtMost(3.0),
        ),
        Row::new(
            format!("finding {DUE} due among {}", in_words(many)),
            Figure::milliseconds(search),
            None,
            Wanted::FigureAtMost(20.0),
        ),
    ]);
    Ok(rows)
}

async fn carry_live(
    gateway: &Gateway,
    sink: &Sink,
    endpoint: &str,
    setting: &Setting,
) -> Result<Carried> {
    let events = gateway.events()?;
    let carried = carry(&events, &gateway.process, &sink.arrivals, setting.sustained, setting)
        .await
        .with_context(|| gateway.last_words())?;
    gateway.until_settled(endpoint).await?;
    Ok(carried)
}

/// Events that wait until `deliver_at`, as producers would have sent them.
async fn preload(
    gateway: &Gateway,
    numbers: std::ops::Range<u64>,
    deliver_at: Timestamp,
) -> Result<()> {
    let batches = (numbers.end - numbers.start).div_ceil(BATCH);
    let next = AtomicU64::new(numbers.start);
    let end = numbers.end;
    let body = move || {
        let first = next.fetch_add(BATCH, Ordering::Relaxed);
        (first < end).then(|| event::batch("later.some", first..end.min(first + BATCH), deliver_at))
    };
    let producers = Producers::start(&[gateway.batches()?], PRELOADERS, body).await?;
    let produced = producers.finish().await.with_context(|| gateway.last_words())?;
    ensure!(
        produced.accepted == batches && produced.refused == 0,
        "{} of {batches} batches were accepted",
        produced.accepted
    );
    Ok(())
}

/// The longest of several searches for what is due by `now`, through the store's own page.
async fn search(data: &Path, endpoint: EndpointId, now: Timestamp) -> Result<Duration> {
    let store = store_cycle::open(data)?;
    let mut longest = Duration::ZERO;
    for _ in 0..SEARCHES {
        let limit = usize::try_from(DUE)?;
        let page = Page {
            endpoint,
            now,
            limit,
            max_bytes: usize::MAX,
            held: Vec::new(),
            event_types: Vec::new(),
        };
        let started = Instant::now();
        let paged = store.page(page).await?;
        longest = longest.max(started.elapsed());
        ensure!(paged.waiting.len() == limit, "{} of {DUE} due were found", paged.waiting.len());
    }
    store.close().await;
    Ok(longest)
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

pub(crate) fn in_words(count: u64) -> String {
    if count.is_multiple_of(1_000_000) {
        format!("{} M", count / 1_000_000)
    } else {
        format!("{} k", count / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short_in_words() {
        assert_eq!(in_words(200_000), "200 k");
        assert_eq!(in_words(5_000_000), "5 M");
    }
}
