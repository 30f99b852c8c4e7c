//! A door for `postrider-fuzzing`: the file of settings, read as the commands read it, with made-up
//! surroundings. Nothing else calls this.

use std::io;
use std::path::Path;

use crate::config;
use crate::declared::Fault;

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    pub line: usize,
    pub key: String,
    pub message: String,
}

/// Reads the text of a file: where what it declares stands, or what is wrong with it.
pub fn configuration(text: &str) -> Result<Vec<usize>, Vec<Complaint>> {
    match config::parse(text, variable, file) {
        Ok(contents) => Ok(contents.declared.items.iter().map(|item| item.lines.item).collect()),
        Err(faults) => {
            let complaint = |Fault { line, key, message }| Complaint { line, key, message };
            Err(faults.into_iter().map(complaint).collect())
        }
    }
}

/// Half of all variables are set.
fn variable(name: &str) -> Option<String> {
    (!name.is_empty() && name.len().is_multiple_of(2)).then(|| format!("value of {}", name.len()))
}

/// A third of all files is missing, a third empty.
fn file(path: &Path) -> io::Result<String> {
    match path.as_os_str().len() % 3 {
        0 => Err(io::Error::from(io::ErrorKind::NotFound)),
        1 => Ok(String::new()),
        _ => Ok("text\n".to_owned()),
    }
}
