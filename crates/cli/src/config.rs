//! `postrider.toml`, and `postrider config`: what is in a file of settings, checked, with the lines it
//! stands on.

pub(crate) mod arguments;
mod command;
pub(crate) mod declared;
mod document;
pub(crate) mod flags;
#[cfg(test)]
mod fuzz;
mod near;
mod reference;
mod references;
mod resources;
mod schema;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use toml::de::{DeTable, DeValue};

use crate::Failure;
use crate::declared::Fault;
use crate::settings::{Given, Inbox, Knob, presets_from};
use declared::Declared;
use document::{Entry, Faults, LineIndex, Section, integer, kind};
use flags::FileSetting;
use near::unknown;
use references::{MAX_SECRET_BYTES, Outside};

pub(crate) use command::{Args, run};

/// What is read where nothing else is said and it is there.
pub(crate) const FILE: &str = "postrider.toml";
/// More than anybody writes by hand.
const MAX_FILE_BYTES: usize = 1 << 20;

const PRUNE: &str = "prune";
const INBOX: &str = "inbox";

/// A file that has been read, and in which nothing is wrong as far as that can be seen without a store.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    pub(crate) settings: Vec<FileSetting>,
    pub(crate) inbox: Inbox,
    pub(crate) declared: Declared,
}

/// A file that cannot be used, and everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) path: PathBuf,
    pub(crate) faults: Vec<Fault>,
}

/// One fault a line, each with the file, the line and the key.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for fault in &self.faults {
            write!(f, "{between}{}", told(&self.path, fault))?;
            between = "\n";
        }
        Ok(())
    }
}

/// What is wrong with a file is for the user to put right.
impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::usage(anyhow!("{refused}"))
    }
}

/// A fault as it is shown: `postrider.toml:12: endpoints.billing.url: …`.
pub(crate) fn told(path: &Path, Fault { line, key, message }: &Fault) -> String {
    let path = path.display();
    match (line, key.as_str()) {
        // A file that cannot be read has no lines.
        (0, _) => format!("{path}: {message}"),
        (line, "") => format!("{path}:{line}: {message}"),
        (line, key) => format!("{path}:{line}: {key}: {message}"),
    }
}

/// The file that is meant: the one that is named, or the one that is here, if there is one.
pub(crate) fn find(named: Option<&Path>) -> Option<PathBuf> {
    let here = || Some(PathBuf::from(FILE)).filter(|file| file.exists());
    named.map(Path::to_owned).or_else(here)
}

/// Reads a file, at the start or again. What it refers to is fetched anew.
pub(crate) fn reload(path: &Path) -> Result<Loaded, Refused> {
    let refused = |faults| Refused { path: path.to_owned(), faults };
    let unreadable = |message: String| refused(vec![Fault::new(0, "", message)]);
    let bytes = bounded(path, MAX_FILE_BYTES)
        .map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].split(|byte| *byte == b'\n').count();
        refused(vec![Fault::new(line, "", "is no text in UTF-8")])
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let variable = |name: &str| {
        // These cannot be in the name of a variable, and the system is not asked for such.
        let possible = !name.contains(['=', '\0']);
        possible.then(|| std::env::var(name).ok()).flatten()
    };
    let file = |secret: &Path| {
        let bytes = bounded(&folder.join(secret), MAX_SECRET_BYTES)?;
        String::from_utf8(bytes).map_err(|_| io::Error::other("it is no text in UTF-8"))
    };
    let Contents { settings, mut inbox, declared } =
        parse(&text, variable, file).map_err(refused)?;
    path.clone_into(&mut inbox.path);
    Ok(Loaded { path: path.to_owned(), settings, inbox, declared })
}

fn bounded(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) settings: Vec<FileSetting>,
    pub(crate) inbox: Inbox,
    pub(crate) declared: Declared,
}

/// Reads the text of a file. Variables and files that it refers to are asked for by `variable` and
/// `file`; nothing else of the system is looked at. What is wrong is told with its line, all of it.
pub(crate) fn parse(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
    file: impl Fn(&Path) -> io::Result<String>,
) -> Result<Contents, Vec<Fault>> {
    let index = LineIndex::new(text);
    let mut faults = Faults::default();
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        // What the error itself would show is a line of the file, which may hold a secret.
        let line = index.line(&error.span().unwrap_or_default());
        faults.add(line, "", one_line(error.message()));
    }
    let faults = faults.finish();
    if !faults.is_empty() {
        return Err(faults);
    }
    let outside = Outside { variable: &variable, file: &file };
    let mut reading = Reading { index: &index, outside, faults: Faults::default() };
    let contents = reading.contents(root.get_ref());
    let faults = reading.faults.finish();
    if faults.is_empty() { Ok(contents) } else { Err(faults) }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Reading<'a> {
    index: &'a LineIndex,
    outside: Outside<'a>,
    faults: Faults,
}

impl Reading<'_> {
    fn contents(&mut self, root: &DeTable<'_>) -> Contents {
        let flags = flags::flags();
        let mut contents = Contents::default();
        for entry in (Section { table: root, path: "" }).entries(self.index) {
            let flag = flags.iter().find(|flag| flag.key() == entry.name);
            if let Some(flag) = flag {
                let read = flags::read(flag, &entry, self.index, self.outside, &mut self.faults);
                contents.settings.extend(read);
            } else if entry.name == PRUNE {
                contents.declared.prune = self.truth(&entry);
            } else if entry.name == INBOX {
                contents.inbox = self.inbox(&entry);
            } else if !resources::TABLES.contains(&entry.name) {
                let known = flags.iter().map(flags::Flag::key).chain([PRUNE, INBOX]);
                let message = unknown(entry.name, known.chain(resources::TABLES));
                self.faults.add(entry.line, &entry.path, message);
            }
        }
        contents.settings.sort_by_key(|setting| setting.line);
        contents.declared.items = resources::read(root, self.index, self.outside, &mut self.faults);
        contents
    }

    fn truth(&mut self, entry: &Entry<'_, '_>) -> bool {
        match entry.value {
            DeValue::Boolean(truth) => *truth,
            other => {
                let message = format!("must be true or false, not {}", kind(other));
                self.faults.add(entry.line, &entry.path, message);
                false
            }
        }
    }

    fn inbox(&mut self, entry: &Entry<'_, '_>) -> Inbox {
        let mut inbox = Inbox::default();
        let Some(table) = entry.table("which is [inbox]", &mut self.faults) else { return inbox };
        let mut sound = true;
        for entry in (Section { table, path: &entry.path }).entries(self.index) {
            let knob = Knob::ALL.into_iter().find(|knob| knob.key() == entry.name);
            let text = match entry.value {
                DeValue::String(text) => Some(text.to_string()),
                DeValue::Integer(number) => integer(number).map(|number| number.to_string()),
                DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)
                | DeValue::Table(_) => None,
            };
            let message = match (knob, text) {
                (None, _) => unknown(entry.name, Knob::ALL.map(Knob::key)),
                (Some(_), None) => format!("must be a text or a number, not {}", kind(entry.value)),
                (Some(knob), Some(text)) => {
                    let given = Given { knob, text, line: entry.line };
                    let checked = given.check();
                    inbox.given.push(given);
                    match checked {
                        Ok(()) => continue,
                        Err(error) => format!("{error:#}"),
                    }
                }
            };
            sound = false;
            self.faults.add(entry.line, &entry.path, message);
        }
        if sound && let Err(error) = presets_from(|_| None, &inbox) {
            // It names the lines in front of what is wrong.
            let said = format!("{error:#}");
            let message = said.rsplit_once("inbox.").map_or(said.as_str(), |(_, rest)| rest);
            self.faults.add(entry.line, &entry.path, message);
        }
        inbox
    }
}
