//! Which crate may depend on which, and which crates may use the packages that stay in one place.

use super::metadata::Package;

/// The crates of the workspace and those of its crates that each may use, in any kind of
/// dependency: a test that needs a forbidden edge is in the wrong crate.
const EDGES: &[(&str, &[&str])] = &[
    ("postrider-core", &[]),
    ("postrider-store", &["postrider-core"]),
    ("postrider-engine", &["postrider-store", "postrider-core"]),
    ("postrider-server", &["postrider-engine", "postrider-store", "postrider-core"]),
    ("postrider-client", &["postrider-core"]),
    (
        "postrider-cli",
        &[
            "postrider-server",
            "postrider-client",
            "postrider-store",
            "postrider-engine",
            "postrider-core",
        ],
    ),
    ("postrider-sim", &["postrider-engine", "postrider-store", "postrider-core"]),
    (
        "postrider-fuzzing",
        &[
            "postrider-cli",
            "postrider-server",
            "postrider-engine",
            "postrider-store",
            "postrider-core",
        ],
    ),
    (
        "postrider-trials",
        &["postrider-server", "postrider-engine", "postrider-store", "postrider-core", "xtask"],
    ),
    ("xtask", &[]),
];

/// Packages from outside that only some crates may use, and why.
const CONFINED: &[(&[&str], &[&str], &str)] = &[
    (
        &["rusqlite", "tokio-postgres"],
        &["postrider-store", "postrider-trials"],
        "SQL belongs to the store",
    ),
    (
        &["axum"],
        &["postrider-server", "postrider-trials"],
        "the HTTP surface belongs to the server",
    ),
];

pub(crate) fn check(workspace: &[Package]) -> Vec<String> {
    workspace.iter().flat_map(|package| edges_of(package, workspace)).collect()
}

fn edges_of(package: &Package, workspace: &[Package]) -> Vec<String> {
    let name = package.name.as_str();
    let Some((_, allowed)) = EDGES.iter().find(|(crate_name, _)| *crate_name == name) else {
        return vec![format!("{name}: a crate without a line in xtask/src/tidy/edges.rs")];
    };
    let mut violations = Vec::new();
    for dependency in &package.dependencies {
        let used = dependency.name.as_str();
        if workspace.iter().any(|ours| ours.name == used) && !allowed.contains(&used) {
            violations.push(format!("{name}: must not depend on {used}"));
        }
        for (confined, users, reason) in CONFINED {
            if confined.contains(&used) && !users.contains(&name) {
                violations.push(format!("{name}: must not use {used}: {reason}"));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Dependency;
    use super::*;

    fn package(name: &str, uses: &[&str]) -> Package {
        Package {
            id: name.into(),
            name: name.into(),
            license: None,
            dependencies: uses.iter().map(|name| Dependency { name: (*name).into() }).collect(),
        }
    }

    #[test]
    fn the_allowed_edges_pass() {
        let workspace = [
            package("postrider-core", &["serde"]),
            package("postrider-store", &["postrider-core", "rusqlite"]),
            package("postrider-engine", &["postrider-core", "postrider-store", "hyper"]),
            package("postrider-server", &["postrider-engine", "axum"]),
            package("postrider-trials", &["postrider-store", "rusqlite", "axum", "xtask"]),
            package("xtask", &["serde"]),
        ];
        assert_eq!(check(&workspace), Vec::<String>::new());
    }

    #[test]
    fn a_planted_edge_is_named() {
        for (from, to) in [
            ("postrider-core", "postrider-store"),
            ("postrider-store", "postrider-engine"),
            ("postrider-engine", "postrider-server"),
            ("postrider-client", "postrider-engine"),
            ("xtask", "postrider-server"),
        ] {
            let violations = check(&[package(from, &[to]), package(to, &[])]);
            assert_eq!(violations, [format!("{from}: must not depend on {to}")]);
        }
    }

    #[test]
    fn a_confined_package_elsewhere_is_named() {
        for (from, to) in [
            ("postrider-engine", "rusqlite"),
            ("postrider-server", "tokio-postgres"),
            ("postrider-cli", "axum"),
        ] {
            let violations = check(&[package(from, &[to])]);
            assert_eq!(violations.len(), 1, "{violations:?}");
            assert!(violations[0].starts_with(&format!("{from}: must not use {to}")));
        }
    }

    #[test]
    fn a_new_crate_must_be_given_its_edges() {
        let violations = check(&[package("postrider-extra", &[])]);
        assert_eq!(violations.len(), 1, "{violations:?}");
    }
}
