//! Checks of the repository itself: crate edges, where things may be used, licences, leftovers.

mod edges;
mod licence;
mod metadata;
mod policy;
mod sources;

use std::fs;

use anyhow::{Context, Result, ensure};
use xtask::cargo;

/// Prints every violation there is, then fails if there was one.
pub(crate) fn check() -> Result<()> {
    let root = cargo::root();
    let packages = metadata::load()?;
    let sources = sources::read(&root)?;
    let policy = fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let policy = policy::parse(&policy).context("deny.toml")?;

    let mut violations = edges::check(&packages.workspace);
    violations.extend(policy::check(&policy, &packages.all));
    violations.extend(sources::check(&sources));
    for violation in &violations {
        println!("{violation}");
    }
    println!("{} packages, {} files looked at", packages.all.len(), sources.len());
    ensure!(violations.is_empty(), "{} violations, printed above", violations.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_of_this_workspace_keep_their_edges() {
        let packages = metadata::load().expect("cargo metadata");
        assert!(packages.workspace.iter().any(|package| package.name == "xtask"));
        assert!(packages.all.len() > packages.workspace.len());
        assert_eq!(edges::check(&packages.workspace), Vec::<String>::new());
    }
}
