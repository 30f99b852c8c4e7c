//! Filling an empty database with a store from elsewhere, and reading it back.
//!
//! One connection does everything and holds the lock that keeps every node away: when it is lost, so
//! is the lock, and nothing more is written.

pub(crate) mod cells;

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio_postgres::Row;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;

use self::cells::{Cell, Unfit};
use super::address::Address;
use super::config::{Options, SCHEMA};
use super::presence::{self, Claim};
use super::session::{Pace, Session};
use super::{Fault, OpenError, rows, schema};
use crate::copy::standing::{Standing, Survey};
use crate::copy::table::{Parts, TABLES, Table};
use crate::copy::value::{self, Tally, Value};
use crate::copy::{self, Found};
use crate::error::Error;

/// The row of `meta` that is there while the database holds a part of a store.
const COPYING: &str = "copying";

/// Where what was copied is counted: in the first node's slot, like every change.
const SLOT: i16 = 0;

/// How long a day is in ids, as `make_day` counts days.
const DAY: i64 = 86_400_000 << 22;

/// Only so many days, the newest, get parts of their own. What is older is in the part `…_other`.
const MAX_DAYS: i64 = 800;

/// Progress is told after so many rows that were read back.
const ROWS_BETWEEN_WORDS: u64 = 4_096;

/// A database to copy to. No node can use it, and no other copy.
pub struct Target {
    session: Session,
    patience: Duration,
    /// Days whose parts are known to be there.
    days: HashSet<i64>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").finish_non_exhaustive()
    }
}

impl Target {
    /// Connects to the database at `url` (`postgres://…`) and keeps everybody else away. Nothing in
    /// it is changed. Of `options` only the times are used.
    pub async fn connect(url: &str, options: Options) -> Result<Self, OpenError> {
        let address = Address::parse(url, options.connect_timeout)?;
        let session = Session::open(&address, &options, Pace::Patient).await?;
        schema::check_server(&session).await?;
        let patience = options.lock_patience;
        presence::lock(&session, Claim::Alone, patience).await?;
        Ok(Self { session, patience, days: HashSet::new() })
    }

    /// Looks whether `origin` can be copied to it. Nothing is changed.
    pub(crate) async fn look(&self, origin: &Survey) -> Result<Found, copy::Error> {
        if schema::pending(&self.session).await?.version == 0 {
            return Ok(Found::Nothing);
        }
        match self.standing(origin).await? {
            Some(standing) => Ok(Found::Part { rows: standing.rows_done() }),
            None => self.check_empty(origin).await.map(|()| Found::Nothing),
        }
    }

    /// Makes the tables if there are none, and says where to begin.
    pub(crate) async fn begin(&self, origin: &Survey) -> Result<Standing, copy::Error> {
        self.look(origin).await?;
        schema::migrate(&self.session, self.patience).await?;
        if let Some(standing) = self.standing(origin).await? {
            return Ok(standing);
        }
        let standing = Standing::start(origin.clone());
        self.session.script("BEGIN; DELETE FROM tenants").await?;
        let sql = "INSERT INTO meta (name, value) VALUES ($1, $2)";
        self.session.execute(sql, &[&COPYING, &standing.write()]).await?;
        self.session.script("COMMIT").await?;
        Ok(standing)
    }

    /// Adds rows to a table and moves the position, both or neither.
    pub(crate) async fn write(
        &mut self,
        table: &Table,
        rows: &[value::Row],
        standing: &Standing,
    ) -> Result<(), Error> {
        self.session.script("BEGIN").await?;
        if table.parts == Parts::ByDay {
            self.make_days(rows, standing).await?;
        }
        self.fill(table, rows).await?;
        let sql = "UPDATE meta SET value = $2 WHERE name = $1";
        if self.session.execute(sql, &[&COPYING, &standing.write()]).await? != 1 {
            return Err(Error::Damaged("somebody has removed what says `copying`".to_owned()));
        }
        Ok(self.session.script("COMMIT").await?)
    }

    /// Counts what was copied, and lets numbers go on after the highest.
    pub(crate) async fn count(&self) -> Result<(), Error> {
        let number = |table: &str| {
            format!(
                "SELECT setval(pg_get_serial_sequence('{table}', 'id'), greatest(max(id), 1), \
                 max(id) IS NOT NULL) FROM {table}"
            )
        };
        let (tenants, audit) = (number("tenants"), number("audit"));
        Ok(self
            .session
            .script(&format!(
                "BEGIN; SET LOCAL enable_seqscan = on; \
                 DELETE FROM delivery_counts; DELETE FROM event_counts; \
                 INSERT INTO delivery_counts (endpoint_id, tenant_id, n, state, slot) \
                     SELECT endpoint_id, min(tenant_id), count(*), state, {SLOT} \
                     FROM deliveries GROUP BY endpoint_id, state; \
                 INSERT INTO event_counts (tenant_id, n, slot) \
                     SELECT tenant_id, count(*), {SLOT} FROM events GROUP BY tenant_id; \
                 {tenants}; {audit}; COMMIT"
            ))
            .await?)
    }

    /// What all rows of a table come to, by reading them.
    pub(crate) async fn tally(
        &self,
        table: &Table,
        mut tell: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Tally, copy::Error> {
        let Table { name, columns, .. } = table;
        // The rows of all parts, in whatever order they are found.
        self.session.script("SET enable_seqscan = on").await?;
        let statement = self.session.prepare(&format!("SELECT {columns} FROM {name}")).await?;
        let none: [&str; 0] = [];
        let judge = |error: tokio_postgres::Error| self.session.judge(&error);
        let found = self.session.client().query_raw(&statement, none).await.map_err(judge)?;
        let mut found = pin!(found);
        let mut tally = Tally::default();
        while let Some(row) = found.try_next().await.map_err(judge)? {
            tally.add(&values(&row).map_err(copy::Error::Target)?);
            if tally.rows.is_multiple_of(ROWS_BETWEEN_WORDS) && tell(tally.rows).is_break() {
                return Err(copy::Error::Interrupted);
            }
        }
        match tell(tally.rows) {
            ControlFlow::Continue(()) => Ok(tally),
            ControlFlow::Break(()) => Err(copy::Error::Interrupted),
        }
    }

    /// Gives the store its name. From here on it is one like any other.
    pub(crate) async fn complete(&self, origin: &Survey) -> Result<(), Error> {
        self.session.script("BEGIN").await?;
        if let Some(instance) = &origin.instance {
            let sql = "INSERT INTO meta (name, value) VALUES ('instance', $1)";
            self.session.execute(sql, &[instance]).await?;
        }
        self.session.execute("DELETE FROM meta WHERE name = $1", &[&COPYING]).await?;
        Ok(self.session.script("COMMIT").await?)
    }

    /// Lets others have the database.
    pub(crate) async fn close(self) {
        self.session.close().await;
    }

    /// A copy that is not complete. Only one of the same store as it is can be gone on with.
    async fn standing(&self, origin: &Survey) -> Result<Option<Standing>, copy::Error> {
        let sql = "SELECT value FROM meta WHERE name = $1";
        let Some(row) = self.session.row(sql, &[&COPYING]).await? else { return Ok(None) };
        let stored: &[u8] = rows::get(&row, 0).map_err(copy::Error::Target)?;
        let Some(standing) = Standing::read(stored) else {
            return Err(refused(
                "the database holds an unfinished copy that another version of postrider began: \
                 finish it with that",
            ));
        };
        if standing.origin.instance != origin.instance {
            return Err(refused("the database holds the unfinished copy of another store"));
        }
        let changed = origin.changed_since(&standing.origin);
        if changed.is_empty() {
            return Ok(Some(standing));
        }
        Err(refused(format!(
            "the store has changed since its copy was begun ({})",
            changed.join(", ")
        )))
    }

    async fn check_empty(&self, origin: &Survey) -> Result<(), copy::Error> {
        let used = |table: &Table| match table.name {
            // Every store begins with this one.
            "tenants" => "SELECT 1 FROM tenants WHERE id <> 1 OR name <> 'default'".to_owned(),
            name => format!("SELECT 1 FROM {name}"),
        };
        // An older schema, which is brought up to date later, has not all of them.
        let sql = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1";
        let there = self.session.rows(sql, &[&SCHEMA]).await?;
        let there = there.iter().map(|row| rows::get::<&str>(row, 0));
        let there: HashSet<&str> = there.collect::<Result<_, _>>().map_err(copy::Error::Target)?;
        let used = TABLES
            .iter()
            .filter(|table| there.contains(table.name))
            .map(|table| format!("('{}', EXISTS ({}))", table.name, used(table)));
        let used = used.collect::<Vec<_>>().join(", ");
        let sql = format!("SELECT name FROM (VALUES {used}) t (name, used) WHERE used");
        let found = self.session.rows(&sql, &[]).await?;
        let names = found.iter().map(|row| rows::get::<&str>(row, 0));
        let mut names: Vec<&str> = names.collect::<Result<_, _>>().map_err(copy::Error::Target)?;
        let sql = "SELECT value FROM meta WHERE name = 'instance'";
        let name = self.session.row(sql, &[]).await?;
        let name: Option<Vec<u8>> =
            name.map(|row| rows::get(&row, 0)).transpose().map_err(copy::Error::Target)?;
        if name.is_some() && name == origin.instance {
            return Err(copy::Error::Refused(
                "the database holds this very store already: its copy was completed".to_owned(),
            ));
        }
        if name.is_some() {
            names.push("meta");
        }
        if names.is_empty() {
            return Ok(());
        }
        Err(refused(format!("the database holds a store already ({})", names.join(", "))))
    }

    /// Makes the parts that the rows belong to.
    async fn make_days(&mut self, rows: &[value::Row], standing: &Standing) -> Result<(), Error> {
        let by_day = TABLES.iter().filter(|table| table.parts == Parts::ByDay);
        let extents = by_day.filter_map(|table| standing.origin.tables.get(table.name));
        let newest = extents.map(|extent| extent.highest).max().unwrap_or(0);
        for day in days(rows, newest) {
            if self.days.insert(day) {
                self.session.rows("SELECT make_day($1)", &[&day]).await?;
            }
        }
        Ok(())
    }

    async fn fill(&self, table: &Table, rows: &[value::Row]) -> Result<(), Error> {
        let Table { name, columns, .. } = table;
        let shape = self.session.prepare(&format!("SELECT {columns} FROM {name}")).await?;
        let types: Vec<Type> =
            shape.columns().iter().map(|column| column.type_().clone()).collect();
        let sql = format!("COPY {name} ({columns}) FROM STDIN (FORMAT binary)");
        let copy = self.session.prepare(&sql).await?;
        let sink = self.session.within(self.session.client().copy_in(&copy)).await?;
        let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
        let judge = |error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error);
            if cause.and_then(<dyn std::error::Error>::downcast_ref::<Unfit>).is_some() {
                return Error::Damaged(format!("{name}: {Unfit}"));
            }
            match self.session.judge(&error) {
                Fault::Taken => Error::Damaged(format!("{name}: a row is there already")),
                other
                @ (Fault::Lost(_) | Fault::Undone(_) | Fault::Busy(_) | Fault::Damaged(_)) => {
                    other.into()
                }
            }
        };
        for row in rows {
            writer.as_mut().write_raw(row.iter().map(Cell)).await.map_err(judge)?;
        }
        let written = writer.finish().await.map_err(judge)?;
        if written == rows.len() as u64 {
            Ok(())
        } else {
            Err(Error::Damaged(format!("{written} rows of {name} instead of {}", rows.len())))
        }
    }
}

/// Fails if the database holds a part of a store: nobody may use it before its copy is complete.
pub(crate) async fn check_whole(session: &Session) -> Result<(), OpenError> {
    let sql = "SELECT 1 FROM meta WHERE name = $1";
    if session.row(sql, &[&COPYING]).await?.is_none() {
        return Ok(());
    }
    Err(OpenError::Refused(
        "the database holds an unfinished copy of a store: finish it with `postrider copy`, from \
         where it was begun"
            .to_owned(),
    ))
}

/// The days of `rows` that get parts of their own, where `newest` is the highest id of all.
fn days(rows: &[value::Row], newest: i64) -> BTreeSet<i64> {
    let ids = rows.iter().filter_map(|row| match row.first() {
        Some(Value::Whole(id)) => Some(*id),
        Some(Value::Null | Value::Real(_) | Value::Text(_) | Value::Bytes(_)) | None => None,
    });
    ids.map(|id| id / DAY).filter(|day| *day > newest / DAY - MAX_DAYS).collect()
}

/// A refusal that ends with what can be done about it.
fn refused(why: impl std::fmt::Display) -> copy::Error {
    copy::Error::Refused(format!(
        "{why}: name an empty database, or, if nothing in this one is needed, drop its schema \
         `{SCHEMA}` first"
    ))
}

fn values(row: &Row) -> Result<value::Row, Error> {
    (0..row.len()).map(|column| rows::get(row, column)).collect()
}

impl From<Fault> for copy::Error {
    fn from(fault: Fault) -> Self {
        Self::Target(fault.into())
    }
}

impl From<OpenError> for copy::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Unreachable(why) => Self::Target(Error::Unavailable(why)),
            refused @ (OpenError::Address(_) | OpenError::InUse(_) | OpenError::Refused(_)) => {
                Self::Refused(refused.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_days_get_parts_and_each_once() {
        let rows = |ids: &[i64]| ids.iter().map(|id| vec![Value::Whole(*id)]).collect::<Vec<_>>();
        let newest = 1_000 * DAY + 5;
        let ids = [0, 200 * DAY, 201 * DAY - 1, 201 * DAY, 201 * DAY + 9, newest - 9, newest];
        let made: Vec<i64> = days(&rows(&ids), newest).into_iter().collect();
        assert_eq!(made, [201, 999, 1_000]);
        assert_eq!(days(&rows(&[0, 7]), 7).len(), 1);
    }
}
