//! Reading a whole database that no gateway uses, row by row in the order of keys.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use sha2::{Digest as _, Sha256};

use super::file::Lock;
use super::{Options, Sealed, configuration, file, sources};
use crate::copy::standing::{Extent, Survey};
use crate::copy::table::{Changes, TABLES, Table};
use crate::copy::value::{Row, Tally, Value};
use crate::copy::{self, Chunk, Plan};
use crate::error::Error;
use crate::sealing::{Keyring, SealingKeyId, key_id_of};

/// A tally looks this often whether anybody still wants it.
const ROWS_BETWEEN_LOOKS: u64 = 1_024;

/// A database to copy from. It is locked against gateways, and what is read of it is what it was
/// when it was opened.
pub struct Origin {
    conn: Connection,
    survey: Survey,
    keys: Vec<SealingKeyId>,
    /// Given up last.
    _lock: Lock,
}

impl Origin {
    /// Opens the database at `path`, and brings it to the newest version. One that is not there, not
    /// ours, of a newer version or in use is refused and left as it is. `keyring` is asked for only
    /// if there are secrets; all of them have to open.
    pub fn open<E: From<Error>>(
        path: &Path,
        options: Options,
        keyring: impl FnOnce(Sealed) -> Result<Keyring, E>,
    ) -> Result<Self, E> {
        if !path.exists() {
            let path = path.display();
            return Err(Error::Refused(format!("there is no database at {path}")).into());
        }
        let file::Opened { lock, writer: conn, .. } = file::open(path, &options)?;
        let keys = if has_secrets(&conn)? {
            let sealed = if sources::has_sealed(&conn)? { Sealed::Some } else { Sealed::None };
            let keyring = keyring(sealed)?;
            sources::seal_plain(&conn, &keyring)?;
            open_all(&conn, &keyring)?
        } else {
            Vec::new()
        };
        let set = conn.execute_batch("PRAGMA query_only = true; BEGIN");
        set.map_err(Error::from)?;
        let survey = survey(&conn)?;
        Ok(Self { conn, survey, keys, _lock: lock })
    }

    pub fn plan(&self) -> Plan {
        let tables = TABLES.iter().map(|table| (table.name, self.survey.rows(table))).collect();
        Plan { tables, keys: self.keys.clone() }
    }

    pub(crate) fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Reads the rows of `table` behind the key `after`, then those of the tables that follow, until
    /// the end or until nobody takes them any more.
    pub(crate) fn read(
        &self,
        table: &'static Table,
        after: &[i64],
        options: copy::Options,
        mut take: impl FnMut(Chunk) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        for (index, table) in table.and_later().iter().enumerate() {
            let after = if index == 0 { after } else { &[] };
            let mut gathered = Chunk { table, rows: Vec::new(), bytes: 0, last: Vec::new() };
            let mut statement = self.conn.prepare(&select(table, after))?;
            let mut rows = statement.query(params_from_iter(after))?;
            while let Some(row) = rows.next()? {
                let row = values(row)?;
                gathered.last = key(table, &row)?;
                gathered.bytes += row.iter().map(Value::size).sum::<usize>();
                gathered.rows.push(row);
                let full = gathered.rows.len() >= options.chunk_rows
                    || gathered.bytes >= options.chunk_bytes;
                if full {
                    let next = Chunk { table, rows: Vec::new(), bytes: 0, last: Vec::new() };
                    if take(std::mem::replace(&mut gathered, next)).is_break() {
                        return Ok(());
                    }
                }
            }
            if !gathered.rows.is_empty() && take(gathered).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What all rows of `table` come to; none if that is not wanted any more.
    pub(crate) fn tally(
        &self,
        table: &Table,
        unwanted: impl Fn() -> bool,
    ) -> Result<Option<Tally>, Error> {
        let mut tally = Tally::default();
        let mut statement = self.conn.prepare(&select(table, &[]))?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            tally.add(&values(row)?);
            if tally.rows.is_multiple_of(ROWS_BETWEEN_LOOKS) && unwanted() {
                return Ok(None);
            }
        }
        Ok(Some(tally))
    }
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin").field("keys", &self.keys).finish_non_exhaustive()
    }
}

fn has_secrets(conn: &Connection) -> Result<bool, Error> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM endpoints) OR EXISTS (SELECT 1 FROM sources)";
    Ok(conn.query_row(SQL, (), |row| row.get(0))?)
}

/// Opens every secret, and returns the keys that were needed.
fn open_all(conn: &Connection, keyring: &Keyring) -> Result<Vec<SealingKeyId>, Error> {
    configuration::endpoints(conn, keyring)?;
    sources::sources(conn, keyring)?;
    let mut keys = Vec::new();
    let mut select =
        conn.prepare("SELECT secrets FROM endpoints UNION ALL SELECT secrets FROM sources")?;
    let mut stored = select.query(())?;
    while let Some(row) = stored.next()? {
        let key = key_id_of(row.get_ref(0)?.as_blob()?).map_err(|error| error.of("a secret"))?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Looks at everything once.
fn survey(conn: &Connection) -> Result<Survey, Error> {
    let instance = conn
        .query_row("SELECT value FROM meta WHERE name = 'instance'", (), |row| row.get(0))
        .optional()?;
    let mut tables = BTreeMap::new();
    for table in TABLES {
        let Table { origin, key, .. } = table;
        let sum = match table.changes {
            Changes::Sum(of) => of,
            Changes::Never | Changes::Anyhow => "0",
        };
        let sql = format!(
            "SELECT count(*), coalesce(max({}), 0), coalesce(sum({sum}), 0) FROM {origin}",
            key[0]
        );
        let (rows, highest, sum): (i64, i64, i64) =
            conn.query_row(&sql, (), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mark = match table.changes {
            Changes::Never => String::new(),
            Changes::Sum(_) => sum.to_string(),
            Changes::Anyhow => content(conn, table)?,
        };
        let extent = Extent { rows: rows.unsigned_abs(), highest, mark };
        tables.insert(table.name.to_owned(), extent);
    }
    Ok(Survey { instance, tables })
}

/// A hash of all that is in a table.
fn content(conn: &Connection, table: &Table) -> Result<String, Error> {
    let mut hash = Sha256::new();
    let mut statement = conn.prepare(&select(table, &[]))?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        for value in values(row)? {
            value.spell(|bytes| hash.update(bytes));
        }
    }
    Ok(STANDARD.encode(hash.finalize()))
}

/// The rows of a table in the order of their keys, from behind `after` on, which has as many numbers
/// as the key, or none.
fn select(table: &Table, after: &[i64]) -> String {
    let Table { origin_columns, origin, .. } = table;
    let key = table.key.join(", ");
    let and = if origin.contains(" WHERE ") { "AND" } else { "WHERE" };
    let behind = if after.is_empty() {
        String::new()
    } else {
        let numbers: Vec<String> = (1..=after.len()).map(|number| format!("?{number}")).collect();
        format!("{and} ({key}) > ({})", numbers.join(", "))
    };
    format!("SELECT {origin_columns} FROM {origin} {behind} ORDER BY {key}")
}

fn values(row: &rusqlite::Row<'_>) -> Result<Row, Error> {
    let columns = row.as_ref().column_count();
    let mut values = Row::with_capacity(columns);
    for column in 0..columns {
        values.push(match row.get_ref(column)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Whole(number),
            ValueRef::Real(number) => Value::Real(number),
            ValueRef::Text(_) => Value::Text(row.get(column)?),
            ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
        });
    }
    Ok(values)
}

/// The key of a row: its first columns.
fn key(table: &Table, row: &[Value]) -> Result<Vec<i64>, Error> {
    let number = |value: &Value| match value {
        Value::Whole(number) => Ok(*number),
        Value::Null | Value::Real(_) | Value::Text(_) | Value::Bytes(_) => {
            Err(Error::Damaged(format!("a key of {} is no number", table.name)))
        }
    };
    row.iter().take(table.key.len()).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema;

    /// What stays behind: columns of these tables need not be copied.
    const LEFT: &[&str] =
        &["meta", "delivery_counts", "event_counts", "nodes", "tenures", "revision", "sessions"];

    #[test]
    fn every_column_is_copied() {
        let conn = Connection::open_in_memory().expect("made");
        schema::migrate(&conn).expect("made");
        let mut all = conn
            .prepare(
                "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c \
                 WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'",
            )
            .expect("valid");
        let all = all.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).expect("readable");
        for column in all {
            let (name, column): (String, String) = column.expect("readable");
            let copied = TABLES.iter().any(|table| {
                let of = table.origin.split(' ').next() == Some(&*name);
                of && table
                    .origin_columns
                    .split([',', ' ', '(', ')', '-'])
                    .any(|word| word == column)
            });
            assert!(copied || LEFT.contains(&&*name), "{name}.{column} is left behind");
        }
    }

    #[test]
    fn rows_are_read_in_the_order_of_their_keys_without_sorting() {
        let conn = Connection::open_in_memory().expect("made");
        schema::migrate(&conn).expect("made");
        for table in TABLES {
            for after in [&[][..], &[5; 4][..table.key.len()]] {
                let mut statement = conn
                    .prepare(&format!("EXPLAIN QUERY PLAN {}", select(table, after)))
                    .expect("valid");
                let plan: Vec<String> = statement
                    .query_map(params_from_iter(after), |row| row.get(3))
                    .expect("readable")
                    .collect::<Result<_, _>>()
                    .expect("readable");
                let sought = after.is_empty() || plan.iter().all(|step| step.contains("SEARCH"));
                let sorted = plan.iter().any(|step| step.contains("TEMP B-TREE"));
                assert!(sought && !sorted, "{}: {plan:?}", table.name);
            }
        }
    }
}
