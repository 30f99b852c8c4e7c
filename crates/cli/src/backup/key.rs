//! The file with the key of stored secrets, copied beside a backup.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use postrider_store::sqlite::Existing;
use zeroize::Zeroizing;

use crate::Failure;
use crate::secret_key::{KEY_VARIABLE, MAX_KEY_FILE_BYTES, beside};

/// What is to be copied, and where to.
#[derive(Debug)]
pub(super) struct Copy {
    from: PathBuf,
    pub(super) to: PathBuf,
    existing: Existing,
}

impl Copy {
    /// Looks whether it can be copied. `backup` is the copy of the database.
    pub(super) fn plan(
        database: &Path,
        configured: Option<&Path>,
        backup: &Path,
        existing: Existing,
    ) -> Result<Self, Failure> {
        if configured.is_none() && std::env::var_os(KEY_VARIABLE).is_some() {
            return Err(Failure::usage(anyhow!(
                "--with-key: the key is in {KEY_VARIABLE}, and there is no file to copy: keep what \
                 the variable holds"
            )));
        }
        let from = configured.map_or_else(|| beside(database), Path::to_owned);
        let mut to = backup.as_os_str().to_owned();
        to.push(".key");
        let to = PathBuf::from(to);
        let source = fs::metadata(&from).map_err(|error| {
            Failure::usage(anyhow!("--with-key: cannot read {}: {error}", from.display()))
        })?;
        if source.len() > MAX_KEY_FILE_BYTES as u64 {
            let from = from.display();
            return Err(Failure::usage(anyhow!("--with-key: {from} is too large for a key file")));
        }
        let there = fs::metadata(&to);
        let same =
            |there: &fs::Metadata| (there.dev(), there.ino()) == (source.dev(), source.ino());
        if there.as_ref().is_ok_and(same) {
            let to = to.display();
            return Err(Failure::usage(anyhow!("--with-key: {to} is the key file itself")));
        }
        if existing == Existing::Refuse && there.is_ok() {
            return Err(taken(&to));
        }
        Ok(Self { from, to, existing })
    }

    pub(super) fn make(&self) -> Result<(), Failure> {
        let text = self.read().with_context(|| format!("cannot read {}", self.from.display()))?;
        let unwritten = || format!("cannot write {}", self.to.display());
        let folder = self.to.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // Readable for its owner only.
        let mut draft = tempfile::NamedTempFile::new_in(folder).with_context(unwritten)?;
        draft.write_all(&text).with_context(unwritten)?;
        draft.as_file().sync_all().with_context(unwritten)?;
        let put = match self.existing {
            Existing::Refuse => draft.persist_noclobber(&self.to),
            Existing::Replace => draft.persist(&self.to),
        };
        match put {
            Ok(_) => {}
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
                return Err(taken(&self.to));
            }
            Err(error) => return Err(anyhow!(error.error).context(unwritten()).into()),
        }
        Ok(File::open(folder).and_then(|folder| folder.sync_all()).with_context(unwritten)?)
    }

    fn read(&self) -> std::io::Result<Zeroizing<Vec<u8>>> {
        // Room for all that is read from the start: a buffer that grew would leave copies behind.
        let mut text = Zeroizing::new(Vec::with_capacity(2 * MAX_KEY_FILE_BYTES));
        File::open(&self.from)?.take(MAX_KEY_FILE_BYTES as u64).read_to_end(&mut text)?;
        Ok(text)
    }
}

fn taken(to: &Path) -> Failure {
    let to = to.display();
    Failure::usage(anyhow!("{to} is there already: move it away, or replace it with --force"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::secret_key::KEY_FILE;

    #[test]
    fn the_key_is_copied_for_its_owner_only_and_replaces_nothing_unasked() {
        let folder = tempfile::tempdir().expect("a folder");
        let (database, backup) = (folder.path().join("postrider.db"), folder.path().join("copy"));
        let plan = |existing| Copy::plan(&database, None, &backup, existing);
        let missing = plan(Existing::Refuse).expect_err("no key");
        assert!(missing.usage && format!("{:#}", missing.error).contains(KEY_FILE));
        fs::write(folder.path().join(KEY_FILE), "the key").expect("written");
        let copy = plan(Existing::Refuse).expect("possible");
        copy.make().expect("copied");
        assert_eq!(copy.to, folder.path().join("copy.key"));
        assert_eq!(fs::read(&copy.to).expect("there"), b"the key");
        let mode = fs::metadata(&copy.to).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(copy.make().is_err_and(|failure| failure.usage), "it has come meanwhile");
        assert!(plan(Existing::Refuse).is_err());
        fs::write(folder.path().join(KEY_FILE), "another").expect("written");
        plan(Existing::Replace).expect("possible").make().expect("replaced");
        assert_eq!(fs::read(&copy.to).expect("there"), b"another");
        let itself = Copy::plan(&database, Some(&copy.to), &backup, Existing::Replace);
        assert!(format!("{:#}", itself.expect_err("refused").error).contains("itself"));
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 2, "nothing is left over");
    }
}
