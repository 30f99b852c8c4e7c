//! Made-up histories, and a real database that was written while the power went.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::super::history::{Promise, Sync};
use super::*;

/// Changes one after the other, each back before the next begins.
#[derive(Default)]
struct Script {
    history: History,
}

impl Script {
    fn change(&mut self, subject: Subject, deed: Deed) -> &mut Self {
        let now = self.history.length;
        let change = Change { subject, begun: now, ended: Some(now), deed };
        self.history.changes.push(change);
        self.history.length += 1;
        self
    }

    fn name(&mut self, name: &str, file: FileId) -> &mut Self {
        self.change(Subject::Names, Deed::Name { name: name.to_owned(), file })
    }

    fn unname(&mut self, name: &str) -> &mut Self {
        self.change(Subject::Names, Deed::Unname(name.to_owned()))
    }

    fn write(&mut self, file: FileId, at: usize, bytes: &[u8]) -> &mut Self {
        self.change(Subject::File(file), Deed::Write { at, bytes: bytes.to_vec() })
    }

    fn resize(&mut self, file: FileId, to: usize) -> &mut Self {
        self.change(Subject::File(file), Deed::Resize(to))
    }

    fn sync(&mut self, subject: Subject) -> &mut Self {
        let now = self.history.length;
        self.history.syncs.push(Sync { subject, begun: now, ended: now });
        self.history.length += 1;
        self
    }

    fn promise(&mut self, id: &str) -> &mut Self {
        let at = self.history.length;
        self.history.promises.push(Promise { at, id: id.to_owned() });
        self.history.length += 1;
        self
    }

    /// Everything that can be found at the end, by many draws.
    fn found(&self, disk: Disk, survival: Survival) -> BTreeSet<Vec<(String, Vec<u8>)>> {
        const DRAWS: u64 = 300;
        (0..DRAWS)
            .map(|seed| {
                let mut random = Random::new(seed);
                let cut = self.history.length;
                let files = after_power_loss(&self.history, cut, disk, survival, &mut random);
                files.into_iter().collect()
            })
            .collect()
    }
}

const SMALL: Survival = Survival::Scattered { sector: Sector::Small, odds: Odds::Half };

fn one(name: &str, bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    vec![(name.to_owned(), bytes.to_vec())]
}

#[test]
fn what_was_synced_is_there_whatever_chance_does() {
    let mut script = Script::default();
    script.name("a", 0).write(0, 0, b"kept").sync(Subject::File(0)).sync(Subject::Names);
    for survival in
        [Survival::Nothing, Survival::Everything, Survival::Torn, SMALL, Survival::Mixed]
    {
        let found = script.found(Disk::Honest, survival);
        assert_eq!(found, BTreeSet::from([one("a", b"kept")]), "{survival:?}");
    }
    let lying = script.found(Disk::LiesFrom(0), Survival::Nothing);
    assert_eq!(lying, BTreeSet::from([Vec::new()]));
}

#[test]
fn a_file_whose_folder_was_not_synced_may_be_missing() {
    let mut script = Script::default();
    script.name("a", 0).write(0, 0, b"kept").sync(Subject::File(0));
    let found = script.found(Disk::Honest, Survival::Torn);
    assert_eq!(found, BTreeSet::from([Vec::new(), one("a", b"kept")]));
}

#[test]
fn a_file_that_was_removed_may_be_back() {
    let mut script = Script::default();
    script.name("a", 0).write(0, 0, b"kept").sync(Subject::File(0)).sync(Subject::Names);
    script.unname("a");
    let found = script.found(Disk::Honest, SMALL);
    assert_eq!(found, BTreeSet::from([Vec::new(), one("a", b"kept")]));
}

#[test]
fn each_sector_is_as_it_was_at_some_moment() {
    let mut script = Script::default();
    script.name("a", 0).write(0, 0, &[1; 1024]).sync(Subject::File(0)).sync(Subject::Names);
    // Two writes over both sectors, the second only to a part of the first.
    script.write(0, 0, &[2; 1024]).write(0, 0, &[3; 4]);
    let mut expected = BTreeSet::new();
    for first in [0, 1, 2] {
        for second in [1, 2] {
            let mut bytes = vec![if first == 0 { 1 } else { 2 }; 512];
            if first == 2 {
                bytes[..4].fill(3);
            }
            bytes.extend([second; 512]);
            expected.insert(one("a", &bytes));
        }
    }
    assert_eq!(script.found(Disk::Honest, SMALL), expected);
    let large = Survival::Scattered { sector: Sector::Large, odds: Odds::Half };
    assert_eq!(script.found(Disk::Honest, large).len(), 3);
}

#[test]
fn a_torn_write_ends_between_sectors() {
    let mut script = Script::default();
    script.name("a", 0).sync(Subject::Names).write(0, 100, &[7; 1000]);
    let found = script.found(Disk::Honest, Survival::Torn);
    let mut lengths: Vec<usize> = found.iter().map(|files| files[0].1.len()).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [0, 512, 1024, 1100]);
}

#[test]
fn a_length_that_was_not_synced_is_any_that_the_file_had() {
    let mut script = Script::default();
    script.name("a", 0).write(0, 0, &[1; 600]).sync(Subject::File(0)).sync(Subject::Names);
    script.resize(0, 10).write(0, 10, &[2; 5]);
    let found = script.found(Disk::Honest, SMALL);
    let lengths: BTreeSet<usize> = found.iter().map(|files| files[0].1.len()).collect();
    assert_eq!(lengths, BTreeSet::from([10, 15, 600]));
    assert!(found.contains(&one("a", &[1; 600])), "the old file is still there");
}

#[test]
fn a_write_that_was_not_back_when_the_sync_began_is_not_synced() {
    let mut script = Script::default();
    script.name("a", 0).sync(Subject::Names).write(0, 0, b"x").sync(Subject::File(0));
    script.history.changes[1].ended = Some(3);
    let found = script.found(Disk::Honest, Survival::Nothing);
    assert_eq!(found, BTreeSet::from([one("a", b"")]));
}

/// A database in WAL mode whose frames are written, synced and promised commit by commit.
fn database_history() -> History {
    const COMMITS: i64 = 12;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.db");
    let database = Connection::open(&path).expect("a database");
    database
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; \
             CREATE TABLE kept (id INTEGER PRIMARY KEY, pad BLOB); PRAGMA wal_checkpoint(TRUNCATE)",
        )
        .expect("a table");
    let mut script = Script::default();
    script.name("a.db", 0).write(0, 0, &fs::read(&path).expect("its pages"));
    script.name("a.db-wal", 1).sync(Subject::File(0)).sync(Subject::Names);
    let log = folder.path().join("a.db-wal");
    let mut seen = 0_usize;
    for commit in 0..COMMITS {
        let insert = "INSERT INTO kept VALUES (?1, zeroblob(?2))";
        database.execute(insert, (commit, 2_000 * commit)).expect("a row");
        let bytes = fs::read(&log).expect("its log");
        // The header of the log, then frames as the database writes them: a header and a page.
        while seen < bytes.len() {
            let next = match seen {
                0 => 32,
                at if (at - 32) % 4_120 == 0 => 24,
                _ => 4_096,
            };
            script.write(1, seen, &bytes[seen..seen + next]);
            seen += next;
        }
        script.sync(Subject::File(1)).promise(&commit.to_string());
    }
    script.history
}

/// How many promised rows are missing from what is found.
fn missing(history: &History, cut: Moment, files: &Files) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    write(files, folder.path()).expect("the files");
    let database = Connection::open(folder.path().join("a.db")).expect("a database");
    let sound: String = database
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .expect("it can be checked");
    assert_eq!(sound, "ok");
    let mut rows = database.prepare("SELECT 1 FROM kept WHERE id = ?1").expect("a query");
    history.promised(cut).filter(|id| !rows.exists((id,)).expect("an answer")).count()
}

#[test]
fn a_database_keeps_its_promises_on_an_honest_disk_and_not_on_one_that_lies() {
    let history = database_history();
    let began = history.promises[0].at;
    let lost = |disk: Disk| {
        let mut random = Random::new(7);
        let mut lost = 0;
        for cut in (began..=history.length).step_by(3) {
            let survival = Survival::draw(&mut random);
            let files = after_power_loss(&history, cut, disk, survival, &mut random);
            lost += missing(&history, cut, &files);
        }
        lost
    };
    assert_eq!(lost(Disk::Honest), 0);
    assert!(lost(Disk::LiesFrom(began)) > 0);
}
