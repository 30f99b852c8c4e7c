//! `cargo xtask newcomer`: what the README promises to somebody who has nothing but the repository. Clones
//! it into an empty folder, builds there, and goes through the README with what was built.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use xtask::cargo;

/// From nothing to a delivered webhook, build included.
const PROMISED: Duration = Duration::from_mins(5);
const TEST: &str = "readme::the_readme_leads_to_a_delivered_signed_webhook_within_its_minute";

pub(crate) fn run() -> Result<()> {
    // The test itself is none of a newcomer's business, and is built beforehand.
    let test = ["test", "--workspace", "--locked", "--test", "guide"];
    let mut prepare = cargo::command(test);
    prepare.arg("--no-run");
    cargo::run(prepare)?;
    let folder = tempfile::tempdir()?;
    let clone = folder.path().join("postrider");

    let started = Instant::now();
    let mut fetch = Command::new("git");
    fetch.args(["clone", "--quiet", "--no-hardlinks"]).arg(cargo::root()).arg(&clone);
    cargo::run(fetch)?;
    let cloned = started.elapsed();
    build(&clone)?;
    let built = started.elapsed();
    let binary = clone.join("target/release/postrider");
    let mut walk = cargo::command(test);
    walk.args(["--", "--exact", "--nocapture", TEST]);
    walk.env("POSTRIDER_GUIDE_BINARY", &binary);
    cargo::run(walk)?;
    let all = started.elapsed();

    println!("clone            {:>6.1} s", cloned.as_secs_f64());
    println!("build            {:>6.1} s", built.saturating_sub(cloned).as_secs_f64());
    println!("the README       {:>6.1} s", all.saturating_sub(built).as_secs_f64());
    println!("from nothing     {:>6.1} s", all.as_secs_f64());
    ensure!(all < PROMISED, "a newcomer was promised {PROMISED:?}");
    Ok(())
}

/// What `cargo run --release` does before it runs. Dependencies may have been downloaded before; nothing
/// has been compiled.
fn build(clone: &Path) -> Result<()> {
    let mut build = cargo::command(["build", "--release", "--locked"]);
    build.current_dir(clone).env_remove("CARGO_TARGET_DIR");
    cargo::run(build)
}
