//! Copies of a database that is in use, and looks at one that change nothing.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use postrider_store::journal::Journal as _;
use postrider_store::ledger::Ledger as _;
use postrider_store::sqlite::{
    BackupError, Checkup, Existing, KNOWN_VERSION, Phase, Progress, Sealed, Soundness, backup,
};
use rusqlite::Connection;

use super::*;

fn whole(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn names(directory: &Directory) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory.0.path()).expect("listed");
    entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let bytes = fs::read(&path).expect("readable");
            (path, bytes)
        })
        .collect()
}

fn copied(path: &Path) -> Sqlite {
    Sqlite::open(path, Options::default(), keyring()).expect("it opens")
}

async fn count(store: &Sqlite) -> u64 {
    store.event_count(TenantId::DEFAULT).await.expect("counted")
}

#[track_caller]
fn refused(outcome: Result<postrider_store::sqlite::Report, BackupError>, word: &str) {
    match outcome {
        Err(BackupError::Refused(why)) => assert!(why.contains(word), "{why}"),
        other => panic!("{other:?}, not {word}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_of_one_moment_however_much_is_written_meanwhile() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let store = Arc::new(directory.store(Options::default()));
    let body = Bytes::from(vec![b'x'; 8_000]);
    let mut number = 0;
    // More than a few steps of the copy.
    for _ in 0..20 {
        let events = (number..number + 100).map(|number| event(number, &body)).collect();
        store.append(events).await.expect("stored");
        number += 100;
    }
    let before = number.unsigned_abs();
    let (from, to) = (directory.path(), elsewhere.path());
    let (mut steps, runtime) = (0, tokio::runtime::Handle::current());
    let writer = Arc::clone(&store);
    let report = tokio::task::spawn_blocking(move || {
        // Between any two steps the gateway commits something.
        let report = backup(&from, &to, Existing::Refuse, |progress| {
            if progress.phase == Phase::Copying {
                let one = vec![event(number, &Bytes::from_static(b"late"))];
                runtime.block_on(writer.append(one)).expect("the writer is not held up");
                number += 1;
                steps += 1;
            }
            ControlFlow::Continue(())
        });
        (report.expect("copied"), steps)
    });
    let (report, steps) = report.await.expect("it ended");
    assert!(steps > 3, "{steps} steps");
    assert_eq!((report.version, report.sealed), (KNOWN_VERSION, Sealed::None));
    let after = count(&store).await;
    assert_eq!(after, before + steps);
    let copy = copied(&elsewhere.path());
    assert_eq!(count(&copy).await, before, "what came while it was made is not in it");
    let last = event(i64::try_from(before).expect("small") - 1, &body).event.id;
    let found = copy.event(TenantId::DEFAULT, last).await.expect("readable").expect("there");
    assert_eq!(found.body, body);
}

#[tokio::test]
async fn a_copy_is_private_whole_and_alone_in_its_folder() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let store = directory.store(Options::default());
    store.append(vec![event(1, &Bytes::from_static(b"{}"))]).await.expect("stored");
    let to = elsewhere.path();
    let mut told = Vec::new();
    let report = backup(&directory.path(), &to, Existing::Refuse, |progress| {
        told.push(progress);
        ControlFlow::Continue(())
    });
    let report = report.expect("copied");
    assert_eq!(names(&elsewhere).len(), 1, "{:?}", names(&elsewhere).keys());
    let file = fs::metadata(&to).expect("there");
    assert_eq!((file.permissions().mode() & 0o777, file.len()), (0o600, report.bytes));
    let copying = told.iter().rfind(|progress| progress.phase == Phase::Copying);
    assert!(copying.is_some_and(|last| last.bytes == last.of && last.of == report.bytes));
}

#[tokio::test]
async fn what_is_there_stays_unless_it_shall_be_replaced() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let store = directory.store(Options::default());
    let (from, to) = (directory.path(), elsewhere.path());
    fs::write(&to, "dear diary").expect("written");
    let kept = backup(&from, &to, Existing::Refuse, whole);
    assert!(matches!(kept, Err(BackupError::Exists(_))), "{kept:?}");
    assert_eq!(fs::read(&to).expect("there"), b"dear diary");
    backup(&from, &to, Existing::Replace, whole).expect("replaced");
    assert_eq!(count(&copied(&to)).await, 0);

    refused(backup(&from, &from, Existing::Replace, whole), "the database itself");
    let link = elsewhere.0.path().join("link");
    std::os::unix::fs::symlink(&from, &link).expect("linked");
    refused(backup(&from, &link, Existing::Replace, whole), "the database itself");
    refused(backup(&from, elsewhere.0.path(), Existing::Replace, whole), "no file");
    let running = copied(&to);
    refused(backup(&from, &to, Existing::Replace, whole), "in use");
    running.close().await;
    fs::write(elsewhere.0.path().join("new.db-wal"), "a log of something else").expect("written");
    let new = elsewhere.0.path().join("new.db");
    refused(backup(&from, &new, Existing::Refuse, whole), "another database");
    refused(backup(&elsewhere.0.path().join("none"), &new, Existing::Refuse, whole), "no database");
    store.close().await;
}

#[tokio::test]
async fn nothing_is_left_of_a_copy_that_was_ended_or_has_no_source() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let store = directory.store(Options::default());
    store.append(vec![event(1, &Bytes::from_static(b"{}"))]).await.expect("stored");
    let ended = |_| ControlFlow::Break(());
    let outcome = backup(&directory.path(), &elsewhere.path(), Existing::Refuse, ended);
    assert!(matches!(outcome, Err(BackupError::Interrupted)), "{outcome:?}");
    for (bytes, word) in
        [(&b"dear diary, today"[..], "not a database"), (&[][..], "another program")]
    {
        let other = directory.0.path().join("other");
        fs::write(&other, bytes.repeat(100)).expect("written");
        refused(backup(&other, &elsewhere.path(), Existing::Refuse, whole), word);
    }
    assert_eq!(names(&elsewhere).len(), 0);
    store.close().await;
}

#[tokio::test]
async fn a_database_that_nobody_uses_is_copied_and_not_touched() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let store = directory.store(Options::default());
    store.append(vec![event(1, &Bytes::from_static(b"{}"))]).await.expect("stored");
    store.close().await;
    let before = names(&directory);
    backup(&directory.path(), &elsewhere.path(), Existing::Refuse, whole).expect("copied");
    assert_eq!(names(&directory), before);
    assert_eq!(count(&copied(&elsewhere.path())).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_comes_while_its_database_is_copied_is_no_trouble() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    let body = Bytes::from(vec![b'x'; 8_000]);
    let store = directory.store(Options::default());
    store.append((0..900).map(|number| event(number, &body)).collect()).await.expect("stored");
    store.close().await;
    let (mut come, mut steps) = (None, 0);
    let runtime = tokio::runtime::Handle::current();
    let (from, to) = (directory.path(), elsewhere.path());
    let outcome = tokio::task::spawn_blocking(move || {
        let outcome = backup(&from, &to, Existing::Refuse, |_| {
            let store = come.get_or_insert_with(|| directory.store(Options::default()));
            let one = vec![event(1_000 + steps, &body)];
            runtime.block_on(store.append(one)).expect("stored");
            steps += 1;
            ControlFlow::Continue(())
        });
        drop((come, directory));
        outcome
    });
    outcome.await.expect("it ended").expect("copied");
    let copy = copied(&elsewhere.path());
    let found = count(&copy).await;
    assert!(found > 900, "it was copied once more, beside the gateway: {found}");
}

#[tokio::test]
async fn a_newer_version_is_refused() {
    let (directory, elsewhere) = (Directory::new(), Directory::new());
    drop(directory.store(Options::default()));
    let conn = Connection::open(directory.path()).expect("opened");
    conn.pragma_update(None, "user_version", KNOWN_VERSION + 1).expect("set");
    drop(conn);
    let outcome = backup(&directory.path(), &elsewhere.path(), Existing::Refuse, whole);
    refused(outcome, "newer postrider");
}

#[tokio::test]
async fn a_look_at_a_database_at_rest_leaves_every_file_as_it_was() {
    let directory = Directory::new();
    let store = directory.store(Options::default());
    store.append(vec![event(1, &Bytes::from_static(b"{}"))]).await.expect("stored");
    store.close().await;
    let before = names(&directory);
    let mut checkup = Checkup::open(&directory.path()).expect("opened");
    assert_eq!(checkup.version().expect("readable"), KNOWN_VERSION);
    assert_eq!(checkup.sealed().expect("readable"), Sealed::None);
    let go_on = || ControlFlow::Continue(());
    assert_eq!(checkup.quick_check(go_on).expect("checked"), Soundness::Sound);
    assert_eq!(checkup.open_secrets(&keyring()).expect("readable"), 0);
    assert!(!checkup.is_outdated());
    assert_eq!(names(&directory), before);

    let store = directory.store(Options::default());
    store.append(vec![event(2, &Bytes::from_static(b"{}"))]).await.expect("stored");
    assert!(checkup.is_outdated(), "a gateway has come");
    drop(checkup);
    let mut beside = Checkup::open(&directory.path()).expect("opened");
    assert_eq!(beside.quick_check(go_on).expect("checked"), Soundness::Sound);
    store.append(vec![event(3, &Bytes::from_static(b"{}"))]).await.expect("not held up");
}

#[tokio::test]
async fn damage_is_found() {
    let directory = Directory::new();
    let store = directory.store(Options::default());
    let body = Bytes::from(vec![b'x'; 4_000]);
    let events = (0..200).map(|number| event(number, &body)).collect();
    store.append(events).await.expect("stored");
    store.close().await;
    let mut bytes = fs::read(directory.path()).expect("readable");
    // The first bytes of every page behind the schema's: what kind it is and where its cells are.
    let page = postrider_store::sqlite::PAGE_BYTES as usize;
    for start in (page * 40..bytes.len()).step_by(page) {
        bytes[start..start + 8].fill(0xff);
    }
    fs::write(directory.path(), bytes).expect("written");
    let mut checkup = Checkup::open(&directory.path()).expect("the first page is sound");
    let found = checkup.quick_check(|| ControlFlow::Continue(())).expect("checked");
    assert!(matches!(found, Soundness::Damaged(_)), "{found:?}");
    let elsewhere = Directory::new();
    let outcome = backup(&directory.path(), &elsewhere.path(), Existing::Refuse, whole);
    assert!(matches!(outcome, Err(BackupError::Unsound(_))), "{outcome:?}");
    assert_eq!(names(&elsewhere).len(), 0);
}
