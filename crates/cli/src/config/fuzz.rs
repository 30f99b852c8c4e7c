//! Files that nobody would write: nothing panics, and what is refused is refused by a line or a key.

use std::io;
use std::path::Path;

use proptest::prelude::*;

use super::{Contents, Fault, parse, reference};

/// Cases of each property: a few seconds.
const CASES: u32 = 1_000;
/// The most changes to a sound file.
const MAX_CHANGES: usize = 6;

fn variable(name: &str) -> Option<String> {
    (!name.is_empty() && name.len().is_multiple_of(2)).then(|| format!("value of {}", name.len()))
}

fn file(path: &Path) -> io::Result<String> {
    match path.as_os_str().len() % 3 {
        0 => Err(io::Error::from(io::ErrorKind::NotFound)),
        1 => Ok(String::new()),
        _ => Ok("text\n".to_owned()),
    }
}

fn outcome(text: &str) -> Result<Contents, Vec<Fault>> {
    parse(text, variable, file)
}

/// What has to hold whatever the file is.
fn check(text: &str) {
    let lines = text.split('\n').count();
    match outcome(text) {
        Ok(contents) => {
            for item in &contents.declared.items {
                assert!((1..=lines).contains(&item.lines.item), "{item:?} in {text:?}");
            }
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a reason: {text:?}");
            for fault in faults {
                assert!((1..=lines).contains(&fault.line), "{fault:?} in {text:?}");
                assert!(!fault.message.is_empty(), "{fault:?} in {text:?}");
                assert!(!fault.message.contains('\n'), "{fault:?} in {text:?}");
                let inert = |text: &str| !text.chars().any(char::is_control);
                assert!(inert(&fault.message) && inert(&fault.key), "{fault:?} in {text:?}");
            }
        }
    }
}

/// A file with everything in it.
fn sound() -> String {
    let settings = "listen = \"127.0.0.1:0\"\nallow_destination = [\"10.0.0.0/8\"]\n\
                    max_in_flight = 12\nstore = \"sqlite:a.db\"\ntimeout = \"3s\"\n\
                    [inbox]\nbase_delay = \"1s\"\nmax_attempts = 3\n";
    let (prune, rest) = reference::DECLARED.split_once("\n\n").expect("two parts");
    format!("{prune}\n{settings}\n{rest}")
}

#[derive(Debug, Clone)]
enum Change {
    Cut(usize, usize),
    Put(usize, String),
    Repeat(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let words = prop::sample::select(vec![
        "\"",
        "[",
        "]",
        "{",
        "}",
        "=",
        ".",
        "\n",
        "#",
        "'",
        "\"\"\"",
        ",",
        "-1",
        "nan",
        "inf",
        "true",
        "1979-05-27",
        "env:",
        "file:",
        "[[endpoints]]",
        "[tenants.default]",
        "\u{0}",
        "é",
        "0xffffffffffffffff",
        "1e400",
        "policy = \"x\"\n",
        "secret = \"plain\"\n",
        "\\u0007",
    ]);
    let piece = prop_oneof![words.prop_map(str::to_owned), any::<char>().prop_map(String::from)];
    prop_oneof![
        (any::<usize>(), 0_usize..40).prop_map(|(at, length)| Change::Cut(at, length)),
        (any::<usize>(), piece).prop_map(|(at, piece)| Change::Put(at, piece)),
        (any::<usize>(), 0_usize..80).prop_map(|(at, length)| Change::Repeat(at, length)),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for change in changes {
        let spot = |at: &usize| at % (chars.len() + 1);
        match change {
            Change::Cut(at, length) => {
                let at = spot(at);
                let end = (at + length).min(chars.len());
                chars.drain(at..end);
            }
            Change::Put(at, piece) => {
                let at = spot(at);
                chars.splice(at..at, piece.chars());
            }
            Change::Repeat(at, length) => {
                let at = spot(at);
                let end = (at + length).min(chars.len());
                let piece = chars[at..end].to_vec();
                chars.splice(end..end, piece);
            }
        }
    }
    chars.into_iter().collect()
}

/// TOML that is well formed, under keys that are mostly known.
fn document() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        "[a-z:/.]{0,12}".prop_map(|text| format!("\"{text}\"")),
        Just("1979-05-27T07:32:00Z".to_owned()),
        Just("-inf".to_owned()),
        Just("99999999999999999999999999".to_owned()),
        Just("\"env:AB\"".to_owned()),
    ];
    let value = value.prop_recursive(4, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|list| format!("[{}]", list.join(","))),
            prop::collection::btree_map(key(), inner, 0..4).prop_map(|table| {
                let fields = table.iter().map(|(key, value)| format!("{key} = {value}"));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
            }),
        ]
    });
    let table = prop::collection::btree_map(key(), value, 0..5).prop_map(|table| {
        let lines: Vec<String> =
            table.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        lines.concat()
    });
    let table = table.boxed();
    let head =
        prop::collection::vec(key(), 1..4).prop_map(|keys| format!("[{}]\n", keys.join(".")));
    let tables = prop::collection::btree_map(head, table.clone(), 0..4);
    (table, tables).prop_map(|(root, tables)| {
        tables.iter().fold(root, |text, (head, table)| text + head + table)
    })
}

fn key() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "listen",
        "data",
        "store",
        "admin_key",
        "allow_port",
        "max_in_flight",
        "prune",
        "inbox",
        "base_delay",
        "policies",
        "hubs",
        "sources",
        "endpoints",
        "tenants",
        "url",
        "hub",
        "policy",
        "preset",
        "max_attempts",
        "max_age",
        "schedule",
        "list",
        "exponential",
        "classify",
        "secret",
        "verify",
        "scheme",
        "secrets",
        "headers",
        "tls",
        "client_key",
        "metadata",
        "token",
        "name",
    ]);
    prop_oneof![
        6 => known.prop_map(str::to_owned),
        1 => "[a-z_]{1,8}",
        1 => Just("\"a b\\u001b\"".to_owned()),
    ]
}

#[test]
fn the_file_that_is_changed_is_sound_before() {
    let text = sound();
    let faults = outcome(&text).err().unwrap_or_default();
    // What it refers to is not there, and nothing else is wrong.
    for fault in faults {
        let reference = ["is not set", "cannot read the file", "is empty"];
        assert!(reference.iter().any(|word| fault.message.contains(word)), "{fault:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_file_is_read_or_refused_by_its_lines(
        changes in prop::collection::vec(change(), 1..MAX_CHANGES)
    ) {
        check(&changed(&sound(), &changes));
    }

    #[test]
    fn well_formed_toml_is_read_or_refused_by_its_lines(text in document()) {
        check(&text);
    }

    #[test]
    fn any_text_is_read_or_refused_by_its_lines(text in "\\PC{0,80}(\n\\PC{0,40}){0,4}") {
        check(&text);
    }
}
