//! How many events a second the store alone appends and settles, beside hand-written SQL that
//! writes the same rows, in the same batches, to a database of the same make.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use postrider_core::id::Sequence;
use postrider_core::{State, TenantId, Timestamp};
use postrider_store::journal::{Appended, Urgency};
use postrider_store::record::{NewEvent, Settle, Settled};
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{Options, Sqlite};
use postrider_store::{Journal as _, Ledger as _};
use rusqlite::Connection as Database;

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

fn open_by_hand(folder: &Path) -> Result<Database> {
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
    {
        let mut insert_event = transaction.prepare_cached(
            "INSERT INTO events (id, tenant_id, received_at, deliveries, kind, content_type, body) \
             VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6)",
        )?;
        let mut insert_delivery = transaction.prepare_cached(
            "INSERT INTO deliveries (id, tenant_id, event_id, endpoint_id, state, place, attempts, \
             deferrals, tries, fence, replay, born, at) \
             VALUES (?1, ?2, ?3, ?4, 0, 1, 0, 0, 0, 0, 0, ?5, ?5)",
        )?;
        for new in events {
            let event = &new.event;
            let (id, tenant, at) =
                (event.id.as_i64(), event.tenant.0, event.received_at.as_millis());
            insert_event.execute((
                id,
                tenant,
                at,
                &event.kind,
                &event.content_type,
                &event.body[..],
            ))?;
            for (index, delivery) in new.deliveries.iter().enumerate() {
                let delivery_id = new.delivery_id(index).as_i64();
                insert_delivery.execute((
                    delivery_id,
                    tenant,
                    id,
                    delivery.endpoint.as_i64(),
                    at,
                ))?;
            }
        }
        count_by_hand(&transaction, 0, events.len())?;
        transaction
            .prepare_cached("UPDATE event_counts SET n = n + ?1 WHERE tenant_id = 1")?
            .execute([i64::try_from(events.len())?])?;
    }
    Ok(transaction.commit()?)
}

fn settle_by_hand(database: &mut Database, settles: &[Settle]) -> Result<()> {
    let transaction = database.transaction()?;
    {
        let mut update = transaction.prepare_cached(
            "UPDATE deliveries SET state = 1, place = NULL, attempts = 1, tries = 1, \
             fence = fence + 1, at = ?3, last_attempt_at = ?4, status = ?5, duration_ms = ?6 \
             WHERE id = ?1 AND fence = ?2",
        )?;
        for settle in settles {
            let attempt = settle.attempt.as_ref().context("a settle without its attempt")?;
            let changed = update.execute((
                settle.id.as_i64(),
                settle.fence,
                settle.at.as_millis(),
                attempt.started_at.as_millis(),
                attempt.status,
                i64::try_from(attempt.duration.as_millis())?,
            ))?;
            ensure!(changed == 1, "a delivery was not settled by hand");
        }
        count_by_hand(&transaction, 1, settles.len())?;
    }
    Ok(transaction.commit()?)
}

fn count_by_hand(database: &Database, state: i64, by: usize) -> Result<()> {
    let mut update = database.prepare_cached(
        "UPDATE delivery_counts SET n = n + ?3 WHERE endpoint_id = ?1 AND state = ?2",
    )?;
    let by = i64::try_from(by)?;
    update.execute((ENDPOINT.as_i64(), state, by))?;
    if state == 1 {
        update.execute((ENDPOINT.as_i64(), 0, -by))?;
    }
    Ok(())
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
