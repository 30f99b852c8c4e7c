//! Where the lines of an export go, and which of them are certainly there.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use postrider_core::EventId;

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) events: u64,
    /// The last one that was written, or found gone when its turn came.
    pub(super) last: Option<EventId>,
}

/// Lines that are written whole. What is only in the buffer does not count: whoever goes on behind
/// the last that counts must find every one of those before it.
pub(super) struct Sheet {
    out: BufWriter<Box<dyn Write>>,
    /// A file can be taken back to where it was whole.
    file: Option<(File, u64)>,
    added: Written,
    put: Written,
}

impl Sheet {
    /// `after` is the last event that is there already.
    pub(super) fn of_stdout(after: Option<EventId>) -> Self {
        Self::new(Box::new(io::stdout()), None, after)
    }

    pub(super) fn of_file(file: File, after: Option<EventId>) -> io::Result<Self> {
        let found = file.metadata()?;
        let whole = found.is_file().then(|| Ok::<_, io::Error>((file.try_clone()?, found.len())));
        Ok(Self::new(Box::new(file), whole.transpose()?, after))
    }

    fn new(out: Box<dyn Write>, file: Option<(File, u64)>, after: Option<EventId>) -> Self {
        let nothing = Written { events: 0, last: after };
        Self { out: BufWriter::new(out), file, added: nothing, put: nothing }
    }

    /// Takes the line of an event; none is that it is gone.
    pub(super) fn add(&mut self, id: EventId, line: Option<&str>) -> io::Result<()> {
        if let Some(line) = line {
            writeln!(self.out, "{line}")?;
            self.added.events += 1;
        }
        self.added.last = Some(id);
        Ok(())
    }

    /// How many lines it was given.
    pub(super) fn added(&self) -> u64 {
        self.added.events
    }

    /// Writes what was added: from here on it counts.
    pub(super) fn put(&mut self) -> io::Result<()> {
        self.out.flush()?;
        if let Some((file, whole)) = &mut self.file {
            *whole = file.metadata()?.len();
        }
        self.put = self.added;
        Ok(())
    }

    /// Writes what it can, and says how far it came. What did not get there whole is taken back.
    pub(super) fn finish(mut self) -> (io::Result<()>, Written) {
        let put = self.put();
        // Dropped with its buffer, it would try to write that again.
        let (_, _unwritten) = self.out.into_parts();
        let put = match (put, self.file) {
            (Err(error), Some((file, whole))) => match file.set_len(whole) {
                Ok(()) => Err(error),
                Err(also) => Err(io::Error::new(
                    error.kind(),
                    format!("{error}; and what was cut short is still in the file: {also}"),
                )),
            },
            (put, _) => put,
        };
        (put, self.put)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes, and no more.
    struct Disk {
        file: File,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.room);
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= fits;
            self.file.write(&bytes[..fits])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_lines_that_are_whole_and_written_count() {
        let id = EventId::from_i64;
        for (room, events, text) in [
            (100, 4, "one\ntwo\nthree\nfour\n"),
            (18, 2, "one\ntwo\n"),
            (8, 2, "one\ntwo\n"),
            (7, 0, ""),
            (0, 0, ""),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("all.ndjson");
            let file = File::create(&path).expect("made");
            let handle = |file: &File| file.try_clone().expect("another");
            let disk = Disk { file: handle(&file), room };
            let mut sheet = Sheet::new(Box::new(disk), Some((file, 0)), Some(id(9)));
            sheet.add(id(8), Some("one")).expect("buffered");
            sheet.add(id(7), None).expect("nothing");
            sheet.add(id(6), Some("two")).expect("buffered");
            let first = sheet.put();
            if first.is_ok() {
                sheet.add(id(5), Some("three")).expect("buffered");
                sheet.add(id(4), Some("four")).expect("buffered");
            }
            assert_eq!(first.is_ok(), room >= 8, "{room}");
            let (put, written) = sheet.finish();
            assert_eq!(put.is_ok(), events == 4, "{room}");
            let last = match events {
                4 => id(4),
                2 => id(6),
                _ => id(9),
            };
            assert_eq!(written, Written { events, last: Some(last) }, "{room}");
            assert_eq!(std::fs::read_to_string(&path).expect("there"), text, "{room}");
        }
    }
}
