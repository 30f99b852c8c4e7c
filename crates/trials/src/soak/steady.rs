//! The soak: a steady load on endpoints of every manner, looked at every few seconds. At each look
//! what was received has to be what has ended and what waits; over time nothing may grow.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use super::books::Balance;
use super::chart::{Chart, Panel, Series};
use super::findings::{Finding, Weight, thousands};
use super::mix::Mix;
use super::passage::Passage;
use super::producer::{Acknowledged, Producers};
use super::stand::{Setting, Stand};
use super::vitals::{Vitals, growth_of_second_half};

/// How long the load lasts, and how it is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) lasts: Duration,
    pub(crate) per_second: u32,
    pub(crate) looked_at_every: Duration,
    /// The longest a delivery is tried.
    pub(crate) age: Duration,
    /// How long is waited for connections that nobody uses to be closed.
    pub(crate) let_go_within: Duration,
}

/// What may the line through the second half of the samples rise by.
const MOST_MEMORY_GROWTH: f64 = 1.10;
const MOST_DESCRIPTOR_GROWTH: f64 = 1.25;
/// Descriptors more than at the start that may be left when nothing is under way.
const DESCRIPTORS_LEFT: u64 = 8;
/// How long what waits at the end of the load may take to end, beyond its age.
const ENDED_WITHIN: Duration = Duration::from_mins(1);
const LET_GO_POLL: Duration = Duration::from_millis(500);

/// As `/v1/stats` calls them.
const STATES: [&str; 7] =
    ["pending", "in_flight", "retrying", "delivered", "failed", "dead", "cancelled"];

/// What a soak came to.
#[derive(Debug, Serialize)]
pub(crate) struct Soaked {
    pub(crate) findings: Vec<Finding>,
    samples: Vec<Sample>,
}

/// One look.
#[derive(Debug, Clone, Serialize)]
struct Sample {
    /// Since the start of the load.
    at_seconds: f64,
    resident_mebibytes: f64,
    descriptors: u64,
    threads: u64,
    /// Of one core, since the look before.
    processor_percent: f64,
    /// Deliveries of events that were acknowledged.
    received: u64,
    events_acknowledged: u64,
    refused: u64,
    balance: Balance,
    accepted_per_second: f64,
    ended_per_second: f64,
    /// Of the healthy endpoint, of what was sent between the two looks before this one.
    healthy_p99_milliseconds: Option<f64>,
    /// As `/v1/stats` says, which is not one moment.
    stats_deliveries: u64,
    stats_in_flight: u64,
    in_memory: f64,
    store_errors: f64,
}

impl Sample {
    fn adds_up(&self) -> bool {
        self.received == self.balance.terminal() + self.balance.waiting()
    }

    fn rows_agree(&self) -> bool {
        self.balance.unfinished_rows == self.balance.waiting()
    }

    fn all_events_are_stored(&self) -> bool {
        self.events_acknowledged == self.balance.events
    }
}

pub(crate) async fn soak(setting: &Setting, plan: Plan) -> Result<Soaked> {
    let mut stand = Stand::start(setting, "soak").await?;
    let soaked = load_and_look(&mut stand, plan).await;
    let soaked = soaked.with_context(|| stand.gateway.last_words())?;
    stand.stop().await?;
    Ok(soaked)
}

async fn load_and_look(stand: &mut Stand, plan: Plan) -> Result<Soaked> {
    let mix = Mix::set_up(stand, plan.per_second, plan.age, plan.lasts).await?;
    let before = stand.vitals()?;
    let mut producers = Producers::start(&stand.gateway.events()?, &mix.streams).await?;
    let mut looks = Looks::new(before);
    let healthy = mix.healthy()?.passage.clone();
    let mut clock = interval(plan.looked_at_every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    clock.tick().await;
    while looks.started.elapsed() < plan.lasts {
        clock.tick().await;
        producers.check()?;
        // Nothing is sent while the books are read, so what was acknowledged is what is stored.
        let (acknowledged, held) = producers.hold().await;
        let balance = stand.books.balance().await?;
        drop(held);
        looks.look(stand, acknowledged, balance, &healthy).await?;
    }
    let acknowledged = producers.stop().await?;
    let ended = stand.until_all_ended(plan.age + ENDED_WITHIN).await?;
    looks.look(stand, acknowledged, ended, &healthy).await?;
    let left = until_let_go(stand, before, plan.let_go_within).await?;
    let audit = stand.books.audit().await?;

    let mut findings = promises(&looks.samples, acknowledged, ended, audit);
    let accepted = healthy.accepted();
    findings.push(Finding::equal(
        "healthy endpoint: arrived = accepted",
        healthy.arrivals.unique(),
        accepted,
    ));
    findings.push(Finding::equal("ordered endpoint: out of order", mix.out_of_order(), 0));
    findings.extend(growth(&looks.samples));
    findings.push(Finding {
        what: "descriptors after the load, at the start".into(),
        found: format!("{}, {}", left.descriptors, before.descriptors),
        wanted: format!("≤ {DESCRIPTORS_LEFT} more"),
        weight: Weight::Figure,
        holds: Some(left.descriptors <= before.descriptors + DESCRIPTORS_LEFT),
    });
    findings.extend(remarks(&looks.samples, &mix, ended, acknowledged));
    Ok(Soaked { findings, samples: looks.samples })
}

/// The looks so far.
struct Looks {
    started: Instant,
    samples: Vec<Sample>,
    last: Vitals,
    last_at: Duration,
    /// Up to which number of the healthy stream the last two looks went.
    healthy: [u64; 2],
}

impl Looks {
    fn new(before: Vitals) -> Self {
        Self {
            started: Instant::now(),
            samples: Vec::new(),
            last: before,
            last_at: Duration::ZERO,
            healthy: [0; 2],
        }
    }

    async fn look(
        &mut self,
        stand: &mut Stand,
        acknowledged: Acknowledged,
        balance: Balance,
        healthy: &Passage,
    ) -> Result<()> {
        let vitals = stand.vitals()?;
        let stats = stand.gateway.read("/v1/stats").await?;
        let in_stats = |state: &str| stats["deliveries"][state].as_u64().unwrap_or_default();
        let at = self.started.elapsed();
        let seconds = at.saturating_sub(self.last_at).as_secs_f64().max(1e-3);
        let (received_before, ended_before) = self
            .samples
            .last()
            .map_or((0, 0), |sample| (sample.received, sample.balance.terminal()));
        let rate = |now: u64, before: u64| whole(now.saturating_sub(before)) / seconds;
        let p99 = healthy.times(self.healthy[0]..self.healthy[1], Instant::now()).percentile(99);
        let processor = vitals.processor.saturating_sub(self.last.processor);
        self.samples.push(Sample {
            at_seconds: at.as_secs_f64(),
            resident_mebibytes: vitals.resident_mebibytes,
            descriptors: vitals.descriptors,
            threads: vitals.threads,
            processor_percent: processor.as_secs_f64() / seconds * 100.0,
            received: acknowledged.deliveries,
            events_acknowledged: acknowledged.events,
            refused: acknowledged.refused,
            balance,
            accepted_per_second: rate(acknowledged.deliveries, received_before),
            ended_per_second: rate(balance.terminal(), ended_before),
            healthy_p99_milliseconds: p99.map(|time| time.as_secs_f64() * 1e3),
            stats_deliveries: STATES.into_iter().map(in_stats).sum(),
            stats_in_flight: in_stats("in_flight"),
            in_memory: stand.metric("postrider_deliveries_in_memory").await?,
            store_errors: stand.metric("postrider_store_errors_total").await?,
        });
        self.healthy = [self.healthy[1], healthy.departed()];
        (self.last, self.last_at) = (vitals, at);
        Ok(())
    }
}

/// Waits until connections that nobody uses have been closed.
async fn until_let_go(stand: &mut Stand, before: Vitals, patience: Duration) -> Result<Vitals> {
    let started = Instant::now();
    let mut poll = interval(LET_GO_POLL);
    loop {
        poll.tick().await;
        let vitals = stand.vitals()?;
        let let_go = vitals.descriptors <= before.descriptors + DESCRIPTORS_LEFT;
        if let_go || started.elapsed() > patience {
            return Ok(vitals);
        }
    }
}

fn promises(
    samples: &[Sample],
    acknowledged: Acknowledged,
    ended: Balance,
    audit: Balance,
) -> Vec<Finding> {
    let at_every = |what: &str, holds: fn(&Sample) -> bool| {
        let (all, good) = (samples.len(), samples.iter().filter(|sample| holds(sample)).count());
        let wanted = format!("all {all}");
        Finding::promise(what, format!("at {good} samples"), wanted, good == all && all > 0)
    };
    vec![
        at_every("received = terminal + waiting", Sample::adds_up),
        at_every("rows that wait = waiting", Sample::rows_agree),
        at_every("events stored = events acknowledged", Sample::all_events_are_stored),
        Finding::equal("waiting when the load is over and old", ended.waiting(), 0),
        Finding::equal(
            "every row: ended deliveries = received",
            audit.terminal(),
            acknowledged.deliveries,
        ),
        Finding::equal(
            "every row: deliveries of events = received",
            audit.promised,
            acknowledged.deliveries,
        ),
    ]
}

fn growth(samples: &[Sample]) -> Vec<Finding> {
    // The last look is at a gateway that has nothing to do.
    let loaded = &samples[..samples.len().saturating_sub(1)];
    let growth_of = |figure: fn(&Sample) -> f64| {
        let points: Vec<_> = loaded.iter().map(|at| (at.at_seconds, figure(at))).collect();
        growth_of_second_half(&points)
    };
    vec![
        Finding::at_most(
            "resident memory, rise over the second half, ratio",
            growth_of(|sample| sample.resident_mebibytes),
            MOST_MEMORY_GROWTH,
        ),
        Finding::at_most(
            "descriptors, rise over the second half, ratio",
            growth_of(|sample| whole(sample.descriptors)),
            MOST_DESCRIPTOR_GROWTH,
        ),
    ]
}

fn remarks(
    samples: &[Sample],
    mix: &Mix,
    ended: Balance,
    acknowledged: Acknowledged,
) -> Vec<Finding> {
    let most = |figure: fn(&Sample) -> f64| samples.iter().map(figure).fold(0.0, f64::max);
    let p99s: Vec<f64> =
        samples.iter().filter_map(|sample| sample.healthy_p99_milliseconds).collect();
    let (first, second) = p99s.split_at(p99s.len() / 2);
    let by_stats = samples.iter().filter(|sample| sample.stats_deliveries == sample.received);
    let memory = most(|sample| sample.resident_mebibytes);
    let mut remarks = vec![
        Finding::remark("events acknowledged", thousands(acknowledged.events)),
        Finding::remark("refused with a Retry-After", thousands(acknowledged.refused)),
        Finding::remark(
            "delivered, failed, dead",
            format!(
                "{}, {}, {}",
                thousands(ended.delivered),
                thousands(ended.failed),
                thousands(ended.dead)
            ),
        ),
        Finding::remark("resident memory, most", format!("{memory:.1} MiB")),
        Finding::remark("descriptors, most", format!("{:.0}", most(|at| whole(at.descriptors)))),
        Finding::remark("threads, most", format!("{:.0}", most(|sample| whole(sample.threads)))),
        Finding::remark("waiting, most", format!("{:.0}", most(|at| whole(at.balance.waiting())))),
        Finding::remark(
            "healthy endpoint, median p99 of the first and the second half",
            format!("{}, {}", milliseconds(median(first)), milliseconds(median(second))),
        ),
        Finding::remark(
            "/v1/stats added up as well",
            format!("at {} of {} samples", by_stats.count(), samples.len()),
        ),
    ];
    for (kind, place) in &mix.places {
        let (requests, most) = (thousands(place.seen.requests()), place.seen.most_flying());
        let found = format!("{requests} requests, {most} at one time at most");
        remarks.push(Finding::remark(*kind, found));
    }
    remarks
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn milliseconds(value: Option<f64>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| format!("{value:.2} ms"))
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn whole(count: u64) -> f64 {
    count as f64
}

impl Soaked {
    /// How it went, as a picture.
    pub(crate) fn chart(&self, title: String) -> Chart {
        let series = |name: &str, figure: fn(&Sample) -> f64| Series {
            name: name.to_owned(),
            points: self.samples.iter().map(|at| (at.at_seconds / 60.0, figure(at))).collect(),
        };
        let panel = |title: &str, series: Vec<Series>| Panel { title: title.to_owned(), series };
        let measured = |at: &Sample| Some((at.at_seconds / 60.0, at.healthy_p99_milliseconds?));
        let p99 = self.samples.iter().filter_map(measured).collect();
        let p99 = Series { name: "p99".to_owned(), points: p99 };
        Chart {
            title,
            across: "minutes since the start of the load",
            panels: vec![
                panel(
                    "resident memory, MiB",
                    vec![series("memory", |sample| sample.resident_mebibytes)],
                ),
                panel(
                    "open file descriptors",
                    vec![series("descriptors", |sample| whole(sample.descriptors))],
                ),
                panel(
                    "deliveries that wait",
                    vec![series("waiting", |sample| whole(sample.balance.waiting()))],
                ),
                panel(
                    "deliveries a second",
                    vec![
                        series("received", |sample| sample.accepted_per_second),
                        series("ended", |sample| sample.ended_per_second),
                    ],
                ),
                panel("healthy endpoint, p99, ms", vec![p99]),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(received: u64, balance: Balance) -> Sample {
        Sample {
            at_seconds: 1.0,
            resident_mebibytes: 50.0,
            descriptors: 20,
            threads: 4,
            processor_percent: 10.0,
            received,
            events_acknowledged: balance.events,
            refused: 0,
            balance,
            accepted_per_second: 1.0,
            ended_per_second: 1.0,
            healthy_p99_milliseconds: Some(2.0),
            stats_deliveries: received,
            stats_in_flight: 0,
            in_memory: 0.0,
            store_errors: 0.0,
        }
    }

    #[test]
    fn one_delivery_that_is_nowhere_breaks_the_promise() {
        let whole = Balance {
            events: 4,
            delivered: 2,
            dead: 1,
            pending: 1,
            unfinished_rows: 1,
            ..Balance::default()
        };
        let acknowledged = Acknowledged { events: 4, deliveries: 4, refused: 0 };
        let ended = Balance { delivered: 3, dead: 1, promised: 4, ..Balance::default() };
        for (second, ended, broken) in [
            (whole, ended, 0),
            (Balance { delivered: 1, ..whole }, ended, 1),
            (Balance { unfinished_rows: 0, ..whole }, ended, 1),
            (whole, Balance { delivered: 2, retrying: 1, ..ended }, 2),
            (whole, Balance { promised: 3, ..ended }, 1),
        ] {
            let samples = [sample(4, whole), sample(4, second)];
            let findings = promises(&samples, acknowledged, ended, ended);
            let found = findings.iter().filter(|finding| finding.holds == Some(false)).count();
            assert_eq!(found, broken, "{findings:?}");
        }
        let none = promises(&[], acknowledged, ended, ended);
        assert!(
            none.iter().any(|finding| finding.holds == Some(false)),
            "no sample proves nothing"
        );
    }

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }
}
