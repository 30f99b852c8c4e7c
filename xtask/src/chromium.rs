//! The browser that the tests of the dashboard look at it with: whether it is there.

use anyhow::{Result, ensure};

use crate::toolchain;

/// The variable that says where a program is, and the names that it is looked for by.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("POSTRIDER_CHROMIUM", &["chromium", "chromium-browser", "google-chrome"]),
    ("POSTRIDER_CHROMEDRIVER", &["chromedriver"]),
];

/// Finds Chromium and its driver, and installs them where that needs no question: as root, with apt.
pub fn require() -> Result<()> {
    if !is_there() {
        toolchain::install(
            &["chromium", "chromium-driver"],
            "a browser is needed to test the dashboard: install chromium and chromium-driver \
             (Debian), or what your system calls them",
        )?;
        ensure!(is_there(), "the installed Chromium, or its driver, is not on the search path");
    }
    Ok(())
}

fn is_there() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    PROGRAMS.iter().all(|(variable, names)| {
        std::env::var_os(variable).is_some()
            || std::env::split_paths(&path)
                .any(|folder| names.iter().any(|name| folder.join(name).is_file()))
    })
}
