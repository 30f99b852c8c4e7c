//! Whether there is anything to carry: a look at the first of each endpoint, by the indexes that its
//! pages are read by.

use postrider_core::EndpointId;

use super::carrying::no_answer;
use crate::error::Error;
use crate::fleet::{Found, Looked};
use crate::postgres::rows;
use crate::postgres::session::Session;

/// The row without an endpoint has the revision. It is looked up like everything else, whatever the
/// server thinks of the size of the table.
const LOOK: &str = "SELECT NULL::int8, n, NULL::int8 FROM revision UNION ALL \
     SELECT w.id, ready.born, due.at FROM unnest($1::int8[]) w (id) \
     LEFT JOIN LATERAL (SELECT u.born FROM unfinished u WHERE u.endpoint_id = w.id \
         AND u.place = 1 ORDER BY u.event_id, u.id LIMIT 1) ready ON true \
     LEFT JOIN LATERAL (SELECT u.at FROM unfinished u WHERE u.endpoint_id = w.id \
         AND u.place = 2 ORDER BY u.at, u.id LIMIT 1) due ON true \
     WHERE ready.born IS NOT NULL OR due.at IS NOT NULL";

pub(crate) async fn look(session: &Session, endpoints: &[EndpointId]) -> Result<Looked, Error> {
    let ids: Vec<i64> = endpoints.iter().map(|endpoint| endpoint.as_i64()).collect();
    let (mut revision, mut found) = (None, Vec::new());
    for row in &session.rows(LOOK, &[&ids]).await? {
        match rows::get::<Option<i64>>(row, 0)? {
            None => revision = Some(rows::get(row, 1)?),
            Some(endpoint) => found.push(Found {
                endpoint: EndpointId::from_i64(endpoint),
                ready: rows::optional_time(row, 1)?,
                due: rows::optional_time(row, 2)?,
            }),
        }
    }
    Ok(Looked { revision: revision.ok_or_else(no_answer)?, found })
}
