//! Whether the table of what waits stays as large as what waits, whatever has passed through it.

use std::collections::VecDeque;

use anyhow::{Context, Result, ensure};
use postrider_store::Journal as _;
use postrider_store::record::Settle;
use tokio::task::JoinSet;

use super::super::Setting;
use super::super::backlog::in_words;
use super::super::report::{Figure, Row, Wanted};
use super::carrier::{Carrier, SCHEMA, connections};
use super::cluster::{Cluster, Watch};
use super::session::Session;

/// How many wait all the time.
const WAITING: u64 = 10_000;
const BATCH: usize = 250;

const WHOLE: &str = "SELECT pg_total_relation_size('unfinished')";
const INDEXES: &str = "SELECT pg_indexes_size('unfinished')";
const COUNTS: &str = "SELECT pg_total_relation_size('delivery_counts') \
     + pg_total_relation_size('event_counts')";
const ROWS: &str = "SELECT count(*) FROM unfinished";

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let cluster = Cluster::start(&setting.folder, Watch::Nothing).await?;
    let url = cluster.database("bloat").await?;
    let carrier = Carrier::open(&url).await?;
    let session = Session::open_planned(&url, SCHEMA).await?;

    let walkers = u64::try_from(connections())?;
    let mut tasks = JoinSet::new();
    for _ in 0..walkers {
        let mut walker = Walker { carrier: carrier.clone(), waiting: VecDeque::new() };
        tasks.spawn(async move { walker.fill(WAITING / walkers).await.map(|()| walker) });
    }
    let filled = tasks.join_all().await.into_iter().collect::<Result<Vec<Walker>>>()?;
    let before = Sizes::read(&session).await?;

    let mut tasks = JoinSet::new();
    for mut walker in filled {
        let count = setting.passing / walkers;
        tasks.spawn(async move { walker.pass(count).await });
    }
    tasks.join_all().await.into_iter().collect::<Result<()>>()?;
    let after = Sizes::read(&session).await?;
    carrier.store.close().await;

    let name = format!("{} waiting, {} passed", in_words(WAITING), in_words(setting.passing));
    let row = |what: &str, of: fn(&Sizes) -> i64, wanted| {
        let (after, before) = (mebibytes(of(&after)), mebibytes(of(&before)));
        Row::new(format!("{name}: {what}"), after, Some(before), wanted)
    };
    Ok(vec![
        row("the table of what waits", |sizes| sizes.whole, Wanted::RatioAtMost(3.0)),
        row("its indexes alone", |sizes| sizes.indexes, Wanted::Nothing),
        row("the tables of counts", |sizes| sizes.counts, Wanted::Nothing),
    ])
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// With its indexes.
    whole: i64,
    indexes: i64,
    counts: i64,
}

impl Sizes {
    async fn read(session: &Session) -> Result<Self> {
        let rows = session.number(ROWS).await?.unsigned_abs();
        ensure!(rows == WAITING, "{rows} instead of {WAITING} are waiting");
        Ok(Self {
            whole: session.number(WHOLE).await?,
            indexes: session.number(INDEXES).await?,
            counts: session.number(COUNTS).await?,
        })
    }
}

/// Keeps so many waiting: for each batch that is appended, the oldest one is settled.
struct Walker {
    carrier: Carrier,
    waiting: VecDeque<Vec<Settle>>,
}

impl Walker {
    async fn fill(&mut self, count: u64) -> Result<()> {
        for _ in 0..count / BATCH as u64 {
            self.append().await?;
        }
        Ok(())
    }

    async fn pass(&mut self, count: u64) -> Result<()> {
        for _ in 0..count / BATCH as u64 {
            self.append().await?;
            let oldest = self.waiting.pop_front().context("nothing is waiting")?;
            self.carrier.settle(oldest).await?;
        }
        Ok(())
    }

    async fn append(&mut self) -> Result<()> {
        let (events, settles) = self.carrier.batch(BATCH);
        self.carrier.append(events).await?;
        self.waiting.push_back(settles);
        Ok(())
    }
}

fn mebibytes(bytes: i64) -> Figure {
    #[expect(clippy::cast_precision_loss, reason = "a table is smaller than 2^52 bytes")]
    Figure::mebibytes(bytes as f64 / f64::from(1 << 20))
}
