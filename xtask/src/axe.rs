//! axe-core, which judges in the browser whether everybody can use a page. It goes into a folder of
//! its own under target/: its licence is not that of this repository, and only tests need it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use xtask::{cargo, toolchain};

const PACKAGE: &str = "axe-core@4.14.0";
/// Where the tests look for it, from the target folder.
const FILE: &str = "axe-core/node_modules/axe-core/axe.min.js";
/// Of the file, whoever has served it.
const SHA256: &str = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878";

/// Gets it with npm unless it is there, and makes sure that it is what it was when it was chosen.
pub(crate) fn require() -> Result<PathBuf> {
    let target = cargo::target()?;
    let file = target.join(FILE);
    if digest(&file).is_ok_and(|found| found == SHA256) {
        return Ok(file);
    }
    require_npm()?;
    let folder = target.join("axe-core");
    fs::create_dir_all(&folder)?;
    let mut install = Command::new("npm");
    install
        .args(["install", "--no-save", "--no-package-lock", "--ignore-scripts"])
        .args(["--no-audit", "--no-fund", "--loglevel", "error", "--prefix"])
        .arg(&folder)
        .arg(PACKAGE);
    cargo::run(install)?;
    let found = digest(&file)?;
    ensure!(
        found == SHA256,
        "{} is not the {PACKAGE} that these tests were written with: its SHA-256 is {found}",
        file.display()
    );
    Ok(file)
}

fn require_npm() -> Result<()> {
    let npm = || toolchain::answers(Command::new("npm").arg("--version"));
    if !npm() {
        toolchain::install(
            &["npm"],
            "npm is needed to get axe-core, which judges the pages of the dashboard: install npm \
             (Debian), or what your system calls it",
        )?;
        ensure!(npm(), "the installed npm does not answer");
    }
    Ok(())
}

fn digest(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_digest() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        assert!(digest(&file).is_err());
        fs::write(&file, "abc").expect("it is ours");
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(&file).expect("readable"), expected);
    }
}
