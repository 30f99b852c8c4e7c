//! Several nodes of one process on one database: what nodes on several machines have of a server, at
//! the speed of a file and without its clock, so that tests and simulation can repeat what happened.

use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use postrider_core::{EndpointId, HubId, Timestamp};
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::mpsc;

use super::config::Options;
use super::{Sqlite, pages, rows};
use crate::error::Error;
use crate::fleet::{
    Beat, Fleet, Found, Heard, Joined, Looked, NewNode, NodeId, NodeRecord, Pulse, Tenure, To,
};

mod carrying;
mod members;
mod words;

use members::NUMBERS;
use words::Words;

/// Endpoints that are looked at in one piece, so that what others ask is answered in between.
const LOOK_PIECE: usize = 512;

/// The age of the oldest event decides, as it does for the order in which they are tried.
pub(crate) const OLDEST_READY: &str = "SELECT born FROM deliveries INDEXED BY deliveries_ready \
     WHERE endpoint_id = ?1 AND place = 1 ORDER BY event_id, id LIMIT 1";

/// What the nodes share beside the database, while it is open.
pub(crate) struct Company {
    shared: bool,
    /// The time, in milliseconds: the latest that was told. It never goes back, whatever the nodes'
    /// own clocks do.
    time: AtomicI64,
    words: Words,
}

impl Company {
    pub(crate) fn of(conn: &Connection, options: &Options) -> Result<Self, Error> {
        let shared = options.shared;
        let seen = if shared { members::last_seen(conn)? } else { Timestamp::MIN };
        Ok(Self { shared, time: AtomicI64::new(seen.as_millis()), words: Words::default() })
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(crate) fn close(&self) {
        self.words.end();
    }

    /// The time, for somebody who believes that it is `told`.
    fn now(&self, told: Timestamp) -> Timestamp {
        let before = self.time.fetch_max(told.as_millis(), Ordering::Relaxed);
        told.max(Timestamp::from_millis(before))
    }

    fn latest(&self) -> Timestamp {
        Timestamp::from_millis(self.time.load(Ordering::Relaxed))
    }
}

#[async_trait]
impl Fleet for Sqlite {
    async fn join(&self, new: NewNode) -> Result<Joined, Error> {
        let now = self.company.now(new.now);
        let joined = self.configure(move |batch| members::join(batch.conn, &new, now)).await?;
        joined.ok_or_else(|| {
            Error::Refused(format!(
                "{NUMBERS} nodes share the database, or did until a short while ago: stop some, or \
                 try again in some minutes"
            ))
        })
    }

    async fn beat(&self, pulse: Pulse) -> Result<Option<Beat>, Error> {
        let now = self.company.now(pulse.now);
        self.configure(move |batch| carrying::beat(batch.conn, &pulse, now)).await
    }

    async fn seize(&self, node: NodeId, hub: HubId) -> Result<Tenure, Error> {
        self.configure(move |batch| carrying::seize(batch.conn, node, hub)).await
    }

    async fn release(&self, node: NodeId, tenures: Vec<Tenure>) -> Result<(), Error> {
        self.configure(move |batch| carrying::release(batch.conn, node, &tenures)).await
    }

    async fn leave(&self, node: NodeId) -> Result<(), Error> {
        let now = self.company.latest();
        self.configure(move |batch| members::leave(batch.conn, node, now)).await
    }

    async fn nodes(&self, now: Timestamp) -> Result<Vec<NodeRecord>, Error> {
        let now = self.company.now(now);
        self.journal.ask(move |conn| members::nodes(conn, now)).await
    }

    async fn look(&self, mut endpoints: Vec<EndpointId>) -> Result<Looked, Error> {
        let mut found = Vec::new();
        loop {
            let piece = endpoints.split_off(endpoints.len().saturating_sub(LOOK_PIECE));
            let seen = self.journal.ask(move |conn| look(conn, &piece)).await?;
            found.extend(seen.found);
            if endpoints.is_empty() {
                return Ok(Looked { revision: seen.revision, found });
            }
        }
    }

    fn tell(&self, from: NodeId, to: To, word: String) {
        self.company.words.tell(from, to, &word);
    }

    fn hear(&self, node: NodeId, room: usize) -> mpsc::Receiver<Heard> {
        self.company.words.hear(node, room)
    }
}

fn look(conn: &Connection, endpoints: &[EndpointId]) -> Result<Looked, Error> {
    let mut looked = Looked { revision: revision(conn)?, found: Vec::new() };
    let mut oldest = conn.prepare_cached(OLDEST_READY)?;
    for endpoint in endpoints.iter().copied() {
        let ready = oldest
            .query_row((endpoint.as_i64(),), |row| Ok(rows::time(row, 0)))
            .optional()?
            .transpose()?;
        let due = pages::next_due(conn, endpoint)?;
        if ready.is_some() || due.is_some() {
            looked.found.push(Found { endpoint, ready, due });
        }
    }
    Ok(looked)
}

fn revision(conn: &Connection) -> Result<i64, Error> {
    Ok(conn.prepare_cached("SELECT n FROM revision")?.query_row((), |row| row.get(0))?)
}
