//! How far back in its line a delivery stands.

use postrider_core::DeliveryId;

use super::history::load_record;
use super::rows;
use super::session::Session;
use super::text::Text;
use crate::error::Error;
use crate::record::DeliveryRecord;
use crate::stored::code;

/// The head of a line, and those parked before the given one.
const AHEAD: &str = "SELECT count(*) FROM (SELECT 1 FROM unfinished \
     WHERE endpoint_id = $1 AND line = $2 AND place IN (1, 2, 4) \
     UNION ALL SELECT 1 FROM unfinished \
     WHERE endpoint_id = $1 AND line = $2 AND place = 3 \
       AND (turn, id) < ((SELECT turn FROM unfinished WHERE id = $3), $3) LIMIT $4) ahead";

pub(crate) async fn ahead_count(
    session: &Session,
    id: DeliveryId,
    limit: usize,
) -> Result<u64, Error> {
    let Some(DeliveryRecord { endpoint, line: Some(line), parked: true, .. }) =
        load_record(session, id).await?
    else {
        return Ok(0);
    };
    let (endpoint, id, limit) = (endpoint.as_i64(), id.as_i64(), code::size(limit));
    let row = session.row(AHEAD, &[&endpoint, &Text(&line), &id, &limit]).await?;
    let count: i64 = row.map_or(Ok(0), |row| rows::get(&row, 0))?;
    Ok(count.unsigned_abs())
}
