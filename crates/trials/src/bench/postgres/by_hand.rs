//! Hand-written SQL that does the store's row work: the same rows in the same tables, in as few
//! statements, each a transaction, without anything that this work does not need.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use postrider_core::id::Sequence;
use postrider_store::record::{NewEvent, Settle};
use tokio_postgres::Statement;

use super::super::backlog::now;
use super::super::batch::{self, ENDPOINT};
use super::carrier::SCHEMA;
use super::contest::{Cycle, Upkeep};
use super::session::Session;

const APPEND: &str = "WITH made AS (INSERT INTO events \
         (id, tenant_id, received_at, deliveries, kind, content_type, body) \
         SELECT id, 1, at, 1, kind, content_type, body \
             FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::bytea[]) \
             e (id, at, kind, content_type, body)), \
     sent AS (INSERT INTO unfinished (id, tenant_id, event_id, endpoint_id, born, at, attempts, \
         deferrals, tries, fence, state, place, replay) \
         SELECT id + 1, 1, id, endpoint_id, at, at, 0, 0, 0, 0, 0, 1, false \
             FROM unnest($1::int8[], $2::int8[], $6::int8[]) e (id, at, endpoint_id)), \
     counted AS (UPDATE delivery_counts SET n = n + cardinality($1) \
         WHERE endpoint_id = $7::int8 AND state = 0 AND slot = $8::int2) \
     UPDATE event_counts SET n = n + cardinality($1) WHERE tenant_id = 1 AND slot = $8";

/// Each row is found by its key and then removed where it is: a plan that looks for rows in any other
/// way, because there were none when it was made, goes through the whole batch for each of them.
const SETTLE: &str = "WITH gone AS (DELETE FROM unfinished u \
         USING (SELECT s.*, w.place FROM unnest($1::int8[], $2::int4[], $3::int8[], $4::int8[], \
             $5::int4[], $6::int4[]) s (id, fence, at, started_at, status, duration_ms) \
             CROSS JOIN LATERAL (SELECT w.ctid AS place FROM unfinished w \
                 WHERE w.id = s.id AND w.fence = s.fence OFFSET 0) w) s \
         WHERE u.ctid = s.place \
         RETURNING u.id, u.tenant_id, u.event_id, u.endpoint_id, u.born, s.at, s.started_at, \
             s.status, s.duration_ms), \
     ended AS (INSERT INTO finished (id, tenant_id, event_id, endpoint_id, born, at, \
         last_attempt_at, attempts, deferrals, tries, fence, status, duration_ms, state, replay) \
         SELECT id, tenant_id, event_id, endpoint_id, born, at, started_at, 1, 0, 1, 1, status, \
             duration_ms, 1, false FROM gone), \
     counted AS (UPDATE delivery_counts \
         SET n = n + CASE state WHEN 0 THEN -1 ELSE 1 END * cardinality($1) \
         WHERE endpoint_id = $7::int8 AND state IN (0, 1) AND slot = $8::int2) \
     SELECT count(*) FROM gone";

/// Where a connection counts: each has rows of its own, as in the store.
const COUNT_DELIVERIES: &str = "INSERT INTO delivery_counts (endpoint_id, tenant_id, n, state, slot) \
     VALUES ($1, 1, 0, 0, $2), ($1, 1, 0, 1, $2)";
const COUNT_EVENTS: &str = "INSERT INTO event_counts (tenant_id, n, slot) VALUES (1, 0, $1)";

/// The tables that dead rows are left in.
const BUSY: &[&str] = &["unfinished", "delivery_counts", "event_counts"];

/// One connection.
pub(crate) struct ByHand {
    session: Session,
    append: Statement,
    settle: Statement,
    slot: i16,
    ids: Sequence,
    upkeep: Arc<Upkeep>,
}

impl ByHand {
    /// So many of them, on a database whose tables the store has made.
    pub(crate) async fn team(url: &str, connections: usize) -> Result<Vec<Self>> {
        let upkeep = Upkeep::start(Session::open_planned(url, SCHEMA).await?, BUSY);
        let mut team = Vec::with_capacity(connections);
        for number in 1..=u8::try_from(connections)? {
            team.push(Self::open(url, number, Arc::clone(&upkeep)).await?);
        }
        Ok(team)
    }

    async fn open(url: &str, number: u8, upkeep: Arc<Upkeep>) -> Result<Self> {
        let session = Session::open_planned(url, SCHEMA).await?;
        let slot = i16::from(number);
        session.client.execute(COUNT_DELIVERIES, &[&ENDPOINT.as_i64(), &slot]).await?;
        session.client.execute(COUNT_EVENTS, &[&slot]).await?;
        let append = session.client.prepare(APPEND).await?;
        let settle = session.client.prepare(SETTLE).await?;
        let ids = Sequence::of_node(number, 0);
        Ok(Self { session, append, settle, slot, ids, upkeep })
    }

    async fn append(&self, events: &[NewEvent]) -> Result<()> {
        let each = |of: fn(&NewEvent) -> i64| events.iter().map(of).collect::<Vec<i64>>();
        let ids = each(|new| new.event.id.as_i64());
        let times = each(|new| new.event.received_at.as_millis());
        let kinds: Vec<&str> = events.iter().map(|new| &*new.event.kind).collect();
        let content_types: Vec<&str> = events.iter().map(|new| &*new.event.content_type).collect();
        let bodies: Vec<&[u8]> = events.iter().map(|new| &new.event.body[..]).collect();
        let endpoints = vec![ENDPOINT.as_i64(); events.len()];
        let client = &self.session.client;
        let counted = client
            .execute(
                &self.append,
                &[
                    &ids,
                    &times,
                    &kinds,
                    &content_types,
                    &bodies,
                    &endpoints,
                    &ENDPOINT.as_i64(),
                    &self.slot,
                ],
            )
            .await?;
        ensure!(counted == 1, "an append by hand was not counted");
        Ok(())
    }

    async fn settle(&self, settles: &[Settle]) -> Result<()> {
        let ids: Vec<i64> = settles.iter().map(|settle| settle.id.as_i64()).collect();
        let fences: Vec<i32> = settles.iter().map(|settle| settle.fence.cast_signed()).collect();
        let times: Vec<i64> = settles.iter().map(|settle| settle.at.as_millis()).collect();
        let (mut started, mut statuses, mut took) = (Vec::new(), Vec::new(), Vec::new());
        for settle in settles {
            let attempt = settle.attempt.as_ref().context("a settle without its attempt")?;
            started.push(attempt.started_at.as_millis());
            statuses.push(attempt.status.map(i32::from));
            took.push(i32::try_from(attempt.duration.as_millis())?);
        }
        let client = &self.session.client;
        let gone = client
            .query_one(
                &self.settle,
                &[
                    &ids,
                    &fences,
                    &times,
                    &started,
                    &statuses,
                    &took,
                    &ENDPOINT.as_i64(),
                    &self.slot,
                ],
            )
            .await?;
        let gone: i64 = gone.try_get(0)?;
        ensure!(gone == i64::try_from(settles.len())?, "{gone} were settled by hand");
        self.upkeep.note(settles.len());
        Ok(())
    }

    async fn take_through(&self, events: &[NewEvent], settles: &[Settle]) -> Result<Duration> {
        let started = Instant::now();
        self.append(events).await?;
        self.settle(settles).await?;
        Ok(started.elapsed())
    }
}

impl Cycle for ByHand {
    async fn cycle(&mut self) -> Result<Duration> {
        let (events, settles) = batch::make(&mut self.ids, now(), batch::SIZE, None);
        self.take_through(&events, &settles).await
    }
}

#[cfg(test)]
mod tests {
    use postrider_store::Journal as _;

    use super::super::carrier::{Carrier, make_tables};
    use super::super::cluster::{Cluster, Watch};
    use super::*;

    /// The comparison is fair only if both leave the same rows behind.
    #[tokio::test]
    async fn the_store_and_the_hand_written_sql_write_the_same_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = Cluster::start(folder.path(), Watch::Nothing).await.expect("a server");
        let ours = cluster.database("ours").await.expect("a database");
        let other = cluster.database("other").await.expect("a database");
        make_tables(&other).await.expect("tables");
        let carrier = Carrier::open(&ours).await.expect("a store");
        let by_hand = ByHand::team(&other, 1).await.expect("a connection");
        let (ours, other) = (tables(&ours).await, tables(&other).await);

        let (events, settles) = carrier.batch(10);
        carrier.append(events.clone()).await.expect("appended");
        by_hand[0].append(&events).await.expect("appended");
        assert_eq!(rows(&ours).await, rows(&other).await, "appended");
        carrier.settle(settles.clone()).await.expect("settled");
        by_hand[0].settle(&settles).await.expect("settled");
        assert_eq!(rows(&ours).await, rows(&other).await, "settled");
        carrier.store.close().await;
    }

    async fn tables(url: &str) -> Session {
        Session::open_planned(url, SCHEMA).await.expect("a connection")
    }

    /// Every row as text, and the counts as they are shown.
    async fn rows(session: &Session) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for sql in [
            "SELECT t::text FROM events t ORDER BY id",
            "SELECT t::text FROM unfinished t ORDER BY id",
            "SELECT t::text FROM finished t ORDER BY id",
            "SELECT concat_ws(' ', endpoint_id, tenant_id, state, sum(n)) FROM delivery_counts \
             GROUP BY endpoint_id, tenant_id, state HAVING sum(n) <> 0 ORDER BY 1",
            "SELECT concat_ws(' ', tenant_id, sum(n)) FROM event_counts GROUP BY tenant_id",
        ] {
            let rows = session.client.query(sql, &[]).await.expect("rows");
            found.push(rows.iter().map(|row| row.get(0)).collect());
        }
        found
    }
}
