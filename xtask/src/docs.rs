//! The generated pages: written by the tests that compare them, told to write instead; and the guide, as
//! a folder of files that any web server can show.

use std::fs;

use anyhow::{Context as _, Result};
use xtask::cargo;

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
    cargo::run(cargo::command(["run", "--quiet", "--package", "xtask", "--", "guide"]))
}

/// What the gateway serves at /docs/guide, under target/guide.
pub(crate) fn write_guide() -> Result<()> {
    let folder = cargo::target()?.join("guide");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for (name, text) in postrider_server::guide() {
        fs::write(folder.join(&name), text).with_context(|| name.clone())?;
    }
    println!("the guide: {}", folder.join("index.html").display());
    Ok(())
}
