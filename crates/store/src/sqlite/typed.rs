//! Pages of chosen event types. Types are not indexed, so what waits is walked in its order until a
//! page is full: a bounded piece at a time, however much of it is of other types.

use std::collections::HashSet;
use std::ops::ControlFlow;

use postrider_core::DeliveryId;
use rusqlite::{Connection, Row};

use super::pages;
use super::rows;
use crate::error::Error;
use crate::journal::{MAX_PAGE, Page, Paged};
use crate::stored::code;
use crate::stored::hot::{HOT, Hot};

/// The most rows that a piece of a walk looks at. Between two pieces the reader serves others.
const MAX_PIECE: usize = 2_048;

/// Both take the same parameters: the endpoint, the time, the last position and a limit.
pub(crate) const READY_ON: &str = "FROM deliveries INDEXED BY deliveries_ready \
     WHERE endpoint_id = ?1 AND place = 1 AND (event_id, id) > (?3, ?4) \
     ORDER BY event_id, id LIMIT ?5";
pub(crate) const DUE_ON: &str = "FROM deliveries INDEXED BY deliveries_timed \
     WHERE endpoint_id = ?1 AND place = 2 AND at <= ?2 AND (at, id) > (?3, ?4) \
     ORDER BY at, id LIMIT ?5";

/// A page that is being looked for.
pub(crate) struct Walk {
    page: Page,
    held: HashSet<DeliveryId>,
    ready: Leg,
    due: Leg,
}

/// The walk of one index.
struct Leg {
    from: &'static str,
    /// Which column of [`HOT`] the index is in the order of; ids decide between equals.
    order: usize,
    /// The order and the id of the last row that was looked at.
    last: (i64, i64),
    /// As many as are wanted.
    limit: usize,
    found: Vec<Hot>,
    end: Option<End>,
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
        let ready = Leg::new(READY_ON, EVENT, page.limit);
        let due = Leg::new(DUE_ON, AT, page.limit.max(pages::DUE_SORTED));
        Self { page, held, ready, due }
    }

    /// Looks at the next [`MAX_PIECE`] rows; ends with the page, or has further to go.
    pub(crate) fn go_on(mut self, conn: &Connection) -> Result<ControlFlow<Paged, Self>, Error> {
        let mut room = MAX_PIECE;
        for leg in [&mut self.ready, &mut self.due] {
            if leg.end.is_none() && room > 0 {
                room -= leg.go_on(conn, &self.page, &self.held, room)?;
            }
        }
        if self.ready.end.is_some() && self.due.end.is_some() {
            self.finish(conn).map(ControlFlow::Break)
        } else {
            Ok(ControlFlow::Continue(self))
        }
    }

    fn finish(mut self, conn: &Connection) -> Result<Paged, Error> {
        self.due.found.sort_unstable_by_key(|hot| (hot.event, hot.id));
        let full = [self.ready.end, self.due.end].contains(&Some(End::Full))
            || self.due.found.len() > self.page.limit;
        self.due.found.truncate(self.page.limit);
        let mut found = Vec::with_capacity(self.ready.found.len() + self.due.found.len());
        for hot in self.ready.found.into_iter().chain(self.due.found) {
            if still_waits(conn, &hot)? {
                found.push(hot);
            }
        }
        found.sort_unstable_by_key(|hot| (hot.event, hot.id));
        let (waiting, cut) = pages::load(conn, found, self.page.max_bytes)?;
        let next_due = pages::next_after(conn, self.page.endpoint, self.page.now, &self.held)?;
        Ok(Paged { waiting, more: full || cut, next_due })
    }
}

impl Leg {
    fn new(from: &'static str, order: usize, limit: usize) -> Self {
        Self { from, order, last: (i64::MIN, i64::MIN), limit, found: Vec::new(), end: None }
    }

    /// Looks at up to `room` rows; returns how many those were.
    fn go_on(
        &mut self,
        conn: &Connection,
        page: &Page,
        held: &HashSet<DeliveryId>,
        room: usize,
    ) -> Result<usize, Error> {
        let mut statement = conn.prepare_cached(&select(self.from))?;
        let (endpoint, now) = (page.endpoint.as_i64(), page.now.as_millis());
        let params = (endpoint, now, self.last.0, self.last.1, code::size(room));
        let mut rows = statement.query(params)?;
        let mut seen = 0;
        while let Some(row) = rows.next()? {
            let id = row.get(ID)?;
            if !held.contains(&DeliveryId::from_i64(id)) && matches(row, page)? {
                if self.found.len() == self.limit {
                    self.end = Some(End::Full);
                    break;
                }
                self.found.push(rows::hot(row)?);
            }
            self.last = (row.get(self.order)?, id);
            seen += 1;
        }
        if self.end.is_none() && seen < room {
            self.end = Some(End::Through);
        }
        Ok(seen)
    }
}

/// Reads the columns of [`HOT`], and the type of the event: its body stays where it is.
pub(crate) fn select(from: &str) -> String {
    format!("SELECT {HOT}, (SELECT kind FROM events WHERE events.id = deliveries.event_id) {from}")
}

/// The columns of [`select`] that are read apart.
const ID: usize = 0;
const EVENT: usize = 1;
const AT: usize = 9;
const KIND: usize = 12;

fn matches(row: &Row<'_>, page: &Page) -> Result<bool, Error> {
    let kind = row.get_ref(KIND)?.as_str_or_null()?;
    let kind = kind.ok_or_else(|| Error::Damaged("the event of a delivery is missing".into()))?;
    Ok(page.event_types.iter().any(|pattern| pattern.matches(kind)))
}

/// What an earlier piece found may have been changed, or removed together with its event.
fn still_waits(conn: &Connection, hot: &Hot) -> Result<bool, Error> {
    const SQL: &str = "SELECT 1 FROM deliveries WHERE id = ?1 AND fence = ?2 AND place IN (1, 2)";
    Ok(conn.prepare_cached(SQL)?.exists((hot.id.as_i64(), hot.fence))?)
}
