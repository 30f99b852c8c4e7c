//! What holds endpoints up: kept beside their configuration, and no part of it.

use std::collections::BTreeMap;

use postrider_core::EndpointId;

use super::rows;
use super::session::Session;
use super::text::Text;
use crate::error::Error;
use crate::registry::Standing;

pub(crate) async fn standings(session: &Session) -> Result<Vec<Standing>, Error> {
    const SQL: &str = "SELECT id, hold_until, breaker FROM endpoints \
         WHERE hold_until IS NOT NULL OR breaker IS NOT NULL ORDER BY id";
    let found = session.rows(SQL, &[]).await?;
    found
        .iter()
        .map(|row| {
            Ok(Standing {
                endpoint: EndpointId::from_i64(rows::get(row, 0)?),
                hold_until: rows::optional_time(row, 1)?,
                breaker: rows::optional_text(row, 2)?,
            })
        })
        .collect()
}

pub(crate) async fn note_breakers(
    session: &Session,
    breakers: &[(EndpointId, Option<String>)],
) -> Result<(), Error> {
    const SQL: &str = "UPDATE endpoints SET breaker = b.breaker \
         FROM unnest($1::int8[], $2::text[]) b (id, breaker) \
         WHERE endpoints.id = b.id AND endpoints.breaker IS DISTINCT FROM b.breaker";
    // Of what is said of one endpoint the last is so; and everybody takes the rows in one order.
    let last: BTreeMap<i64, Option<Text<'_>>> = breakers
        .iter()
        .map(|(endpoint, breaker)| (endpoint.as_i64(), breaker.as_deref().map(Text)))
        .collect();
    let (ids, texts): (Vec<i64>, Vec<Option<Text<'_>>>) = last.into_iter().unzip();
    session.execute(SQL, &[&ids, &texts]).await?;
    Ok(())
}
