//! Pages of chosen event types. Types are not indexed, so what waits is walked in its order until a
//! page is full: a bounded piece at a time, however much of it is of other types.

use std::collections::HashSet;
use std::ops::ControlFlow;

use postrider_core::DeliveryId;
use tokio_postgres::Row;

use super::pages::{self, Sized};
use super::rows;
use super::session::{Param, Session};
use super::text;
use crate::error::Error;
use crate::journal::{MAX_PAGE, Page, Paged};
use crate::stored::code;
use crate::stored::hot::HOT;

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
        let due = Leg::new(Which::Due, page.limit.max(pages::DUE_SORTED));
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
        let (waiting, cut) = pages::load(session, found, self.page.max_bytes).await?;
        let next_due = pages::next_after(session, &self.page, &self.held).await?;
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
                let bytes = pages::size(row, BYTES)?.unwrap_or_default();
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
