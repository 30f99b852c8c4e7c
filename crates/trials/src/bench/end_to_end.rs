//! How many events a second go all the way, from the producer's post to the sink, kept up without
//! the backlog growing: the gateway beside a pass-through that stores nothing, and beside one that
//! stores by hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde_json::json;
use tokio::time::sleep;

use super::Setting;
use super::connection::Target;
use super::event;
use super::gateway::Gateway;
use super::load::{CONNECTIONS, Producers};
use super::peer::Peer;
use super::process::{Process, Usage};
use super::report::{Figure, Row, Wanted};
use super::sample::{per_second, share};
use super::sink::{Arrivals, Manner, Sink};

/// More numbers than any run can use.
pub(crate) const MAX_EVENTS: usize = 1 << 22;
const ALL_ARRIVED_WITHIN: Duration = Duration::from_mins(3);
/// The backlog grows if more than this part of what was accepted in the run was added to it.
pub(crate) const MOST_ADDED_PERCENT: f64 = 2.0;
/// How often the gateway is measured.
const TURNS: u32 = 2;
const KIND: &str = "bench.live";

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    // By turns, because a shared machine is not as fast in one minute as in the next: the pass-through
    // before, between and after.
    let passed_sink = Sink::start(Manner::Answer, MAX_EVENTS).await?;
    let pass = Peer::pass(passed_sink.address)?;
    let first = passed(&pass, &passed_sink, setting).await?;

    let sink = Sink::start(Manner::Answer, MAX_EVENTS).await?;
    let gateway = Gateway::start(&setting.binary, &setting.folder.join("end-to-end")).await?;
    let endpoint =
        gateway.create_endpoint(&json!({"url": sink.url(), "event_types": ["*"]})).await?;
    let events = gateway.events()?;
    let stored_sink = Sink::start(Manner::Answer, MAX_EVENTS).await?;
    let data = setting.folder.join("end-to-end-by-hand");
    let storing = Peer::by_hand(Some(stored_sink.address), &data).await?;
    let (mut carried, mut stored, mut limit) = (None, None, first);
    for _ in 0..TURNS {
        let turn = passed(&storing, &stored_sink, setting).await?;
        stored = Some(stored.map_or(turn, |stored: Carried| stored.mean(&turn)));
        let turn = carry(&events, &gateway.process, &sink.arrivals, setting.sustained, setting)
            .await
            .with_context(|| gateway.last_words())?;
        carried = Some(carried.map_or(turn, |carried: Carried| carried.mean(&turn)));
        limit = limit.mean(&passed(&pass, &passed_sink, setting).await?);
    }
    let carried = carried.context("nothing was carried")?;
    let stored = stored.context("nothing was stored by hand")?;
    gateway.until_settled(&endpoint).await?;
    ensure!(sink.arrivals.repeated() == 0, "{} events came twice", sink.arrivals.repeated());
    gateway.stop().await?;

    let mut rows = vec![
        Row::new(
            "end to end",
            Figure::per_second(carried.per_second),
            Some(Figure::per_second(limit.per_second)),
            Wanted::RatioAtLeast(0.6),
        ),
        Row::new(
            "end to end: beside a pass-through that stores by hand",
            Figure::per_second(carried.per_second),
            Some(Figure::per_second(stored.per_second)),
            Wanted::Nothing,
        ),
        Row::new(
            "end to end: that one beside the pass-through",
            Figure::per_second(stored.per_second),
            Some(Figure::per_second(limit.per_second)),
            Wanted::Nothing,
        ),
        Row::new(
            "end to end: added to the backlog, of what was accepted",
            Figure::percent(carried.added_percent),
            None,
            Wanted::FigureAtMost(MOST_ADDED_PERCENT),
        ),
    ];
    if let (Some(usage), Some(processor)) = (carried.usage, carried.processor) {
        rows.extend([
            Row::new(
                "end to end: processor time an event",
                Figure::microseconds(processor),
                limit.processor.map(Figure::microseconds),
                Wanted::Nothing,
            ),
            Row::new(
                "end to end: the same, beside storing by hand",
                Figure::microseconds(processor),
                stored.processor.map(Figure::microseconds),
                Wanted::Nothing,
            ),
            Row::new(
                "end to end: resident memory, peak",
                Figure::mebibytes(usage.peak_mebibytes),
                None,
                Wanted::FigureAtMost(100.0),
            ),
        ]);
    }
    Ok(rows)
}

async fn passed(pass: &Peer, sink: &Sink, setting: &Setting) -> Result<Carried> {
    let half = setting.sustained / 2;
    let carried = carry(&pass.target()?, &pass.process, &sink.arrivals, half, setting).await;
    carried.context("the pass-through")
}

/// What a run of [`carry`] came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carried {
    /// Of how many it is the mean.
    pub(crate) runs: u32,
    /// Arrivals a second while producers kept on.
    pub(crate) per_second: f64,
    /// The part of what was accepted meanwhile that had not arrived when the time was up and had
    /// not been waiting at its start.
    pub(crate) added_percent: f64,
    /// The carriers' processor time for each event that arrived.
    pub(crate) processor: Option<Duration>,
    /// Of the carriers, when the time was up.
    pub(crate) usage: Option<Usage>,
}

impl Carried {
    /// Of this one, and another as long: of two runs, or of what some came to and one more.
    pub(crate) fn mean(&self, other: &Self) -> Self {
        let (mine, others) = (f64::from(self.runs), f64::from(other.runs));
        let mean = |one: f64, two: f64| (one * mine + two * others) / (mine + others);
        let processor = self.processor.zip(other.processor);
        Self {
            runs: self.runs + other.runs,
            per_second: mean(self.per_second, other.per_second),
            added_percent: self.added_percent.max(other.added_percent),
            processor: processor.map(|(one, two)| {
                Duration::from_secs_f64(mean(one.as_secs_f64(), two.as_secs_f64()))
            }),
            usage: other.usage,
        }
    }
}

/// Lets producers post to `target` for `time` and counts the arrivals; returns once everything that
/// was accepted has arrived.
pub(crate) async fn carry(
    target: &Target,
    carrier: &Process,
    arrivals: &Arc<Arrivals>,
    time: Duration,
    setting: &Setting,
) -> Result<Carried> {
    let route = Route {
        targets: std::slice::from_ref(target),
        carriers: &[carrier],
        kinds: [KIND.to_owned()].into(),
    };
    carry_along(&route, arrivals, time, setting).await
}

/// Where producers post what, and who carries it.
#[derive(Debug)]
pub(crate) struct Route<'a> {
    pub(crate) targets: &'a [Target],
    pub(crate) carriers: &'a [&'a Process],
    /// The types of the events, in turns.
    pub(crate) kinds: Arc<[String]>,
}

impl Route<'_> {
    fn next(&self, arrivals: &Arc<Arrivals>) -> impl Fn() -> Option<Bytes> + Send + Sync + 'static {
        let (kinds, numbers) = (Arc::clone(&self.kinds), Arc::clone(arrivals));
        let count = kinds.len() as u64;
        move || {
            let number = numbers.take_number()?;
            let kind = kinds.get(usize::try_from(number.checked_rem(count)?).ok()?)?;
            Some(event::single(kind, number))
        }
    }

    /// Of all carriers together.
    fn usage(&self) -> Option<Usage> {
        let usages = self.carriers.iter().map(|carrier| carrier.usage());
        usages.reduce(|sum, usage| Some(sum?.plus(usage?))).flatten()
    }
}

/// The same with several targets, carriers and types of events.
pub(crate) async fn carry_along(
    route: &Route<'_>,
    arrivals: &Arc<Arrivals>,
    time: Duration,
    setting: &Setting,
) -> Result<Carried> {
    let earlier = arrivals.unique();
    let producers = Producers::start(route.targets, CONNECTIONS, route.next(arrivals)).await?;
    sleep(setting.warm_up).await;
    let (before, accepted_before) = (arrivals.unique(), producers.accepted());
    let (usage_before, started) = (route.usage(), Instant::now());
    sleep(time).await;
    let (after, accepted_after) = (arrivals.unique(), producers.accepted());
    let (usage, elapsed) = (route.usage(), started.elapsed());
    let produced = producers.stop().await?;
    arrivals.reach(earlier + produced.accepted, ALL_ARRIVED_WITHIN).await?;

    let (arrived, accepted) = (after - before, accepted_after - accepted_before);
    ensure!(arrived > 0 && accepted > 0, "nothing was carried");
    Ok(Carried {
        runs: 1,
        per_second: per_second(arrived, elapsed),
        added_percent: share(accepted.saturating_sub(arrived), accepted) * 100.0,
        processor: usage_before.zip(usage).and_then(|(before, after)| {
            Some(after.processor.checked_sub(before.processor)? / u32::try_from(arrived).ok()?)
        }),
        usage,
    })
}
