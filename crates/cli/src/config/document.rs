//! A file of TOML with the lines that its parts stand on, and what is found wrong with it.

use std::ops::Range;

use serde_json::{Map, Number, Value as Json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::declared::Lines;
use crate::declared::Fault;

/// The most faults that are told of one file.
const MAX_FAULTS: usize = 100;

/// Where the lines of a text begin.
#[derive(Debug)]
pub(super) struct LineIndex {
    starts: Vec<usize>,
}

impl LineIndex {
    pub(super) fn new(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { starts: std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect() }
    }

    /// Counted from 1.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        self.starts.partition_point(|start| *start <= span.start)
    }
}

/// What is wrong, in the order in which it was found.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, line: usize, key: impl Into<String>, message: impl AsRef<str>) {
        self.0.push(Fault::new(line, key, message));
    }

    /// In the order of the file, and no more than somebody reads.
    pub(super) fn finish(self) -> Vec<Fault> {
        let Self(mut faults) = self;
        faults.sort_by_key(|fault| fault.line);
        if let Some(first) = faults.get(MAX_FAULTS) {
            let (line, more) = (first.line, faults.len() - MAX_FAULTS);
            faults.truncate(MAX_FAULTS);
            let message = format!("{more} more things are wrong from here on");
            faults.push(Fault::new(line, "", message));
        }
        faults
    }
}

/// A table of the file, and what it is called there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a, 'i> {
    pub(super) table: &'a DeTable<'i>,
    /// Empty for the file itself.
    pub(super) path: &'a str,
}

/// One entry of a table.
#[derive(Debug)]
pub(super) struct Entry<'a, 'i> {
    pub(super) name: &'a str,
    /// With the tables that it is in.
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) value: &'a DeValue<'i>,
}

impl<'a, 'i> Section<'a, 'i> {
    pub(super) fn entries(self, index: &LineIndex) -> impl Iterator<Item = Entry<'a, 'i>> {
        self.table.iter().map(move |(key, value)| Entry {
            name: key.get_ref(),
            path: within(self.path, key.get_ref()),
            line: index.line(&key.span()),
            value: value.get_ref(),
        })
    }
}

impl<'a, 'i> Entry<'a, 'i> {
    /// The table that it has to be.
    pub(super) fn table(&self, example: &str, faults: &mut Faults) -> Option<&'a DeTable<'i>> {
        match self.value {
            DeValue::Table(table) => Some(table),
            other => {
                let message = format!("must be a table, {example}, not {}", kind(other));
                faults.add(self.line, &self.path, message);
                None
            }
        }
    }
}

/// A key within a table, as it would be written.
pub(super) fn within(path: &str, key: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    let key = if !key.is_empty() && key.chars().all(plain) {
        key.to_owned()
    } else {
        format!("\"{}\"", key.escape_debug())
    };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// What a value is, for people.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A whole number, where JSON has it too.
pub(super) fn integer(value: &toml::de::DeInteger<'_>) -> Option<Number> {
    let wide = i128::from_str_radix(value.as_str(), value.radix()).ok()?;
    let narrow = i64::try_from(wide).map(Number::from);
    narrow.or_else(|_| u64::try_from(wide).map(Number::from)).ok()
}

/// A table as JSON, with the line of everything in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Body {
    pub(super) fields: Map<String, Json>,
    pub(super) lines: Lines,
}

impl Body {
    /// Of a table that stands at `line` and is called `path`. What JSON does not have is a fault.
    pub(super) fn read(
        section: Section<'_, '_>,
        line: usize,
        index: &LineIndex,
        faults: &mut Faults,
    ) -> Self {
        let mut reading = Reading { index, faults, lines: Vec::new() };
        let fields = reading.table(section.table, section.path, "");
        Self { fields, lines: Lines { item: line, fields: reading.lines } }
    }
}

struct Reading<'a> {
    index: &'a LineIndex,
    faults: &'a mut Faults,
    lines: Vec<(String, usize)>,
}

impl Reading<'_> {
    /// The parser bounds how deep tables are.
    fn table(&mut self, table: &DeTable<'_>, path: &str, field: &str) -> Map<String, Json> {
        let mut fields = Map::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let inner = if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
            let line = self.index.line(&key.span());
            self.lines.push((inner.clone(), line));
            if let Some(value) = self.value(value.get_ref(), line, &within(path, name), &inner) {
                fields.insert(name.to_owned(), value);
            }
        }
        fields
    }

    fn list(&mut self, list: &[Spanned<DeValue<'_>>], path: &str, field: &str) -> Vec<Json> {
        let entries = list.iter().enumerate().filter_map(|(at, value)| {
            let line = self.index.line(&value.span());
            let inner = format!("{field}[{at}]");
            self.lines.push((inner.clone(), line));
            self.value(value.get_ref(), line, &format!("{path}[{at}]"), &inner)
        });
        entries.collect()
    }

    fn value(&mut self, value: &DeValue<'_>, line: usize, path: &str, field: &str) -> Option<Json> {
        let refused = match value {
            DeValue::String(text) => return Some(Json::String(text.to_string())),
            DeValue::Boolean(truth) => return Some(Json::Bool(*truth)),
            DeValue::Array(list) => return Some(Json::Array(self.list(list, path, field))),
            DeValue::Table(table) => return Some(Json::Object(self.table(table, path, field))),
            DeValue::Integer(number) => match integer(number) {
                Some(number) => return Some(Json::Number(number)),
                None => "is larger than any number here can be",
            },
            DeValue::Float(number) => {
                let number = number.as_str().parse().ok().and_then(Number::from_f64);
                match number {
                    Some(number) => return Some(Json::Number(number)),
                    None => "must be a number that can be counted to",
                }
            }
            DeValue::Datetime(_) => "is a date, which nothing here takes: put text into quotes",
        };
        self.faults.add(line, path, refused);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_where_something_begins() {
        let text = "a = 1\nb = 2\n\n[c]\nd = 3";
        let index = LineIndex::new(text);
        for (word, line) in [("a", 1), ("b", 2), ("[c]", 4), ("d", 5), ("3", 5)] {
            let at = text.find(word).expect("it is there");
            assert_eq!(index.line(&(at..at + 1)), line, "{word}");
        }
        assert_eq!(index.line(&(text.len()..text.len())), 5);
        assert_eq!(LineIndex::new("").line(&(0..0)), 1);
    }

    #[test]
    fn a_key_is_told_as_it_would_be_written() {
        for (path, key, told) in [
            ("", "listen", "listen"),
            ("endpoints", "billing", "endpoints.billing"),
            ("endpoints", "Mail & more", "endpoints.\"Mail & more\""),
            ("hubs", "a.b", "hubs.\"a.b\""),
            ("hubs", "", "hubs.\"\""),
            ("hubs", "\u{1b}[2J", "hubs.\"\\u{1b}[2J\""),
        ] {
            assert_eq!(within(path, key), told);
        }
    }

    #[test]
    fn many_faults_are_told_up_to_a_number() {
        let mut faults = Faults::default();
        for line in (1..=MAX_FAULTS + 20).rev() {
            faults.add(line, "key", "is wrong");
        }
        let faults = faults.finish();
        assert_eq!(faults.len(), MAX_FAULTS + 1);
        assert_eq!(faults[0].line, 1);
        assert_eq!(faults[MAX_FAULTS].line, MAX_FAULTS + 1);
        assert!(faults[MAX_FAULTS].message.starts_with("20 more"), "{faults:?}");
    }
}
