//! What the files of the repository may say, and where: rules over their text.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// A file by its path from the root, with `/` between the parts.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Where a rule looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Rust outside tests, without comments.
    ShippedCode,
    /// All Rust, comments and tests included.
    Rust,
    /// Every text file that is written by hand.
    Everything,
}

struct Rule {
    scope: Scope,
    needles: &'static [&'static str],
    /// Paths that may, by prefix.
    except: &'static [&'static str],
    says: &'static str,
}

// The needles are written in pieces so that this file keeps its own rules.
const RULES: &[Rule] = &[
    Rule {
        scope: Scope::ShippedCode,
        needles: &[
            concat!("env::", "var("),
            concat!("env::", "var_os("),
            concat!("env::", "vars("),
            concat!("env::", "vars_os("),
        ],
        except: &["crates/cli/", "crates/trials/", "xtask/"],
        says: "the environment is read in cli alone",
    },
    Rule {
        scope: Scope::ShippedCode,
        needles: &[
            concat!("SystemTime::", "now"),
            concat!("Timestamp::", "now"),
            concat!("Zoned::", "now"),
        ],
        except: &["crates/engine/src/ports.rs", "crates/cli/", "crates/trials/", "xtask/"],
        says: "the clock is read behind engine/src/ports.rs alone",
    },
    Rule {
        scope: Scope::ShippedCode,
        needles: &[concat!("Instant::", "now")],
        except: &[
            "crates/engine/src/ports.rs",
            // How long an attempt took, and how long a connection has been idle: spans between two
            // readings, which decide nothing that is stored.
            "crates/engine/src/courier.rs",
            "crates/engine/src/endpoints.rs",
            "crates/engine/src/http_client/",
            // How long a commit may wait for company, and how often trouble is logged.
            "crates/store/src/sqlite/writer.rs",
            // The same, and when a server that did not answer is tried again.
            "crates/store/src/postgres/",
            // How long a hub has been silent.
            "crates/server/src/hub_socket",
            "crates/client/src/ports.rs",
            "crates/cli/",
            // Where time is virtual, and how fast it goes is told.
            "crates/sim/",
            "crates/trials/",
            "xtask/",
        ],
        says: "the clock is read behind engine/src/ports.rs alone",
    },
    Rule {
        scope: Scope::ShippedCode,
        needles: &[concat!("fast", "rand::"), concat!("get", "random::")],
        except: &[
            "crates/engine/src/ports.rs",
            "crates/client/src/ports.rs",
            "crates/cli/",
            // Where chance is drawn from a seed.
            "crates/sim/",
            "crates/trials/",
            "xtask/",
        ],
        says: "randomness comes from engine/src/ports.rs alone",
    },
    Rule {
        scope: Scope::Rust,
        needles: &[concat!("#[ig", "nore")],
        except: &[],
        says: "a test runs or is deleted",
    },
    Rule {
        scope: Scope::Rust,
        needles: &[
            concat!("to", "do!("),
            concat!("unimple", "mented!("),
            concat!("FIX", "ME"),
            concat!("XX", "X"),
        ],
        except: &[],
        says: "unfinished work does not land",
    },
    Rule {
        scope: Scope::Everything,
        needles: &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")],
        except: &[],
        says: "a path of one machine",
    },
];

/// Folders that hold no hand-written files.
const SKIPPED_FOLDERS: &[&str] = &["target", ".git", ".postrider"];
/// What hand-written text files end in; a file without an ending in `.ci/` is a script.
const TEXT_ENDINGS: &[&str] =
    &["rs", "md", "toml", "sql", "sh", "yml", "yaml", "json", "html", "css", "js"];
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_DEPTH: usize = 16;

pub(crate) fn read(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    read_folder(root, root, 0, &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    ensure!(!sources.is_empty(), "no source file under {}", root.display());
    Ok(sources)
}

pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(check_one).collect()
}

fn check_one(source: &Source) -> Vec<String> {
    let path = &source.path;
    let rust = is_rust(path);
    let mut violations = Vec::new();
    if rust && !source.text.starts_with("//!") {
        violations.push(format!("{path}:1: a file starts with `//!` and what it owns"));
    }
    let mut in_tests = is_test(path);
    let mut lines = source.text.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        // A test module with a body ends its file; what follows its attribute is test code.
        in_tests |= line.trim() == "#[cfg(test)]"
            && lines.peek().is_some_and(|(_, next)| next.trim_end().ends_with('{'));
        let shipped = rust && !in_tests && !line.trim_start().starts_with("//");
        for rule in RULES {
            let in_scope = match rule.scope {
                Scope::ShippedCode => shipped,
                Scope::Rust => rust,
                Scope::Everything => true,
            };
            let excepted = rule.except.iter().any(|prefix| path.starts_with(prefix));
            if in_scope && !excepted && rule.needles.iter().any(|needle| line.contains(needle)) {
                violations.push(format!("{path}:{}: {}: {}", index + 1, rule.says, line.trim()));
            }
        }
    }
    violations
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|ending| ending == "rs")
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

fn read_folder(root: &Path, folder: &Path, depth: usize, into: &mut Vec<Source>) -> Result<()> {
    ensure!(depth <= MAX_DEPTH, "{} is nested too deep", folder.display());
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            read_folder(root, &path, depth + 1, into)?;
        } else if kind.is_file() && is_text(&path) && entry.metadata()?.len() <= MAX_FILE_BYTES {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let relative = path.strip_prefix(root)?;
            let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
            into.push(Source { path: parts.join("/"), text });
        }
    }
    Ok(())
}

fn is_text(path: &Path) -> bool {
    match path.extension() {
        Some(ending) => TEXT_ENDINGS.iter().any(|known| ending == *known),
        None => {
            path.parent().is_some_and(|folder| folder.file_name().is_some_and(|name| name == ".ci"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(path: &str, text: &str) -> Vec<String> {
        check(&[Source { path: path.into(), text: text.into() }])
    }

    /// Every rule's every needle, planted in a file that is in scope and not excepted.
    #[test]
    fn each_planted_violation_is_found_with_its_line() {
        for rule in RULES {
            for needle in rule.needles {
                let found =
                    violations("crates/core/src/a.rs", &format!("//! A.\n\nlet a = {needle}b;\n"));
                assert_eq!(found.len(), 1, "{needle}: {found:?}");
                assert!(found[0].starts_with("crates/core/src/a.rs:3: "), "{found:?}");
                assert!(found[0].contains(rule.says), "{found:?}");
            }
        }
    }

    #[test]
    fn each_exception_holds_for_its_rule_alone() {
        for rule in RULES {
            for prefix in rule.except {
                let path = if is_rust(prefix) {
                    (*prefix).to_owned()
                } else {
                    format!("{prefix}src/a.rs")
                };
                let text = format!("//! A.\nlet a = {}b;\n", rule.needles[0]);
                assert_eq!(violations(&path, &text), Vec::<String>::new(), "{path}");
            }
        }
        let environment = format!("//! A.\nlet a = {}b;\n", RULES[0].needles[0]);
        assert_eq!(violations("crates/engine/src/ports.rs", &environment).len(), 1);
    }

    #[test]
    fn tests_and_comments_may_name_what_shipped_code_may_not_use() {
        let needle = RULES[1].needles[0];
        let in_test_module =
            format!("//! A.\nfn a() {{}}\n#[cfg(test)]\nmod tests {{\n  {needle};\n}}\n");
        assert!(violations("crates/core/src/a.rs", &in_test_module).is_empty());
        assert!(violations("crates/core/tests/a.rs", &format!("//! A.\n{needle};\n")).is_empty());
        assert!(violations("crates/core/src/a.rs", &format!("//! A.\n/// {needle}\n")).is_empty());
        let after_a_test_only_import = format!("//! A.\n#[cfg(test)]\nuse b;\n{needle};\n");
        assert_eq!(violations("crates/core/src/a.rs", &after_a_test_only_import).len(), 1);
    }

    #[test]
    fn leftovers_count_in_tests_and_comments_too() {
        let mark = concat!("FIX", "ME");
        assert_eq!(violations("crates/core/tests/a.rs", &format!("//! A.\n// {mark}\n")).len(), 1);
    }

    #[test]
    fn machine_paths_count_in_every_kind_of_file() {
        let text = format!("see {}notes\n", concat!("/ro", "ot/"));
        assert_eq!(violations("docs/a.md", &text).len(), 1);
        assert_eq!(violations(".ci/run", &text).len(), 1);
    }

    #[test]
    fn a_rust_file_without_its_first_line_is_named() {
        assert_eq!(violations("crates/core/src/a.rs", "fn a() {}\n").len(), 1);
        assert!(violations("docs/a.md", "A page\n").is_empty());
    }

    #[test]
    fn hand_written_files_are_read_and_built_ones_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["a.rs", "target/b.rs", ".ci/run", "docs/c.md", "d.bin"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
            fs::write(path, "//! A.\n").expect("a file");
        }
        let sources = read(folder.path()).expect("readable");
        let paths: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
        assert_eq!(paths, [".ci/run", "a.rs", "docs/c.md"]);
    }
}
