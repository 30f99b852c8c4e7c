//! Where the key comes from that stored secrets are sealed with.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use postrider_engine::ports::{Entropy as _, SystemEntropy};
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::Sealed;
use zeroize::Zeroizing;

use crate::Failure;
use crate::stores::Place;

/// The key that is made where none is given, in the folder of the database.
pub(crate) const KEY_FILE: &str = "postrider.key";

/// Holds the key itself. It has no flag, because flags can be read by every user of the machine.
pub(crate) const KEY_VARIABLE: &str = "POSTRIDER_SECRET_KEY";

/// All the keys a keyring holds, and a page of comments.
pub(crate) const MAX_KEY_FILE_BYTES: usize = 16 << 10;

/// Only the owner reads and writes.
const PRIVATE: u32 = 0o600;
const OTHERS: u32 = 0o077;

#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// A file with the key that stored secrets are sealed with: 32 bytes as base64 or hex, one key
    /// a line, the newest first. `POSTRIDER_SECRET_KEY` can hold the key itself instead. Without
    /// either it is `postrider.key` beside the database, or in --data where that is on a server;
    /// made at the first start. Nodes that share a database need the same key
    #[arg(long, env = "POSTRIDER_SECRET_KEY_FILE", value_name = "PATH")]
    secret_key_file: Option<PathBuf>,
}

/// The keys that were configured, or the one beside `database`, which is made if nothing can have
/// been sealed with it: a new key beside secrets that are sealed would hide that theirs is lost.
///
/// To be called while the database is open, so that its folder is there and no other process makes
/// a key for it.
pub(crate) fn keyring(args: &KeyArgs, database: &Path, sealed: Sealed) -> Result<Keyring, Failure> {
    let found = choose(args.file(), variable()?, Home::File(database), sealed)?;
    Ok(found.keyring)
}

/// The same for a database on a server, which several machines may use: where no key is configured,
/// it is in `folder`.
pub(crate) fn shared_keyring(
    args: &KeyArgs,
    folder: &Path,
    database: &Place,
    sealed: Sealed,
) -> Result<Found, Failure> {
    let home = Home::Folder { folder, database };
    choose(args.file(), variable()?, home, sealed)
}

/// The keys, and where they come from.
pub(crate) struct Found {
    pub(crate) keyring: Keyring,
    /// The file that was made for them just now.
    pub(crate) made: Option<PathBuf>,
}

/// Where a key is looked for that is not configured.
#[derive(Debug, Clone, Copy)]
enum Home<'a> {
    /// Beside this database.
    File(&'a Path),
    /// In this folder, because the database is elsewhere.
    Folder { folder: &'a Path, database: &'a Place },
}

/// The key file of a database, unless another is configured.
pub(crate) fn beside(database: &Path) -> PathBuf {
    real(database).with_file_name(KEY_FILE)
}

/// Two names of one place must come to one key.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl KeyArgs {
    /// The file that was named.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.secret_key_file.as_deref()
    }
}

impl Home<'_> {
    fn key_file(self) -> PathBuf {
        match self {
            Self::File(database) => beside(database),
            Self::Folder { folder, database: _ } => real(folder).join(KEY_FILE),
        }
    }

    fn lost(self, path: &Path) -> Failure {
        let path = path.display();
        Failure::usage(match self {
            Self::File(database) => anyhow!(
                "{} holds sealed secrets, but the key file {path} is missing: put it back, or give \
                 the key with --secret-key-file or {KEY_VARIABLE}",
                database.display()
            ),
            Self::Folder { folder: _, database } => anyhow!(
                "{database} holds sealed secrets, but the key file {path} is missing: every node \
                 needs the same key. Copy the key file of the node that made it to there (mode \
                 0600), or give the key with --secret-key-file or {KEY_VARIABLE}"
            ),
        })
    }
}

fn variable() -> Result<Option<Zeroizing<String>>, Failure> {
    match std::env::var(KEY_VARIABLE) {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        // The error would repeat what the variable holds.
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(anyhow!("{KEY_VARIABLE} is not text")))
        }
    }
}

fn choose(
    file: Option<&Path>,
    text: Option<Zeroizing<String>>,
    home: Home<'_>,
    sealed: Sealed,
) -> Result<Found, Failure> {
    let configured = match (file, text) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage(anyhow!(
                "both {KEY_VARIABLE} and --secret-key-file (or POSTRIDER_SECRET_KEY_FILE) are \
                 given: keep one, and put every key there"
            )));
        }
        (None, Some(text)) => parse(&text).context(KEY_VARIABLE),
        (Some(path), None) => read(path),
        (None, None) => return at_home(home, sealed),
    };
    Ok(Found { keyring: configured.map_err(Failure::usage)?, made: None })
}

fn at_home(home: Home<'_>, sealed: Sealed) -> Result<Found, Failure> {
    let path = home.key_file();
    let missing = path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if missing {
        if sealed == Sealed::Some {
            return Err(home.lost(&path));
        }
        make(&path).with_context(|| {
            let path = path.display();
            format!("cannot make the key file {path}; --secret-key-file can name another")
        })?;
        tracing::info!(path = %path.display(), "made a key for stored secrets: keep a copy of it");
    }
    // A key that was made is read like any other: what seals is what a later start will find.
    let keyring = read(&path).map_err(Failure::usage)?;
    Ok(Found { keyring, made: missing.then_some(path) })
}

/// Writes a new key to `path`, whole and on disk or not at all. A file that is there stays.
fn make(path: &Path) -> io::Result<()> {
    let key = SealingKey::from_bytes(SystemEntropy.secret_bytes());
    let text = Zeroizing::new(format!(
        "# The key {} of the secrets in the database beside this file.\n\
         # They cannot be read without it: keep a copy, apart from copies of the database.\n{}\n",
        key.id(),
        &*key.text()
    ));
    // Under a name of its own until it is whole, because a file cut short by a crash would be
    // taken for the key; and linked, because renaming would replace a key that somebody else made.
    let draft = path.with_file_name(format!("{KEY_FILE}.{}", key.id()));
    let written = write_draft(&draft, &text).and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    removed?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_draft(draft: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn read(path: &Path) -> anyhow::Result<Keyring> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read the key file {shown}"))?;
    let text = read_private(&file, path)?;
    let text = std::str::from_utf8(&text).map_err(|_| anyhow!("the key file {shown} is not text"));
    parse(text?).with_context(|| format!("the key file {shown}"))
}

fn read_private(file: &File, path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let shown = path.display();
    let unreadable = || format!("cannot read the key file {shown}");
    let mode = file.metadata().with_context(unreadable)?.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(anyhow!(
            "the key file {shown} is open to other users (mode {:04o}): run `chmod 600 {shown}`",
            mode & 0o7777
        ));
    }
    // Room for all that is read from the start: a buffer that grew would leave copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(2 * MAX_KEY_FILE_BYTES));
    let limit = MAX_KEY_FILE_BYTES as u64 + 1;
    file.take(limit).read_to_end(&mut text).with_context(unreadable)?;
    if text.len() > MAX_KEY_FILE_BYTES {
        return Err(anyhow!("the key file {shown} is larger than {MAX_KEY_FILE_BYTES} bytes"));
    }
    Ok(text)
}

/// Keys with line ends, blanks or commas between them, the newest first; `#` begins a comment.
/// Commas are for the environment, where a line end is hard to write.
fn parse(text: &str) -> anyhow::Result<Keyring> {
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words = line.split([',', ' ', '\t']).filter(|word| !word.trim().is_empty());
        for word in words {
            let key = SealingKey::parse(word).with_context(|| format!("line {}", index + 1))?;
            keys.push(key);
        }
    }
    Ok(Keyring::new(keys)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use clap::Parser as _;
    use postrider_store::sealing::{KEY_BYTES, NONCE_BYTES};
    use tempfile::TempDir;

    use super::*;
    use crate::stores;

    const NONCE: [u8; NONCE_BYTES] = [9; NONCE_BYTES];

    /// A folder with a database in it, as a running gateway has it.
    struct Place {
        folder: TempDir,
        database: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let database = folder.path().join("postrider.db");
            fs::write(&database, "").expect("a database");
            Self { folder, database }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn file(&self, name: &str, mode: u32, text: impl AsRef<[u8]>) -> PathBuf {
            let path = self.path(name);
            // One that was made read-only could not be written to again.
            drop(fs::remove_file(&path));
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
            path
        }

        /// The names in the folder beside the database.
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.folder.path()).expect("a folder");
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            let names = names.map(|name| name.into_string().expect("text"));
            names.filter(|name| name != "postrider.db").collect()
        }

        fn beside(&self, sealed: Sealed) -> Result<Keyring, Failure> {
            self.choose(None, None, sealed)
        }

        fn by_file(&self, path: &Path) -> Result<Keyring, Failure> {
            self.choose(Some(path), None, Sealed::Some)
        }

        fn by_text(&self, text: &str) -> Result<Keyring, Failure> {
            self.choose(None, Some(text), Sealed::Some)
        }

        fn choose(
            &self,
            file: Option<&Path>,
            text: Option<&str>,
            sealed: Sealed,
        ) -> Result<Keyring, Failure> {
            let text = text.map(|text| Zeroizing::new(text.to_owned()));
            choose(file, text, Home::File(&self.database), sealed).map(|found| found.keyring)
        }

        /// In the folder, for a database on a server.
        fn shared(&self, sealed: Sealed) -> Result<Found, Failure> {
            let database = stores::Place::Server("postgres://me:hunter2@db/hooks".to_owned());
            let home = Home::Folder { folder: self.folder.path(), database: &database };
            choose(None, None, home, sealed)
        }
    }

    fn key(n: u8) -> SealingKey {
        SealingKey::from_bytes([n; KEY_BYTES])
    }

    fn hex(n: u8) -> String {
        format!("{n:02x}").repeat(KEY_BYTES)
    }

    #[track_caller]
    fn assert_holds(keys: &Keyring, newest_first: &[u8]) {
        assert_eq!(keys.newest_id(), key(newest_first[0]).id());
        for n in newest_first {
            let sealed = Keyring::new(vec![key(*n)]).expect("a key").seal(NONCE, b"row", b"secret");
            assert_eq!(keys.open(b"row", &sealed).as_deref(), Ok(&b"secret"[..]), "key {n}");
        }
    }

    #[track_caller]
    fn assert_refused(outcome: Result<Keyring, Failure>, parts: &[&str]) {
        let failure = outcome.expect_err("refused");
        let text = format!("{:#}", failure.error);
        assert!(failure.usage, "{text}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn a_key_is_made_once_for_a_new_database() {
        let place = Place::new();
        let made = place.beside(Sealed::None).expect("made");
        assert_eq!(place.names(), [KEY_FILE], "nothing else is left behind");
        let permissions = fs::metadata(place.path(KEY_FILE)).expect("made").permissions();
        assert_eq!(permissions.mode() & 0o7777, 0o600);

        let found = place.beside(Sealed::Some).expect("found");
        assert_eq!(found.newest_id(), made.newest_id());
        let text = fs::read_to_string(place.path(KEY_FILE)).expect("text");
        assert!(text.contains(&made.newest_id().to_string()), "it says which key it is");

        let elsewhere = Place::new().beside(Sealed::None).expect("made");
        assert_ne!(elsewhere.newest_id(), made.newest_id(), "no two databases get one key");
    }

    #[test]
    fn a_lost_key_is_an_error_and_never_a_new_key() {
        let place = Place::new();
        let database = place.database.canonicalize().expect("there");
        let named = database.with_file_name(KEY_FILE).display().to_string();
        let parts = ["sealed", &named, "missing", "--secret-key-file", KEY_VARIABLE];
        assert_refused(place.beside(Sealed::Some), &parts);
        assert!(place.names().is_empty());
    }

    #[test]
    fn a_key_file_that_is_there_is_not_written_over() {
        let place = Place::new();
        let path = place.file(KEY_FILE, 0o600, hex(1));
        make(&path).expect("left as it is");
        assert_eq!(fs::read_to_string(&path).expect("text"), hex(1));
        assert_eq!(place.names(), [KEY_FILE]);

        // A link to a key on a disk that is not mounted is no missing key.
        fs::remove_file(&path).expect("removed");
        symlink(place.path("elsewhere"), &path).expect("a link");
        assert_refused(place.beside(Sealed::Some), &["cannot read", KEY_FILE]);
    }

    #[test]
    fn every_name_of_a_database_comes_to_the_same_key() {
        let place = Place::new();
        let made = place.beside(Sealed::None).expect("made");
        let other = tempfile::tempdir().expect("a folder");
        let link = other.path().join("by-another-name.db");
        symlink(&place.database, &link).expect("a link");
        let found = choose(None, None, Home::File(&link), Sealed::Some);
        let found = found.map(|found| found.keyring).expect("found");
        assert_eq!(found.newest_id(), made.newest_id());
    }

    #[test]
    fn a_key_for_nodes_that_share_a_database_is_made_once_and_missed_elsewhere() {
        let place = Place::new();
        let made = place.shared(Sealed::None).unwrap_or_else(|no| panic!("{no:?}"));
        let file = place.folder.path().canonicalize().expect("there").join(KEY_FILE);
        assert_eq!(made.made, Some(file));
        let found = place.shared(Sealed::Some).unwrap_or_else(|no| panic!("{no:?}"));
        assert_eq!(found.keyring.newest_id(), made.keyring.newest_id());
        assert_eq!(found.made, None);

        let other = Place::new();
        let missed = other.shared(Sealed::Some).map(|found| found.keyring);
        let parts = ["postgres://me@db/hooks", KEY_FILE, "every node", "Copy", "--secret-key-file"];
        assert_refused(missed, &parts);
        assert!(other.names().is_empty());
    }

    #[test]
    fn a_configured_key_goes_before_the_one_beside_the_database() {
        let place = Place::new();
        place.file(KEY_FILE, 0o600, hex(1));
        let path = place.file("configured", 0o600, hex(2));
        assert_holds(&place.by_file(&path).expect("from the file"), &[2]);
        assert_holds(&place.by_text(&hex(3)).expect("from the environment"), &[3]);
        let both = place.choose(Some(&path), Some(&hex(3)), Sealed::Some);
        assert_refused(both, &[KEY_VARIABLE, "--secret-key-file", "keep one"]);
    }

    #[test]
    fn several_keys_are_read_the_newest_first() {
        let place = Place::new();
        let (one, two, three) = (hex(1), key(2).text(), hex(3));
        let forms = [
            format!("{one}\n{}\n{three}\n", &*two),
            format!("# newest\r\n\r\n{one} # since May\r\n\t{}\r\n# oldest\r\n{three}", &*two),
            format!("{one},{},{three}", &*two),
            format!(" {one}, {} {three},\n", &*two),
        ];
        for text in forms {
            assert_holds(&place.by_text(&text).expect("keys"), &[1, 2, 3]);
            let path = place.file("keys", 0o600, &text);
            assert_holds(&place.by_file(&path).expect("keys"), &[1, 2, 3]);
        }
    }

    #[test]
    fn a_key_file_open_to_others_is_refused_with_the_remedy() {
        let place = Place::new();
        for mode in [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o644, 0o440, 0o777] {
            let path = place.file("keys", mode, hex(1));
            let shown = format!("mode {mode:04o}");
            let remedy = format!("chmod 600 {}", path.display());
            assert_refused(place.by_file(&path), &[&shown, &remedy]);
        }
        place.file(KEY_FILE, 0o644, hex(1));
        assert_refused(place.beside(Sealed::None), &["chmod 600", KEY_FILE]);
        for mode in [0o600, 0o400] {
            let path = place.file("keys", mode, hex(1));
            assert_holds(&place.by_file(&path).expect("private"), &[1]);
        }
    }

    #[test]
    fn what_holds_no_usable_key_is_refused_and_not_repeated() {
        let place = Place::new();
        let large = format!("{}\n{}", hex(1), "#".repeat(MAX_KEY_FILE_BYTES));
        let twice = format!("{}\n{}", hex(1), key(1).text().as_str());
        let third_bad = format!("{}\n\nswordfish", hex(1));
        let cases: [(&[u8], &str); 7] = [
            (b"", "there is no key"),
            (b"# only this\n\n", "there is no key"),
            (b"swordfish", "line 1: the key has 9 characters"),
            (third_bad.as_bytes(), "line 3: the key has 9 characters"),
            (twice.as_bytes(), "there twice"),
            (b"swordfish\xff", "is not text"),
            (large.as_bytes(), "larger than 16384 bytes"),
        ];
        for (content, says) in cases {
            let path = place.file("keys", 0o600, content);
            let from_file = place.by_file(&path);
            let failure = from_file.as_ref().expect_err(says);
            let shown = format!("{:#} {:?}", failure.error, failure);
            assert!(!shown.contains("swordfish") && !shown.contains(&hex(1)), "{shown}");
            assert_refused(from_file, &[says, &path.display().to_string()]);
        }
        for text in ["", " ", "#", "swordfish"] {
            assert_refused(place.by_text(text), &[KEY_VARIABLE, "key"]);
        }
        let folder = place.path("folder");
        fs::create_dir(&folder).expect("made");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("its mode");
        for path in [folder, place.path("missing")] {
            let named = path.display().to_string();
            assert_refused(place.by_file(&path), &["cannot read the key file", &named]);
        }
    }

    #[test]
    fn the_file_is_named_by_a_flag() {
        #[derive(Debug, clap::Parser)]
        struct Cli {
            #[command(flatten)]
            key: KeyArgs,
        }
        let place = Place::new();
        let path = place.file("keys", 0o600, hex(5));
        let cli = Cli::parse_from([Path::new("postrider"), Path::new("--secret-key-file"), &path]);
        assert_eq!(cli.key.secret_key_file, Some(path));
    }
}
