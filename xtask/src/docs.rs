//! The generated pages: written by the tests that compare them, told to write instead; and the guide.

use anyhow::Result;
use xtask::cargo;

use crate::trials;

/// The packages and tests that write: docs/state-machine.md, docs/openapi.json, docs/metrics.md,
/// docs/configuration.md and docs/cli.md.
const WRITERS: &[(&str, &str)] = &[
    ("postrider-core", "state_machine"),
    ("postrider-server", "openapi"),
    ("postrider-server", "metrics"),
    ("postrider-cli", "configuration"),
    ("postrider-cli", "reference"),
];

pub(crate) fn write() -> Result<()> {
    for (package, test) in WRITERS {
        let mut command = cargo::command(["test", "--package", package, "--test", test]);
        command.env("POSTRIDER_WRITE_DOCS", "1");
        cargo::run(command)?;
    }
    // Built anew: the pages above are part of it.
    trials::run(["guide"])
}
