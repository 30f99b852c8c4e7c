//! How long it takes to find what is due among millions that are not yet.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use postrider_core::{EventId, Timestamp};
use postrider_store::Journal as _;
use postrider_store::journal::Page;

use super::super::Setting;
use super::super::backlog::{in_words, now};
use super::super::batch::{CONTENT_TYPE, ENDPOINT, KIND};
use super::super::event;
use super::super::report::{Figure, Row, Wanted};
use super::carrier::{Carrier, SCHEMA};
use super::cluster::{Cluster, Watch};
use super::session::Session;

/// What is looked for, spread evenly over all that waits.
const DUE: u64 = 1_000;
const SEARCHES: usize = 10;
/// Rows that one statement writes.
const CHUNK: u64 = 250_000;

/// An event and its delivery have two ids; all of them are of today.
const EVENTS: &str = "INSERT INTO events (id, tenant_id, received_at, deliver_at, deliveries, kind, \
     content_type, body) SELECT $1::int8 + 2 * n, 1, $2::int8, $2, 1, $3::text, $4::text, $5::bytea \
     FROM generate_series($6::int8, $7::int8) n";
const DELIVERIES: &str = "INSERT INTO unfinished (id, tenant_id, event_id, endpoint_id, born, at, \
     attempts, deferrals, tries, fence, state, place, replay) \
     SELECT $1::int8 + 2 * n + 1, 1, $1 + 2 * n, $2::int8, $3::int8, \
         CASE WHEN n % $4::int8 = 0 THEN $3 ELSE $3 + 3600000 + n % 86400000 END, 0, 0, 0, 0, 0, 2, false \
     FROM generate_series($5::int8, $6::int8) n";

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let cluster = Cluster::start(&setting.folder, Watch::Nothing).await?;
    let url = cluster.database("due").await?;
    let carrier = Carrier::open(&url).await?;
    let now = now();
    // Plans are made while there is nothing, as they would be in a gateway that has just begun.
    search(&carrier, now, 0).await?;
    fill(&url, now, setting.waiting).await?;
    let mut longest = Duration::ZERO;
    for _ in 0..SEARCHES {
        longest = longest.max(search(&carrier, now, DUE).await?);
    }
    carrier.store.close().await;
    Ok(vec![Row::new(
        format!("finding {DUE} due among {}", in_words(setting.waiting)),
        Figure::milliseconds(longest),
        None,
        Wanted::FigureAtMost(50.0),
    )])
}

/// Through the store's own page, bodies and all.
async fn search(carrier: &Carrier, now: Timestamp, wanted: u64) -> Result<Duration> {
    let page = Page {
        endpoint: ENDPOINT,
        now,
        limit: usize::try_from(DUE)?,
        max_bytes: usize::MAX,
        held: Vec::new(),
        event_types: Vec::new(),
    };
    let started = Instant::now();
    let paged = carrier.store.page(page).await?;
    let time = started.elapsed();
    let found = paged.waiting.len();
    ensure!(found as u64 == wanted, "{found} of {wanted} due were found");
    Ok(time)
}

/// Written straight into the tables, which takes a minute rather than ten, and left as they are when
/// the server has been through them: nothing is still to be vacuumed or written back.
async fn fill(url: &str, now: Timestamp, waiting: u64) -> Result<()> {
    let session = Session::open_planned(url, SCHEMA).await?;
    session.run("SET synchronous_commit = off").await?;
    let mut body = String::new();
    event::write_payload(&mut body, 0);
    let body = body.as_bytes();
    let (first, at) = (EventId::floor(now).as_i64(), now.as_millis());
    let step = i64::try_from(waiting / DUE)?;
    let client = &session.client;
    let (events, deliveries) = (client.prepare(EVENTS).await?, client.prepare(DELIVERIES).await?);
    for from in (0..waiting).step_by(usize::try_from(CHUNK)?) {
        let to = i64::try_from(waiting.min(from + CHUNK) - 1)?;
        let from = i64::try_from(from)?;
        client.execute(&events, &[&first, &at, &KIND, &CONTENT_TYPE, &body, &from, &to]).await?;
        client.execute(&deliveries, &[&first, &ENDPOINT.as_i64(), &at, &step, &from, &to]).await?;
    }
    for tidy in ["VACUUM (ANALYZE) unfinished", "VACUUM (ANALYZE) events", "CHECKPOINT"] {
        session.run(tidy).await?;
    }
    Ok(())
}
