//! The generated pages: written by the tests that compare them, told to write instead.

use anyhow::Result;

use crate::cargo;

pub(crate) fn write() -> Result<()> {
    let mut command =
        cargo::command(["test", "--package", "postrider-core", "--test", "state_machine"]);
    command.env("POSTRIDER_WRITE_DOCS", "1");
    cargo::run(command)
}
