//! The committed reference of the command line is what the commands say of themselves.
//!
//! With `POSTRIDER_WRITE_DOCS=1` it is written instead of compared.

use std::process::Command;
use std::{env, fs};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");

#[test]
fn the_committed_reference_is_that_of_the_commands() {
    // Nothing of the surroundings may show in it.
    let mut reference = Command::new(env!("CARGO_BIN_EXE_postrider"));
    let printed = reference.arg("reference").env_clear().output().expect("the binary starts");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let printed = String::from_utf8(printed.stdout).expect("text");
    if env::var("POSTRIDER_WRITE_DOCS").is_ok_and(|value| value == "1") {
        fs::write(DOCUMENT, printed).expect(DOCUMENT);
        return;
    }
    let committed = fs::read_to_string(DOCUMENT).unwrap_or_default();
    assert!(
        printed == committed,
        "docs/cli.md is not what the commands say of themselves: run cargo xtask docs"
    );
}
