//! Whether endpoints that hang to their deadline slow a healthy one: its p99 with them, beside its
//! p99 without them.

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
use super::sink::{Manner, Sink};

const PER_SECOND: u32 = 100;
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
    let measured = compare(&gateway, setting).await.with_context(|| gateway.last_words());
    // Not asked to drain: it would wait for what hangs.
    drop(gateway);
    measured
}

async fn compare(gateway: &Gateway, setting: &Setting) -> Result<Vec<Row>> {
    let count = events_in(setting.sustained, PER_SECOND);
    let healthy = Sink::start(Manner::Answer, count * 3).await?;
    let endpoint = json!({"url": healthy.url(), "event_types": ["healthy.tick"]});
    gateway.create_endpoint(&endpoint).await?;
    let target = gateway.events()?;
    let warm_up = events_in(setting.warm_up, PER_SECOND).min(count);
    arrivals_at(PER_SECOND, &target, &healthy.arrivals, "healthy.tick", warm_up).await?;
    let alone = arrivals_at(PER_SECOND, &target, &healthy.arrivals, "healthy.tick", count).await?;

    let more = events_in(setting.sustained, MORE_PER_SECOND);
    let hanging = Sink::start(Manner::Hang, BURST + more).await?;
    for index in 0..HANGING {
        let endpoint = json!({
            "url": hanging.url(), "event_types": [kind(index)], "timeout": DEADLINE,
        });
        gateway.create_endpoint(&endpoint).await?;
    }
    // One hanging request of each endpoint is proof that it hangs; the gateway may hold back more.
    post_hanging(&target, BURST_PER_SECOND, 0..BURST).await?;
    hanging.arrivals.reach(HANGING as u64, BURST_TAKEN_WITHIN).await?;
    let mut background = JoinSet::new();
    let hanging_target = target.clone();
    background.spawn(async move {
        post_hanging(&hanging_target, MORE_PER_SECOND, BURST..BURST + more).await
    });
    let beside = arrivals_at(PER_SECOND, &target, &healthy.arrivals, "healthy.tick", count).await?;
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
