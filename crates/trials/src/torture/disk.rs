//! A small disk of a round's own, in memory, that can be filled up and emptied.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use xtask::{cargo, toolchain};

/// Enough for a round and the log of its writes, little enough to be filled in a moment.
const SIZE: &str = "160m";
const CHUNK_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4_096;

/// Whether there can be one on this machine.
pub(crate) fn require() -> Result<()> {
    ensure!(toolchain::is_root(), "a small file system can be mounted by root only");
    let folder = tempfile::tempdir()?;
    drop(Disk::mount(folder.path())?);
    Ok(())
}

/// Unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
}

impl Disk {
    pub(crate) fn mount(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "postrider-torture"]).arg(folder);
        cargo::run(mount)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Where the gateway keeps its data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Takes all the room there is but `spare` bytes.
    pub(crate) fn fill(&self, spare: usize) -> Result<()> {
        let mut ballast = File::create(self.ballast())?;
        for piece in [CHUNK_BYTES, PAGE_BYTES] {
            let piece = vec![0; piece];
            loop {
                match ballast.write(&piece) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("filling the disk"),
                }
            }
        }
        let taken = ballast.metadata()?.len();
        Ok(ballast.set_len(taken.saturating_sub(spare as u64))?)
    }

    pub(crate) fn empty(&self) -> Result<()> {
        Ok(fs::remove_file(self.ballast())?)
    }

    /// Copies what is on it to where it stays.
    pub(crate) fn save(&self, to: &Path) -> Result<()> {
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(self.data()).arg(to);
        cargo::run(copy)
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What still has a file open keeps it until it ends.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.folder).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be unmounted", self.folder.display());
        }
    }
}
