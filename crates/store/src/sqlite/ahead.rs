//! How far back in its line a delivery stands.

use postrider_core::DeliveryId;
use rusqlite::Connection;

use super::rows;
use crate::error::Error;
use crate::record::DeliveryRecord;
use crate::stored::code;

/// The head of a line, and those parked before the given one.
pub(crate) const AHEAD: &str = "SELECT 1 FROM deliveries INDEXED BY deliveries_line \
     WHERE endpoint_id = ?1 AND line = ?2 AND place IN (1, 2, 4) \
     UNION ALL SELECT 1 FROM deliveries INDEXED BY deliveries_line \
     WHERE endpoint_id = ?1 AND line = ?2 AND place = 3 AND (event_id, id) < (?3, ?4) LIMIT ?5";

pub(crate) fn ahead_count(conn: &Connection, id: DeliveryId, limit: usize) -> Result<u64, Error> {
    let Some(DeliveryRecord { endpoint, line: Some(line), parked: true, event, .. }) =
        rows::load_record(conn, id)?
    else {
        return Ok(0);
    };
    let key = (endpoint.as_i64(), line, event.as_i64(), id.as_i64(), code::size(limit));
    let count: i64 = conn
        .prepare_cached(&format!("SELECT count(*) FROM ({AHEAD})"))?
        .query_row(key, |row| row.get(0))?;
    Ok(count.unsigned_abs())
}
