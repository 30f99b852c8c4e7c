//! What must hold for any bytes that Postrider reads, one plain function for each thing that reads
//! them. A function panics where something does not hold, and returns otherwise.
//!
//! Two call them: the fuzzer in `fuzz/`, which looks for such bytes for as long as one likes, and
//! the test of this crate, which goes through the committed corpus and small changes of it.

mod api_json;
mod configuration;
mod cursor;
mod filter;
mod hub_frame;
mod retry_after;
mod signature;
mod stored_row;
mod url_guard;

pub use api_json::api_json;
pub use configuration::configuration;
pub use cursor::cursor;
pub use filter::filter;
pub use hub_frame::hub_frame;
pub use retry_after::retry_after;
pub use signature::signature;
pub use stored_row::stored_row;
pub use url_guard::url_guard;

/// One of the functions, by its name.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub check: fn(&[u8]),
}

/// All of them. The folders of the corpus and the programs of the fuzzer have the same names.
pub const TARGETS: [Target; 9] = [
    Target { name: "api_json", check: api_json },
    Target { name: "configuration", check: configuration },
    Target { name: "cursor", check: cursor },
    Target { name: "filter", check: filter },
    Target { name: "hub_frame", check: hub_frame },
    Target { name: "retry_after", check: retry_after },
    Target { name: "signature", check: signature },
    Target { name: "stored_row", check: stored_row },
    Target { name: "url_guard", check: url_guard },
];

/// Bytes up to an empty line, and those after it; all of them and none where there is no such line.
fn halves(bytes: &[u8]) -> (&[u8], &[u8]) {
    const EMPTY_LINE: &[u8] = b"\n\n";
    match bytes.windows(EMPTY_LINE.len()).position(|window| window == EMPTY_LINE) {
        Some(end) => (&bytes[..end], &bytes[end + EMPTY_LINE.len()..]),
        None => (bytes, &[]),
    }
}
