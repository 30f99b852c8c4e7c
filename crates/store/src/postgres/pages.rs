//! Finding what waits: what may be tried now, what is due next, and what is unfinished at all.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use postrider_core::{DeliveryId, EndpointId, Timestamp};
use tokio_postgres::Row;

use super::rows::{self, Body};
use super::session::{Param, Session};
use crate::error::Error;
use crate::journal::{MAX_PAGE, Paged, Pages, Unfinished};
use crate::record::{Event, MAX_DELIVERIES_PER_EVENT, Waiting};
use crate::stored::code;
use crate::stored::hot::{HOT, Hot};

/// For each endpoint, by its number `n`: what is ready (1), whose time has come (2), and what is due
/// next (3); of each what [`HOT`] says, and the event. One more of a part than is wanted says that there
/// is more. A body that would make an endpoint's page too large is left out.
///
/// What is held is left out by a question that depends on nothing else, of which the server makes one
/// hash for all rows.
static PAGES: LazyLock<String> = LazyLock::new(|| {
    let select = |part: u8, wanted: &str| {
        format!(
            "(SELECT {HOT}, {part} AS part FROM unfinished WHERE endpoint_id = w.endpoint \
             AND id NOT IN (SELECT unnest($4::int8[])) AND {wanted})"
        )
    };
    let ready = select(1, "place = 1 ORDER BY event_id, id LIMIT $3::int8 + 1");
    let due = select(2, "place = 2 AND at <= $2 ORDER BY at, id LIMIT $5");
    let next = select(3, "place = 2 AND at > $2 ORDER BY at, id LIMIT 1");
    format!(
        "SELECT u.*, {}, \
         CASE WHEN sum(octet_length(e.body)) FILTER (WHERE part < 3) OVER page \
              <= greatest($6::int8, octet_length(e.body)) THEN e.body END, n \
         FROM unnest($1::int8[]) WITH ORDINALITY w (endpoint, n) \
         CROSS JOIN LATERAL ({ready} UNION ALL \
              (SELECT * FROM {due} d ORDER BY id LIMIT $3::int8 + 1) UNION ALL {next}) u \
         LEFT JOIN {} ON true \
         WINDOW page AS (PARTITION BY n ORDER BY u.event_id, u.id)",
        rows::EVENT,
        rows::EVENT_OF_DELIVERY
    )
});

const NEXT_DUE: &str =
    "SELECT at FROM unfinished WHERE endpoint_id = $1 AND place = 2 ORDER BY at LIMIT 1";

/// The columns of [`PAGES`] that are read apart.
const PART: usize = rows::AFTER_HOT;
const EVENT: usize = PART + 1;
const BODY: usize = EVENT + rows::AFTER_EVENT;
const NUMBER: usize = BODY + 1;

/// The answers are in the order of the endpoints.
pub(crate) async fn pages(session: &Session, pages: &Pages) -> Result<Vec<Paged>, Error> {
    let limit = pages.limit.min(MAX_PAGE);
    let endpoints: Vec<i64> = pages.endpoints.iter().map(|id| id.as_i64()).collect();
    let held: Vec<i64> = pages.held.iter().map(|id| id.as_i64()).collect();
    let (now, wanted) = (pages.now.as_millis(), code::size(limit));
    let due = code::size((limit + 1).max(DUE_SORTED));
    let max_bytes = code::size(pages.max_bytes);
    let params: [Param<'_>; 6] = [&endpoints, &now, &wanted, &held, &due, &max_bytes];
    let mut read: Vec<Read> = pages.endpoints.iter().map(|_| Read::default()).collect();
    for row in &session.rows(&PAGES, &params).await? {
        let number: i64 = rows::get(row, NUMBER)?;
        let index = usize::try_from(number - 1).ok();
        let page = index.and_then(|index| read.get_mut(index));
        page.ok_or_else(|| Error::Damaged("a page that nobody asked for".into()))?.add(row)?;
    }
    Ok(read.into_iter().map(|read| read.finish(limit)).collect())
}

/// One endpoint's part of the answer.
#[derive(Default)]
struct Read {
    ready: Vec<Found>,
    due: Vec<Found>,
    next_due: Option<Timestamp>,
}

struct Found {
    hot: Hot,
    /// None if there was no room for its body.
    event: Option<Event>,
}

impl Read {
    fn add(&mut self, row: &Row) -> Result<(), Error> {
        let hot = rows::hot(row)?;
        let part: i32 = rows::get(row, PART)?;
        if part == 3 {
            self.next_due = Some(hot.delivery.due);
            return Ok(());
        }
        if rows::get::<Option<i64>>(row, EVENT)?.is_none() {
            return Err(rows::missing_event(&hot));
        }
        let fits = rows::get::<Option<&[u8]>>(row, BODY)?.is_some();
        let event = fits.then(|| rows::event_at(row, EVENT, Body::Follows)).transpose()?;
        let list = if part == 1 { &mut self.ready } else { &mut self.due };
        list.push(Found { hot, event });
        Ok(())
    }

    fn finish(mut self, limit: usize) -> Paged {
        self.ready.sort_unstable_by_key(|found| (found.hot.event, found.hot.id));
        self.due.sort_unstable_by_key(|found| found.hot.id);
        let mut more = self.ready.len() > limit || self.due.len() > limit;
        self.ready.truncate(limit);
        self.due.truncate(limit);
        self.ready.append(&mut self.due);
        self.ready.sort_unstable_by_key(|found| (found.hot.event, found.hot.id));
        let mut waiting: Vec<Waiting> = Vec::with_capacity(self.ready.len());
        for Found { hot, event } in self.ready {
            let Some(event) = event else {
                more = true;
                break;
            };
            // Neighbours of one event share it.
            let event = match waiting.last() {
                Some(last) if last.event.id == event.id => Arc::clone(&last.event),
                Some(_) | None => Arc::new(event),
            };
            waiting.push(hot.with(event));
        }
        Paged { waiting, more, next_due: self.next_due }
    }
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

/// Of those whose time came first, this many at least are put in the order of their events: what was
/// to be tried again goes by age, as everything does, and not by when its wait was over.
pub(crate) const DUE_SORTED: usize = 1_024;
