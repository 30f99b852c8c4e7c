//! deny.toml: which licences are allowed and which packages are banned, held against all packages.

use anyhow::{Context, Result, bail, ensure};

use super::licence;
use super::metadata::Package;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) allowed_licences: Vec<String>,
    pub(crate) banned_packages: Vec<String>,
}

/// Reads the two lists of strings that matter here: `allow` of `[licenses]`, `deny` of `[bans]`.
pub(crate) fn parse(text: &str) -> Result<Policy> {
    let policy = Policy {
        allowed_licences: list(text, "licenses", "allow")?,
        banned_packages: list(text, "bans", "deny")?,
    };
    ensure!(!policy.allowed_licences.is_empty(), "no licence is allowed");
    Ok(policy)
}

pub(crate) fn check(policy: &Policy, packages: &[Package]) -> Vec<String> {
    let mut violations = Vec::new();
    for package in packages {
        let name = &package.name;
        if policy.banned_packages.contains(name) {
            violations.push(format!("{name}: banned by deny.toml"));
        }
        let Some(licence) = &package.license else {
            violations.push(format!("{name}: names no licence"));
            continue;
        };
        match licence::is_met(licence, &policy.allowed_licences) {
            Ok(true) => {}
            Ok(false) => violations.push(format!("{name}: {licence} is not allowed by deny.toml")),
            Err(error) => violations.push(format!("{name}: {licence:?}: {error}")),
        }
    }
    violations
}

fn list(text: &str, section: &str, key: &str) -> Result<Vec<String>> {
    let header = format!("[{section}]");
    let mut lines = text.lines().map(without_comment).skip_while(|line| line.trim() != header);
    lines.next().with_context(|| format!("no section {header}"))?;
    let mut lines = lines.take_while(|line| !line.starts_with('['));
    let first = lines
        .by_ref()
        .find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
        .with_context(|| format!("no list {key} in {header}"))?;
    let mut items =
        first.strip_prefix('[').with_context(|| format!("{key} is no list"))?.to_owned();
    while !items.contains(']') {
        let Some(line) = lines.next() else { bail!("the list {key} does not end") };
        items.push_str(line);
    }
    items
        .trim_end()
        .trim_end_matches(']')
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| {
            let inner = item.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            inner.map(str::to_owned).with_context(|| format!("{item} in {key} is no string"))
        })
        .collect()
}

/// No name in these lists holds a `#`, so the first one starts a comment.
fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# why\n[licenses]\nconfidence = 1\nallow = [\n  \"MIT\", # a note\n  \"Apache-2.0 WITH LLVM-exception\",\n]\n\n[bans]\ndeny = [\"openssl\", \"reqwest\"]\n";

    fn package(name: &str, licence: Option<&str>) -> Package {
        Package {
            id: name.into(),
            name: name.into(),
            license: licence.map(Into::into),
            dependencies: vec![],
        }
    }

    #[test]
    fn both_lists_are_read() {
        let policy = parse(TEXT).expect("well formed");
        assert_eq!(policy.allowed_licences, ["MIT", "Apache-2.0 WITH LLVM-exception"]);
        assert_eq!(policy.banned_packages, ["openssl", "reqwest"]);
    }

    #[test]
    fn a_policy_that_cannot_be_read_allows_nothing() {
        for text in [
            "",
            "[licenses]\nallow = []\n[bans]\ndeny = []",
            "[licenses]\n[bans]\ndeny = []",
            "[licenses]\nallow = [\"MIT\"\n[bans]\ndeny = []",
            "[licenses]\nallow = [MIT]\n[bans]\ndeny = []",
            "[licenses]\nallow = [\"MIT\"]\n",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn planted_packages_are_named() {
        let policy = parse(TEXT).expect("well formed");
        let violations = check(
            &policy,
            &[
                package("fine", Some("MIT OR GPL-3.0")),
                package("openssl", Some("MIT")),
                package("copyleft", Some("GPL-3.0")),
                package("nameless", None),
                package("broken", Some("MIT OR")),
            ],
        );
        let named: Vec<&str> =
            violations.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(named, ["openssl", "copyleft", "nameless", "broken"]);
    }

    #[test]
    fn the_committed_policy_is_well_formed() {
        let path = xtask::cargo::root().join("deny.toml");
        let text = std::fs::read_to_string(path).expect("deny.toml is in the root");
        let policy = parse(&text).expect("well formed");
        assert!(policy.allowed_licences.iter().any(|licence| licence == "Apache-2.0"));
        assert!(policy.banned_packages.iter().any(|name| name == "openssl"));
    }
}
