//! Leases: which deliveries workers have, and which of them ran out.

use std::sync::Arc;

use postrider_core::{DeliveryId, Timestamp};
use tokio_postgres::Row;

use super::rows::{self, Body};
use super::session::Session;
use crate::error::Error;
use crate::journal::{Lapsed, MAX_PAGE};
use crate::record::Leased;
use crate::stored::code;
use crate::stored::hot::HOT;

pub(crate) async fn leased(
    session: &Session,
    mut ids: Vec<DeliveryId>,
) -> Result<Vec<Leased>, Error> {
    ids.sort_unstable();
    ids.dedup();
    let ids: Vec<i64> = ids.into_iter().map(DeliveryId::as_i64).collect();
    let sql =
        select("unnest($1::int8[]) w (leased) JOIN unfinished ON id = leased WHERE place = 4");
    session.rows(&sql, &[&ids]).await?.iter().map(load).collect()
}

pub(crate) async fn lapsed(
    session: &Session,
    now: Timestamp,
    limit: usize,
) -> Result<Lapsed, Error> {
    let limit = limit.min(MAX_PAGE);
    let sql = select("unfinished WHERE place = 4 ORDER BY at, id LIMIT $1");
    let found = session.rows(&sql, &[&code::size(limit + 1)]).await?;
    let mut lapsed = Lapsed::default();
    for row in &found {
        let ends = rows::time(row, ENDS)?;
        if ends > now || lapsed.leased.len() == limit {
            lapsed.next = Some(ends);
            break;
        }
        lapsed.leased.push(load(row)?);
    }
    Ok(lapsed)
}

/// Reads the columns of [`HOT`], when the lease began, and the event without its body.
fn select(from: &str) -> String {
    format!(
        "SELECT u.*, {} FROM (SELECT {}, last_attempt_at FROM {from}) u \
         LEFT JOIN {} ON true",
        rows::EVENT,
        HOT,
        rows::EVENT_OF_DELIVERY
    )
}

/// The columns of [`select`] that are read apart.
const ENDS: usize = 9;
const BEGAN: usize = rows::AFTER_HOT;
const EVENT: usize = rows::AFTER_HOT + 1;

fn load(row: &Row) -> Result<Leased, Error> {
    let hot = rows::hot(row)?;
    if rows::get::<Option<i64>>(row, EVENT)?.is_none() {
        return Err(rows::missing_event(&hot));
    }
    let event = rows::event_at(row, EVENT, Body::LeftOut)?;
    Ok(Leased { waiting: hot.with(Arc::new(event)), leased_at: rows::time(row, BEGAN)? })
}
