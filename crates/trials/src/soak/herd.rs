//! A herd: very many deliveries, due at one moment, whose endpoints come back from an outage. Caps and
//! rates have to hold at the endpoints, it has to begin gently, and nobody else may be delayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use tokio::time::interval;

use super::chart::{Chart, Panel, Series};
use super::findings::{Finding, thousands};
use super::passage::Passage;
use super::place::{Manner, Place, STRETCH};
use super::producer::{Acknowledged, Order, Producers, Stream};
use super::stand::{Setting, Stand};
use crate::bench::backlog::now;
use crate::bench::event;
use crate::bench::load;
use crate::bench::sample::Sample;
use crate::bench::sink::Arrivals;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) size: u64,
    /// How long the healthy endpoint is looked at before anything happens.
    pub(crate) calm_for: Duration,
    /// How long after the herd's last event was stored, at least, the endpoints come back.
    pub(crate) out_for: Duration,
    pub(crate) delivered_within: Duration,
}

const HEALTHY: &str = "herd.healthy";
const HEALTHY_PER_SECOND: f64 = 100.0;
/// p99 of the healthy endpoint while the herd passes, beside before.
const MOST_DELAY: f64 = 5.0;
/// How long the endpoints of the herd take to answer.
const ANSWER_AFTER: Duration = Duration::from_millis(20);
/// What fails during the outage, so that breakers open.
const FAILING_PER_SECOND: f64 = 10.0;
const OPENED_WITHIN: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(100);
/// The most events that a batch may have, and how many batches there are at least.
const LARGEST_BATCH: u64 = 1_000;
const BATCHES: u64 = 50;
const LOADERS: usize = 4;
/// How long the herd's events take to be stored, at this many a second and a little more.
const STORED_PER_SECOND: u64 = 4_000;
const STORED_AT_LEAST: Duration = Duration::from_secs(2);
/// The endpoint with a rate is to take about this long.
const RATE_TAKES_SECONDS: u64 = 40;
const LEAST_RATE: u64 = 100;
const BURST: u64 = 20;
const CAP: u64 = 16;
/// What an endpoint has that says nothing else.
const USUAL_CAP: u64 = 128;
/// A rate is kept where requests are sent; on the way they may draw together by so much.
const MOST_DRAWN_TOGETHER: f64 = 0.5;
/// How many stretches after the return are shown.
const SHOWN_STRETCHES: usize = 12;
const DRAWN_STRETCHES: usize = 40;
const STRETCHES_PER_SECOND: usize = 10;
/// The longest run in seconds that the healthy stream has numbers for.
const LONGEST_SECONDS: usize = 3_600;

/// An endpoint of the herd.
struct Pen {
    kind: &'static str,
    endpoint: String,
    place: Place,
    cap: u64,
    per_second: Option<u64>,
    /// Where its outage ended.
    back_at: usize,
}

/// What a herd came to.
#[derive(Debug, Serialize)]
pub(crate) struct Herded {
    pub(crate) findings: Vec<Finding>,
    size: u64,
    stretch_milliseconds: u128,
    /// Requests in each stretch since the endpoints are back, by endpoint.
    arrivals: Vec<(&'static str, Vec<u32>)>,
}

pub(crate) async fn herd(setting: &Setting, plan: Plan) -> Result<Herded> {
    let stand = Stand::start(setting, "herd").await?;
    let herded = measure(&stand, plan).await.with_context(|| stand.gateway.last_words())?;
    stand.stop().await?;
    Ok(herded)
}

async fn measure(stand: &Stand, plan: Plan) -> Result<Herded> {
    let passage = Arc::new(Passage::new(numbers_of_healthy()));
    let healthy = Place::start(Manner::Healthy, Arc::clone(&passage.arrivals)).await?;
    let endpoint = json!({"url": healthy.url(), "event_types": [HEALTHY]});
    stand.gateway.create_endpoint(&endpoint).await?;
    let herd = Arc::new(Passage::new(numbers_of_herd(plan.size)?));
    let mut pens = make_pens(stand, plan, &herd.arrivals).await?;

    let target = stand.gateway.events()?;
    let stream = |kind, per_second, passage: &Arc<Passage>| Stream {
        kind,
        per_second,
        order: Order::Any,
        passage: Arc::clone(passage),
    };
    let calm = Producers::start(&target, &[stream(HEALTHY, HEALTHY_PER_SECOND, &passage)]).await?;
    tokio::time::sleep(plan.calm_for).await;
    let calm_until = passage.departed();

    // The outage: what is sent fails, and breakers open.
    let failing: Vec<Stream> =
        pens.iter().map(|pen| stream(pen.kind, FAILING_PER_SECOND, &herd)).collect();
    let failing = Producers::start(&target, &failing).await?;
    until_open(stand, &pens).await?;
    let failing = failing.stop().await?;
    let due_in = STORED_AT_LEAST + Duration::from_millis(plan.size * 1_000 / STORED_PER_SECOND);
    let due_at = Instant::now() + due_in;
    store_herd(stand, &pens, &herd, plan.size, now().plus(due_in)).await?;
    let stored_in_time = Instant::now() <= due_at;
    tokio::time::sleep_until(due_at.max(Instant::now() + plan.out_for).into()).await;

    let passing_from = passage.departed();
    for pen in &mut pens {
        pen.back_at = pen.place.seen.stretch();
        pen.place.seen.come_back();
    }
    let back = Instant::now();
    let wanted = plan.size + failing.events;
    // What does not arrive in time shows in the findings.
    let _ = herd.arrivals.reach(wanted, plan.delivered_within).await;
    let took = back.elapsed();
    let passing_until = passage.departed();
    let calm = calm.stop().await?;
    let ended = stand.until_all_ended(plan.delivered_within).await?;

    let mut findings = vec![
        Finding::equal("herd: arrived = accepted", herd.arrivals.unique(), wanted),
        Finding::equal("herd: arrived twice", herd.arrivals.repeated(), 0),
        Finding::equal("delivered = accepted", ended.delivered, wanted + calm.events),
        Finding::equal("healthy: arrived = accepted", passage.arrivals.unique(), calm.events),
    ];
    for pen in &pens {
        findings.extend(pen.findings());
    }
    let before = passage.times(0..calm_until, Instant::now());
    let during = passage.times(passing_from..passing_until, Instant::now());
    findings.extend(delay(&before, &during));
    findings.extend(remarks(&pens, plan, failing, took, stored_in_time));
    let arrivals = pens.iter().map(|pen| (pen.kind, pen.place.seen.by_stretch(pen.back_at)));
    let mut arrivals: Vec<_> = arrivals.collect();
    arrivals.push((HEALTHY, healthy.seen.by_stretch(healthy_stretch(&healthy, back))));
    Ok(Herded { findings, size: plan.size, stretch_milliseconds: STRETCH.as_millis(), arrivals })
}

/// The stretch of the healthy place in which the others came back.
fn healthy_stretch(healthy: &Place, back: Instant) -> usize {
    let since = usize::try_from(back.elapsed().as_millis() / STRETCH.as_millis());
    healthy.seen.stretch().saturating_sub(since.unwrap_or(usize::MAX))
}

async fn make_pens(stand: &Stand, plan: Plan, arrivals: &Arc<Arrivals>) -> Result<Vec<Pen>> {
    let rate = (plan.size / 5 / RATE_TAKES_SECONDS).max(LEAST_RATE);
    let mut pens = Vec::new();
    for (kind, cap, per_second, limits) in [
        ("herd.capped", CAP, None, json!({"max_in_flight": CAP})),
        (
            "herd.rated",
            USUAL_CAP,
            Some(rate),
            json!({"rate_limit": {"per_second": rate, "burst": BURST}}),
        ),
        ("herd.plain", USUAL_CAP, None, json!({})),
    ] {
        let place = Place::start(Manner::Out(ANSWER_AFTER), Arc::clone(arrivals)).await?;
        let mut endpoint = json!({
            "url": place.url(),
            "event_types": [kind],
            // Nothing is given up during the outage.
            "policy": {"schedule": {"list": ["1s"]}, "max_attempts": 1_000, "max_age": "1d"},
        });
        for (name, value) in limits.as_object().into_iter().flatten() {
            endpoint[name] = value.clone();
        }
        let endpoint = stand.gateway.create_endpoint(&endpoint).await?;
        pens.push(Pen { kind, endpoint, place, cap, per_second, back_at: 0 });
    }
    Ok(pens)
}

/// Which endpoint a batch of the herd is for: of five, two, one and two.
fn pen_of(index: u64) -> usize {
    match index % 5 {
        0 | 1 => 0,
        2 => 1,
        _ => 2,
    }
}

/// Waits until no endpoint of the herd is sent anything but a probe.
async fn until_open(stand: &Stand, pens: &[Pen]) -> Result<()> {
    let started = Instant::now();
    let mut poll = interval(POLL);
    for pen in pens {
        loop {
            poll.tick().await;
            let stats =
                stand.gateway.read(&format!("/v1/endpoints/{}/stats", pen.endpoint)).await?;
            let breaker = stats["health"]["breaker"].as_str().unwrap_or_default();
            if matches!(breaker, "open" | "half_open") {
                break;
            }
            ensure!(
                started.elapsed() < OPENED_WITHIN,
                "the breaker of {} is {breaker} after {OPENED_WITHIN:?} of failures",
                pen.kind
            );
        }
    }
    Ok(())
}

/// Events that are all due at `due`, in batches of one endpoint each.
async fn store_herd(
    stand: &Stand,
    pens: &[Pen],
    herd: &Arc<Passage>,
    size: u64,
    due: postrider_core::Timestamp,
) -> Result<()> {
    let first = herd.departed();
    for _ in 0..size {
        herd.depart().context("there are no more numbers for the herd")?;
    }
    let kinds: Vec<&'static str> = pens.iter().map(|pen| pen.kind).collect();
    let batch = (size / BATCHES).clamp(1, LARGEST_BATCH);
    let batches: Vec<(&'static str, std::ops::Range<u64>)> = (0..size.div_ceil(batch))
        .map(|index| {
            let numbers = first + index * batch..first + size.min((index + 1) * batch);
            (kinds[pen_of(index)], numbers)
        })
        .collect();
    let (wanted, next) = (batches.len() as u64, AtomicU64::new(0));
    let body = move || -> Option<Bytes> {
        let index = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok()?;
        let (kind, numbers) = batches.get(index)?;
        Some(event::batch(kind, numbers.clone(), due))
    };
    let loaders = load::Producers::start(&[stand.gateway.batches()?], LOADERS, body).await?;
    let produced = loaders.finish().await?;
    ensure!(
        produced.accepted == wanted && produced.refused == 0,
        "{} of {wanted} batches of the herd were accepted",
        produced.accepted
    );
    Ok(())
}

impl Pen {
    fn findings(&self) -> Vec<Finding> {
        let (kind, seen) = (self.kind, &self.place.seen);
        let most = seen.most_flying();
        let mut findings = vec![
            Finding::promise(
                format!("{kind}: most at one time"),
                thousands(most),
                format!("≤ {}", self.cap),
                most <= self.cap,
            ),
            Finding::promise(
                format!("{kind}: more at one time than answered and one more"),
                thousands(seen.too_steep()),
                "0",
                seen.too_steep() == 0,
            ),
        ];
        if let Some(per_second) = self.per_second {
            let by_stretch = seen.by_stretch(self.back_at);
            let most = most_in_a_second(&by_stretch);
            let allowed = whole(per_second) * (1.0 + MOST_DRAWN_TOGETHER) + whole(BURST);
            findings.push(Finding::at_most(
                format!("{kind}: most in any second, at {per_second}/s and a burst of {BURST}"),
                Some(whole(most)),
                allowed,
            ));
            let sum: u64 = by_stretch.iter().copied().map(u64::from).sum();
            // The first and the last stretch may have been shorter than whole.
            let stretches = u32::try_from(by_stretch.len()).unwrap_or(u32::MAX);
            let seconds = (STRETCH * stretches).as_secs_f64() + 2.0 * STRETCH.as_secs_f64();
            let allowed = whole(per_second) * seconds + whole(BURST);
            findings.push(Finding::promise(
                format!("{kind}: requests in the {seconds:.1} s of its return"),
                thousands(sum),
                format!("≤ {allowed:.0}"),
                whole(sum) <= allowed,
            ));
        }
        findings
    }
}

/// In any ten stretches that follow each other.
fn most_in_a_second(by_stretch: &[u32]) -> u64 {
    let wide = STRETCHES_PER_SECOND.min(by_stretch.len().max(1));
    let second = |stretches: &[u32]| stretches.iter().copied().map(u64::from).sum::<u64>();
    by_stretch.windows(wide).map(second).max().unwrap_or_default()
}

fn delay(before: &Sample, during: &Sample) -> Vec<Finding> {
    let ratio = |percent| {
        let before = before.percentile(percent)?.as_secs_f64();
        let during = during.percentile(percent)?.as_secs_f64();
        (before > 0.0).then(|| during / before)
    };
    let times = |sample: &Sample| {
        let shown = [50, 99, 100].into_iter().filter_map(|percent| {
            let time = sample.percentile(percent)?;
            Some(format!("p{percent} {:.2} ms", time.as_secs_f64() * 1e3))
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    let longest = during.percentile(100).map(|time| time.as_secs_f64());
    vec![
        Finding::at_most("healthy: p99 beside before, ratio", ratio(99), MOST_DELAY),
        Finding::at_most("healthy: longest while the herd passes, s", longest, 1.0),
        Finding::remark("healthy: before", times(before)),
        Finding::remark("healthy: while the herd passes", times(during)),
    ]
}

fn remarks(
    pens: &[Pen],
    plan: Plan,
    failing: Acknowledged,
    took: Duration,
    stored_in_time: bool,
) -> Vec<Finding> {
    let mut remarks = vec![
        Finding::remark("due at one moment", thousands(plan.size)),
        Finding::remark("failed and waiting beside them", thousands(failing.events)),
        Finding::remark("passed after", format!("{:.1} s", took.as_secs_f64())),
    ];
    if !stored_in_time {
        // They wait for the endpoints' return all the same.
        remarks.push(Finding::remark("stored", "later than they were due"));
    }
    for pen in pens {
        let by_stretch = pen.place.seen.by_stretch(pen.back_at);
        let begun = by_stretch.iter().position(|count| *count > 0).unwrap_or_default();
        let shown = by_stretch.iter().skip(begun).take(SHOWN_STRETCHES);
        let shown: Vec<String> = shown.map(ToString::to_string).collect();
        let what = format!("{}: requests in each {} ms at first", pen.kind, STRETCH.as_millis());
        remarks.push(Finding::remark(what, shown.join(" ")));
    }
    remarks
}

impl Herded {
    /// How it went, as a picture: by the second, and the beginning by stretches.
    pub(crate) fn chart(&self, title: String) -> Chart {
        let seconds = self.arrivals.iter().map(|(_, counts)| seconds_of(counts).len());
        let longest = seconds.max().unwrap_or_default();
        let by_second = self.arrivals.iter().map(|(kind, counts)| {
            let mut seconds = seconds_of(counts);
            // One that is done has none, which a line that ends would not say.
            seconds.resize(longest, 0);
            Series { name: (*kind).to_owned(), points: points(&seconds, 1.0) }
        });
        let herd = self.arrivals.iter().filter(|(kind, _)| *kind != HEALTHY);
        let begun = herd.map(|(kind, counts)| {
            let begun = counts.iter().position(|count| *count > 0).unwrap_or_default();
            let first = counts.iter().skip(begun).take(DRAWN_STRETCHES);
            let first: Vec<u64> = first.copied().map(u64::from).collect();
            let name = (*kind).to_owned();
            Panel {
                title: format!("{kind}: requests in each {} ms, at first", STRETCH.as_millis()),
                series: vec![Series { name, points: points(&first, STRETCH.as_secs_f64()) }],
            }
        });
        let mut panels =
            vec![Panel { title: "requests a second".to_owned(), series: by_second.collect() }];
        panels.extend(begun);
        Chart {
            title,
            across: "seconds since the endpoints are back, or since their first request",
            panels,
        }
    }
}

fn seconds_of(by_stretch: &[u32]) -> Vec<u64> {
    let second = |stretches: &[u32]| stretches.iter().copied().map(u64::from).sum();
    by_stretch.chunks(STRETCHES_PER_SECOND).map(second).collect()
}

fn points(counts: &[u64], apart: f64) -> Vec<(f64, f64)> {
    (0_u32..).zip(counts).map(|(index, n)| (f64::from(index) * apart, whole(*n))).collect()
}

fn numbers_of_healthy() -> usize {
    // A hundred a second.
    LONGEST_SECONDS * 100
}

/// The herd, and what fails before it.
fn numbers_of_herd(size: u64) -> Result<usize> {
    const BESIDE: usize = 10_000;
    Ok(usize::try_from(size)?.saturating_add(BESIDE))
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn whole(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_second_is_found_wherever_it_begins() {
        let mut by_stretch = vec![1; 40];
        by_stretch[15] = 30;
        by_stretch[24] = 30;
        assert_eq!(most_in_a_second(&by_stretch), 68);
        assert_eq!(most_in_a_second(&[3, 4]), 7);
        assert_eq!(most_in_a_second(&[]), 0);
        assert_eq!(seconds_of(&by_stretch), [10, 39, 39, 10]);
    }

    #[test]
    fn the_herd_is_split_two_one_two() {
        let pens: Vec<usize> = (0..10).map(pen_of).collect();
        assert_eq!(pens, [0, 0, 1, 2, 2, 0, 0, 1, 2, 2]);
    }

    #[test]
    fn a_delay_is_judged_by_its_ratio() {
        let times = |millis: u64| Sample::new(vec![Duration::from_millis(millis); 100]);
        for (before, during, holds) in [(2, 4, true), (2, 20, false), (300, 1_100, true)] {
            let findings = delay(&times(before), &times(during));
            assert_eq!(findings[0].holds, Some(holds), "{findings:?}");
        }
        let slow = delay(&times(300), &times(1_100));
        assert_eq!(slow[1].holds, Some(false), "{slow:?}");
        assert_eq!(delay(&times(2), &Sample::default())[0].holds, Some(false));
    }
}
