//! How many events a second the store alone appends and settles, beside hand-written SQL that
//! writes the same rows, in the same batches, to a database of the same make.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use postrider_core::id::Sequence;
use postrider_core::{DeliveryId, EventId, State, TenantId, Timestamp};
use postrider_store::journal::{Appended, Urgency};
use postrider_store::record::{NewEvent, Settle, Settled, delivery_id};
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{Options, Sqlite};
use postrider_store::{Journal as _, Ledger as _};
use rusqlite::{CachedStatement, Connection as Database};

use super::Setting;
use super::batch::{self, ENDPOINT};
use super::report::{Figure, Row, Wanted};
use super::sample::per_second;

/// The name of the database in a gateway's data folder.
const FILE: &str = "postrider.db";
/// The two take turns, so that a slow moment of the disk meets both.
const ROUNDS: u32 = 5;
const ARRIVED: Timestamp = Timestamp::from_millis(1_767_225_600_000);

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let turn = setting.brief / ROUNDS;
    let store = open(&setting.folder.join("store-cycle"))?;
    let by_hand_file = setting.folder.join("by-hand");
    // The store makes the other database too, so that both have the same tables and indexes.
    open(&by_hand_file)?.close().await;
    let mut by_hand = open_by_hand(&by_hand_file)?;

    let (mut through_store, mut through_sql) = (Work::default(), Work::default());
    let mut ids = Sequence::after(0);
    for round in 1..=ROUNDS {
        while through_store.time < turn * round {
            let (events, settles) = make_batch(&mut ids);
            through_store.time += cycle(&store, events, settles).await?;
            through_store.cycles += batch::SIZE as u64;
        }
        let turned = tokio::task::spawn_blocking(move || -> Result<_> {
            while through_sql.time < turn * round {
                let (events, settles) = make_batch(&mut ids);
                through_sql.time += cycle_by_hand(&mut by_hand, &events, &settles)?;
                through_sql.cycles += batch::SIZE as u64;
            }
            Ok((through_sql, ids, by_hand))
        });
        (through_sql, ids, by_hand) = turned.await??;
    }
    let counted = store.counts(TenantId::DEFAULT).await?;
    let delivered: u64 = counted
        .iter()
        .filter(|count| count.state == State::Delivered)
        .map(|count| count.deliveries)
        .sum();
    ensure!(delivered == through_store.cycles, "{delivered} of the settled are delivered");
    store.close().await;

    Ok(vec![Row::new(
        "store cycle",
        Figure::per_second(through_store.rate()),
        Some(Figure::per_second(through_sql.rate())),
        Wanted::RatioAtLeast(0.6),
    )])
}

pub(crate) fn keyring() -> Result<Keyring> {
    Ok(Keyring::new(vec![sealing_key()])?)
}

/// A key for stores that hold no secret.
pub(crate) fn sealing_key() -> SealingKey {
    SealingKey::from_bytes([0; 32])
}

/// The store in a gateway's data folder.
pub(crate) fn open(folder: &Path) -> Result<Sqlite> {
    std::fs::create_dir_all(folder)?;
    Ok(Sqlite::open(&folder.join(FILE), Options::default(), keyring()?)?)
}

#[derive(Debug, Clone, Copy, Default)]
struct Work {
    cycles: u64,
    /// Spent in the store, or in SQL, without the making of the rows.
    time: Duration,
}

impl Work {
    fn rate(self) -> f64 {
        per_second(self.cycles, self.time)
    }
}

fn make_batch(ids: &mut Sequence) -> (Vec<NewEvent>, Vec<Settle>) {
    batch::make(ids, ARRIVED, batch::SIZE, None)
}

async fn cycle(store: &Sqlite, events: Vec<NewEvent>, settles: Vec<Settle>) -> Result<Duration> {
    let started = Instant::now();
    let appended = store.append(events).await?;
    let settled = store.settle(settles, Urgency::Now).await?;
    let time = started.elapsed();
    ensure!(appended.iter().all(|one| matches!(one, Appended::New { .. })), "not appended");
    ensure!(settled.iter().all(|one| matches!(one, Settled::Applied { .. })), "not settled");
    Ok(time)
}

pub(crate) fn open_by_hand(folder: &Path) -> Result<Database> {
    let database = Database::open(folder.join(FILE))?;
    database.pragma_update(None, "synchronous", "FULL")?;
    database.pragma_update(None, "cache_size", -(32 << 10))?;
    database.pragma_update_and_check(None, "wal_autocheckpoint", 4_000, |_| Ok(()))?;
    let counts =
        "INSERT INTO delivery_counts (endpoint_id, state, tenant_id, n) VALUES (?1, ?2, 1, 0)";
    for state in [0, 1] {
        database.execute(counts, (ENDPOINT.as_i64(), state))?;
    }
    database.execute("INSERT INTO event_counts (tenant_id, n) VALUES (1, 0)", ())?;
    Ok(database)
}

fn cycle_by_hand(
    database: &mut Database,
    events: &[NewEvent],
    settles: &[Settle],
) -> Result<Duration> {
    let started = Instant::now();
    append_by_hand(database, events)?;
    settle_by_hand(database, settles)?;
    Ok(started.elapsed())
}

fn append_by_hand(database: &mut Database, events: &[NewEvent]) -> Result<()> {
    let transaction = database.transaction()?;
    let mut by_hand = ByHand::new(&transaction)?;
    for new in events {
        let event = &new.event;
        let event = Arrived {
            id: event.id,
            at: event.received_at,
            kind: &event.kind,
            body: &event.body,
            deliveries: new.deliveries.len(),
        };
        by_hand.append(event)?;
    }
    by_hand.finish()?;
    Ok(transaction.commit()?)
}

fn settle_by_hand(database: &mut Database, settles: &[Settle]) -> Result<()> {
    let transaction = database.transaction()?;
    let mut by_hand = ByHand::new(&transaction)?;
    for settle in settles {
        let attempt = settle.attempt.as_ref().context("a settle without its attempt")?;
        by_hand.settle(&Delivered {
            id: settle.id,
            at: settle.at,
            started_at: attempt.started_at,
            duration: attempt.duration,
            status: attempt.status.context("an attempt without a status")?,
        })?;
    }
    by_hand.finish()?;
    Ok(transaction.commit()?)
}

/// A transaction of hand-written SQL: events, their deliveries, and their successes.
pub(crate) struct ByHand<'c> {
    database: &'c Database,
    insert_event: CachedStatement<'c>,
    insert_delivery: CachedStatement<'c>,
    update: CachedStatement<'c>,
    events: i64,
    deliveries: i64,
    settled: i64,
}

/// An event with its deliveries, all of them to [`ENDPOINT`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived<'a> {
    pub(crate) id: EventId,
    pub(crate) at: Timestamp,
    pub(crate) kind: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) deliveries: usize,
}

/// What is kept of a delivery that arrived at the first try.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivered {
    pub(crate) id: DeliveryId,
    pub(crate) at: Timestamp,
    pub(crate) started_at: Timestamp,
    pub(crate) duration: Duration,
    pub(crate) status: u16,
}

impl<'c> ByHand<'c> {
    pub(crate) fn new(database: &'c Database) -> Result<Self> {
        Ok(Self {
            database,
            insert_event: database.prepare_cached(
                "INSERT INTO events (id, tenant_id, received_at, deliveries, kind, content_type, \
                 body) VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6)",
            )?,
            insert_delivery: database.prepare_cached(
                "INSERT INTO deliveries (id, tenant_id, event_id, endpoint_id, state, place, \
                 attempts, deferrals, tries, fence, replay, born, at) \
                 VALUES (?1, 1, ?2, ?3, 0, 1, 0, 0, 0, 0, 0, ?4, ?4)",
            )?,
            update: database.prepare_cached(
                "UPDATE deliveries SET state = 1, place = NULL, attempts = 1, tries = 1, \
                 fence = fence + 1, at = ?2, last_attempt_at = ?3, status = ?4, duration_ms = ?5 \
                 WHERE id = ?1 AND fence = 0",
            )?,
            events: 0,
            deliveries: 0,
            settled: 0,
        })
    }

    pub(crate) fn append(&mut self, event: Arrived<'_>) -> Result<()> {
        let Arrived { id, at, kind, body, deliveries } = event;
        let (event, at, count) = (id.as_i64(), at.as_millis(), i64::try_from(deliveries)?);
        self.insert_event.execute((event, at, count, kind, batch::CONTENT_TYPE, body))?;
        for index in 0..deliveries {
            let delivery = delivery_id(id, index).as_i64();
            self.insert_delivery.execute((delivery, event, ENDPOINT.as_i64(), at))?;
        }
        self.events += 1;
        self.deliveries += count;
        Ok(())
    }

    pub(crate) fn settle(&mut self, delivered: &Delivered) -> Result<()> {
        let changed = self.update.execute((
            delivered.id.as_i64(),
            delivered.at.as_millis(),
            delivered.started_at.as_millis(),
            delivered.status,
            i64::try_from(delivered.duration.as_millis())?,
        ))?;
        ensure!(changed == 1, "a delivery was not settled by hand");
        self.settled += 1;
        Ok(())
    }

    /// Brings the counts up to date.
    pub(crate) fn finish(self) -> Result<()> {
        let mut deliveries = self.database.prepare_cached(
            "UPDATE delivery_counts SET n = n + ?3 WHERE endpoint_id = ?1 AND state = ?2",
        )?;
        for (state, by) in [(0, self.deliveries - self.settled), (1, self.settled)] {
            if by != 0 {
                deliveries.execute((ENDPOINT.as_i64(), state, by))?;
            }
        }
        if self.events > 0 {
            let sql = "UPDATE event_counts SET n = n + ?1 WHERE tenant_id = 1";
            self.database.prepare_cached(sql)?.execute([self.events])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The comparison is fair only if both leave the same rows behind.
    #[tokio::test]
    async fn the_store_and_the_hand_written_sql_write_the_same_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ours, other) = (folder.path().join("ours"), folder.path().join("other"));
        let (events, settles) = make_batch(&mut Sequence::after(0));
        open(&other).expect("a store").close().await;
        let mut database = open_by_hand(&other).expect("a database");
        cycle_by_hand(&mut database, &events, &settles).expect("a cycle");
        drop(database);
        let store = open(&ours).expect("a store");
        cycle(&store, events, settles).await.expect("a cycle");
        store.close().await;

        for table in ["events", "deliveries", "delivery_counts", "event_counts"] {
            assert_eq!(rows(&ours, table), rows(&other, table), "{table}");
        }
    }

    fn rows(folder: &Path, table: &str) -> Vec<Vec<rusqlite::types::Value>> {
        let database = Database::open(folder.join(FILE)).expect("a database");
        let mut select =
            database.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).expect("a table");
        let columns = select.column_count();
        let rows = select
            .query_map((), |row| (0..columns).map(|column| row.get(column)).collect())
            .expect("rows");
        rows.collect::<Result<_, _>>().expect("readable rows")
    }
}
