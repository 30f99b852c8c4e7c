//! What a program did to the files of one folder, in the order of its calls: every write, every
//! change of names, every sync, and what it said yes to on its sockets meanwhile.
//!
//! The moment of something is the number of the line that tells of it. A call has two: where it
//! began and where it was back. What it does may be done from the first on, and is done at the
//! second.

use std::collections::{BTreeSet, HashMap};
use std::io::BufRead;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::trace::{self, Call, Line, Outcome, Told};

/// A file, whatever its names.
pub(super) type FileId = usize;
/// The number of a line.
pub(super) type Moment = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// The names in the folder.
    Names,
    File(FileId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) subject: Subject,
    pub(super) begun: Moment,
    /// None if it was never back.
    pub(super) ended: Option<Moment>,
    pub(super) deed: Deed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    Write { at: usize, bytes: Vec<u8> },
    Resize(usize),
    Name { name: String, file: FileId },
    Unname(String),
    Rename { from: String, to: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sync {
    pub(super) subject: Subject,
    pub(super) begun: Moment,
    pub(super) ended: Moment,
}

/// Somebody was told that this exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) at: Moment,
    pub(super) id: String,
}

/// An attempt was on its way to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Push {
    pub(super) at: Moment,
    pub(super) path: String,
    pub(super) event: String,
    pub(super) attempt: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History {
    /// By their beginning.
    pub(super) changes: Vec<Change>,
    pub(super) syncs: Vec<Sync>,
    pub(super) promises: Vec<Promise>,
    pub(super) pushes: Vec<Push>,
    /// How many lines there were.
    pub(super) length: Moment,
}

/// What an id in an answer begins with, after which letters and digits follow.
const PROMISED: [&str; 2] = ["\"id\":\"evt_", "\"id\":\"ep_"];

/// A memory-mapped index that is made anew at every start, and never synced by anybody.
const SHARED_MEMORY: &str = "-shm";

impl History {
    /// Of the files in `folder`, which is to be empty at the beginning.
    pub(super) fn read(folder: &Path, mut trace: impl BufRead) -> Result<Self> {
        let mut reader = Reader::new(folder);
        let mut line = Vec::new();
        loop {
            line.clear();
            if trace.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let text = line.trim_ascii_end();
            let moment = reader.history.length;
            reader.line(text).with_context(|| {
                let shown = &text[..text.len().min(200)];
                format!("line {} of the trace, {}", moment + 1, String::from_utf8_lossy(shown))
            })?;
            reader.history.length += 1;
        }
        Ok(reader.finish())
    }

    /// Whom what was told before `cut`.
    pub(super) fn promised(&self, cut: Moment) -> impl Iterator<Item = &str> {
        self.promises.iter().take_while(move |promise| promise.at < cut).map(|told| &*told.id)
    }

    /// How many bytes were written.
    pub(super) fn written(&self) -> usize {
        let bytes = |change: &Change| match &change.deed {
            Deed::Write { bytes, .. } => bytes.len(),
            Deed::Resize(_) | Deed::Name { .. } | Deed::Unname(_) | Deed::Rename { .. } => 0,
        };
        self.changes.iter().map(bytes).sum()
    }
}

struct Reader {
    folder: PathBuf,
    history: History,
    /// What each thread has begun.
    begun: HashMap<u32, (Moment, Call)>,
    names: HashMap<String, FileId>,
    files: usize,
    /// Where a plain write goes. Whoever writes so here does it from one end to the other.
    positions: HashMap<FileId, usize>,
    sizes: HashMap<FileId, usize>,
    told: BTreeSet<String>,
}

impl Reader {
    fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            history: History::default(),
            begun: HashMap::new(),
            names: HashMap::new(),
            files: 0,
            positions: HashMap::new(),
            sizes: HashMap::new(),
            told: BTreeSet::new(),
        }
    }

    fn line(&mut self, text: &[u8]) -> Result<()> {
        let now = self.history.length;
        let Some(Line { thread, told }) = trace::read(text)? else { return Ok(()) };
        match told {
            Told::Whole(call, outcome) => {
                self.note_words(&call, now)?;
                self.done(&call, &outcome, now, now)
            }
            Told::Begun(call) => {
                self.note_words(&call, now)?;
                self.begun.insert(thread, (now, call));
                Ok(())
            }
            Told::Ended(outcome) => match self.begun.remove(&thread) {
                Some((begun, call)) => self.done(&call, &outcome, begun, now),
                // Begun before it was watched.
                None => Ok(()),
            },
        }
    }

    fn finish(mut self) -> History {
        self.history.changes.sort_by_key(|change| change.begun);
        self.history
    }

    /// What is on its way to a socket may have arrived as soon as the call has begun.
    fn note_words(&mut self, call: &Call, now: Moment) -> Result<()> {
        let is_socket = |path: &Path| path.to_str().is_some_and(|name| name.starts_with("socket:"));
        if !call.open(0).is_some_and(is_socket) {
            return Ok(());
        }
        match &*call.name {
            "write" | "writev" | "sendto" | "sendmsg" => {}
            other => bail!("{other} on a socket is not understood"),
        }
        let sent = call.sent();
        let sent = String::from_utf8_lossy(&sent);
        if sent.starts_with("POST ") {
            self.history.pushes.extend(push(&sent, now));
            return Ok(());
        }
        for opening in PROMISED {
            for (at, _) in sent.match_indices(opening) {
                let id = &sent[at + "\"id\":\"".len()..];
                let end = id.find('"').context("an id that breaks off")?;
                // The first time is the one that counts.
                if self.told.insert(id[..end].to_owned()) {
                    self.history.promises.push(Promise { at: now, id: id[..end].to_owned() });
                }
            }
        }
        Ok(())
    }

    fn done(&mut self, call: &Call, outcome: &Outcome, begun: Moment, ended: Moment) -> Result<()> {
        let value = match outcome.value {
            // It was killed on its way, and what it did by then is not known.
            None => None,
            Some(value) if value < 0 => return Ok(()),
            Some(value) => Some(usize::try_from(value)?),
        };
        let times = Times { begun, ended: value.map(|_| ended) };
        match &*call.name {
            "open" | "openat" | "creat" => self.opened(call, outcome, times),
            "write" | "pwrite64" => self.written(call, value, times),
            "ftruncate" => self.resized(call, times),
            "fsync" | "fdatasync" => {
                self.synced(call, times);
                Ok(())
            }
            "unlink" => self.unnamed(&call.path(0)?, times),
            "unlinkat" => self.unnamed(&call.path(1)?, times),
            "rename" => self.renamed(&call.path(0)?, &call.path(1)?, times),
            "renameat" | "renameat2" => self.renamed(&call.path(1)?, &call.path(3)?, times),
            "link" => self.linked(&call.path(0)?, &call.path(1)?, times),
            "linkat" => self.linked(&call.path(1)?, &call.path(3)?, times),
            "writev" | "sendto" | "sendmsg" if self.name_of(call).is_none() => Ok(()),
            "mkdir" | "mkdirat" => {
                let index = usize::from(call.name == "mkdirat");
                ensure!(!call.path(index)?.starts_with(&self.folder), "a folder was made in there");
                Ok(())
            }
            "truncate" => {
                ensure!(self.name(&call.path(0)?).is_none(), "truncate is not understood");
                Ok(())
            }
            other => {
                let touched = (0..call.arguments.len())
                    .filter_map(|index| call.open(index))
                    .any(|path| self.name(path).is_some());
                ensure!(!touched, "{other} on a file is not understood");
                Ok(())
            }
        }
    }

    fn opened(&mut self, call: &Call, outcome: &Outcome, times: Times) -> Result<()> {
        let Some(name) = outcome.path.as_deref().and_then(|path| self.name(path)) else {
            return Ok(());
        };
        let index = usize::from(call.name == "openat") + 1;
        let flags: Vec<&str> = if call.name == "creat" {
            vec!["O_TRUNC"]
        } else {
            call.word(index)?.split('|').collect()
        };
        let file = if let Some(file) = self.names.get(&name) {
            *file
        } else {
            let file = self.files;
            self.files += 1;
            self.name_file(name, file, times);
            file
        };
        let size = self.sizes.get(&file).copied().unwrap_or(0);
        if flags.contains(&"O_TRUNC") && size > 0 {
            self.resize(file, 0, times);
        }
        self.positions.insert(file, if flags.contains(&"O_APPEND") { size } else { 0 });
        Ok(())
    }

    fn written(&mut self, call: &Call, written: Option<usize>, times: Times) -> Result<()> {
        let Some(file) = self.file_of(call)? else { return Ok(()) };
        let all = call.bytes(1)?;
        ensure!(all.len() as u64 == call.number(2)?, "a write that is not shown as a whole");
        let bytes = all[..written.unwrap_or(all.len()).min(all.len())].to_vec();
        let at = if call.name == "pwrite64" {
            usize::try_from(call.number(3)?)?
        } else {
            let position = self.positions.entry(file).or_default();
            let at = *position;
            *position += bytes.len();
            at
        };
        let size = self.sizes.entry(file).or_default();
        *size = (*size).max(at + bytes.len());
        self.push(Subject::File(file), times, Deed::Write { at, bytes });
        Ok(())
    }

    fn resized(&mut self, call: &Call, times: Times) -> Result<()> {
        let Some(file) = self.file_of(call)? else { return Ok(()) };
        self.resize(file, usize::try_from(call.number(1)?)?, times);
        Ok(())
    }

    fn resize(&mut self, file: FileId, size: usize, times: Times) {
        self.sizes.insert(file, size);
        self.push(Subject::File(file), times, Deed::Resize(size));
    }

    fn synced(&mut self, call: &Call, times: Times) {
        let Some(ended) = times.ended else { return };
        let Some(path) = call.open(0) else { return };
        let subject = if path == self.folder {
            Subject::Names
        } else {
            let Some(file) = self.name(path).and_then(|name| self.names.get(&name)) else { return };
            Subject::File(*file)
        };
        self.history.syncs.push(Sync { subject, begun: times.begun, ended });
    }

    fn unnamed(&mut self, path: &Path, times: Times) -> Result<()> {
        let Some(name) = self.name(path) else { return Ok(()) };
        self.names.remove(&name).with_context(|| format!("{name} was not there"))?;
        self.push(Subject::Names, times, Deed::Unname(name));
        Ok(())
    }

    fn renamed(&mut self, from: &Path, to: &Path, times: Times) -> Result<()> {
        match (self.name(from), self.name(to)) {
            (None, None) => Ok(()),
            (Some(from), Some(to)) => {
                let file = self.names.remove(&from).with_context(|| format!("no {from}"))?;
                self.names.insert(to.clone(), file);
                self.push(Subject::Names, times, Deed::Rename { from, to });
                Ok(())
            }
            (Some(_), None) | (None, Some(_)) => bail!("a file was moved across the folder's edge"),
        }
    }

    fn linked(&mut self, from: &Path, to: &Path, times: Times) -> Result<()> {
        match (self.name(from), self.name(to)) {
            (None, None) => Ok(()),
            (Some(from), Some(to)) => {
                let file = *self.names.get(&from).with_context(|| format!("no {from}"))?;
                self.name_file(to, file, times);
                Ok(())
            }
            (Some(_), None) | (None, Some(_)) => {
                bail!("a file was linked across the folder's edge")
            }
        }
    }

    fn name_file(&mut self, name: String, file: FileId, times: Times) {
        self.names.insert(name.clone(), file);
        self.push(Subject::Names, times, Deed::Name { name, file });
    }

    fn push(&mut self, subject: Subject, times: Times, deed: Deed) {
        let Times { begun, ended } = times;
        self.history.changes.push(Change { subject, begun, ended, deed });
    }

    /// The file that the first argument is open on, if it is one of the folder.
    fn file_of(&self, call: &Call) -> Result<Option<FileId>> {
        let Some(name) = self.name_of(call) else { return Ok(None) };
        let file = self.names.get(&name).with_context(|| format!("{name} was never opened"))?;
        Ok(Some(*file))
    }

    fn name_of(&self, call: &Call) -> Option<String> {
        self.name(call.open(0)?)
    }

    /// The name in the folder; none for the folder itself and for what is elsewhere or left out.
    fn name(&self, path: &Path) -> Option<String> {
        let name = path.strip_prefix(&self.folder).ok()?.to_str()?;
        (!name.is_empty() && !name.ends_with(SHARED_MEMORY)).then(|| name.to_owned())
    }
}

/// What the head of a request says, if it is that of an attempt.
fn push(head: &str, at: Moment) -> Option<Push> {
    let header = |name: &str| {
        let (_, rest) = head.split_once(&format!("\r\n{name}: "))?;
        rest.split_once("\r\n").map(|(value, _)| value)
    };
    Some(Push {
        at,
        path: head.split(' ').nth(1)?.to_owned(),
        event: header("webhook-id")?.to_owned(),
        attempt: header("postrider-attempt")?.parse().ok()?,
    })
}

/// When a call began, and when it was back.
#[derive(Debug, Clone, Copy)]
struct Times {
    begun: Moment,
    ended: Option<Moment>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(text: &str) -> Result<History> {
        History::read(Path::new("/d"), text.as_bytes())
    }

    fn change(subject: Subject, begun: Moment, ended: Moment, deed: Deed) -> Change {
        Change { subject, begun, ended: Some(ended), deed }
    }

    #[test]
    fn a_trace_comes_to_changes_syncs_and_promises() {
        let text = r#"
1 openat(AT_FDCWD</x>, "/d/a", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 3</d/a>
1 openat(AT_FDCWD</x>, "/d/a-shm", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 4</d/a-shm>
1 pwrite64(4</d/a-shm>, "\0", 1, 4095) = 1
1 pwrite64(3</d/a>, "xyz", 3, 2 <unfinished ...>
2 write(9<anon_inode:[eventfd]>, "\1\0\0\0\0\0\0\0", 8) = 8
1 <... pwrite64 resumed>) = 2
1 fdatasync(3</d/a> <unfinished ...>
2 sendto(7<socket:[5]>, "POST /hook HTTP/1.1\r\nwebhook-id: evt_9\r\npostrider-attempt: 2\r\n\r\n{\"id\":\"evt_2\"}", 90, MSG_NOSIGNAL, NULL, 0) = 90
1 <... fdatasync resumed>)              = 0
2 sendto(7<socket:[5]>, "HTTP/1.1 202\r\n\r\n{\"id\":\"evt_1\"}", 33, MSG_NOSIGNAL, NULL, 0) = 33
1 openat(AT_FDCWD</x>, "/d", O_RDONLY|O_CLOEXEC) = 6</d>
1 fsync(6</d>) = 0
1 ftruncate(3</d/a>, 1) = 0
1 linkat(AT_FDCWD</x>, "/d/a", AT_FDCWD</x>, "/d/b", 0) = 0
1 unlink("/d/a") = 0
1 rename("/d/b", "/d/c") = 0
1 pwrite64(3</d/c>, "no", 2, 0) = -1 ENOSPC (No space left on device)
1 unlink("/elsewhere/a") = 0
1 +++ exited with 0 +++"#;
        let history = history(text.trim_start()).expect("it can be read");
        let file = Subject::File(0);
        let expected = [
            change(Subject::Names, 0, 0, Deed::Name { name: "a".into(), file: 0 }),
            change(file, 3, 5, Deed::Write { at: 2, bytes: b"xy".to_vec() }),
            change(file, 12, 12, Deed::Resize(1)),
            change(Subject::Names, 13, 13, Deed::Name { name: "b".into(), file: 0 }),
            change(Subject::Names, 14, 14, Deed::Unname("a".into())),
            change(Subject::Names, 15, 15, Deed::Rename { from: "b".into(), to: "c".into() }),
        ];
        assert_eq!(history.changes, expected);
        let syncs = [
            Sync { subject: file, begun: 6, ended: 8 },
            Sync { subject: Subject::Names, begun: 11, ended: 11 },
        ];
        assert_eq!(history.syncs, syncs);
        assert_eq!(history.promises, [Promise { at: 9, id: "evt_1".into() }]);
        let push = Push { at: 7, path: "/hook".into(), event: "evt_9".into(), attempt: 2 };
        assert_eq!(history.pushes, [push]);
        assert_eq!(history.promised(9).count(), 0);
        assert_eq!(history.promised(10).collect::<Vec<_>>(), ["evt_1"]);
        assert_eq!((history.length, history.written()), (19, 2));
    }

    #[test]
    fn plain_writes_follow_each_other() {
        let text = r#"1 openat(AT_FDCWD</x>, "/d/k", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3</d/k>
1 write(3</d/k>, "ab", 2) = 2
1 write(3</d/k>, "c", 1) = 1
1 openat(AT_FDCWD</x>, "/d/k", O_WRONLY|O_APPEND) = 3</d/k>
1 write(3</d/k>, "d", 1) = 1
1 openat(AT_FDCWD</x>, "/d/k", O_WRONLY|O_TRUNC) = 3</d/k>
1 write(3</d/k>, "e", 1) = 1"#;
        let history = history(text).expect("it can be read");
        let places: Vec<_> = history.changes[1..]
            .iter()
            .map(|change| match &change.deed {
                Deed::Write { at, .. } => Some(*at),
                Deed::Resize(0) => None,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(places, [Some(0), Some(2), Some(3), None, Some(0)]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let opened = "1 openat(AT_FDCWD</x>, \"/d/a\", O_RDWR|O_CREAT, 0600) = 3</d/a>\n";
        for (line, says) in [
            ("1 fallocate(3</d/a>, 0, 0, 4096) = 0", "fallocate"),
            ("1 pwritev(3</d/a>, [{iov_base=\"a\", iov_len=1}], 1, 0) = 1", "pwritev"),
            (r#"1 truncate("/d/a", 0) = 0"#, "truncate"),
            ("1 copy_file_range(4</e>, NULL, 3</d/a>, NULL, 9, 0) = 9", "copy_file_range"),
            ("1 mkdir(\"/d/sub\", 0777) = 0", "a folder was made"),
            ("1 rename(\"/d/a\", \"/e/a\") = 0", "across"),
            ("1 pwrite64(3</d/a>, \"a\"..., 100, 0) = 100", "cut short"),
            ("1 pwrite64(3</d/never>, \"a\", 1, 0) = 1", "never opened"),
            ("1 splice(3<socket:[1]>, \"a\") = 1", "splice"),
        ] {
            let error = history(&format!("{opened}{line}")).expect_err(line);
            assert!(format!("{error:#}").contains(says), "{line}: {error:#}");
        }
    }
}
