//! Every function of this crate holds over its committed corpus and over small changes of it, which
//! are the same in every run.

mod mutator;

use std::fs;
use std::path::{Path, PathBuf};

use postrider_core::hub::FromHub;
use postrider_fuzzing::{TARGETS, Target};
use postrider_server::fuzzing::{Body, List, cursor, read};

use mutator::Mutator;

/// How often each file is changed, and how often a body, which is then read for every route.
const CHANGES: usize = 300;
const CHANGES_OF_A_BODY: usize = 100;
/// The corpus is read by people and cloned by everybody.
const MAX_CORPUS_BYTES: usize = 100_000;

/// Where the fuzzer is.
fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The files of a folder and what is in them, in the order of their names.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.expect("a file of the corpus").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect();
    files.sort();
    files
}

/// Says which bytes it was about, if what follows panics.
struct Tried<'a> {
    target: &'static str,
    file: &'a str,
    change: Option<usize>,
    bytes: &'a [u8],
}

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { target, file, change, bytes } = self;
            let change = change.map_or(String::new(), |change| format!(", change {change}"));
            eprintln!("{target}: {file}{change}: b\"{}\"", bytes.escape_ascii());
        }
    }
}

#[track_caller]
fn holds(name: &str) {
    let Target { name, check } =
        TARGETS.into_iter().find(|target| target.name == name).expect("a target");
    let files = files(&fuzz().join("corpus").join(name));
    assert!(!files.is_empty(), "{name} has no corpus");
    let changes = if name == "api_json" { CHANGES_OF_A_BODY } else { CHANGES };
    for (at, (file, bytes)) in files.iter().enumerate() {
        let tried = Tried { target: name, file, change: None, bytes };
        check(bytes);
        drop(tried);
        let mut mutator = Mutator::seeded(at as u64);
        for change in 0..changes {
            // Another file of the corpus to take pieces from.
            let (_, other) = &files[(at + change) % files.len()];
            let bytes = mutator.change(bytes, other);
            let _tried = Tried { target: name, file, change: Some(change), bytes: &bytes };
            check(&bytes);
        }
    }
}

#[test]
fn bodies_of_the_api_are_taken_or_refused_by_a_field() {
    holds("api_json");
}

#[test]
fn files_of_settings_are_read_or_refused_by_a_line() {
    holds("configuration");
}

#[test]
fn cursors_and_ids_are_written_as_they_are_read() {
    holds("cursor");
}

#[test]
fn filters_end_within_their_steps() {
    holds("filter");
}

#[test]
fn frames_of_hubs_are_written_as_they_are_read() {
    holds("hub_frame");
}

#[test]
fn a_wait_that_was_asked_for_is_never_cut_short() {
    holds("retry_after");
}

#[test]
fn no_request_is_believed_that_was_not_signed() {
    holds("signature");
}

#[test]
fn stored_rows_are_read_as_written_or_are_damage() {
    holds("stored_row");
}

#[test]
fn no_destination_gets_past_the_guard_in_another_spelling() {
    holds("url_guard");
}

#[test]
fn every_target_has_a_corpus_and_a_program_of_the_fuzzer() {
    let names: Vec<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let mut folders: Vec<String> = fs::read_dir(fuzz().join("corpus"))
        .expect("the corpus")
        .map(|entry| entry.expect("a folder").file_name().to_string_lossy().into_owned())
        .collect();
    folders.sort();
    assert_eq!(folders, names);

    let programs = files(&fuzz().join("fuzz_targets"));
    let programs: Vec<String> =
        programs.into_iter().map(|(name, _)| name.trim_end_matches(".rs").to_owned()).collect();
    assert_eq!(programs, names);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("the manifest");
    for name in &names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in the manifest");
    }
}

#[test]
fn the_corpus_is_small() {
    let size = |target: &Target| -> usize {
        let files = files(&fuzz().join("corpus").join(target.name));
        files.iter().map(|(_, bytes)| bytes.len()).sum()
    };
    let total: usize = TARGETS.iter().map(size).sum();
    assert!(total <= MAX_CORPUS_BYTES, "{total} bytes");
}

/// A target that accepts everything would pass every test above.
#[test]
fn the_targets_look_at_what_they_are_given() {
    let sound = |name: &str, file: &str| {
        let path = fuzz().join("corpus").join(name).join(file);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    assert!(FromHub::decode(sound("hub_frame", "answer").into()).is_ok());
    assert_eq!(read(Body::Event, &sound("api_json", "event")), Ok(()));
    assert_eq!(read(Body::Endpoint, &sound("api_json", "endpoint")), Ok(()));
    assert_eq!(read(Body::Source, &sound("api_json", "source")), Ok(()));
    let text = String::from_utf8(sound("cursor", "deliveries")).expect("a text");
    assert_eq!(cursor(List::Deliveries, &text), Ok(text));
    let text = String::from_utf8(sound("configuration", "declared")).expect("a text");
    assert!(postrider_cli::fuzzing::configuration(&text).is_ok());
    let headers = sound("stored_row", "headers");
    assert!(postrider_store::fuzzing::headers(&headers[1..]).is_ok());
}
