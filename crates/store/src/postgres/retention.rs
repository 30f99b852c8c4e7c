//! Removing what is past its time, a bounded piece at a time.

use std::collections::{BTreeSet, HashMap};

use postrider_core::{DeliveryId, EventId};
use tokio_postgres::Row;

use super::changes::SLOT;
use super::partitions;
use super::rows;
use super::session::Session;
use crate::error::Error;
use crate::journal::{Cutoffs, RetentionStep};
use crate::record::DeliveryRecord;
use crate::stored::code;

pub(crate) async fn sweep(
    session: &Session,
    cutoffs: &Cutoffs,
    after: EventId,
    limit: usize,
    large_bytes: u64,
) -> Result<RetentionStep, Error> {
    let limit = limit.max(1);
    // Nothing ends before it is made: what is younger than every cutoff cannot be past any.
    let newest = cutoffs.delivered.max(cutoffs.failed).max(cutoffs.dead).max(cutoffs.events);
    let mut bound = DeliveryId::floor(newest).as_i64();
    let mut large = None;
    if let Some(day) = partitions::next_large(session, after, bound, large_bytes).await? {
        if day.first <= after.as_i64() + 1 {
            return day.drop_whole(session, cutoffs).await;
        }
        bound = day.first;
        large = Some(EventId::from_i64(day.first - 1));
    }
    let deliveries = walk_deliveries(session, cutoffs, after, bound, limit).await?;
    let events = walk_events(session, cutoffs, after, &deliveries, limit).await?;
    let next = events.stopped_at.or(deliveries.stopped_at).or(large);
    if next.is_none() {
        forget_counts(session).await?;
    }
    Ok(RetentionStep {
        deliveries_removed: deliveries.removed,
        events_removed: events.removed,
        next,
    })
}

/// What goes with the finished deliveries in `removed`, which precedes it in a `WITH`: their attempts,
/// and their part in the counts.
const WITH_THEM: &str = "untried AS (DELETE FROM attempts \
         WHERE delivery_id = ANY (ARRAY(SELECT id FROM removed))), \
     counted AS (INSERT INTO delivery_counts (endpoint_id, tenant_id, n, state, slot) \
         SELECT endpoint_id, min(tenant_id), -count(*), state, $1::int2 FROM removed \
             GROUP BY endpoint_id, state \
         ON CONFLICT (endpoint_id, state, slot) DO UPDATE SET n = delivery_counts.n + excluded.n) \
     SELECT event_id, replay FROM removed";

/// What is known of each of `removed`.
const REMOVED: &str = "f.id, f.tenant_id, f.event_id, f.endpoint_id, f.state, f.replay";

/// Removes those of `found` that nobody changed since they were found.
pub(crate) async fn purge(session: &Session, found: &[DeliveryRecord]) -> Result<u64, Error> {
    let sql = format!(
        "WITH removed AS (DELETE FROM finished f USING (SELECT * FROM \
             unnest($2::int8[], $3::int4[]) g (id, fence) LIMIT cardinality($2)) g \
             WHERE f.id = g.id AND f.id = ANY ($2) AND f.fence = g.fence RETURNING {REMOVED}), {WITH_THEM}"
    );
    let ids: Vec<i64> = found.iter().map(|record| record.id.as_i64()).collect();
    let fences: Vec<i32> = found.iter().map(|record| record.fence.cast_signed()).collect();
    Ok(session.rows(&sql, &[&SLOT, &ids, &fences]).await?.len() as u64)
}

struct WalkedDeliveries {
    removed: u64,
    /// The events of those that were replays.
    replayed: BTreeSet<i64>,
    /// The last id that was looked at, or could have been.
    end: i64,
    stopped_at: Option<EventId>,
}

async fn walk_deliveries(
    session: &Session,
    cutoffs: &Cutoffs,
    after: EventId,
    bound: i64,
    limit: usize,
) -> Result<WalkedDeliveries, Error> {
    const LAST: &str = "SELECT max(id), count(*) FROM (SELECT id FROM finished \
         WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3) seen";
    let sql = format!(
        "WITH removed AS (DELETE FROM finished f WHERE f.id > $2 AND f.id <= $3 AND \
             CASE f.state WHEN 1 THEN f.at < $4 WHEN 5 THEN f.at < $4 \
                 WHEN 3 THEN coalesce(f.last_attempt_at, f.at) < $5 \
                 WHEN 4 THEN coalesce((SELECT e.received_at < $6 FROM events e \
                     WHERE e.id = f.event_id), true) \
                 ELSE false END \
             RETURNING {REMOVED}), {WITH_THEM}"
    );
    let after = after.as_i64();
    let mut walked = WalkedDeliveries {
        removed: 0,
        replayed: BTreeSet::new(),
        end: bound - 1,
        stopped_at: None,
    };
    let Some(last) = session.row(LAST, &[&after, &bound, &code::size(limit)]).await? else {
        return Ok(walked);
    };
    let (last, seen): (Option<i64>, i64) = (rows::get(&last, 0)?, rows::get(&last, 1)?);
    let Some(last) = last else { return Ok(walked) };
    if seen == code::size(limit) {
        walked.end = last;
        walked.stopped_at = Some(EventId::from_i64(last));
    }
    let (delivered, failed, dead) =
        (cutoffs.delivered.as_millis(), cutoffs.failed.as_millis(), cutoffs.dead.as_millis());
    let removed = session.rows(&sql, &[&SLOT, &after, &last, &delivered, &failed, &dead]).await?;
    walked.removed = removed.len() as u64;
    for row in &removed {
        if rows::get(row, 1)? {
            walked.replayed.insert(rows::get(row, 0)?);
        }
    }
    Ok(walked)
}

#[derive(Default)]
struct WalkedEvents {
    removed: u64,
    stopped_at: Option<EventId>,
}

/// Removes events of the walked range that no delivery is left of: those in the range, the one
/// whose deliveries the range began with, and those whose replays went.
async fn walk_events(
    session: &Session,
    cutoffs: &Cutoffs,
    after: EventId,
    deliveries: &WalkedDeliveries,
    limit: usize,
) -> Result<WalkedEvents, Error> {
    const IN_RANGE: &str = "SELECT id FROM events WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3";
    const BEFORE: &str = "SELECT id FROM events WHERE id <= $1 ORDER BY id DESC LIMIT 1";
    let mut walked = WalkedEvents::default();
    let id = |row: &Row| rows::get::<i64>(row, 0);
    let in_range =
        session.rows(IN_RANGE, &[&after.as_i64(), &deliveries.end, &code::size(limit)]).await?;
    let mut ids = in_range.iter().map(id).collect::<Result<BTreeSet<i64>, Error>>()?;
    if ids.len() == limit {
        walked.stopped_at = ids.last().copied().map(EventId::from_i64);
    }
    ids.extend(&deliveries.replayed);
    if let Some(row) = session.row(BEFORE, &[&after.as_i64()]).await? {
        ids.insert(rows::get(&row, 0)?);
    }
    let ids: Vec<i64> = ids.into_iter().collect();
    let removed = session.row(REMOVE_EVENTS, &[&SLOT, &ids, &cutoffs.events.as_millis()]).await?;
    walked.removed = removed.map_or(Ok(0), |row| rows::get::<i64>(&row, 0))?.unsigned_abs();
    Ok(walked)
}

/// Removes events that are old enough and that nothing refers to, with their keys.
const REMOVE_EVENTS: &str = "WITH gone AS (DELETE FROM events e \
         USING (SELECT * FROM unnest($2::int8[]) w (id) LIMIT cardinality($2)) w \
         WHERE e.id = w.id AND e.id = ANY ($2) AND e.received_at < $3 \
         AND NOT EXISTS (SELECT 1 FROM unfinished u WHERE u.id > e.id \
             AND u.id <= e.id + e.deliveries) \
         AND NOT EXISTS (SELECT 1 FROM finished f WHERE f.id > e.id \
             AND f.id <= e.id + e.deliveries) \
         AND NOT EXISTS (SELECT 1 FROM unfinished u WHERE u.event_id = e.id AND u.replay) \
         AND NOT EXISTS (SELECT 1 FROM finished f WHERE f.event_id = e.id AND f.replay) \
         RETURNING e.id, e.tenant_id, coalesce(e.source_id, -e.tenant_id) AS scope, \
             e.idempotency_key AS key), \
     freed AS (DELETE FROM idempotency i \
         USING (SELECT * FROM gone WHERE key IS NOT NULL LIMIT cardinality($2)) g \
         WHERE i.scope = g.scope AND i.key = g.key AND i.event_id = g.id), \
     tallied AS (INSERT INTO event_counts (tenant_id, n, slot) \
         SELECT tenant_id, -count(*), $1::int2 FROM gone GROUP BY tenant_id \
         ON CONFLICT (tenant_id, slot) DO UPDATE SET n = event_counts.n + excluded.n) \
     SELECT count(*) FROM gone";

/// Removes counts that have come to nothing. Whatever of them is locked cannot change, and rows that
/// add up to nothing can go without changing any sum.
async fn forget_counts(session: &Session) -> Result<(), Error> {
    const LOCK: &str = "SELECT endpoint_id, state, slot, n FROM delivery_counts \
         WHERE (endpoint_id, state) IN (SELECT endpoint_id, state FROM delivery_counts \
             GROUP BY 1, 2 HAVING sum(n) = 0) FOR UPDATE SKIP LOCKED";
    const DELETE: &str = "DELETE FROM delivery_counts c \
         USING unnest($1::int8[], $2::int2[], $3::int2[]) g (endpoint_id, state, slot) \
         WHERE c.endpoint_id = g.endpoint_id AND c.state = g.state AND c.slot = g.slot";
    let mut groups: HashMap<(i64, i16), (i64, Vec<i16>)> = HashMap::new();
    for row in session.rows(LOCK, &[]).await? {
        let group = groups.entry((rows::get(&row, 0)?, rows::get(&row, 1)?)).or_default();
        group.0 += rows::get::<i64>(&row, 3)?;
        group.1.push(rows::get(&row, 2)?);
    }
    let (mut endpoints, mut states, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    for ((endpoint, state), (sum, of)) in groups {
        if sum == 0 {
            endpoints.extend(of.iter().map(|_| endpoint));
            states.extend(of.iter().map(|_| state));
            slots.extend(of);
        }
    }
    if !slots.is_empty() {
        session.execute(DELETE, &[&endpoints, &states, &slots]).await?;
    }
    Ok(())
}
