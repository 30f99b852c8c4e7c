//! A door for `postrider-fuzzing` to the rows of the file: any cells, read as each kind of row.
//! Nothing else calls this.

use std::cell::RefCell;

use bytes::Bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::rows;
use crate::error::Error;

/// As many as the widest kind of row has.
pub const MAX_COLUMNS: usize = 19;

/// A cell as any program could have left it in the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    /// Not necessarily UTF-8: `SQLite` does not look.
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

/// Reads a row of these cells, with nulls up to its width, as a delivery in history, a delivery that
/// waits, an event and an attempt.
pub fn read_rows(cells: &[Cell]) -> [Result<(), Error>; 4] {
    [
        read(cells, |row| rows::record(row).map(drop)),
        read(cells, |row| rows::hot(row).map(drop)),
        read(cells, |row| rows::event(row, Bytes::new()).map(drop)),
        read(cells, |row| rows::attempt(row).map(drop)),
    ]
}

fn read(cells: &[Cell], as_row: impl Fn(&Row<'_>) -> Result<(), Error>) -> Result<(), Error> {
    thread_local! {
        static CONNECTION: RefCell<Option<Connection>> = const { RefCell::new(None) };
    }
    CONNECTION.with_borrow_mut(|kept| {
        let connection = match kept {
            Some(connection) => connection,
            None => kept.insert(Connection::open_in_memory()?),
        };
        let mut statement = connection.prepare_cached(&select())?;
        let null = [Cell::Null];
        let padded = cells.iter().chain(null.iter().cycle()).take(MAX_COLUMNS);
        let mut found = statement.query(params_from_iter(padded.flat_map(parameters)))?;
        match found.next()? {
            Some(row) => as_row(row),
            None => Ok(()),
        }
    })
}

/// Each column by two parameters: whether it is text, and its value, because text that is no text
/// can be bound only as bytes.
fn select() -> String {
    let column = |at: usize| {
        let (is_text, value) = (2 * at + 1, 2 * at + 2);
        format!("CASE ?{is_text} WHEN 1 THEN CAST(?{value} AS TEXT) ELSE ?{value} END")
    };
    let columns: Vec<String> = (0..MAX_COLUMNS).map(column).collect();
    format!("SELECT {}", columns.join(", "))
}

fn parameters(cell: &Cell) -> [Value; 2] {
    let other = Value::Integer(0);
    match cell {
        Cell::Null => [other, Value::Null],
        Cell::Integer(number) => [other, Value::Integer(*number)],
        Cell::Real(number) => [other, Value::Real(*number)],
        Cell::Text(bytes) => [Value::Integer(1), Value::Blob(bytes.clone())],
        Cell::Blob(bytes) => [other, Value::Blob(bytes.clone())],
    }
}
