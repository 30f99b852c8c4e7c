//! Ten times as many events as the gateway can take: it takes what it can, refuses the rest in good
//! form, keeps its memory, and delivers what it took. Once with events so small that reading requests
//! is the most work, and once with events so large that storing them is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Method, header};
use serde::Serialize;
use serde_json::json;

use super::findings::{Finding, thousands};
use super::flood::{Flooded, Water, flood};
use super::place::{Manner, Place};
use super::stand::{Setting, Stand};
use crate::bench::event;
use crate::bench::load::{CONNECTIONS, Producers};
use crate::bench::sample::{Sample, per_second, share};
use crate::bench::sink::Arrivals;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// How long is looked how much the gateway can take.
    pub(crate) capacity_for: Duration,
    /// How long small events are sent, and large ones.
    pub(crate) small_for: Duration,
    pub(crate) large_for: Duration,
    /// How long the backlog may take to go.
    pub(crate) delivered_within: Duration,
}

/// How many times what it can take is sent.
const TIMES: f64 = 10.0;
const WARM_UP: Duration = Duration::from_secs(1);
/// More than any gateway accepts in the time.
const MAX_EVENTS: usize = 4 << 20;
/// Peak of resident memory with small events, beside the peak at capacity.
const MOST_MEMORY_SMALL: f64 = 4.0;
const LARGE_BYTES: usize = 60 << 10;
/// Peak of resident memory with large events, beside all that may be in memory at one time: what was
/// there at capacity, what may wait for the store, and the bodies of what is under way.
const MOST_MEMORY_LARGE: f64 = 1.25;
/// What the gateway lets wait for its store.
const MAY_WAIT_MEBIBYTES: f64 = 128.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Size {
    Small,
    Large,
}

impl Size {
    fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }

    fn water(self, stand: &Stand) -> Result<Water> {
        let (events, url) = (stand.gateway.events()?, stand.gateway.url());
        match self {
            Self::Small => Ok(Water {
                target: events.at(Method::POST, &format!("{url}/v1/events"))?,
                body: |number| event::single("overload.small", number),
                streams: 250,
            }),
            // Not JSON, which would be read: these cost nothing until they are stored.
            Self::Large => Ok(Water {
                target: events
                    .at(Method::POST, &format!("{url}/v1/events?type=overload.large"))?
                    .with(header::CONTENT_TYPE, "application/octet-stream")?,
                body: large,
                streams: 128,
            }),
        }
    }

    /// What peak memory is held against, and how many times that it may be.
    fn most_memory(self, at_capacity: f64, water: &Water) -> (f64, f64) {
        match self {
            Self::Small => (at_capacity, MOST_MEMORY_SMALL),
            Self::Large => {
                let under_way = mebibytes(water.under_way() * LARGE_BYTES);
                (at_capacity + MAY_WAIT_MEBIBYTES + under_way, MOST_MEMORY_LARGE)
            }
        }
    }
}

/// What an overload came to.
#[derive(Debug, Serialize)]
pub(crate) struct Overloaded {
    pub(crate) findings: Vec<Finding>,
    parts: Vec<Part>,
}

#[derive(Debug, Serialize)]
struct Part {
    size: Size,
    capacity_per_second: f64,
    due: u64,
    sent: u64,
    accepted: u64,
    refused: u64,
    other: u64,
    peak_mebibytes_at_capacity: f64,
    peak_mebibytes: f64,
    /// By percentile.
    accepted_after_milliseconds: Vec<(usize, f64)>,
}

pub(crate) async fn overload(setting: &Setting, plan: Plan) -> Result<Overloaded> {
    let mut overloaded = Overloaded { findings: Vec::new(), parts: Vec::new() };
    for (size, lasts) in [(Size::Small, plan.small_for), (Size::Large, plan.large_for)] {
        // Each has a gateway of its own, because a peak of memory is one since the start.
        let mut stand = Stand::start(setting, &format!("overload_{}", size.name())).await?;
        let measured = measure(&mut stand, size, lasts, plan).await;
        let (findings, part) = measured.with_context(|| stand.gateway.last_words())?;
        stand.stop().await?;
        overloaded.findings.extend(findings);
        overloaded.parts.push(part);
    }
    Ok(overloaded)
}

async fn measure(
    stand: &mut Stand,
    size: Size,
    lasts: Duration,
    plan: Plan,
) -> Result<(Vec<Finding>, Part)> {
    let accepted = Arc::new(Arrivals::new(MAX_EVENTS));
    let arrivals = Arc::new(Arrivals::new(MAX_EVENTS));
    let place = Place::start(Manner::Healthy, Arc::clone(&arrivals)).await?;
    let endpoint = json!({"url": place.url(), "event_types": ["overload.*"]});
    stand.gateway.create_endpoint(&endpoint).await?;
    let water = Arc::new(size.water(stand)?);

    let (capacity, before) = capacity(&water, &accepted, plan).await?;
    let at_capacity = stand.vitals()?.peak_mebibytes;
    stand.until_all_ended(plan.delivered_within).await?;

    let flooded = flood(&water, capacity * TIMES, lasts, &accepted).await?;
    let all = before + flooded.accepted;
    // What does not arrive in time shows in the findings.
    let _ = arrivals.reach(all, plan.delivered_within).await;
    let ended = stand.until_all_ended(plan.delivered_within).await?;
    let peak = stand.vitals()?.peak_mebibytes;

    let numbers = 0..before + flooded.sent;
    let stray = numbers
        .filter(|number| arrivals.at(*number).is_some() && is_refused(&accepted, *number, before));
    let stray = stray.count() as u64;
    let (limit, most) = size.most_memory(at_capacity, &water);
    let name = size.name();
    let mut findings = vec![
        Finding::promise(
            format!("{name}: answers but 202 and 429 or 503 with a Retry-After"),
            said(&flooded),
            "0",
            flooded.other == 0,
        ),
        Finding::equal(format!("{name}: accepted = delivered"), ended.delivered, all),
        Finding::equal(format!("{name}: accepted = arrived"), arrivals.unique(), all),
        Finding::equal(format!("{name}: refused and arrived all the same"), stray, 0),
        Finding::equal(format!("{name}: arrived twice"), arrivals.repeated(), 0),
        Finding::equal(format!("{name}: waiting in the end"), ended.waiting(), 0),
        Finding::at_most(
            format!("{name}: peak memory, beside {limit:.0} MiB, ratio"),
            Some(peak / limit),
            most,
        ),
        Finding::remark(
            format!("{name}: peak memory at capacity, overloaded"),
            format!("{at_capacity:.1} MiB, {peak:.1} MiB"),
        ),
    ];
    let waits = Sample::new(flooded.waits.clone());
    let after: Vec<(usize, f64)> = [50, 99, 100]
        .into_iter()
        .filter_map(|percent| Some((percent, waits.percentile(percent)?.as_secs_f64() * 1e3)))
        .collect();
    findings.extend(remarks(name, &flooded, capacity, lasts, &after));
    let part = Part {
        size,
        capacity_per_second: capacity,
        due: flooded.due,
        sent: flooded.sent,
        accepted: flooded.accepted,
        refused: flooded.refused,
        other: flooded.other,
        peak_mebibytes_at_capacity: at_capacity,
        peak_mebibytes: peak,
        accepted_after_milliseconds: after,
    };
    Ok((findings, part))
}

/// How many events a second are accepted and carried on when each producer waits for its answer, and
/// how many that were.
async fn capacity(water: &Water, accepted: &Arc<Arrivals>, plan: Plan) -> Result<(f64, u64)> {
    let (numbers, body) = (Arc::clone(accepted), water.body);
    // The numbers come in order, and each is accepted.
    let next = move || numbers.take_number().map(body);
    let target = std::slice::from_ref(&water.target);
    let producers = Producers::start(target, CONNECTIONS, next).await?;
    tokio::time::sleep(WARM_UP).await;
    let (started, before) = (Instant::now(), producers.accepted());
    tokio::time::sleep(plan.capacity_for).await;
    let (time, count) = (started.elapsed(), producers.accepted() - before);
    let produced = producers.stop().await?;
    ensure!(produced.refused == 0, "{} were refused at capacity", produced.refused);
    Ok((per_second(count, time), produced.accepted))
}

/// A payload with its number in front, and then no JSON any more.
fn large(number: u64) -> Bytes {
    let mut text = String::new();
    event::write_payload(&mut text, number);
    let mut body = text.into_bytes();
    body.resize(LARGE_BYTES, b'x');
    body.into()
}

/// The first ones, which measured the capacity, were accepted without being noted.
fn is_refused(accepted: &Arrivals, number: u64, first: u64) -> bool {
    number >= first && accepted.at(number).is_none()
}

fn said(flooded: &Flooded) -> String {
    if flooded.shown.is_empty() {
        return thousands(flooded.other);
    }
    format!("{} ({})", thousands(flooded.other), flooded.shown.join("; "))
}

fn remarks(
    name: &str,
    flooded: &Flooded,
    capacity: f64,
    lasts: Duration,
    after: &[(usize, f64)],
) -> Vec<Finding> {
    let remark = |what: &str, found: String| Finding::remark(format!("{name}: {what}"), found);
    let rate = |count: u64| format!("{:.0}/s", per_second(count, lasts));
    let mut remarks = vec![
        remark("capacity", format!("{capacity:.0}/s")),
        remark("came due", rate(flooded.due)),
        remark(
            "sent; the others found every stream taken",
            format!(
                "{}, {:.0} % of what came due",
                rate(flooded.sent),
                share(flooded.sent, flooded.due) * 100.0
            ),
        ),
        remark("accepted", rate(flooded.accepted)),
        remark("refused with a Retry-After", rate(flooded.refused)),
    ];
    for (percent, milliseconds) in after {
        let what = format!("accepted after, p{percent}");
        remarks.push(remark(&what, format!("{milliseconds:.1} ms")));
    }
    remarks
}

#[expect(clippy::cast_precision_loss, reason = "sizes of memory stay far below 2^52")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_event_has_its_size_and_number() {
        let body = large(42);
        assert_eq!((body.len(), event::number(&body)), (LARGE_BYTES, Some(42)));
    }

    #[test]
    fn only_what_was_sent_in_the_flood_can_have_been_refused() {
        let accepted = Arrivals::new(4);
        accepted.note(2);
        let refused: Vec<u64> = (0..4).filter(|number| is_refused(&accepted, *number, 1)).collect();
        assert_eq!(refused, [1, 3]);
    }
}
