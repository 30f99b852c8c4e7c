//! Which files are opened, and what is left alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use postrider_store::Error;
use postrider_store::journal::Journal;
use postrider_store::ledger::Ledger;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::*;

/// Every file beside the database, with its bytes.
fn contents(directory: &Directory) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory.0.path()).expect("listed");
    entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let bytes = fs::read(&path).expect("readable");
            (path, bytes)
        })
        .collect()
}

fn refusal(path: &Path) -> String {
    match Sqlite::open(path, Options::default(), keyring()) {
        Err(Error::Refused(sentence)) => sentence,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_untouched() {
    let files: [&[u8]; 5] =
        [b"hello", b"SQLite format 3\0", &[0; 100], &[0xff; 5_000], b"SQLite format 4\0 and more"];
    for bytes in files {
        let directory = Directory::new();
        fs::write(directory.path(), bytes).expect("written");
        let before = contents(&directory);
        let sentence = refusal(&directory.path());
        assert!(sentence.contains("postrider.db is not a database"), "{sentence}");
        assert_eq!(contents(&directory), before);
    }
}

/// A journal of `SQLite`'s as it stands beside a database that had `pages` before.
fn journal(pages: u32) -> Vec<u8> {
    let mut bytes = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7".to_vec();
    for word in [0, 0x4fae_1f20, pages, 512, postrider_store::sqlite::PAGE_BYTES] {
        bytes.extend(u32::to_be_bytes(word));
    }
    bytes.resize(512, 0);
    bytes
}

/// Torture found it: what was left of a first start that lost its power was refused ever after.
#[tokio::test]
async fn a_database_that_was_being_made_when_the_power_went_is_made_anew() {
    let beside = |directory: &Directory, suffix: &str| {
        directory.path().with_file_name(format!("postrider.db{suffix}"))
    };
    for left in [vec![0; 40_960], vec![0xff; 50], Vec::new()] {
        let directory = Directory::new();
        fs::write(directory.path(), left).expect("written");
        fs::write(beside(&directory, "-journal"), journal(0)).expect("written");
        // Without the lock it may be anybody's, and a database with pages has something to lose.
        if fs::metadata(directory.path()).is_ok_and(|left| left.len() > 0) {
            let before = contents(&directory);
            refusal(&directory.path());
            assert_eq!(contents(&directory), before);
        }
        fs::write(beside(&directory, ".lock"), "").expect("written");
        directory.store(Options::default()).close().await;
        assert!(!beside(&directory, "-journal").exists());
    }
    let directory = Directory::new();
    fs::write(directory.path(), vec![0; 40_960]).expect("written");
    fs::write(beside(&directory, "-journal"), journal(5)).expect("written");
    fs::write(beside(&directory, ".lock"), "").expect("written");
    let sentence = refusal(&directory.path());
    assert!(sentence.contains("is not a database"), "{sentence}");
}

#[test]
fn a_database_of_another_program_is_refused_and_untouched() {
    for mode in ["DELETE", "WAL"] {
        let directory = Directory::new();
        let other = Connection::open(directory.path()).expect("opened");
        let sql = format!(
            "PRAGMA journal_mode = {mode}; CREATE TABLE notes (text); \
             INSERT INTO notes VALUES ('mine');"
        );
        other.execute_batch(&sql).expect("made");
        // In WAL mode another program's log is there too, unless it has closed.
        other
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, mode == "WAL")
            .expect("set");
        if mode == "WAL" {
            other
                .execute_batch("PRAGMA wal_checkpoint; INSERT INTO notes VALUES ('2')")
                .expect("ok");
        }
        drop(other);
        let before = contents(&directory);
        let sentence = refusal(&directory.path());
        assert!(sentence.contains("database of another program"), "{sentence}");
        assert_eq!(contents(&directory), before);
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_untouched() {
    let directory = Directory::new();
    directory.store(Options::default()).close().await;
    let newer = Connection::open(directory.path()).expect("opened");
    newer.pragma_update(None, "user_version", 1_000).expect("set");
    drop(newer);
    let before = contents(&directory);
    let sentence = refusal(&directory.path());
    assert!(sentence.contains("newer postrider (schema version 1000"), "{sentence}");
    assert_eq!(contents(&directory), before);
}

#[tokio::test]
async fn a_newer_version_that_is_only_in_the_log_is_refused_too() {
    let directory = Directory::new();
    directory.store(Options::default()).close().await;
    let newer = Connection::open(directory.path()).expect("opened");
    newer.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).expect("set");
    newer.pragma_update(None, "user_version", 1_000).expect("set");
    drop(newer);
    let kept = |directory: &Directory| {
        let mut files = contents(directory);
        files.retain(|path, _| !path.to_string_lossy().ends_with("-shm"));
        files
    };
    let before = kept(&directory);
    assert!(before.keys().any(|path| path.to_string_lossy().ends_with("-wal")));
    let sentence = refusal(&directory.path());
    assert!(sentence.contains("newer postrider"), "{sentence}");
    assert_eq!(kept(&directory), before);
}

#[tokio::test]
async fn a_database_in_use_is_refused() {
    let directory = Directory::new();
    let first = directory.store(Options::default());
    let sentence = refusal(&directory.path());
    assert!(sentence.contains("is in use by another postrider"), "{sentence}");
    #[cfg(unix)]
    {
        let alias = directory.0.path().join("alias.db");
        std::os::unix::fs::symlink(directory.path(), &alias).expect("linked");
        let sentence = refusal(&alias);
        assert!(sentence.contains("is in use"), "another name of the same file: {sentence}");
    }
    first.ping().await.expect("the first goes on");
    first.close().await;
    let second = directory.store(Options::default());
    drop(second);
    directory.store(Options::default());
}

#[tokio::test]
async fn the_file_is_an_ordinary_database() {
    let directory = Directory::new();
    fs::write(directory.path(), b"").expect("an empty file is as good as none");
    let store = directory.store(Options::default());
    store.append(vec![event(1, &Bytes::from_static(b"{}"))]).await.expect("stored");
    store.close().await;
    let names: Vec<PathBuf> = contents(&directory)
        .keys()
        .filter_map(|path| path.extension())
        .map(PathBuf::from)
        .collect();
    assert_eq!(names, [PathBuf::from("db"), PathBuf::from("lock")], "the log is gone");

    let plain = Connection::open(directory.path()).expect("opened");
    let read = |sql: &str| -> String {
        plain
            .query_row(sql, (), |row| {
                row.get_ref(0)?.as_str().map(str::to_owned).map_err(Into::into)
            })
            .expect(sql)
    };
    assert_eq!(read("PRAGMA integrity_check"), "ok");
    assert_eq!(read("PRAGMA journal_mode"), "wal");
    assert_eq!(read("SELECT kind FROM events"), "order.created");
    assert_eq!(read("SELECT CAST(page_size AS TEXT) FROM pragma_page_size"), "8192");
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_read_what_has_secrets_in_it() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new();
    let store = directory.store(Options::default());
    store.append(vec![event(1, &Bytes::new())]).await.expect("stored");
    for suffix in ["", "-wal"] {
        let name = format!("{}{suffix}", directory.path().display());
        let mode = fs::metadata(&name).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_crash() {
    let directory = Directory::new();
    let store = directory.store(Options::default());
    for number in 1..=50 {
        store.append(vec![event(number, &Bytes::from_static(b"{}"))]).await.expect("stored");
    }
    // The files as a crash at this moment would leave them: the log is not in the database yet.
    let crashed = Directory::new();
    for suffix in ["", "-wal"] {
        let name = |directory: &Directory| format!("{}{suffix}", directory.path().display());
        fs::copy(name(&directory), name(&crashed)).expect("copied");
    }
    let recovered = crashed.store(Options::default());
    assert_eq!(recovered.event_count(TenantId::DEFAULT).await.expect("counted"), 50);
    let last = event(50, &Bytes::from_static(b"{}"));
    let stored = recovered.event(TenantId::DEFAULT, last.event.id).await.expect("readable");
    assert_eq!(stored.as_ref(), Some(&*last.event));
}
