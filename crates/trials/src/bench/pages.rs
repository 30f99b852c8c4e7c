//! How long the pages of the dashboard take with many deliveries in the store, beside the route that
//! only says that the gateway is alive.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Method, StatusCode, header};
use postrider_core::delivery::{Next, Reason};
use postrider_core::id::Sequence;
use postrider_core::outcome::Class;
use postrider_core::{EndpointId, State, Timestamp};
use postrider_store::journal::Urgency;
use postrider_store::record::{NewEvent, Settle, Settled};
use postrider_store::{Journal as _, Measures as _};
use serde_json::json;

use super::Setting;
use super::backlog::{in_words, now};
use super::batch;
use super::connection::{Connection, Target};
use super::gateway::Gateway;
use super::peer::KEY;
use super::report::{Figure, Row, Wanted};
use super::sample::Sample;
use super::store_cycle;
use crate::history::{self, Share};

const ENDPOINTS: u64 = 20;
const BATCH: u64 = 1_024;
/// The deliveries are spread over this time: less than delivered ones are kept.
const SPREAD: Duration = Duration::from_hours(6 * 24);
/// One in so many is a dead letter, and one in so many waits for another attempt.
const DEAD_ONE_IN: u64 = 50;
const RETRYING_ONE_IN: u64 = 53;
/// One event in so many has an idempotency key.
const KEYED_ONE_IN: u64 = 10;
/// The type of the oldest event alone: it takes the longest to find, or not to find.
const RARE: &str = "bench.rare";
/// Those are not tried while pages are measured.
const RETRIED_AFTER: Duration = Duration::from_hours(48);
/// Every page is asked for so often, one after the other, and the health route in between.
const REQUESTS: usize = 200;
const WARM_UPS: usize = 5;
const P95_AT_MOST_MILLIS: f64 = 200.0;

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let data = setting.folder.join("pages");
    let gateway = Gateway::start(&setting.binary, &data).await?;
    let mut endpoints = Vec::new();
    for number in 0..ENDPOINTS {
        let endpoint = json!({
            "name": format!("endpoint {number}"),
            "url": format!("http://127.0.0.1:9/{number}"),
            "event_types": [format!("bench.{number}")],
        });
        endpoints.push(gateway.create_endpoint(&endpoint).await?.parse()?);
    }
    gateway.stop().await?;
    fill(&data, &endpoints, setting.shown).await?;

    let gateway = Gateway::start(&setting.binary, &data).await?;
    let rows = look(&gateway, setting.shown).await.with_context(|| gateway.last_words())?;
    gateway.stop().await?;
    Ok(rows)
}

async fn look(gateway: &Gateway, shown: u64) -> Result<Vec<Row>> {
    let visitor = sign_in(gateway).await?;
    let mut rows = Vec::new();
    for (name, path) in pages(gateway).await? {
        let page = visitor.at(Method::GET, &path)?;
        let (page, health) = times(&page, &visitor.at(Method::GET, "/healthz")?)
            .await
            .with_context(|| format!("looking at {path}"))?;
        for (percent, wanted) in
            [(50, Wanted::Nothing), (95, Wanted::FigureAtMost(P95_AT_MOST_MILLIS))]
        {
            let figure = |sample: &Sample| sample.percentile(percent).map(Figure::milliseconds);
            rows.push(Row::new(
                format!("page of {}, {name}, p{percent}", in_words(shown)),
                figure(&page).context("no page was measured")?,
                figure(&health),
                wanted,
            ));
        }
    }
    Ok(rows)
}

/// What somebody looks at, by its name, with ids that there are.
async fn pages(gateway: &Gateway) -> Result<Vec<(&'static str, String)>> {
    let first = async |path: &str, field: &str| -> Result<String> {
        let list = gateway.read(path).await?;
        let found = list["data"][0][field].as_str().map(str::to_owned);
        found.with_context(|| format!("nothing at {path}"))
    };
    let dead = first("/v1/dead-letters?limit=1", "id").await?;
    let retrying = first("/v1/deliveries?state=retrying&limit=1", "id").await?;
    let event = first("/v1/events?limit=1", "id").await?;
    let endpoint = first("/v1/endpoints?limit=1", "id").await?;
    let old = first("/v1/deliveries?limit=250", "id").await?;
    let deep = gateway.read("/v1/deliveries?limit=250").await?;
    let cursor = deep["next_cursor"].as_str().context("more than one page of deliveries")?;
    Ok(vec![
        ("overview", "/".to_owned()),
        ("overview of a week", "/?span=week".to_owned()),
        ("events", "/events".to_owned()),
        ("events of a type", "/events?type=bench.7".to_owned()),
        ("events of a type that is rare", format!("/events?type={RARE}")),
        ("an event by its key", "/events?idempotency_key=bench-0".to_owned()),
        ("an event", format!("/events/{event}")),
        ("deliveries", "/deliveries".to_owned()),
        ("deliveries, next page", format!("/deliveries?cursor={cursor}")),
        ("deliveries that are dead", "/deliveries?state=dead".to_owned()),
        ("deliveries to one endpoint", format!("/deliveries?endpoint={endpoint}")),
        ("deliveries of a type", "/deliveries?type=bench.7".to_owned()),
        ("deliveries of a type that is rare", format!("/deliveries?type={RARE}")),
        ("deliveries that match nothing", "/deliveries?error_class=final".to_owned()),
        ("a delivery", format!("/deliveries/{old}")),
        ("a delivery that waits", format!("/deliveries/{retrying}")),
        ("a dead delivery", format!("/deliveries/{dead}")),
        ("dead letters", "/dead-letters".to_owned()),
        ("endpoints", "/endpoints".to_owned()),
        ("an endpoint", format!("/endpoints/{endpoint}")),
        ("a new endpoint", "/endpoints/new".to_owned()),
        ("policies", "/policies".to_owned()),
        ("sources", "/sources".to_owned()),
        ("hubs", "/hubs".to_owned()),
        ("keys", "/keys".to_owned()),
        ("audit", "/audit".to_owned()),
        ("settings", "/settings".to_owned()),
    ])
}

/// Asks for a page and for the health route in turns, so that a slow moment meets both.
async fn times(page: &Target, health: &Target) -> Result<(Sample, Sample)> {
    let mut connection = Connection::open(page.address).await?;
    let mut taken = [const { Vec::new() }; 2];
    for request in 0..WARM_UPS + REQUESTS {
        for (target, taken) in [page, health].into_iter().zip(&mut taken) {
            let started = Instant::now();
            let answer = connection.send(target.request(Bytes::new())).await?;
            let time = started.elapsed();
            ensure!(answer.status == StatusCode::OK, "answered {}", answer.status);
            if request >= WARM_UPS {
                taken.push(time);
            }
        }
    }
    let [page, health] = taken.map(Sample::new);
    Ok((page, health))
}

/// Signs in as a browser does, and returns what carries the session.
async fn sign_in(gateway: &Gateway) -> Result<Target> {
    let target = gateway.open_target()?;
    let form = target
        .at(Method::POST, "/sign-in")?
        .with(header::CONTENT_TYPE, "application/x-www-form-urlencoded")?;
    let mut connection = Connection::open(target.address).await?;
    let answer = connection.send(form.request(format!("key={KEY}").into())).await?;
    ensure!(answer.status == StatusCode::SEE_OTHER, "signing in was answered {}", answer.status);
    let cookie = answer.headers.get(header::SET_COOKIE).context("no session was begun")?;
    let cookie = cookie.to_str()?.split(';').next().unwrap_or_default().to_owned();
    target.with(header::COOKIE, &cookie)
}

/// Puts `count` deliveries into the store in `data` as a week of work would have left them.
async fn fill(data: &Path, endpoints: &[EndpointId], count: u64) -> Result<()> {
    let store = store_cycle::open(data)?;
    let now = now();
    let start = now.as_millis() - i64::try_from(SPREAD.as_millis())?;
    let step = i64::try_from(SPREAD.as_millis())? * i64::try_from(BATCH)? / i64::try_from(count)?;
    let mut ids = Sequence::after(0);
    let (mut arrived, mut number) = (Timestamp::from_millis(start), 0);
    while number < count {
        let size = BATCH.min(count - number);
        let (mut events, mut settles) =
            batch::make(&mut ids, arrived, usize::try_from(size)?, None);
        for (event, settle) in events.iter_mut().zip(&mut settles) {
            let endpoint = endpoints[usize::try_from(number)? % endpoints.len()];
            vary(event, settle, endpoint, number, now);
            number += 1;
        }
        store.append(events).await?;
        let settled = store.settle(settles, Urgency::Now).await?;
        ensure!(settled.iter().all(|one| matches!(one, Settled::Applied { .. })), "not settled");
        arrived = Timestamp::from_millis(arrived.as_millis() + step);
    }
    let shares: Vec<Share> = endpoints
        .iter()
        .map(|endpoint| Share {
            endpoint: *endpoint,
            per_minute: 50,
            failing: 20,
            dying: 5,
            millis: 12,
        })
        .collect();
    store.add_measures(history::measures(&shares, now)).await?;
    store.close().await;
    Ok(())
}

/// Most are delivered; some are dead, some wait for another attempt.
fn vary(
    event: &mut NewEvent,
    settle: &mut Settle,
    endpoint: EndpointId,
    number: u64,
    now: Timestamp,
) {
    let stored = Arc::make_mut(&mut event.event);
    stored.kind = match number {
        0 => RARE.to_owned(),
        number => format!("bench.{}", number % ENDPOINTS),
    };
    stored.idempotency_key = number.is_multiple_of(KEYED_ONE_IN).then(|| format!("bench-{number}"));
    for delivery in &mut event.deliveries {
        delivery.endpoint = endpoint;
    }
    settle.endpoint = endpoint;
    let failed = if number.is_multiple_of(DEAD_ONE_IN) {
        Next {
            state: State::Dead,
            reason: Some(Reason::Exhausted),
            class: Some(Class::Retryable),
            ..settle.next
        }
    } else if number.is_multiple_of(RETRYING_ONE_IN) {
        Next {
            state: State::Retrying,
            due: Some(now.plus(RETRIED_AFTER)),
            class: Some(Class::Retryable),
            ..settle.next
        }
    } else {
        return;
    };
    settle.next = failed;
    if let Some(attempt) = &mut settle.attempt {
        attempt.status = Some(503);
        attempt.class = Some(Class::Retryable);
        attempt.error = Some(format!("answered 503 Service Unavailable ({})", number % 7));
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::TenantId;
    use postrider_store::Ledger as _;

    use super::*;

    #[tokio::test]
    async fn the_store_is_filled_with_deliveries_of_every_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        let endpoints = [1, 2, 3].map(EndpointId::from_i64);
        fill(folder.path(), &endpoints, 3_000).await.expect("filled");
        let store = store_cycle::open(folder.path()).expect("a store");
        let counts = store.counts(TenantId::DEFAULT).await.expect("counted");
        let of = |state| -> u64 {
            counts.iter().filter(|count| count.state == state).map(|count| count.deliveries).sum()
        };
        assert_eq!(of(State::Dead), 60);
        assert_eq!(of(State::Retrying), 55);
        assert_eq!(of(State::Dead) + of(State::Retrying) + of(State::Delivered), 3_000);
        store.close().await;
    }
}
