//! The design of most job queues on `PostgreSQL`, for comparison: rows of one table, which each worker
//! claims one by one with `FOR UPDATE SKIP LOCKED`, and updates once more when it is through.
//!
//! It is given what it can have: its rows come in the same batches as the store's, what waits has a
//! partial index, nothing is counted, and its table is vacuumed as often.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use postrider_core::id::Sequence;
use postrider_store::Journal as _;
use postrider_store::record::NewEvent;
use tokio_postgres::Statement;

use super::super::Setting;
use super::super::backlog::now;
use super::super::batch::{self, ENDPOINT};
use super::super::report::{Figure, Row, Wanted};
use super::carrier::{Carrier, connections};
use super::cluster::{Cluster, Watch};
use super::contest::{Cycle, ROUNDS, Team, Upkeep};
use super::session::Session;
use super::store_cycle::require_delivered;

/// Such a design is helped by many workers, each on a connection of its own: their commits share the
/// disk's time.
const MANY: usize = 32;

const SCHEMA: &str = "claims";

const TABLES: &str = "CREATE SCHEMA claims; \
     CREATE TABLE claims.events (id bigint PRIMARY KEY, tenant_id bigint NOT NULL, \
         received_at bigint NOT NULL, kind text NOT NULL, content_type text NOT NULL, \
         body bytea NOT NULL); \
     CREATE TABLE claims.deliveries (id bigint PRIMARY KEY, tenant_id bigint NOT NULL, \
         event_id bigint NOT NULL, endpoint_id bigint NOT NULL, due bigint NOT NULL, \
         claimed_at bigint, ended_at bigint, attempts integer NOT NULL, status integer, \
         duration_ms integer, state smallint NOT NULL) WITH (fillfactor = 90, \
         autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, \
         autovacuum_vacuum_cost_delay = 0); \
     CREATE INDEX deliveries_waiting ON claims.deliveries (due, id) WHERE state = 0";

const APPEND: &str = "WITH made AS (INSERT INTO events \
         SELECT id, 1, at, kind, content_type, body \
             FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::bytea[]) \
             e (id, at, kind, content_type, body)) \
     INSERT INTO deliveries (id, tenant_id, event_id, endpoint_id, due, attempts, state) \
         SELECT id + 1, 1, id, $6::int8, at, 0, 0 FROM unnest($1::int8[], $2::int8[]) e (id, at)";

const CLAIM: &str = "UPDATE deliveries d SET state = 6, attempts = attempts + 1, claimed_at = $1 \
     FROM events e \
     WHERE d.id = (SELECT w.id FROM deliveries w WHERE w.state = 0 AND w.due <= $1 \
         ORDER BY w.due, w.id LIMIT 1 FOR UPDATE SKIP LOCKED) AND e.id = d.event_id \
     RETURNING d.id, e.body";

const FINISH: &str = "UPDATE deliveries SET state = 1, ended_at = $2, status = 200, duration_ms = 3 \
     WHERE id = $1 AND state = 6";

pub(crate) async fn measure(setting: &Setting) -> Result<Vec<Row>> {
    let cluster = Cluster::start(&setting.folder, Watch::Nothing).await?;
    let carrier = Carrier::open(&cluster.database("ours").await?).await?;
    let few = connections();
    let mut ours = Team::new(carrier.team());
    let mut alike = Team::new(Claimer::team(&cluster.database("alike").await?, few).await?);
    let mut many = Team::new(Claimer::team(&cluster.database("many").await?, MANY).await?);
    let turn = setting.brief / ROUNDS;
    for _ in 0..ROUNDS {
        ours.work(turn).await?;
        alike.work(turn).await?;
        many.work(turn).await?;
    }
    require_delivered(&carrier, ours.cycles()).await?;
    carrier.store.close().await;

    let row = |workers: usize, claims: f64| {
        Row::new(
            format!("store cycle, {few} connections, beside claims by {workers} workers"),
            Figure::per_second(ours.rate()),
            Some(Figure::per_second(claims)),
            Wanted::RatioAtLeast(2.0),
        )
    };
    Ok(vec![row(few, alike.rate()), row(MANY, many.rate())])
}

/// A worker on its connection.
struct Claimer {
    session: Session,
    append: Statement,
    claim: Statement,
    finish: Statement,
    ids: Sequence,
    upkeep: Arc<Upkeep>,
}

impl Claimer {
    /// Workers on an empty database.
    async fn team(url: &str, workers: usize) -> Result<Vec<Self>> {
        let session = Session::open(url).await?;
        session.run(TABLES).await?;
        let upkeep = Upkeep::start(Session::open_planned(url, SCHEMA).await?, &["deliveries"]);
        let mut team = Vec::with_capacity(workers);
        for number in 0..u8::try_from(workers)? {
            team.push(Self::open(url, number, Arc::clone(&upkeep)).await?);
        }
        Ok(team)
    }

    async fn open(url: &str, number: u8, upkeep: Arc<Upkeep>) -> Result<Self> {
        let session = Session::open_planned(url, SCHEMA).await?;
        let append = session.client.prepare(APPEND).await?;
        let claim = session.client.prepare(CLAIM).await?;
        let finish = session.client.prepare(FINISH).await?;
        let ids = Sequence::of_node(number, 0);
        Ok(Self { session, append, claim, finish, ids, upkeep })
    }

    async fn append(&self, events: &[NewEvent]) -> Result<()> {
        let ids: Vec<i64> = events.iter().map(|new| new.event.id.as_i64()).collect();
        let times: Vec<i64> = events.iter().map(|new| new.event.received_at.as_millis()).collect();
        let kinds: Vec<&str> = events.iter().map(|new| &*new.event.kind).collect();
        let content_types: Vec<&str> = events.iter().map(|new| &*new.event.content_type).collect();
        let bodies: Vec<&[u8]> = events.iter().map(|new| &new.event.body[..]).collect();
        let client = &self.session.client;
        client
            .execute(
                &self.append,
                &[&ids, &times, &kinds, &content_types, &bodies, &ENDPOINT.as_i64()],
            )
            .await?;
        Ok(())
    }

    /// Claims the next that waits, and finishes it. Not so, if others are at all that wait.
    async fn claim_and_finish(&self) -> Result<bool> {
        let (client, at) = (&self.session.client, now().as_millis());
        let Some(claimed) = client.query_opt(&self.claim, &[&at]).await? else {
            return Ok(false);
        };
        let id: i64 = claimed.try_get(0)?;
        let body: &[u8] = claimed.try_get(1)?;
        ensure!(super::super::event::number(body).is_some(), "a claimed event is none of ours");
        let finished = client.execute(&self.finish, &[&id, &now().as_millis()]).await?;
        ensure!(finished == 1, "what was claimed is not the worker's any more");
        self.upkeep.note(1);
        Ok(true)
    }
}

impl Cycle for Claimer {
    /// As many as it has appended, though they may be another's: all of them get their turn.
    async fn cycle(&mut self) -> Result<Duration> {
        let (events, _) = batch::make(&mut self.ids, now(), batch::SIZE, None);
        let started = Instant::now();
        self.append(&events).await.context("appending what is to be claimed")?;
        let mut finished = 0;
        while finished < events.len() {
            if self.claim_and_finish().await? {
                finished += 1;
            } else {
                tokio::task::yield_now().await;
            }
        }
        Ok(started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn claimers_finish_every_delivery_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let cluster = Cluster::start(folder.path(), Watch::Nothing).await.expect("a server");
        let url = cluster.database("claimed").await.expect("a database");
        let mut team = Team::new(Claimer::team(&url, 3).await.expect("workers"));
        team.work(Duration::from_millis(1)).await.expect("work");
        let session = Session::open_planned(&url, SCHEMA).await.expect("a connection");
        let finished = "SELECT count(*) FROM deliveries WHERE state = 1 AND attempts = 1";
        let finished = session.number(finished).await.expect("a count");
        assert_eq!(finished.unsigned_abs(), team.cycles());
        assert_eq!(session.number("SELECT count(*) FROM deliveries").await.expect("all"), finished);
    }
}
