//! History by the day: parts are made ahead of time, and dropped whole when they are past it.
//!
//! A part that is small is emptied row by row, exactly when its rows are due to go. One that is large
//! waits until nearly all of it may go; the few rows that may not are kept among the others
//! (`…_other`), and the rest goes with the part, for the price of removing a file.

use std::time::Duration;

use postrider_core::{DeliveryId, EventId, Timestamp};

use super::changes::SLOT;
use super::fault::Fault;
use super::rows;
use super::session::Session;
use crate::error::Error;
use crate::journal::{Cutoffs, RetentionStep};

/// So many days are made before they begin.
const DAYS_AHEAD: i64 = 7;

/// A part is dropped only if no more than this many of its rows have to be kept, of any kind.
const MAX_KEPT: i64 = 50_000;

/// Held by the node that makes parts, while it does.
const LOCK: i64 = i64::from_be_bytes(*b"PostDays");

/// Whoever has to be waited for to change what parts there are may take this long.
const LOCK_TIMEOUT_MS: u32 = 1_000;

/// How long looking through a whole day may take.
const PATIENCE: Duration = Duration::from_mins(10);

/// Of the day in which an id was made, counted from 2024: how long it is in ids.
const DAY: i64 = 86_400_000 << 22;

/// Makes the parts of today and of the days to come, by the server's clock. What cannot be had soon
/// is left for another time: `…_other` takes everything.
pub(crate) async fn make_days(session: &Session) -> Result<(), Error> {
    let today = "floor(extract(epoch FROM now()) / 86400)::int8 - 19723";
    let made = session
        .script(&format!(
            "BEGIN; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}; \
             SELECT pg_advisory_xact_lock({LOCK}); \
             SELECT make_day(day) FROM generate_series({today} - 1, {today} + {DAYS_AHEAD}) d (day); \
             COMMIT"
        ))
        .await;
    match made {
        Ok(()) => Ok(()),
        Err(Fault::Busy(why)) => {
            tracing::debug!(why, "the parts of the coming days could not be made");
            Ok(session.script("ROLLBACK").await?)
        }
        Err(fault) => {
            session.give_up();
            Err(fault.into())
        }
    }
}

/// A day whose parts are dropped, not emptied.
#[derive(Debug, Clone)]
pub(crate) struct Day {
    /// What the names of its parts end with.
    suffix: String,
    pub(crate) first: i64,
    pub(crate) beyond: i64,
}

/// The first day with large parts that begins in or after `after`, and before `bound`.
pub(crate) async fn next_large(
    session: &Session,
    after: EventId,
    bound: i64,
    large_bytes: u64,
) -> Result<Option<Day>, Error> {
    // Sizes are asked of as few parts as possible: each is a dozen looks at the disk.
    const SQL: &str = "WITH days AS MATERIALIZED (SELECT right(c.relname, 8) AS suffix, \
             (to_date(right(c.relname, 8), 'YYYYMMDD') - date '2024-01-01')::int8 AS day \
             FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
             WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_[0-9]{8}$' \
             ORDER BY 2) \
         SELECT suffix, day FROM days WHERE day < $1 AND day > $2 \
             AND pg_total_relation_size(('events_' || suffix)::regclass) \
                 + pg_total_relation_size(('finished_' || suffix)::regclass) >= $3 LIMIT 1";
    let large = i64::try_from(large_bytes).unwrap_or(i64::MAX);
    // The days that begin before the one, and end after the other.
    let (before, beyond) = ((bound + DAY - 1) / DAY, (after.as_i64() + 1) / DAY - 1);
    let Some(row) = session.row(SQL, &[&before, &beyond, &large]).await? else { return Ok(None) };
    let first = rows::get::<i64>(&row, 1)?.saturating_mul(DAY);
    Ok(Some(Day { suffix: rows::get(&row, 0)?, first, beyond: first.saturating_add(DAY) }))
}

impl Day {
    /// Drops the parts of the day, if nearly everything in them may go; otherwise they stay as they
    /// are. Whoever settles deliveries as old as these waits meanwhile; nobody else does.
    pub(crate) async fn drop_whole(
        &self,
        session: &Session,
        cutoffs: &Cutoffs,
    ) -> Result<RetentionStep, Error> {
        let next = Some(EventId::from_i64(self.beyond - 1));
        let stays = RetentionStep { deliveries_removed: 0, events_removed: 0, next };
        let oldest = cutoffs.delivered.min(cutoffs.failed).min(cutoffs.events);
        if DeliveryId::floor(oldest).as_i64() < self.beyond {
            return Ok(stays);
        }
        session.script("SAVEPOINT whole_day").await?;
        match self.try_drop(session, cutoffs).await {
            Ok(Some((deliveries, events))) => Ok(RetentionStep {
                deliveries_removed: deliveries.unsigned_abs(),
                events_removed: events.unsigned_abs(),
                next,
            }),
            // Too much to keep, or somebody is at work on it: another time.
            Ok(None) | Err(Fault::Busy(_)) => {
                session.script("ROLLBACK TO whole_day").await?;
                Ok(stays)
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Returns how many deliveries and events went; none, if too much would have to be kept.
    async fn try_drop(
        &self,
        session: &Session,
        cutoffs: &Cutoffs,
    ) -> Result<Option<(i64, i64)>, Fault> {
        session.script_within(&self.keep(cutoffs), PATIENCE).await?;
        let Some(counted) = session.row(COUNTED, &[]).await? else { return Ok(None) };
        let count = |column: usize| counted.try_get::<_, i64>(column).unwrap_or(i64::MAX);
        if count(0) > MAX_KEPT {
            return Ok(None);
        }
        session.script_within(&self.replace(), PATIENCE).await?;
        Ok(Some((count(1), count(2))))
    }

    /// Puts aside what has to be kept, and counts what goes.
    fn keep(&self, cutoffs: &Cutoffs) -> String {
        let millis = |time: Timestamp| time.as_millis();
        let (delivered, failed) = (millis(cutoffs.delivered), millis(cutoffs.failed));
        let (dead, received) = (millis(cutoffs.dead), millis(cutoffs.events));
        let suffix = &self.suffix;
        let expired = format!(
            "CASE f.state WHEN 1 THEN f.at < {delivered} WHEN 5 THEN f.at < {delivered} \
             WHEN 3 THEN coalesce(f.last_attempt_at, f.at) < {failed} \
             WHEN 4 THEN coalesce((SELECT e.received_at < {dead} FROM events e \
                 WHERE e.id = f.event_id), true) ELSE false END"
        );
        // A delivery of an event can be in the part of the day after, and its replays anywhere.
        let wanted = format!(
            "e.received_at >= {received} \
             OR EXISTS (SELECT 1 FROM unfinished u WHERE u.id > e.id AND u.id <= e.id + e.deliveries) \
             OR EXISTS (SELECT 1 FROM kept_finished f WHERE f.event_id = e.id) \
             OR EXISTS (SELECT 1 FROM finished f WHERE f.id >= {beyond} AND f.id > e.id \
                 AND f.id <= e.id + e.deliveries) \
             OR EXISTS (SELECT 1 FROM unfinished u WHERE u.event_id = e.id AND u.replay) \
             OR EXISTS (SELECT 1 FROM finished f WHERE f.event_id = e.id AND f.replay \
                 AND (f.id < {first} OR f.id >= {beyond}))",
            first = self.first,
            beyond = self.beyond,
        );
        format!(
            "SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}; SET LOCAL statement_timeout = 0; \
             SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; \
             LOCK TABLE events_{suffix}, finished_{suffix}, attempts_{suffix} IN SHARE MODE; \
             CREATE TEMPORARY TABLE kept_finished ON COMMIT DROP AS \
                 SELECT f.* FROM finished_{suffix} f WHERE NOT ({expired}); \
             CREATE INDEX ON kept_finished (id); CREATE INDEX ON kept_finished (event_id); \
             CREATE TEMPORARY TABLE kept_events ON COMMIT DROP AS \
                 SELECT e.* FROM events_{suffix} e WHERE {wanted}; \
             CREATE INDEX ON kept_events (id); \
             CREATE TEMPORARY TABLE kept_attempts ON COMMIT DROP AS \
                 SELECT a.* FROM attempts_{suffix} a \
                 WHERE EXISTS (SELECT 1 FROM unfinished u WHERE u.id = a.delivery_id) \
                     OR EXISTS (SELECT 1 FROM kept_finished f WHERE f.id = a.delivery_id); \
             CREATE TEMPORARY TABLE gone_finished ON COMMIT DROP AS \
                 SELECT f.endpoint_id, min(f.tenant_id) AS tenant_id, f.state, count(*) AS n \
                 FROM finished_{suffix} f \
                 WHERE NOT EXISTS (SELECT 1 FROM kept_finished k WHERE k.id = f.id) \
                 GROUP BY f.endpoint_id, f.state; \
             CREATE TEMPORARY TABLE gone_events ON COMMIT DROP AS \
                 SELECT e.tenant_id, count(*) AS n FROM events_{suffix} e \
                 WHERE NOT EXISTS (SELECT 1 FROM kept_events k WHERE k.id = e.id) \
                 GROUP BY e.tenant_id"
        )
    }

    /// Puts what is kept in the place of the parts.
    fn replace(&self) -> String {
        let suffix = &self.suffix;
        let count = format!(
            "DELETE FROM idempotency i USING events_{suffix} e \
                 WHERE e.idempotency_key IS NOT NULL \
                 AND i.scope = coalesce(e.source_id, -e.tenant_id) AND i.key = e.idempotency_key \
                 AND i.event_id = e.id \
                 AND NOT EXISTS (SELECT 1 FROM kept_events k WHERE k.id = e.id); \
             INSERT INTO delivery_counts (endpoint_id, tenant_id, n, state, slot) \
                 SELECT endpoint_id, tenant_id, -n, state, {SLOT} FROM gone_finished \
                 ON CONFLICT (endpoint_id, state, slot) \
                     DO UPDATE SET n = delivery_counts.n + excluded.n; \
             INSERT INTO event_counts (tenant_id, n, slot) \
                 SELECT tenant_id, -n, {SLOT} FROM gone_events \
                 ON CONFLICT (tenant_id, slot) DO UPDATE SET n = event_counts.n + excluded.n"
        );
        let swap = |whole: &str| {
            format!(
                "ALTER TABLE {whole} DETACH PARTITION {whole}_{suffix}; \
                 DROP TABLE {whole}_{suffix}; \
                 INSERT INTO {whole} SELECT * FROM kept_{whole}"
            )
        };
        [count, swap("events"), swap("finished"), swap("attempts")].join("; ")
    }
}

/// How many rows have to be kept of the largest kind, and how many deliveries and events go.
const COUNTED: &str = "SELECT greatest((SELECT count(*) FROM kept_finished), \
         (SELECT count(*) FROM kept_events), (SELECT count(*) FROM kept_attempts)), \
     coalesce((SELECT sum(n) FROM gone_finished), 0)::int8, \
     coalesce((SELECT sum(n) FROM gone_events), 0)::int8";
