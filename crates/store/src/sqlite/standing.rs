//! What holds endpoints up: kept beside their configuration, and no part of it.

use postrider_core::{EndpointId, Timestamp};
use rusqlite::Connection;

use super::batch::Batch;
use super::rows;
use crate::error::Error;
use crate::registry::Standing;

pub(crate) fn standings(conn: &Connection) -> Result<Vec<Standing>, Error> {
    const SQL: &str = "SELECT id, hold_until, breaker FROM endpoints \
         WHERE hold_until IS NOT NULL OR breaker IS NOT NULL ORDER BY id";
    conn.prepare_cached(SQL)?
        .query_and_then((), |row| {
            Ok(Standing {
                endpoint: EndpointId::from_i64(row.get(0)?),
                hold_until: rows::optional_time(row, 1)?,
                breaker: row.get(2)?,
            })
        })?
        .collect()
}

/// Holds an endpoint, unless it is held for longer already.
pub(crate) fn hold(conn: &Connection, endpoint: EndpointId, until: Timestamp) -> Result<(), Error> {
    const SQL: &str = "UPDATE endpoints SET hold_until = ?2 \
         WHERE id = ?1 AND (hold_until IS NULL OR hold_until < ?2)";
    conn.prepare_cached(SQL)?.execute((endpoint.as_i64(), until.as_millis()))?;
    Ok(())
}

pub(crate) fn note_breakers(
    batch: &mut Batch<'_>,
    breakers: &[(EndpointId, Option<String>)],
) -> Result<(), Error> {
    let mut update =
        batch.conn.prepare_cached("UPDATE endpoints SET breaker = ?2 WHERE id = ?1")?;
    for (endpoint, breaker) in breakers {
        update.execute((endpoint.as_i64(), breaker))?;
    }
    Ok(())
}
