//! What the first bytes of a database file say of its schema. They are read without `SQLite`, so that
//! nothing is changed, and also while a gateway has the file.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use postrider_store::sqlite;

use super::{Step, Tense};
use crate::Failure;

/// The version that this program makes of every file it opens.
const KNOWN: u32 = sqlite::KNOWN_VERSION;

const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const USER_VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;
/// What marks a file as Postrider's.
const APPLICATION_ID: [u8; 4] = *b"Post";

/// What opening the file would do to its schema.
pub(super) fn pending(path: &Path) -> Result<Step, Failure> {
    let shown = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::usage(anyhow!("there is no database at {shown}")));
        }
        Err(error) => return Err(anyhow!(error).context(format!("cannot read {shown}")).into()),
    };
    let mut header = Vec::with_capacity(HEADER_BYTES);
    let read = file.take(HEADER_BYTES as u64).read_to_end(&mut header);
    read.with_context(|| format!("cannot read {shown}"))?;
    let version = version(&header).map_err(|why| Failure::usage(anyhow!("{shown} {why}")))?;
    Ok(Step {
        from: version.into(),
        to: KNOWN.into(),
        names: Vec::new(),
        tense: Tense::ToDo { needs_stop: false },
    })
}

/// The version in the first bytes of a file; 0, if it is empty.
fn version(header: &[u8]) -> Result<u32, String> {
    if header.is_empty() {
        return Ok(0);
    }
    if header.len() < HEADER_BYTES || !header.starts_with(MAGIC) {
        return Err("is not a database".to_owned());
    }
    let four = |at: usize| header[at..].first_chunk().copied().unwrap_or([0; 4]);
    if four(APPLICATION_ID_AT) != APPLICATION_ID {
        return Err("is a database of another program".to_owned());
    }
    match u32::from_be_bytes(four(USER_VERSION_AT)) {
        newer if newer > KNOWN => Err(format!(
            "was written by a newer postrider (schema version {newer}, this one knows {KNOWN}): use \
             that version or a later one"
        )),
        known => Ok(known),
    }
}

#[cfg(test)]
mod tests {
    use postrider_store::sealing::{KEY_BYTES, Keyring, SealingKey};
    use postrider_store::sqlite::{Options, Sqlite};

    use super::*;

    fn header(id: [u8; 4], version: u32) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        header[..MAGIC.len()].copy_from_slice(MAGIC);
        header[USER_VERSION_AT..USER_VERSION_AT + 4].copy_from_slice(&version.to_be_bytes());
        header[APPLICATION_ID_AT..APPLICATION_ID_AT + 4].copy_from_slice(&id);
        header
    }

    #[test]
    fn a_file_that_was_just_made_is_up_to_date() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("postrider.db");
        let key = Keyring::new(vec![SealingKey::from_bytes([1; KEY_BYTES])]).expect("a key");
        drop(Sqlite::open(&path, Options::default(), key).expect("opened"));
        let found = pending(&path).expect("readable");
        assert_eq!((found.from, found.to), (KNOWN.into(), KNOWN.into()));
    }

    #[test]
    fn the_version_is_read_from_what_is_ours() {
        for (header, expected) in [
            (vec![], Ok(0)),
            (header(APPLICATION_ID, 1), Ok(1)),
            (header(APPLICATION_ID, KNOWN), Ok(KNOWN)),
            (header(APPLICATION_ID, KNOWN + 1), Err("newer postrider")),
            (header(*b"Diar", 1), Err("another program")),
            (b"Dear diary".repeat(20), Err("not a database")),
            (MAGIC.to_vec(), Err("not a database")),
        ] {
            match (version(&header), expected) {
                (Ok(version), Ok(expected)) => assert_eq!(version, expected),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (found, expected) => panic!("{found:?}, and not {expected:?}"),
            }
        }
    }
}
