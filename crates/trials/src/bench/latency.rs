//! How long an event takes from its producer to its endpoint at a moderate rate, beside what no
//! durable gateway can do without: one commit and one post.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use rusqlite::Connection as Database;
use serde_json::json;
use tokio::time::interval;

use super::Setting;
use super::connection::{Connection, Target};
use super::event;
use super::gateway::Gateway;
use super::load::{self, CONNECTIONS};
use super::report::{Figure, Row, Wanted};
use super::sample::Sample;
use super::sink::{Arrivals, Manner, Sink};

pub(crate) const PER_SECOND: u32 = 200;
const ALL_ARRIVED_WITHIN: Duration = Duration::from_mins(1);

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let count = events_in(setting.sustained, PER_SECOND);
    let limit = Sample::new(commit_and_post(&setting.folder.join("commit.db"), count).await?);

    let gateway = Gateway::start(&setting.binary, &setting.folder.join("latency")).await?;
    let sink = Sink::start(Manner::Answer, count * 2).await?;
    gateway.create_endpoint(&json!({"url": sink.url(), "event_types": ["bench.*"]})).await?;
    let passage = passage(&gateway.events()?, &sink.arrivals, setting).await;
    let passage = passage.with_context(|| gateway.last_words())?;
    gateway.stop().await?;

    let row = |percent, wanted| -> Result<Row> {
        let figure = passage.percentile(percent).context("no event was measured")?;
        let least = limit.percentile(percent).context("no commit was measured")?;
        Ok(Row::new(
            format!("latency at {PER_SECOND}/s, p{percent}"),
            Figure::milliseconds(figure),
            Some(Figure::milliseconds(least)),
            wanted,
        ))
    };
    Ok(vec![row(50, Wanted::RatioAtMost(2.0))?, row(99, Wanted::RatioAtMost(4.0))?])
}

pub(crate) fn events_in(time: Duration, per_second: u32) -> usize {
    usize::try_from(time.as_millis() * u128::from(per_second) / 1_000).unwrap_or(usize::MAX)
}

/// How long events take to arrive at the moderate rate, after a warm-up at the same rate.
pub(crate) async fn passage(
    target: &Target,
    arrivals: &Arrivals,
    setting: &Setting,
) -> Result<Sample> {
    let count = events_in(setting.sustained, PER_SECOND);
    let warm_up = events_in(setting.warm_up, PER_SECOND).min(count);
    arrivals_at(PER_SECOND, target, arrivals, "bench.warm", warm_up).await?;
    arrivals_at(PER_SECOND, target, arrivals, "bench.live", count).await
}

/// Posts `count` events at a fixed rate and takes, for each, the time from its post to its arrival.
pub(crate) async fn arrivals_at(
    rate: u32,
    target: &Target,
    arrivals: &Arrivals,
    kind: &'static str,
    count: usize,
) -> Result<Sample> {
    let earlier = arrivals.unique();
    let numbers: Arc<[u64]> = (0..count)
        .map(|_| arrivals.take_number().context("there are no more numbers for events"))
        .collect::<Result<_>>()?;
    let named = Arc::clone(&numbers);
    let body = move |index: usize| event::single(kind, named[index]);
    let sent = load::paced(target, CONNECTIONS, rate, count, body).await?;
    arrivals.reach(earlier + numbers.len() as u64, ALL_ARRIVED_WITHIN).await?;
    let times = numbers.iter().zip(sent).map(|(number, sent)| {
        let arrived = arrivals.at(*number).context("an event did not arrive")?;
        Ok(arrived.saturating_duration_since(sent))
    });
    Ok(Sample::new(times.collect::<Result<_>>()?))
}

/// At the same pace: a row of the same size committed alone to a database as durable as the
/// gateway's, then a post of the same size to a sink, the two times added.
async fn commit_and_post(file: &Path, count: usize) -> Result<Vec<Duration>> {
    let sink = Sink::start(Manner::Answer, count).await?;
    let target = Target::new(sink.address, None)?.at(Method::POST, "/hook")?;
    let mut connection = Connection::open(sink.address).await?;
    let mut database = open(file)?;
    let mut clock = interval(Duration::from_secs(1) / PER_SECOND);
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        clock.tick().await;
        let mut payload = String::new();
        event::write_payload(&mut payload, number as u64);
        let payload = Bytes::from(payload);
        let row = payload.clone();
        let committing = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let stored = database.execute("INSERT INTO raw (body) VALUES (?1)", [&row[..]]);
            stored.map(|_| (database, started.elapsed()))
        });
        let (back, committed) = committing.await??;
        database = back;
        let started = Instant::now();
        connection.send(target.request(payload)).await?;
        times.push(committed + started.elapsed());
    }
    Ok(times)
}

fn open(file: &Path) -> Result<Database> {
    let database = Database::open(file)?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.pragma_update(None, "synchronous", "FULL")?;
    database.execute_batch("CREATE TABLE raw (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")?;
    Ok(database)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_and_a_time_make_a_count() {
        assert_eq!(events_in(Duration::from_secs(20), 200), 4_000);
        assert_eq!(events_in(Duration::from_millis(1_500), 100), 150);
        assert_eq!(events_in(Duration::ZERO, 100), 0);
    }

    #[tokio::test]
    async fn the_raw_limit_is_measured_for_every_event() {
        let folder = tempfile::tempdir().expect("a folder");
        let times = commit_and_post(&folder.path().join("raw.db"), 5).await.expect("measured");
        assert_eq!(times.len(), 5);
        assert!(times.iter().all(|time| *time > Duration::ZERO));
    }
}
