//! A copy of the repository that may be broken: the working tree itself is never touched.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::cargo;

use super::list::{Edit, Mutant};

#[derive(Debug)]
pub(super) struct Tree {
    /// The copy.
    pub(super) root: PathBuf,
    /// Where it is built.
    pub(super) target: PathBuf,
}

impl Tree {
    /// Copies what git knows of, or would. What is as it was keeps its time, so that only what has
    /// changed is built again.
    pub(super) fn copy() -> Result<Self> {
        let home = cargo::target()?.join("mutants-sim");
        let tree = Self { root: home.join("tree"), target: home.join("target") };
        let files = files()?;
        for file in &files {
            let from = cargo::root().join(file);
            let wanted = fs::read(&from).with_context(|| format!("cannot read {file}"))?;
            tree.write(file, &wanted)?;
        }
        let gone = tree.found(Path::new(""))?;
        for file in gone.difference(&files) {
            fs::remove_file(tree.root.join(file))?;
        }
        Ok(tree)
    }

    /// Breaks what a mutant breaks; it is mended when the answer is dropped.
    pub(super) fn edit<'a>(&'a self, mutant: &'a Mutant) -> Result<Broken<'a>> {
        let mut broken = Broken { tree: self, files: Vec::new() };
        for edit in mutant.edits {
            let text = self.read(edit.file)?;
            let edited = replaced(mutant, edit, &text)?;
            if broken.files.iter().all(|(file, _)| *file != edit.file) {
                broken.files.push((edit.file, text));
            }
            self.write(edit.file, edited.as_bytes())?;
        }
        Ok(broken)
    }

    /// Whether a mutant still fits, without breaking anything.
    pub(super) fn try_edits(&self, mutant: &Mutant) -> Result<()> {
        for edit in mutant.edits {
            replaced(mutant, edit, &self.read(edit.file)?)?;
        }
        Ok(())
    }

    fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.root.join(file)).with_context(|| format!("cannot read {file}"))
    }

    fn write(&self, file: &str, wanted: &[u8]) -> Result<()> {
        let to = self.root.join(file);
        if fs::read(&to).is_ok_and(|known| known == wanted) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&to, wanted).with_context(|| format!("cannot write {}", to.display()))
    }

    /// All files under a folder of the copy, by their path within it.
    fn found(&self, under: &Path) -> Result<BTreeSet<String>> {
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(self.root.join(under))? {
            let entry = entry?;
            let path = under.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                files.extend(self.found(&path)?);
            } else if let Some(path) = path.to_str() {
                files.insert(path.to_owned());
            }
        }
        Ok(files)
    }
}

/// What git tracks, and what is new and not ignored; not what was deleted.
fn files() -> Result<BTreeSet<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    git.current_dir(cargo::root());
    let listed = cargo::output(git)?;
    let files = listed.split('\0').filter(|file| cargo::root().join(file).is_file());
    Ok(files.map(str::to_owned).collect())
}

fn replaced(mutant: &Mutant, edit: &Edit, text: &str) -> Result<String> {
    let found = text.matches(edit.from).count();
    ensure!(
        found == 1,
        "the mutant `{}` no longer fits: what it replaces occurs {found} times in {}:\n{}",
        mutant.name,
        edit.file,
        edit.from
    );
    Ok(text.replacen(edit.from, edit.to, 1))
}

/// A copy with something broken in it.
pub(super) struct Broken<'a> {
    tree: &'a Tree,
    files: Vec<(&'static str, String)>,
}

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        for (file, text) in &self.files {
            if let Err(error) = self.tree.write(file, text.as_bytes()) {
                eprintln!("{file} is still broken in the copy: {error:#}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::MUTANTS;
    use super::*;

    #[test]
    fn every_mutant_fits_the_code_as_it_is() {
        for mutant in MUTANTS {
            for edit in mutant.edits {
                let text = fs::read_to_string(cargo::root().join(edit.file)).expect("a file");
                let edited = replaced(mutant, edit, &text).expect("it fits");
                assert_ne!(edited, text, "{}", mutant.name);
            }
        }
    }

    #[test]
    fn what_fits_twice_or_never_is_refused() {
        let edit = Edit { file: "a", from: "x", to: "y" };
        let mutant = Mutant { name: "n", checker: "c", breaks: "b", edits: &[] };
        for (text, fits) in [("x", true), ("", false), ("xx", false)] {
            assert_eq!(replaced(&mutant, &edit, text).is_ok(), fits, "{text}");
        }
    }
}
