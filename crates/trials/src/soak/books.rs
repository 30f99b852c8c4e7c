//! What the store says of events and deliveries, in one answer of one moment. `/v1/stats` adds up
//! several answers of several moments, so it cannot be held to an equation; one statement can.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rusqlite::{Connection, OpenFlags};
use serde::Serialize;

use crate::bench::postgres::Session;

/// What the rows of an answer are about; other numbers are the codes of states.
const EVENTS: i64 = -1;
const UNFINISHED: i64 = -2;
const PROMISED: i64 = -3;

/// The counters that the gateway keeps, and beside them the rows that wait, which are counted
/// through the indexes over what waits.
const COUNTED_IN_SQLITE: &str = "\
    SELECT -1, coalesce(sum(n), 0) FROM event_counts \
    UNION ALL SELECT -2, count(*) FROM deliveries INDEXED BY deliveries_ready WHERE place = 1 \
    UNION ALL SELECT -2, count(*) FROM deliveries INDEXED BY deliveries_later WHERE place > 1 \
    UNION ALL SELECT state, sum(n) FROM delivery_counts GROUP BY state";
const COUNTED_IN_POSTGRES: &str = "\
    SELECT -1::int8, coalesce(sum(n), 0)::int8 FROM postrider.event_counts \
    UNION ALL SELECT -2::int8, count(*) FROM postrider.unfinished \
    UNION ALL SELECT state::int8, sum(n)::int8 FROM postrider.delivery_counts GROUP BY state";

/// Every row looked at.
const AUDITED_IN_SQLITE: &str = "\
    SELECT -1, count(*) FROM events \
    UNION ALL SELECT -3, coalesce(sum(deliveries), 0) FROM events \
    UNION ALL SELECT -2, count(*) FROM deliveries WHERE place IS NOT NULL \
    UNION ALL SELECT state, count(*) FROM deliveries GROUP BY state";
const AUDITED_IN_POSTGRES: &str = "\
    SELECT -1::int8, count(*) FROM postrider.events \
    UNION ALL SELECT -3::int8, coalesce(sum(deliveries), 0)::int8 FROM postrider.events \
    UNION ALL SELECT -2::int8, count(*) FROM postrider.unfinished \
    UNION ALL SELECT state::int8, count(*) FROM postrider.deliveries GROUP BY state";

/// Where the books are read.
#[derive(Debug, Clone)]
pub(crate) enum Books {
    Sqlite(PathBuf),
    Postgres(String),
}

/// How many there are, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Balance {
    pub(crate) events: u64,
    pub(crate) pending: u64,
    pub(crate) retrying: u64,
    pub(crate) leased: u64,
    pub(crate) delivered: u64,
    pub(crate) failed: u64,
    pub(crate) dead: u64,
    pub(crate) cancelled: u64,
    /// Rows of deliveries that have not ended.
    pub(crate) unfinished_rows: u64,
    /// The deliveries that events say they were given; only in an audit.
    pub(crate) promised: u64,
}

impl Balance {
    pub(crate) fn terminal(&self) -> u64 {
        self.delivered + self.failed + self.dead + self.cancelled
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.pending + self.retrying + self.leased
    }

    fn of(rows: impl IntoIterator<Item = (i64, i64)>) -> Result<Self> {
        let mut balance = Self::default();
        for (what, count) in rows {
            let place = match what {
                EVENTS => &mut balance.events,
                UNFINISHED => &mut balance.unfinished_rows,
                PROMISED => &mut balance.promised,
                0 => &mut balance.pending,
                1 => &mut balance.delivered,
                2 => &mut balance.retrying,
                3 => &mut balance.failed,
                4 => &mut balance.dead,
                5 => &mut balance.cancelled,
                6 => &mut balance.leased,
                other => bail!("the store has a state {other} that nobody knows"),
            };
            *place += u64::try_from(count).context("the store counts less than nothing")?;
        }
        Ok(balance)
    }
}

impl Books {
    /// What the gateway itself counts, checked against the rows that wait.
    pub(crate) async fn balance(&self) -> Result<Balance> {
        self.ask(COUNTED_IN_SQLITE, COUNTED_IN_POSTGRES).await.context("reading the counts")
    }

    /// What every row says; takes as long as there is history.
    pub(crate) async fn audit(&self) -> Result<Balance> {
        self.ask(AUDITED_IN_SQLITE, AUDITED_IN_POSTGRES).await.context("reading the rows")
    }

    async fn ask(&self, sqlite: &'static str, postgres: &str) -> Result<Balance> {
        match self {
            Self::Sqlite(file) => {
                let file = file.clone();
                let asked = tokio::task::spawn_blocking(move || -> Result<Vec<(i64, i64)>> {
                    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                    let database = Connection::open_with_flags(&file, flags)?;
                    let mut statement = database.prepare(sqlite)?;
                    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
                    Ok(rows.collect::<Result<_, _>>()?)
                });
                Balance::of(asked.await??)
            }
            Self::Postgres(url) => {
                let session = Session::open(url).await?;
                let rows = session.client.query(postgres, &[]).await?;
                let rows = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
                Balance::of(rows.collect::<Result<Vec<_>>>()?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balance_adds_up_what_ended_and_what_waits() {
        let states = (0..7).map(|state| (state, 10_i64.pow(u32::try_from(state).expect("small"))));
        let rows = states.chain([(EVENTS, 5), (UNFINISHED, 2), (UNFINISHED, 3), (PROMISED, 7)]);
        let balance = Balance::of(rows).expect("known states");
        assert_eq!(balance.waiting(), 1_000_101);
        assert_eq!(balance.terminal(), 111_010);
        assert_eq!((balance.events, balance.unfinished_rows, balance.promised), (5, 5, 7));
    }

    #[test]
    fn a_state_that_nobody_knows_is_no_balance() {
        assert!(Balance::of([(7, 1)]).is_err());
        assert!(Balance::of([(0, -1)]).is_err());
    }
}
