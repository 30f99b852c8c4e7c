//! The clock of a node, set while it runs: a library of Debian's between the program and the
//! system's clock. The clock that only counts is left alone, as it is when somebody sets a real one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use xtask::toolchain;

/// The variant for programs with threads.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// Finds the library, and installs it where that needs no question: as root, with apt.
pub(crate) fn require() -> Result<()> {
    if library().is_none() {
        toolchain::install(
            &["libfaketime"],
            "libfaketime is needed to set the clock of a process: install libfaketime (Debian), or \
             what your system calls it",
        )?;
        ensure!(library().is_some(), "the installed libfaketime has no {LIBRARY}");
    }
    Ok(())
}

/// Debian keeps libraries in a folder that is named for the machine.
fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut places = folders.map(|folder| folder.path().join(LIBRARY));
    places.find(|place| place.is_file())
}

/// One clock for all nodes of a round.
#[derive(Debug)]
pub(crate) struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// One that is right, in a file within `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let library = library().context("libfaketime is not installed")?;
        let clock = Self { file: folder.join("clock"), library };
        clock.set(0)?;
        Ok(clock)
    }

    /// What a node has to be started with.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DISABLE_SHM", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
    }

    /// Sets it so many seconds ahead of the true time, or behind it.
    pub(crate) fn set(&self, ahead_seconds: i64) -> Result<()> {
        // Whoever reads it meanwhile sees the one or the other.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{ahead_seconds:+}\n"))?;
        Ok(fs::rename(next, &self.file)?)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_sees_the_clock_that_was_set() {
        // Where the library is missing, rounds of this kind are skipped, and say so.
        if library().is_none() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::new(folder.path()).expect("a clock");
        let shown = || -> i64 {
            let mut date = Command::new("date");
            let shown = date.arg("+%s").envs(clock.variables()).output().expect("date runs");
            String::from_utf8_lossy(&shown.stdout).trim().parse().expect("seconds")
        };
        let before = shown();
        clock.set(-86_400).expect("set");
        assert!((before - 86_400..before - 80_000).contains(&shown()));
        clock.set(3_600).expect("set");
        assert!(shown() >= before + 3_600);
    }
}
