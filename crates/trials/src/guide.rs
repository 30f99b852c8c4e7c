//! The guide, as a folder of files that any web server can show.

use std::fs;

use anyhow::{Context as _, Result};
use xtask::cargo;

/// What the gateway serves at /docs/guide, under target/guide.
pub(crate) fn write() -> Result<()> {
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
