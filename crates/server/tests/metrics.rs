//! The committed page about metrics is the one that the catalogue makes.
//!
//! With `POSTRIDER_WRITE_DOCS=1` it is written instead of compared.

use std::{env, fs};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

#[test]
fn the_committed_page_is_that_of_the_catalogue() {
    let rendered = postrider_server::metrics_reference();
    if env::var("POSTRIDER_WRITE_DOCS").is_ok_and(|value| value == "1") {
        fs::write(PAGE, rendered).expect(PAGE);
        return;
    }
    let committed = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        rendered == committed,
        "docs/metrics.md is not what the catalogue says: run cargo xtask docs"
    );
}
