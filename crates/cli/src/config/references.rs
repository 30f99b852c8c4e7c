//! Secrets of a file: named where they are, in a variable or in another file, and fetched from there.

use std::fmt;
use std::io;
use std::path::Path;

use zeroize::Zeroizing;

/// The most that is read from a file for one value: a bundle of authorities fits.
pub(super) const MAX_SECRET_BYTES: usize = 256 << 10;

/// What is said instead of a secret.
pub(super) const WANTED: &str = "a secret does not belong in this file: name where it is, by \
     `env:VARIABLE` or `file:PATH`";

/// Where values come from that are not in the file. Nothing else of the system is looked at.
#[derive(Clone, Copy)]
pub(super) struct Outside<'a> {
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The text of a file, which has at most [`MAX_SECRET_BYTES`].
    pub(super) file: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl fmt::Debug for Outside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

/// A text that says where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference<'a> {
    Variable(&'a str),
    File(&'a str),
}

impl<'a> Reference<'a> {
    /// None if it is a text like any other.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let variable = text.strip_prefix("env:").map(Self::Variable);
        variable.or_else(|| text.strip_prefix("file:").map(Self::File))
    }

    /// What is there, or why it cannot be had. Neither repeats what a file or a variable holds.
    pub(super) fn fetch(self, outside: Outside<'_>) -> Result<Zeroizing<String>, String> {
        match self {
            Self::Variable("") => Err("env: is followed by the name of a variable".to_owned()),
            Self::Variable(name) => {
                let shown = name.escape_debug();
                match (outside.variable)(name).map(Zeroizing::new) {
                    None => Err(format!("the variable {shown} is not set, or is no text")),
                    Some(value) if value.is_empty() => {
                        Err(format!("the variable {shown} is empty"))
                    }
                    Some(value) => Ok(value),
                }
            }
            Self::File("") => Err("file: is followed by the path of a file".to_owned()),
            Self::File(path) => {
                let shown = path.escape_debug();
                let text = (outside.file)(Path::new(path)).map(Zeroizing::new);
                let text =
                    text.map_err(|error| format!("cannot read the file {shown}: {error}"))?;
                let value = text.strip_suffix('\n').unwrap_or(&text);
                let value = value.strip_suffix('\r').unwrap_or(value);
                if value.is_empty() {
                    return Err(format!("the file {shown} is empty"));
                }
                Ok(Zeroizing::new(value.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_fetched_from_where_it_says() {
        let variable = |name: &str| match name {
            "SECRET" => Some("hunter2".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let file = |path: &Path| match path.to_str() {
            Some("/s") => Ok("hunter3\n".to_owned()),
            Some("/windows") => Ok("hunter4\r\n".to_owned()),
            Some("/pem") => Ok("BEGIN\nEND\n\n".to_owned()),
            Some("/empty") => Ok("\n".to_owned()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        let outside = Outside { variable: &variable, file: &file };
        let fetch = |text| Reference::read(text).expect("a reference").fetch(outside);
        for (text, value) in [
            ("env:SECRET", "hunter2"),
            ("file:/s", "hunter3"),
            ("file:/windows", "hunter4"),
            ("file:/pem", "BEGIN\nEND\n"),
        ] {
            assert_eq!(fetch(text).expect(text).as_str(), value, "{text}");
        }
        for (text, word) in [
            ("env:", "the name of a variable"),
            ("env:EMPTY", "EMPTY is empty"),
            ("env:OTHER", "OTHER is not set"),
            ("file:", "the path of a file"),
            ("file:/empty", "/empty is empty"),
            ("file:/none", "cannot read the file /none"),
        ] {
            let said = fetch(text).expect_err(text);
            assert!(said.contains(word), "{text}: {said}");
        }
        for text in ["", "ENV:A", "environment", "https://example.com", " env:A"] {
            assert_eq!(Reference::read(text), None, "{text}");
        }
    }
}
