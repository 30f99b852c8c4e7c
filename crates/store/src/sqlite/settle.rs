//! Making changes that `step` decided, each if its fence still holds, and moving lines on.

use std::collections::HashMap;

use postrider_core::delivery::State;
use postrider_core::{EndpointId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::batch::Batch;
use super::{audit, leases, rows, standing};
use crate::audit::Audit;
use crate::error::Error;
use crate::fleet::Tenure;
use crate::record::{Attempt, Settle, Settled, Waiting};
use crate::stored::code::{self, Place};
use crate::stored::hot::HOT;
use crate::stored::response;

/// Every change names all it believes of the row. If any of it is not so, nothing is changed.
const WITH_ATTEMPT: &str = "UPDATE deliveries SET state = ?6, place = ?7, attempts = ?8, \
     deferrals = ?9, fence = fence + 1, born = ?10, at = ?11, reason = ?12, class = ?13, \
     tries = ?14, last_attempt_at = ?15, status = ?16, duration_ms = ?17, response = ?18, \
     last_error = coalesce(?19, last_error) \
     WHERE id = ?1 AND fence = ?2 AND state = ?3 AND endpoint_id = ?4 AND (line IS NOT NULL) = ?5";

/// Only a reset forgets what the last attempt failed of and what it came to. A lease that comes to
/// nothing was no attempt: the last one is again the one before.
const WITHOUT_ATTEMPT: &str = "UPDATE deliveries SET state = ?6, place = ?7, attempts = ?8, \
     deferrals = ?9, fence = fence + 1, born = ?10, at = ?11, reason = ?12, \
     class = CASE WHEN ?14 THEN NULL ELSE coalesce(?13, class) END, \
     result = CASE WHEN ?14 THEN NULL ELSE result END, \
     last_attempt_at = CASE WHEN ?3 = 6 THEN (SELECT started_at FROM attempts \
         WHERE delivery_id = ?1 ORDER BY number DESC LIMIT 1) ELSE last_attempt_at END \
     WHERE id = ?1 AND fence = ?2 AND state = ?3 AND endpoint_id = ?4 AND (line IS NOT NULL) = ?5";

pub(crate) fn settle(batch: &mut Batch<'_>, settles: &[Settle]) -> Result<Vec<Settled>, Error> {
    // Tenures that were looked up: nobody takes one over in the middle of this.
    let mut known: HashMap<Tenure, bool> = HashMap::new();
    let mut settled = Vec::with_capacity(settles.len());
    batch.load.settled += settles.len();
    for settle in settles {
        let held = match settle.tenure {
            None => true,
            Some(tenure) => match known.get(&tenure) {
                Some(held) => *held,
                None => *known.entry(tenure).or_insert(holds(batch.conn, tenure)?),
            },
        };
        settled.push(if held { settle_one(batch, settle)? } else { Settled::Stale });
    }
    Ok(settled)
}

/// Whether nobody has taken over since.
pub(crate) fn holds(conn: &Connection, tenure: Tenure) -> Result<bool, Error> {
    const SQL: &str = "SELECT 1 FROM tenures WHERE key = ?1 AND epoch = ?2";
    Ok(conn.prepare_cached(SQL)?.exists((tenure.charge.key(), tenure.epoch))?)
}

/// The same, with a row of who asked for it beside each change that was made.
pub(crate) fn settle_by(
    batch: &mut Batch<'_>,
    settles: &[Settle],
    by: &Audit,
) -> Result<Vec<Settled>, Error> {
    let answers = settle(batch, settles)?;
    for (settle, answer) in settles.iter().zip(&answers) {
        match answer {
            Settled::Applied { .. } => audit::note(batch, by, &settle.id.to_string())?,
            Settled::Stale => {}
        }
    }
    Ok(answers)
}

/// Whether any delivery of the line is unfinished.
pub(crate) fn line_is_taken(
    conn: &Connection,
    endpoint: EndpointId,
    line: &str,
) -> Result<bool, Error> {
    const SQL: &str = "SELECT 1 FROM deliveries INDEXED BY deliveries_line \
         WHERE endpoint_id = ?1 AND line = ?2 AND place IS NOT NULL LIMIT 1";
    Ok(conn.prepare_cached(SQL)?.exists((endpoint.as_i64(), line))?)
}

fn settle_one(batch: &mut Batch<'_>, settle: &Settle) -> Result<Settled, Error> {
    if !leases::stand_as_believed(batch.conn, settle)? {
        return Ok(Settled::Stale);
    }
    if settle.next.state == State::InFlight {
        return leases::hold(batch, settle);
    }
    let standing = if settle.in_line {
        match find_standing(batch.conn, settle)? {
            Some(standing) => Some(standing),
            None => return Ok(Settled::Stale),
        }
    } else {
        None
    };
    let place = next_place(batch.conn, settle, standing.as_ref())?;
    if !update(batch, settle, place)? {
        return Ok(Settled::Stale);
    }
    if let Some(attempt) = settle.attempt.as_ref().filter(|attempt| !fits_row(settle, attempt)) {
        insert_attempt(batch.conn, settle, attempt)?;
    }
    if let Some(result) = &settle.result {
        keep_result(batch.conn, settle, result)?;
    }
    if let Some(until) = settle.next.hold_endpoint_until {
        standing::hold(batch.conn, settle.endpoint, until)?;
    }
    batch.count(settle.endpoint, settle.from, -1, settle.id);
    batch.count(settle.endpoint, settle.next.state, 1, settle.id);
    let promoted = match standing {
        Some(Standing { line, place: Some(Place::Ready | Place::Timed | Place::Leased) })
            if place.is_none() =>
        {
            promote(batch.conn, settle.endpoint, &line, settle.at)?
        }
        // One that stood in the middle of its line holds nobody up by leaving.
        Some(_) | None => None,
    };
    Ok(Settled::Applied { promoted })
}

/// Where a delivery of a line stands before the change. Exactly one unfinished delivery of a line,
/// its head, is not parked.
struct Standing {
    line: String,
    place: Option<Place>,
}

fn find_standing(conn: &Connection, settle: &Settle) -> Result<Option<Standing>, Error> {
    const SQL: &str =
        "SELECT line, place FROM deliveries WHERE id = ?1 AND fence = ?2 AND line IS NOT NULL";
    let found = conn
        .prepare_cached(SQL)?
        .query_row((settle.id.as_i64(), settle.fence), |row| {
            Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?))
        })
        .optional()?;
    let Some((line, place)) = found else { return Ok(None) };
    Ok(Some(Standing { line, place: place.map(Place::decode).transpose()? }))
}

fn next_place(
    conn: &Connection,
    settle: &Settle,
    standing: Option<&Standing>,
) -> Result<Option<Place>, Error> {
    if settle.next.state.is_terminal() {
        return Ok(None);
    }
    let by_time = if due(settle) <= settle.at { Place::Ready } else { Place::Timed };
    Ok(Some(match standing {
        None | Some(Standing { place: Some(Place::Ready | Place::Timed | Place::Leased), .. }) => {
            by_time
        }
        Some(Standing { place: Some(Place::Parked), .. }) => Place::Parked,
        // It had ended and comes back into its line.
        Some(Standing { place: None, line }) => {
            if line_is_taken(conn, settle.endpoint, line)? {
                Place::Parked
            } else {
                by_time
            }
        }
    }))
}

fn due(settle: &Settle) -> Timestamp {
    settle.next.due.unwrap_or(settle.at)
}

fn update(batch: &mut Batch<'_>, settle: &Settle, place: Option<Place>) -> Result<bool, Error> {
    let conn = batch.conn;
    let next = &settle.next;
    let at = if next.state.is_terminal() { settle.at } else { due(settle) };
    let Some(attempt) = &settle.attempt else {
        let changed = conn.prepare_cached(WITHOUT_ATTEMPT)?.execute(params![
            settle.id.as_i64(),
            settle.fence,
            code::state(settle.from),
            settle.endpoint.as_i64(),
            settle.in_line,
            code::state(next.state),
            place.map(Place::code),
            next.attempts,
            next.deferrals,
            next.born.as_millis(),
            at.as_millis(),
            next.reason.map(code::reason),
            next.class.map(code::class),
            next.state == State::Pending,
        ])?;
        return Ok(changed == 1);
    };
    let in_row = fits_row(settle, attempt);
    let response = attempt.response.as_ref().filter(|_| in_row).map(response::encode);
    let changed = batch.statements.get(conn, WITH_ATTEMPT)?.execute(params![
        settle.id.as_i64(),
        settle.fence,
        code::state(settle.from),
        settle.endpoint.as_i64(),
        settle.in_line,
        code::state(next.state),
        place.map(Place::code),
        next.attempts,
        next.deferrals,
        next.born.as_millis(),
        at.as_millis(),
        next.reason.map(code::reason),
        next.class.map(code::class),
        attempt.number,
        attempt.started_at.as_millis(),
        attempt.status.filter(|_| in_row),
        in_row.then(|| millis(attempt)),
        response,
        attempt.error,
    ])?;
    Ok(changed == 1)
}

/// A success at the first try, the fate of nearly all deliveries, needs no row of its own: the
/// delivery's says all there is to say of it.
fn fits_row(settle: &Settle, attempt: &Attempt) -> bool {
    settle.next.state == State::Delivered
        && attempt.number == 1
        && attempt.counted
        && attempt.class.is_none()
        && attempt.error.is_none()
}

fn insert_attempt(conn: &Connection, settle: &Settle, attempt: &Attempt) -> Result<(), Error> {
    const SQL: &str = "INSERT INTO attempts (delivery_id, number, counted, started_at, \
         duration_ms, status, class, error, response) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    conn.prepare_cached(SQL)?.execute(params![
        settle.id.as_i64(),
        attempt.number,
        attempt.counted,
        attempt.started_at.as_millis(),
        millis(attempt),
        attempt.status,
        attempt.class.map(code::class),
        attempt.error,
        attempt.response.as_ref().map(response::encode),
    ])?;
    Ok(())
}

/// Apart from the change itself, because nearly all that is settled has none.
fn keep_result(conn: &Connection, settle: &Settle, result: &str) -> Result<(), Error> {
    conn.prepare_cached("UPDATE deliveries SET result = ?2 WHERE id = ?1")?
        .execute((settle.id.as_i64(), result))?;
    Ok(())
}

fn millis(attempt: &Attempt) -> u32 {
    u32::try_from(attempt.duration.as_millis()).unwrap_or(u32::MAX)
}

/// Makes the oldest parked delivery of a line its head.
fn promote(
    conn: &Connection,
    endpoint: EndpointId,
    line: &str,
    now: Timestamp,
) -> Result<Option<Waiting>, Error> {
    const UPDATE: &str = "UPDATE deliveries SET place = ?2 WHERE id = ?1";
    let sql = format!(
        "SELECT {HOT} FROM deliveries INDEXED BY deliveries_line \
         WHERE endpoint_id = ?1 AND line = ?2 AND place = 3 ORDER BY event_id, id LIMIT 1"
    );
    let next = conn
        .prepare_cached(&sql)?
        .query_row((endpoint.as_i64(), line), |row| Ok(rows::hot(row)))
        .optional()?
        .transpose()?;
    let Some(next) = next else { return Ok(None) };
    let place = if next.delivery.due <= now { Place::Ready } else { Place::Timed };
    conn.prepare_cached(UPDATE)?.execute((next.id.as_i64(), place.code()))?;
    let event = rows::load_event_of(conn, &next)?;
    Ok(Some(next.with(event)))
}
