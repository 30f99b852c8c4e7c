//! Whether endpoints that hang to their deadline slow a healthy one: its p99 with them, beside its
//! p99 without them. Both are measured in the same seconds, on two gateways, because one pause of a shared
//! machine is longer than either.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::task::JoinSet;

use super::Setting;
use super::connection::Target;
use super::event;
use super::gateway::Gateway;
use super::latency::{arrivals_at, events_in};
use super::load;
use super::report::{Figure, Row, Wanted};
use super::sample::Sample;
use super::sink::{Manner, Sink};

const PER_SECOND: u32 = 100;
const HEALTHY: &str = "healthy.tick";
const HANGING: usize = 50;
/// Events that hang before the measurement starts, and the rate at which more come during it. With
/// the deadline they bound how many sockets hang at once.
const BURST: usize = 400;
const MORE_PER_SECOND: u32 = 50;
const DEADLINE: &str = "10s";
const BURST_TAKEN_WITHIN: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 8;

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let gateway = Gateway::start(&setting.binary, &setting.folder.join("isolation")).await?;
    let calm = Gateway::start(&setting.binary, &setting.folder.join("calm")).await?;
    let measured = compare(&gateway, &calm, setting).await.with_context(|| gateway.last_words());
    // Not asked to drain: it would wait for what hangs.
    drop(gateway);
    calm.stop().await?;
    measured
}

async fn compare(gateway: &Gateway, calm: &Gateway, setting: &Setting) -> Result<Vec<Row>> {
    let (beside, alone) = (Healthy::start(gateway, setting), Healthy::start(calm, setting));
    let (beside, alone) = (beside.await?, alone.await?);

    let more = events_in(setting.sustained, MORE_PER_SECOND);
    let hanging = Sink::start(Manner::Hang, BURST + more).await?;
    for index in 0..HANGING {
        let endpoint = json!({
            "url": hanging.url(), "event_types": [kind(index)], "timeout": DEADLINE,
        });
        gateway.create_endpoint(&endpoint).await?;
    }
    // One hanging request of each endpoint is proof that it hangs; the gateway may hold back more.
    post_hanging(&beside.target, BURST_PER_SECOND, 0..BURST).await?;
    hanging.arrivals.reach(HANGING as u64, BURST_TAKEN_WITHIN).await?;
    let mut background = JoinSet::new();
    let hanging_target = beside.target.clone();
    background.spawn(async move {
        post_hanging(&hanging_target, MORE_PER_SECOND, BURST..BURST + more).await
    });
    let (beside, alone) = tokio::try_join!(beside.measure(setting), alone.measure(setting))?;
    while let Some(ended) = background.join_next().await {
        ended??;
    }

    let figure = |percent| -> Result<(Figure, Figure)> {
        let beside = beside.percentile(percent).context("no event was measured")?;
        let alone = alone.percentile(percent).context("no event was measured")?;
        Ok((Figure::milliseconds(beside), Figure::milliseconds(alone)))
    };
    let ((p50, p50_alone), (p99, p99_alone)) = (figure(50)?, figure(99)?);
    let name = format!("isolation at {PER_SECOND}/s, {HANGING} endpoints hanging");
    Ok(vec![
        Row::new(format!("{name}, p50"), p50, Some(p50_alone), Wanted::Nothing),
        Row::new(format!("{name}, p99"), p99, Some(p99_alone), Wanted::RatioAtMost(1.5)),
    ])
}

/// An endpoint that answers at once, and who posts what goes to it.
struct Healthy {
    sink: Sink,
    target: Target,
}

impl Healthy {
    /// Warm already.
    async fn start(gateway: &Gateway, setting: &Setting) -> Result<Self> {
        let count = events_in(setting.sustained, PER_SECOND);
        let sink = Sink::start(Manner::Answer, count * 2).await?;
        let endpoint = json!({"url": sink.url(), "event_types": [HEALTHY]});
        gateway.create_endpoint(&endpoint).await?;
        let target = gateway.events()?;
        let warm_up = events_in(setting.warm_up, PER_SECOND).min(count);
        arrivals_at(PER_SECOND, &target, &sink.arrivals, HEALTHY, warm_up).await?;
        Ok(Self { sink, target })
    }

    async fn measure(&self, setting: &Setting) -> Result<Sample> {
        let count = events_in(setting.sustained, PER_SECOND);
        arrivals_at(PER_SECOND, &self.target, &self.sink.arrivals, HEALTHY, count).await
    }
}

/// As fast as a few connections can; the rate only spreads it over a moment.
const BURST_PER_SECOND: u32 = 1_000;

async fn post_hanging(
    target: &Target,
    per_second: u32,
    numbers: std::ops::Range<usize>,
) -> Result<()> {
    let first = numbers.start;
    let kinds: Arc<[String]> = (0..HANGING).map(kind).collect();
    let body = move |index: usize| {
        let number = first + index;
        event::single(&kinds[number % HANGING], number as u64)
    };
    load::paced(target, CONNECTIONS, per_second, numbers.len(), body).await?;
    Ok(())
}

fn kind(index: usize) -> String {
    format!("hanging.endpoint{index}")
}
