//! The generated pages: written by the tests that compare them, told to write instead.

use anyhow::Result;

use crate::cargo;

/// The packages and tests that write: docs/state-machine.md and docs/openapi.json.
const WRITERS: [(&str, &str); 2] =
    [("postrider-core", "state_machine"), ("postrider-server", "openapi")];

pub(crate) fn write() -> Result<()> {
    for (package, test) in WRITERS {
        let mut command = cargo::command(["test", "--package", package, "--test", test]);
        command.env("POSTRIDER_WRITE_DOCS", "1");
        cargo::run(command)?;
    }
    Ok(())
}
