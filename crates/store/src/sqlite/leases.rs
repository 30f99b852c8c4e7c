//! Leases: a delivery is handed to a worker until a stated time, and found again when that has come.
//!
//! A leased delivery keeps its place at the head of its line. While it is leased, `at` is when the
//! lease ends and `last_attempt_at` is when it began.

use postrider_core::delivery::State;
use postrider_core::{DeliveryId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::batch::Batch;
use super::rows;
use crate::error::Error;
use crate::journal::{Lapsed, MAX_PAGE};
use crate::record::{LeaseIs, Leased, Settle, Settled};
use crate::stored::code::{self, Place};
use crate::stored::hot::HOT;

/// Only what may be tried can be leased: nothing that stands behind another of its line.
const TAKE: &str = "UPDATE deliveries SET state = ?6, place = ?7, attempts = ?8, deferrals = ?9, \
     fence = fence + 1, born = ?10, at = ?11, last_attempt_at = ?12 \
     WHERE id = ?1 AND fence = ?2 AND state = ?3 AND endpoint_id = ?4 \
     AND (line IS NOT NULL) = ?5 AND place IN (1, 2)";

/// The fence stays: the worker's token names it.
const EXTEND: &str = "UPDATE deliveries SET at = ?5 \
     WHERE id = ?1 AND fence = ?2 AND endpoint_id = ?3 AND (line IS NOT NULL) = ?4 AND place = 4";

pub(crate) const LEASED: &str = "FROM deliveries WHERE id = ?1 AND place = 4";
pub(crate) const BY_END: &str = "FROM deliveries INDEXED BY deliveries_leased \
     WHERE place = 4 ORDER BY at LIMIT ?1";

/// Whether the lease is as the change wants it to be. Most changes want nothing of it.
pub(crate) fn stand_as_believed(conn: &Connection, settle: &Settle) -> Result<bool, Error> {
    const SQL: &str = "SELECT at FROM deliveries WHERE id = ?1 AND fence = ?2 AND place = 4";
    let Some(lease) = settle.lease else { return Ok(true) };
    let ends: Option<i64> = conn
        .prepare_cached(SQL)?
        .query_row((settle.id.as_i64(), settle.fence), |row| row.get(0))
        .optional()?;
    Ok(ends.map(Timestamp::from_millis).is_some_and(|ends| match lease {
        LeaseIs::Live => ends > settle.at,
        LeaseIs::Lapsed => ends <= settle.at,
    }))
}

/// Leases what waits, or makes the lease of what is leased end at another time.
pub(crate) fn hold(batch: &mut Batch<'_>, settle: &Settle) -> Result<Settled, Error> {
    let until = settle.next.due.unwrap_or(settle.at);
    let held = if settle.from == State::InFlight {
        extend(batch.conn, settle, until)?
    } else {
        take(batch.conn, settle, until)?
    };
    if !held {
        return Ok(Settled::Stale);
    }
    batch.count(settle.endpoint, settle.from, -1, settle.id);
    batch.count(settle.endpoint, State::InFlight, 1, settle.id);
    Ok(Settled::Applied { promoted: None })
}

fn take(conn: &Connection, settle: &Settle, until: Timestamp) -> Result<bool, Error> {
    let next = &settle.next;
    let changed = conn.prepare_cached(TAKE)?.execute(params![
        settle.id.as_i64(),
        settle.fence,
        code::state(settle.from),
        settle.endpoint.as_i64(),
        settle.in_line,
        code::state(State::InFlight),
        Place::Leased.code(),
        next.attempts,
        next.deferrals,
        next.born.as_millis(),
        until.as_millis(),
        settle.at.as_millis(),
    ])?;
    Ok(changed == 1)
}

fn extend(conn: &Connection, settle: &Settle, until: Timestamp) -> Result<bool, Error> {
    let changed = conn.prepare_cached(EXTEND)?.execute((
        settle.id.as_i64(),
        settle.fence,
        settle.endpoint.as_i64(),
        settle.in_line,
        until.as_millis(),
    ))?;
    Ok(changed == 1)
}

pub(crate) fn leased(conn: &Connection, mut ids: Vec<DeliveryId>) -> Result<Vec<Leased>, Error> {
    ids.sort_unstable();
    ids.dedup();
    let mut statement = conn.prepare_cached(&select(LEASED))?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let mut rows = statement.query((id.as_i64(),))?;
        if let Some(row) = rows.next()? {
            found.push(load(conn, row)?);
        }
    }
    Ok(found)
}

pub(crate) fn lapsed(conn: &Connection, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
    let limit = limit.min(MAX_PAGE);
    let mut statement = conn.prepare_cached(&select(BY_END))?;
    let mut rows = statement.query((code::size(limit + 1),))?;
    let mut lapsed = Lapsed::default();
    while let Some(row) = rows.next()? {
        let ends = rows::time(row, ENDS)?;
        if ends > now || lapsed.leased.len() == limit {
            lapsed.next = Some(ends);
            break;
        }
        lapsed.leased.push(load(conn, row)?);
    }
    Ok(lapsed)
}

/// Reads the columns of [`HOT`], and when the lease began.
pub(crate) fn select(from: &str) -> String {
    format!("SELECT {HOT}, last_attempt_at {from}")
}

/// The columns of [`select`] that are read apart.
const ENDS: usize = 9;
const BEGAN: usize = 12;

fn load(conn: &Connection, row: &Row<'_>) -> Result<Leased, Error> {
    let hot = rows::hot(row)?;
    let event = rows::load_event_head_of(conn, &hot)?;
    Ok(Leased { waiting: hot.with(event), leased_at: rows::time(row, BEGAN)? })
}
