//! What the target keeps of a copy until it is complete: of what, and how far it has come.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::table::{TABLES, Table};
use crate::error::Error;

/// The form that this program writes. It is another one whenever what is copied is not the same.
const FORM: u32 = 2;

/// What there is to copy, in such detail that nothing can change without its showing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Survey {
    /// The name of the store; none, if it has had no use for one.
    pub(crate) instance: Option<Vec<u8>>,
    /// By the name of the table.
    pub(crate) tables: BTreeMap<String, Extent>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub(crate) rows: u64,
    /// The first number of the highest key; 0, if there is none.
    pub(crate) highest: i64,
    /// Another one after any change that the numbers above do not show.
    pub(crate) mark: String,
}

impl Survey {
    pub(crate) fn rows(&self, table: &Table) -> u64 {
        self.tables.get(table.name).map_or(0, |extent| extent.rows)
    }

    pub(crate) fn all_rows(&self) -> u64 {
        self.tables.values().map(|extent| extent.rows).sum()
    }

    /// The names of the tables that are not as they were.
    pub(crate) fn changed_since(&self, earlier: &Self) -> Vec<&'static str> {
        let differs =
            |table: &&Table| self.tables.get(table.name) != earlier.tables.get(table.name);
        TABLES.iter().filter(differs).map(|table| table.name).collect()
    }
}

/// A copy under way. It is written with every chunk, in the same transaction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Standing {
    form: u32,
    pub(crate) origin: Survey,
    /// The table that was last written to; everything before it is there.
    table: String,
    /// The key of the last row that is there; empty at the start of the table.
    pub(crate) after: Vec<i64>,
    /// How many of its rows are there.
    pub(crate) rows: u64,
}

impl Standing {
    pub(crate) fn start(origin: Survey) -> Self {
        let table = TABLES[0].name.to_owned();
        Self { form: FORM, origin, table, after: Vec::new(), rows: 0 }
    }

    pub(crate) fn table(&self) -> Result<&'static Table, Error> {
        Table::named(&self.table)
            .ok_or_else(|| Error::Damaged(format!("no table {} is ever copied", self.table)))
    }

    /// How many rows of all tables are there.
    pub(crate) fn rows_done(&self) -> u64 {
        let before = TABLES.iter().take_while(|table| table.name != self.table);
        before.map(|table| self.origin.rows(table)).sum::<u64>() + self.rows
    }

    /// Goes on to the last of `rows` more rows of `table`.
    pub(crate) fn advance(&mut self, table: &Table, rows: u64, last: Vec<i64>) {
        if self.table != table.name {
            table.name.clone_into(&mut self.table);
            self.rows = 0;
        }
        self.rows += rows;
        self.after = last;
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and numbers can be written")
    }

    /// None, if it was written by a program that writes it otherwise.
    pub(crate) fn read(stored: &[u8]) -> Option<Self> {
        serde_json::from_slice(stored).ok().filter(|standing: &Self| standing.form == FORM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey() -> Survey {
        let extent = |rows| Extent { rows, highest: 9, mark: String::new() };
        let tables = TABLES.iter().map(|table| (table.name.to_owned(), extent(10))).collect();
        Survey { instance: None, tables }
    }

    #[test]
    fn a_position_counts_what_is_before_it_and_survives_being_stored() {
        let mut standing = Standing::start(survey());
        assert_eq!((standing.rows_done(), standing.table().expect("one").name), (0, "tenants"));
        standing.advance(&TABLES[0], 4, vec![7]);
        standing.advance(&TABLES[0], 6, vec![9]);
        assert_eq!(standing.rows_done(), 10);
        // Tables without rows are passed over.
        standing.advance(&TABLES[3], 2, vec![3]);
        assert_eq!((standing.rows_done(), standing.rows), (32, 2));
        let read = Standing::read(&standing.write()).expect("its own form");
        assert_eq!((read.rows_done(), &read.after), (32, &vec![3]));
        assert_eq!(read.origin, survey());
    }

    #[test]
    fn what_another_program_wrote_is_not_read() {
        let later = Standing { form: FORM + 1, ..Standing::start(survey()) };
        assert!(Standing::read(&later.write()).is_none());
        assert!(Standing::read(b"{}").is_none() && Standing::read(b"\xff").is_none());
    }

    #[test]
    fn what_changed_is_named() {
        let mut later = survey();
        later.tables.get_mut("finished").expect("there").mark.push('1');
        later.tables.remove("attempts");
        assert_eq!(later.changed_since(&survey()), ["finished", "attempts"]);
        assert!(survey().changed_since(&survey()).is_empty());
    }
}
