//! Pages of chosen event types. Types are not indexed, so what waits is walked in its order until a
//! page is full: a bounded piece at a time, however much of it is of other types.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use postrider_core::{DeliveryId, EventId, Timestamp};
use tokio_postgres::Row;

use super::pages::DUE_SORTED;
use super::rows::{self, Body};
use super::session::{Param, Session};
use super::text;
use crate::error::Error;
use crate::journal::{MAX_PAGE, Page, Paged};
use crate::record::{Event, Waiting};
use crate::stored::code;
use crate::stored::hot::{HOT, Hot};

/// The most rows that a piece of a walk looks at. Between two pieces the connection serves others.
const MAX_PIECE: usize = 2_048;

const READY_ON: &str = "WHERE endpoint_id = $1 AND place = 1 AND (event_id, id) > ($2, $3) \
     ORDER BY event_id, id LIMIT $4";
const DUE_ON: &str = "WHERE endpoint_id = $1 AND place = 2 AND (at, id) > ($2, $3) \
     AND at <= $5 ORDER BY at, id LIMIT $4";

/// A page that is being looked for.
pub(crate) struct Walk {
    page: Page,
    held: HashSet<DeliveryId>,
    ready: Leg,
    due: Leg,
}

/// The walk of one index.
struct Leg {
    which: Which,
    /// The order and the id of the last row that was looked at.
    last: (i64, i64),
    /// As many as are wanted.
    limit: usize,
    found: Vec<Sized>,
    end: Option<End>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Ready,
    Due,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Everything has been looked at.
    Through,
    /// The page is full, and there is another for the next one.
    Full,
}

impl Walk {
    pub(crate) fn new(mut page: Page) -> Self {
        page.limit = page.limit.min(MAX_PAGE);
        let held = page.held.iter().copied().collect();
        let ready = Leg::new(Which::Ready, page.limit);
        let due = Leg::new(Which::Due, page.limit.max(DUE_SORTED));
        Self { page, held, ready, due }
    }

    /// Looks at the next [`MAX_PIECE`] rows; ends with the page, or has further to go.
    pub(crate) async fn go_on(
        mut self,
        session: &Session,
    ) -> Result<ControlFlow<Paged, Self>, Error> {
        let mut room = MAX_PIECE;
        for leg in [&mut self.ready, &mut self.due] {
            if leg.end.is_none() && room > 0 {
                room -= leg.go_on(session, &self.page, &self.held, room).await?;
            }
        }
        if self.ready.end.is_some() && self.due.end.is_some() {
            self.finish(session).await.map(ControlFlow::Break)
        } else {
            Ok(ControlFlow::Continue(self))
        }
    }

    async fn finish(mut self, session: &Session) -> Result<Paged, Error> {
        self.due.found.sort_unstable_by_key(|sized| (sized.hot.event, sized.hot.id));
        let full = [self.ready.end, self.due.end].contains(&Some(End::Full))
            || self.due.found.len() > self.page.limit;
        self.due.found.truncate(self.page.limit);
        let mut found = self.ready.found;
        found.append(&mut self.due.found);
        let waiting = still_waiting(session, &found).await?;
        found.retain(|sized| waiting.contains(&sized.hot.id.as_i64()));
        let (waiting, cut) = load(session, found, self.page.max_bytes).await?;
        let next_due = next_after(session, &self.page, &self.held).await?;
        Ok(Paged { waiting, more: full || cut, next_due })
    }
}

impl Leg {
    fn new(which: Which, limit: usize) -> Self {
        Self { which, last: (i64::MIN, i64::MIN), limit, found: Vec::new(), end: None }
    }

    /// Looks at up to `room` rows; returns how many those were.
    async fn go_on(
        &mut self,
        session: &Session,
        page: &Page,
        held: &HashSet<DeliveryId>,
        room: usize,
    ) -> Result<usize, Error> {
        let (endpoint, now, rows) =
            (page.endpoint.as_i64(), page.now.as_millis(), code::size(room));
        let mut params: Vec<Param<'_>> = vec![&endpoint, &self.last.0, &self.last.1, &rows];
        let (wanted, order) = match self.which {
            Which::Ready => (READY_ON, EVENT),
            Which::Due => {
                params.push(&now);
                (DUE_ON, AT)
            }
        };
        let found = session.rows(&select(wanted), &params).await?;
        let mut seen = 0;
        for row in &found {
            let id = rows::get(row, ID)?;
            if !held.contains(&DeliveryId::from_i64(id)) && matches(row, page)? {
                if self.found.len() == self.limit {
                    self.end = Some(End::Full);
                    break;
                }
                let bytes = size(row, BYTES)?.unwrap_or_default();
                self.found.push(Sized { hot: rows::hot(row)?, bytes });
            }
            self.last = (rows::get(row, order)?, id);
            seen += 1;
        }
        if self.end.is_none() && seen < room {
            self.end = Some(End::Through);
        }
        Ok(seen)
    }
}

/// Reads the columns of [`HOT`], and of the event its type and the size of its body.
fn select(wanted: &str) -> String {
    format!(
        "SELECT u.*, e.kind, octet_length(e.body) \
         FROM (SELECT {} FROM unfinished {wanted}) u LEFT JOIN {} ON true",
        HOT,
        rows::EVENT_OF_DELIVERY
    )
}

/// The columns of [`select`] that are read apart.
const ID: usize = 0;
const EVENT: usize = 1;
const AT: usize = 9;
const KIND: usize = rows::AFTER_HOT;
const BYTES: usize = rows::AFTER_HOT + 1;

fn matches(row: &Row, page: &Page) -> Result<bool, Error> {
    let kind: Option<text::Stored> = rows::get(row, KIND)?;
    let kind = kind.ok_or_else(|| Error::Damaged("the event of a delivery is missing".into()))?;
    Ok(page.event_types.iter().any(|pattern| pattern.matches(&kind.0)))
}

/// What an earlier piece found may have been changed, or removed together with its event.
async fn still_waiting(session: &Session, found: &[Sized]) -> Result<HashSet<i64>, Error> {
    const SQL: &str = "SELECT u.id FROM unnest($1::int8[], $2::int4[]) w (id, fence) \
         CROSS JOIN LATERAL (SELECT id FROM unfinished u WHERE u.id = w.id \
             AND u.fence = w.fence AND u.place IN (1, 2) OFFSET 0) u";
    let ids: Vec<i64> = found.iter().map(|sized| sized.hot.id.as_i64()).collect();
    let fences: Vec<i32> = found.iter().map(|sized| sized.hot.fence.cast_signed()).collect();
    let waiting = session.rows(SQL, &[&ids, &fences]).await?;
    waiting.iter().map(|row| rows::get(row, 0)).collect()
}

/// A delivery, and the size of its event's body.
struct Sized {
    hot: Hot,
    bytes: usize,
}

/// The size of a body, if the event is there.
fn size(row: &Row, column: usize) -> Result<Option<usize>, Error> {
    let bytes: Option<i32> = rows::get(row, column)?;
    Ok(bytes.map(|bytes| usize::try_from(bytes).unwrap_or_default()))
}

/// Adds the events, of which neighbours share one, until their bodies exceed `max_bytes`. The
/// second value says that some were left out.
async fn load(
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
async fn next_after(
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

const AFTER_NOW: &str = "SELECT id, at FROM unfinished \
     WHERE endpoint_id = $1 AND place = 2 AND at > $2 ORDER BY at, id LIMIT $3";
