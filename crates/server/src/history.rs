//! `/v1/stats/history`: what happened in the last hour, day or week, in points to draw a chart from.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::StatusCode;
use postrider_core::{DeliveryId, EndpointId, State as DeliveryState, TenantId, Timestamp};
use postrider_store::Store;
use postrider_store::ledger::Count;
use postrider_store::measures::{Grain, Measure, Of, Tallies};
use serde::{Deserialize, Serialize};

use crate::App;
use crate::answer::{Answer, json};
use crate::auth::Caller;
use crate::extract::Query;
use crate::problem::Problem;

/// How many endpoints are asked for what waits longest: those for which most waits.
const MAX_ASKED: usize = 250;
/// How many of them at the same time.
const ASKED_AT_ONCE: usize = 8;
/// How many of what an endpoint waits for are looked at: the first may be meant for later.
const LOOKED_AT: usize = 16;
/// What rates are about.
const RATE_SECONDS: f64 = 60.0;

pub(crate) async fn show(State(app): State<Arc<App>>, caller: Caller, mut query: Query) -> Answer {
    let span = query.word("span")?.unwrap_or(Span::Hour);
    let whose = query.value("endpoint")?.unwrap_or(Whose::Tenant);
    query.finish()?;
    let now = app.engine.clock().now();
    match whose {
        Whose::Each => show_each(&app, caller.tenant, span, now).await,
        Whose::Tenant => show_one(&app, caller.tenant, None, span, now).await,
        Whose::Endpoint(id) => show_one(&app, caller.tenant, Some(id), span, now).await,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Span {
    Hour,
    Day,
    Week,
}

impl Span {
    fn grain(self) -> Grain {
        match self {
            Self::Hour => Grain::Minute,
            Self::Day => Grain::QuarterHour,
            Self::Week => Grain::TwoHours,
        }
    }

    fn points(self) -> u32 {
        match self {
            Self::Hour => 60,
            Self::Day => 96,
            Self::Week => 84,
        }
    }

    /// The starts of its points; the last one is still growing.
    fn starts(self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let grain = self.grain();
        let (last, width) = (grain.start_of(now), length(grain));
        (0..self.points()).rev().map(move |back| last.minus(width * back))
    }

    fn since(self, now: Timestamp) -> Timestamp {
        self.starts(now).next().unwrap_or(now)
    }
}

fn length(grain: Grain) -> Duration {
    Duration::from_millis(grain.millis().unsigned_abs())
}

/// Whose history is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Tenant,
    Endpoint(EndpointId),
    Each,
}

#[derive(Debug)]
struct NotWhose;

impl fmt::Display for NotWhose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be the id of an endpoint, or each")
    }
}

impl FromStr for Whose {
    type Err = NotWhose;

    fn from_str(text: &str) -> Result<Self, NotWhose> {
        match text {
            "each" => Ok(Self::Each),
            id => id.parse().map(Self::Endpoint).map_err(|_| NotWhose),
        }
    }
}

async fn show_one(
    app: &App,
    tenant: TenantId,
    endpoint: Option<EndpointId>,
    span: Span,
    now: Timestamp,
) -> Answer {
    let of = endpoint.map_or(Of::Tenant, Of::Endpoint);
    let (grain, since) = (span.grain(), span.since(now));
    let found = app.engine.measures(tenant, of, grain, since).await?;
    // Rates are about the last minute, whatever the points are.
    let minute = length(Grain::Minute);
    let previous = Grain::Minute.start_of(now).minus(minute);
    let lately = if grain == Grain::Minute {
        found.iter().filter(|measure| measure.start >= previous).cloned().collect()
    } else {
        app.engine.measures(tenant, of, Grain::Minute, previous).await?
    };
    let oldest = oldest_waiting(&**app.engine.store(), tenant, endpoint, now).await?;
    let by_start: HashMap<Timestamp, Tallies> =
        found.into_iter().map(|measure| (measure.start, measure.tallies)).collect();
    let mut total = Tallies::default();
    let point = |start: Timestamp| {
        let tallies = by_start.get(&start).copied().unwrap_or_default();
        total.add(&tallies);
        Point { start, counts: Counts::of(&tallies), times: Times::of(&tallies) }
    };
    let points = span.starts(now).map(point).collect();
    let view = View {
        span,
        grain_seconds: length(grain).as_secs(),
        since,
        points,
        total: Total::of(&total),
        per_second: PerSecond::of(&lately, now),
        oldest_waiting_at: oldest,
    };
    json(StatusCode::OK, &view)
}

async fn show_each(app: &App, tenant: TenantId, span: Span, now: Timestamp) -> Answer {
    let (grain, since) = (span.grain(), span.since(now));
    let mut endpoints: BTreeMap<EndpointId, Vec<Outcome>> = BTreeMap::new();
    for Measure { start, endpoint, tallies, .. } in
        app.engine.measures(tenant, Of::EachEndpoint, grain, since).await?
    {
        let Tallies { received: _, delivered, failures, dead, latency: _ } = tallies;
        if let Some(id) = endpoint.filter(|_| delivered + failures + dead > 0) {
            endpoints.entry(id).or_default().push(Outcome { start, delivered, failures, dead });
        }
    }
    json(StatusCode::OK, &Each { span, grain_seconds: length(grain).as_secs(), since, endpoints })
}

/// Since when the longest has waited of what is unfinished and not meant for later. Each endpoint's
/// is at the beginning of an index over what waits: however much has ended, it is not looked at.
async fn oldest_waiting(
    store: &dyn Store,
    tenant: TenantId,
    endpoint: Option<EndpointId>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    let mut waits: BTreeMap<EndpointId, u64> = BTreeMap::new();
    let of_it = |count: &Count| endpoint.is_none_or(|wanted| count.endpoint == wanted);
    for count in store.counts(tenant).await?.into_iter().filter(of_it) {
        match count.state {
            DeliveryState::Pending | DeliveryState::Retrying | DeliveryState::InFlight => {
                *waits.entry(count.endpoint).or_default() += count.deliveries;
            }
            DeliveryState::Delivered
            | DeliveryState::Failed
            | DeliveryState::Dead
            | DeliveryState::Cancelled => {}
        }
    }
    let mut asked: Vec<(EndpointId, u64)> = waits.into_iter().collect();
    asked.sort_by_key(|(_, deliveries)| std::cmp::Reverse(*deliveries));
    let first = DeliveryId::from_i64(0);
    let oldest = stream::iter(asked.into_iter().take(MAX_ASKED))
        .map(|(endpoint, _)| store.unfinished(endpoint, first, None, LOOKED_AT))
        .buffer_unordered(ASKED_AT_ONCE)
        .try_fold(None, async |oldest: Option<Timestamp>, found| {
            let born = found.iter().map(|one| one.delivery.born).filter(|born| *born <= now);
            Ok(oldest.into_iter().chain(born).min())
        });
    Ok(oldest.await?)
}

#[derive(Serialize)]
struct View {
    span: Span,
    grain_seconds: u64,
    since: Timestamp,
    points: Vec<Point>,
    total: Total,
    per_second: PerSecond,
    oldest_waiting_at: Option<Timestamp>,
}

#[derive(Serialize)]
struct Point {
    start: Timestamp,
    #[serde(flatten)]
    counts: Counts,
    #[serde(flatten)]
    times: Times,
}

#[derive(Serialize)]
struct Counts {
    received: u64,
    delivered: u64,
    failures: u64,
    dead: u64,
}

impl Counts {
    fn of(tallies: &Tallies) -> Self {
        let Tallies { received, delivered, failures, dead, latency: _ } = *tallies;
        Self { received, delivered, failures, dead }
    }
}

/// In milliseconds; none where nothing was delivered.
#[derive(Serialize)]
struct Times {
    #[serde(rename = "p50_ms")]
    half: Option<u64>,
    #[serde(rename = "p95_ms")]
    most: Option<u64>,
    #[serde(rename = "p99_ms")]
    nearly_all: Option<u64>,
}

impl Times {
    fn of(tallies: &Tallies) -> Self {
        let within = |share| tallies.quantile(share);
        Self { half: within(0.50), most: within(0.95), nearly_all: within(0.99) }
    }
}

#[derive(Serialize)]
struct Total {
    #[serde(flatten)]
    counts: Counts,
    success_rate: Option<f64>,
    #[serde(flatten)]
    times: Times,
}

impl Total {
    fn of(tallies: &Tallies) -> Self {
        let ended = tallies.delivered + tallies.dead;
        let success_rate = (ended > 0).then(|| real(tallies.delivered) / real(ended));
        Self { counts: Counts::of(tallies), success_rate, times: Times::of(tallies) }
    }
}

#[derive(Debug, PartialEq, Serialize)]
struct PerSecond {
    received: f64,
    delivered: f64,
}

impl PerSecond {
    /// Of the minute that has begun all, and of the one before it as much as is left of the last sixty
    /// seconds, as if it had been even.
    fn of(lately: &[Measure], now: Timestamp) -> Self {
        let current = Grain::Minute.start_of(now);
        let left = 1.0 - now.since(current).as_secs_f64() / RATE_SECONDS;
        let rate = |count: fn(&Tallies) -> u64| {
            let weigh = |measure: &Measure| {
                let share = if measure.start >= current { 1.0 } else { left };
                real(count(&measure.tallies)) * share
            };
            lately.iter().map(weigh).sum::<f64>() / RATE_SECONDS
        };
        Self { received: rate(|of| of.received), delivered: rate(|of| of.delivered) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts")]
fn real(count: u64) -> f64 {
    count as f64
}

#[derive(Serialize)]
struct Each {
    span: Span,
    grain_seconds: u64,
    since: Timestamp,
    endpoints: BTreeMap<EndpointId, Vec<Outcome>>,
}

#[derive(Serialize)]
struct Outcome {
    start: Timestamp,
    delivered: u64,
    failures: u64,
    dead: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01T00:00:00Z, a Thursday.
    const DAY: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    #[test]
    fn every_point_of_a_span_is_there_and_the_last_one_is_now() {
        let now = DAY.plus(Duration::from_millis(3 * 3_600_000 + 17 * 60_000 + 5_432));
        for (span, points, seconds, last) in [
            (Span::Hour, 60, 60, 3 * 3_600 + 17 * 60),
            (Span::Day, 96, 900, 3 * 3_600 + 15 * 60),
            (Span::Week, 84, 7_200, 2 * 3_600),
        ] {
            let starts: Vec<Timestamp> = span.starts(now).collect();
            assert_eq!(starts.len(), points, "{span:?}");
            assert_eq!(starts.last(), Some(&DAY.plus(Duration::from_secs(last))), "{span:?}");
            assert_eq!(starts.first(), Some(&span.since(now)));
            for pair in starts.windows(2) {
                assert_eq!(pair[1].since(pair[0]), Duration::from_secs(seconds), "{span:?}");
            }
            assert!(span.since(now).as_millis() > 0);
            let kept = Duration::from_millis(span.grain().kept_millis().unsigned_abs());
            assert!(now.minus(kept) < span.since(now), "{span:?} is kept for long enough");
        }
    }

    #[test]
    fn rates_are_about_the_last_sixty_seconds() {
        let measure = |start: Timestamp, received: u64, delivered: u64| Measure {
            grain: Grain::Minute,
            start,
            tenant: TenantId::DEFAULT,
            endpoint: None,
            tallies: Tallies { received, delivered, ..Tallies::default() },
        };
        let (previous, current) = (DAY, DAY.plus(Duration::from_mins(1)));
        let both = [measure(previous, 120, 60), measure(current, 30, 0)];
        for (lately, second, received, delivered) in [
            (&both[..], 0, 2.5, 1.0),
            (&both, 15, 2.0, 0.75),
            (&both, 30, 1.5, 0.5),
            (&both[1..], 45, 0.5, 0.0),
            (&[], 45, 0.0, 0.0),
        ] {
            let now = current.plus(Duration::from_secs(second));
            let rates = PerSecond::of(lately, now);
            assert_eq!(rates, PerSecond { received, delivered }, "after {second} s");
        }
    }
}
