//! The committed description of the API is the one that is served.
//!
//! With `POSTRIDER_WRITE_DOCS=1` it is written instead of compared.

use std::{env, fs};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

#[test]
fn the_committed_description_is_that_of_the_routes() {
    let rendered = postrider_server::openapi();
    if env::var("POSTRIDER_WRITE_DOCS").is_ok_and(|value| value == "1") {
        fs::write(DOCUMENT, rendered).expect(DOCUMENT);
        return;
    }
    let committed = fs::read_to_string(DOCUMENT).unwrap_or_default();
    assert!(
        rendered == committed,
        "docs/openapi.json is not what the routes say: run cargo xtask docs"
    );
}
