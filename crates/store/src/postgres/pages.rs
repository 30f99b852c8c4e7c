//! Finding what waits: what may be tried now, what is due next, and what is unfinished at all.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use postrider_core::{DeliveryId, EndpointId, EventId, Timestamp};
use tokio_postgres::Row;

use super::rows::{self, Body};
use super::session::{Param, Session};
use crate::error::Error;
use crate::journal::{MAX_PAGE, Page, Paged, Unfinished};
use crate::record::{Event, MAX_DELIVERIES_PER_EVENT, Waiting};
use crate::stored::code;
use crate::stored::hot::{HOT, Hot};

/// What is ready (1) and whose time has come (2), each in the order of its index: of each what
/// [`HOT`] says, and the size of the event's body.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let select = |kind: u8, wanted: &str| {
        format!(
            "(SELECT {HOT}, (SELECT octet_length(e.body) FROM events e WHERE e.id = u.event_id), \
             {kind} FROM unfinished u {wanted})"
        )
    };
    let ready = "WHERE endpoint_id = $1 AND place = 1 ORDER BY event_id, id LIMIT $3";
    let due = "WHERE endpoint_id = $1 AND place = 2 AND at <= $2 ORDER BY at, id LIMIT $4";
    format!("{} UNION ALL {}", select(1, ready), select(2, due))
});

const AFTER_NOW: &str = "SELECT id, at FROM unfinished \
     WHERE endpoint_id = $1 AND place = 2 AND at > $2 ORDER BY at, id LIMIT $3";
const NEXT_DUE: &str =
    "SELECT at FROM unfinished WHERE endpoint_id = $1 AND place = 2 ORDER BY at LIMIT 1";

pub(crate) async fn page(session: &Session, page: &Page) -> Result<Paged, Error> {
    let limit = page.limit.min(MAX_PAGE);
    let held: HashSet<DeliveryId> = page.held.iter().copied().collect();
    let (endpoint, now) = (page.endpoint.as_i64(), page.now.as_millis());
    // One more than wanted tells whether there is more.
    let ready_rows = code::size(limit + held.len() + 1);
    let due_rows = code::size((limit + 1).max(DUE_SORTED) + held.len());
    let params: [Param<'_>; 4] = [&endpoint, &now, &ready_rows, &due_rows];
    let (rows, next_due) = tokio::try_join!(
        async { Ok(session.rows(&PAGE, &params).await?) },
        next_after(session, page, &held),
    )?;
    let (mut ready, mut due) = (Vec::new(), Vec::new());
    for row in &rows {
        let sized = sized(row)?;
        if !held.contains(&sized.hot.id) {
            if rows::get::<i32>(row, KIND)? == 1 { ready.push(sized) } else { due.push(sized) }
        }
    }
    due.sort_unstable_by_key(|sized| sized.hot.id);
    let more = ready.len() > limit || due.len() > limit;
    ready.truncate(limit);
    due.truncate(limit);
    ready.append(&mut due);
    let (waiting, cut) = load(session, ready, page.max_bytes).await?;
    Ok(Paged { waiting, more: more || cut, next_due })
}

pub(crate) async fn next_due(
    session: &Session,
    endpoint: EndpointId,
) -> Result<Option<Timestamp>, Error> {
    let row = session.row(NEXT_DUE, &[&endpoint.as_i64()]).await?;
    row.map(|row| rows::time(&row, 0)).transpose()
}

pub(crate) async fn waiting(session: &Session, id: DeliveryId) -> Result<Option<Waiting>, Error> {
    let sql = format!(
        "SELECT u.*, {}, e.body FROM (SELECT {} FROM unfinished WHERE id = $1 \
         AND place IN (1, 2)) u LEFT JOIN {} ON true",
        rows::EVENT,
        HOT,
        rows::EVENT_OF_DELIVERY
    );
    let Some(row) = session.row(&sql, &[&id.as_i64()]).await? else { return Ok(None) };
    let hot = rows::hot(&row)?;
    if rows::get::<Option<i64>>(&row, rows::AFTER_HOT)?.is_none() {
        return Err(rows::missing_event(&hot));
    }
    let event = rows::event_at(&row, rows::AFTER_HOT, Body::Follows)?;
    Ok(Some(hot.with(Arc::new(event))))
}

/// Nothing is born before it is made, so a bound on births is one on ids, up to the steps that a
/// clock may have been set back by.
const CLOCK_SLACK: Duration = Duration::from_hours(1);

/// Deliveries made when their event was accepted have ids close above the event's, so the order of
/// events is nearly theirs; the few made by a replay, and those not ready, have indexes of their own.
static UNFINISHED: LazyLock<String> = LazyLock::new(|| {
    let select = |wanted: &str, order: &str| {
        format!(
            "(SELECT {HOT} FROM unfinished WHERE endpoint_id = $1 AND {wanted} \
             AND id > $2 AND id < $3 AND born < $4 ORDER BY {order} LIMIT $5)"
        )
    };
    [
        select("place = 1 AND event_id >= $6 AND NOT replay", "event_id, id"),
        select("place = 1 AND replay", "id"),
        select("place > 1", "id"),
    ]
    .join(" UNION ALL ")
});

pub(crate) async fn unfinished(
    session: &Session,
    endpoint: EndpointId,
    after: DeliveryId,
    born_before: Option<Timestamp>,
    limit: usize,
) -> Result<Vec<Unfinished>, Error> {
    let (endpoint, after, limit) = (endpoint.as_i64(), after.as_i64(), limit.min(MAX_PAGE));
    let born = born_before.map_or(i64::MAX, Timestamp::as_millis);
    let end =
        born_before.map_or(i64::MAX, |before| DeliveryId::floor(before.plus(CLOCK_SLACK)).as_i64());
    let first_event = after.saturating_sub(code::size(MAX_DELIVERIES_PER_EVENT));
    let rows = code::size(limit);
    let params: [Param<'_>; 6] = [&endpoint, &after, &end, &born, &rows, &first_event];
    let found = session.rows(&UNFINISHED, &params).await?;
    let mut found = found.iter().map(rows::hot).collect::<Result<Vec<Hot>, Error>>()?;
    found.sort_unstable_by_key(|hot| hot.id);
    found.truncate(limit);
    Ok(found.iter().map(without_event).collect())
}

fn without_event(hot: &Hot) -> Unfinished {
    Unfinished {
        id: hot.id,
        tenant: hot.tenant,
        event: hot.event,
        delivery: hot.delivery,
        fence: hot.fence,
        in_line: hot.in_line,
    }
}

/// A delivery, and the size of its event's body.
pub(crate) struct Sized {
    pub(crate) hot: Hot,
    pub(crate) bytes: usize,
}

/// The columns of [`PAGE`] that are read apart.
const BYTES: usize = rows::AFTER_HOT;
const KIND: usize = rows::AFTER_HOT + 1;

fn sized(row: &Row) -> Result<Sized, Error> {
    let hot = rows::hot(row)?;
    let bytes = size(row, BYTES)?.ok_or_else(|| rows::missing_event(&hot))?;
    Ok(Sized { hot, bytes })
}

/// The size of a body, if the event is there.
pub(crate) fn size(row: &Row, column: usize) -> Result<Option<usize>, Error> {
    let bytes: Option<i32> = rows::get(row, column)?;
    Ok(bytes.map(|bytes| usize::try_from(bytes).unwrap_or_default()))
}

/// Of those whose time came first, this many at least are put in the order of their events: what was
/// to be tried again goes by age, as everything does, and not by when its wait was over.
pub(crate) const DUE_SORTED: usize = 1_024;

/// Adds the events, of which neighbours share one, until their bodies exceed `max_bytes`. The
/// second value says that some were left out.
pub(crate) async fn load(
    session: &Session,
    mut found: Vec<Sized>,
    max_bytes: usize,
) -> Result<(Vec<Waiting>, bool), Error> {
    found.sort_unstable_by_key(|sized| (sized.hot.event, sized.hot.id));
    let mut wanted: Vec<i64> = Vec::new();
    let mut bytes = 0_usize;
    let mut fitting = found.len();
    for (index, sized) in found.iter().enumerate() {
        let event = sized.hot.event.as_i64();
        if wanted.last() == Some(&event) {
            continue;
        }
        bytes = bytes.saturating_add(sized.bytes);
        if bytes > max_bytes && index > 0 {
            fitting = index;
            break;
        }
        wanted.push(event);
    }
    let cut = fitting < found.len();
    found.truncate(fitting);
    let events = events(session, &wanted).await?;
    let with_event = |sized: Sized| {
        // An event that is gone by now took its deliveries with it.
        let event = events.get(&sized.hot.event).map(Arc::clone)?;
        Some(sized.hot.with(event))
    };
    Ok((found.into_iter().filter_map(with_event).collect(), cut))
}

/// Each id is looked up in the one part of the table where it can be.
async fn events(session: &Session, ids: &[i64]) -> Result<HashMap<EventId, Arc<Event>>, Error> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = format!(
        "SELECT {}, e.body FROM unnest($1::int8[]) u (event_id) CROSS JOIN {}",
        rows::EVENT,
        rows::EVENT_OF_DELIVERY
    );
    let found = session.rows(&sql, &[&ids]).await?;
    found
        .iter()
        .map(|row| rows::event_at(row, 0, Body::Follows))
        .map(|event| event.map(|event| (event.id, Arc::new(event))))
        .collect()
}

/// When the first that is neither due nor held becomes due, whatever the type of its event: to look
/// again too early does no harm, and looking for the type would mean a walk.
pub(crate) async fn next_after(
    session: &Session,
    page: &Page,
    held: &HashSet<DeliveryId>,
) -> Result<Option<Timestamp>, Error> {
    let (endpoint, now) = (page.endpoint.as_i64(), page.now.as_millis());
    let found = session.rows(AFTER_NOW, &[&endpoint, &now, &code::size(held.len() + 1)]).await?;
    for row in &found {
        if !held.contains(&DeliveryId::from_i64(rows::get(row, 0)?)) {
            return rows::time(row, 1).map(Some);
        }
    }
    Ok(None)
}
