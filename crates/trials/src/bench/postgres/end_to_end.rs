//! How many events a second go all the way through one node on `PostgreSQL`, beside the same binary
//! under the same load on `SQLite`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::super::Setting;
use super::super::end_to_end::{Carried, MAX_EVENTS, MOST_ADDED_PERCENT, carry};
use super::super::gateway::Gateway;
use super::super::push::Push;
use super::super::report::{Figure, Row, Wanted};
use super::super::sink::{Manner, Sink};
use super::cluster::{Cluster, Watch};

const NAME: &str = "end to end on PostgreSQL";

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let cluster = Cluster::start(&setting.folder, Watch::Nothing).await?;
    let url = cluster.database("end_to_end").await?;
    // SQLite's turn is before and after, because a shared machine is not as fast in one minute as in
    // the next. While the other runs, each has nothing to do.
    let on_sqlite = Push::start(setting, "on-sqlite").await?;
    let sink = Sink::start(Manner::Answer, MAX_EVENTS).await?;
    let data = setting.folder.join("on-postgres");
    let gateway = Gateway::start_node(&setting.binary, &data, &url).await?;
    let endpoint = json!({"url": sink.url(), "event_types": ["*"]});
    let endpoint = gateway.create_endpoint(&endpoint).await?;

    let before = on_sqlite.carried(setting).await?;
    let (earlier, used_earlier) = (sink.arrivals.unique(), cluster.processor());
    let events = gateway.events()?;
    let carried = carry(&events, &gateway.process, &sink.arrivals, setting.sustained, setting)
        .await
        .with_context(|| gateway.last_words())?;
    gateway.until_settled(&endpoint).await?;
    let (arrived, used) = (sink.arrivals.unique() - earlier, cluster.processor());
    let after = on_sqlite.carried(setting).await?;
    ensure!(sink.arrivals.repeated() == 0, "{} events came twice", sink.arrivals.repeated());
    gateway.stop().await?;
    on_sqlite.stop().await?;

    let server = used_earlier.zip(used).and_then(|(earlier, used)| {
        Some(used.checked_sub(earlier)? / u32::try_from(arrived).ok()?)
    });
    Ok(rows(&carried, server, &before.mean(&after)))
}

fn rows(carried: &Carried, server: Option<Duration>, sqlite: &Carried) -> Vec<Row> {
    let mut rows = vec![
        Row::new(
            format!("{NAME}, beside SQLite"),
            Figure::per_second(carried.per_second),
            Some(Figure::per_second(sqlite.per_second)),
            Wanted::RatioAtLeast(0.4),
        ),
        Row::new(
            format!("{NAME}: added to the backlog, of what was accepted"),
            Figure::percent(carried.added_percent),
            None,
            Wanted::FigureAtMost(MOST_ADDED_PERCENT),
        ),
    ];
    if let Some(processor) = carried.processor {
        rows.push(Row::new(
            format!("{NAME}: processor time an event in the gateway"),
            Figure::microseconds(processor),
            sqlite.processor.map(Figure::microseconds),
            Wanted::Nothing,
        ));
    }
    if let Some(processor) = server {
        rows.push(Row::new(
            format!("{NAME}: processor time an event in the server"),
            Figure::microseconds(processor),
            None,
            Wanted::Nothing,
        ));
    }
    rows
}
