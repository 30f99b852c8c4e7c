//! The committed reference of the configuration is the one that the binary prints.
//!
//! With `POSTRIDER_WRITE_DOCS=1` it is written instead of compared.

use std::process::Command;
use std::{env, fs};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");

#[test]
fn the_committed_reference_is_that_of_the_flags_and_the_api() {
    let printed = Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["config", "reference", "--markdown"])
        .env_clear()
        .output()
        .expect("the binary runs");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let rendered = String::from_utf8(printed.stdout).expect("a text");
    if env::var("POSTRIDER_WRITE_DOCS").is_ok_and(|value| value == "1") {
        fs::write(PAGE, rendered).expect(PAGE);
        return;
    }
    let committed = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        rendered == committed,
        "docs/configuration.md is not what the flags say: run cargo xtask docs"
    );
}
