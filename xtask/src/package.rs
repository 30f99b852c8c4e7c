//! `cargo xtask package`: one static binary, its manual pages and completions, a list of what it is made
//! of, and a Debian package, under target/package; then a check that the binary runs where there is
//! nothing else, and that the package installs, runs and goes again.

mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::{cargo, toolchain};

const TARGET: &str = "x86_64-unknown-linux-musl";
/// With everything that makes it faster, and without what only debuggers want.
const PROFILE: &str = "dist";
/// What makes the package and the list: cargo has them from where it has everything.
const TOOLS: [(&str, &str); 2] = [("cargo-deb", "3.8.0"), ("cargo-cyclonedx", "0.5.9")];
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

pub(crate) fn run() -> Result<()> {
    require()?;
    let target = cargo::target()?;
    let folder = target.join("package");
    for made in ["man", "completions"] {
        let made = folder.join(made);
        if made.exists() {
            fs::remove_dir_all(&made)?;
        }
        fs::create_dir_all(&made)?;
    }
    let tools = install_tools(&target.join("tools"))?;

    cargo::run(cargo::command([
        "build",
        "--profile",
        PROFILE,
        "--locked",
        "--target",
        TARGET,
        "--package",
        "postrider-cli",
    ]))?;
    let binary = target.join(TARGET).join(PROFILE).join("postrider");
    let mebibytes = fs::metadata(&binary)?.len() >> 20;

    write_pages(&binary, &folder)?;
    write_list(&tools, &folder.join("sbom.cdx.json"))?;
    let package = make_package(&tools, &folder)?;

    println!("\n== the binary where there is nothing else");
    trial::alone(&binary)?;
    println!("== the package, installed and removed");
    trial::installed(&package)?;

    println!("\nbinary   {} ({mebibytes} MiB, static)", binary.display());
    println!("package  {} ({} MiB)", package.display(), fs::metadata(&package)?.len() >> 20);
    println!("made of  {}", folder.join("sbom.cdx.json").display());
    Ok(())
}

/// The target's standard library, and a C compiler for it.
fn require() -> Result<()> {
    let mut list = Command::new("rustup");
    list.args(["target", "list", "--installed"]);
    if !cargo::output(list)?.lines().any(|line| line == TARGET) {
        let mut add = Command::new("rustup");
        add.args(["target", "add", TARGET]);
        cargo::run(add)?;
    }
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        toolchain::install(
            &["musl-tools"],
            "a C compiler for musl is needed for a static binary: install musl-tools (Debian)",
        )?;
    }
    Ok(())
}

/// Returns the folder of their programs.
fn install_tools(root: &Path) -> Result<PathBuf> {
    let programs = root.join("bin");
    for (name, version) in TOOLS {
        if !programs.join(name).is_file() {
            let mut install = cargo::command(["install", "--locked", "--root"]);
            install.arg(root).args(["--version", version, name]);
            cargo::run(install)?;
        }
    }
    Ok(programs)
}

fn write_pages(binary: &Path, folder: &Path) -> Result<()> {
    let mut pages = Command::new(binary);
    pages.args(["man", "--to"]).arg(folder.join("man"));
    cargo::run(pages)?;
    for shell in SHELLS {
        let mut completions = Command::new(binary);
        completions.args(["completions", shell]);
        let script = folder.join("completions").join(format!("postrider.{shell}"));
        fs::write(script, cargo::output(completions)?)?;
    }
    Ok(())
}

/// Every crate in the binary, with its version, licence and digest, as `CycloneDX`.
fn write_list(tools: &Path, to: &Path) -> Result<()> {
    let cli = cargo::root().join("crates/cli");
    let name = "postrider-sbom";
    let mut list = Command::new(tools.join("cargo-cyclonedx"));
    list.args(["cyclonedx", "--format", "json", "--target", TARGET, "--spec-version", "1.5"])
        .args(["--override-filename", name, "--manifest-path"])
        .arg(cli.join("Cargo.toml"));
    cargo::run(list)?;
    let mut found = false;
    // One is written beside the manifest of each member.
    for entry in fs::read_dir(cargo::root().join("crates"))?.chain(fs::read_dir(cargo::root())?) {
        let file = entry?.path().join(format!("{name}.json"));
        if file.is_file() {
            if file.starts_with(&cli) {
                fs::copy(&file, to)?;
                found = true;
            }
            fs::remove_file(&file)?;
        }
    }
    ensure!(found, "cargo cyclonedx wrote no list for the binary");
    let list: serde_json::Value = serde_json::from_slice(&fs::read(to)?)?;
    let parts = list["components"].as_array().map_or(0, Vec::len);
    ensure!(parts > 0, "the list of what the binary is made of is empty");
    println!("{parts} crates are in the binary");
    Ok(())
}

fn make_package(tools: &Path, folder: &Path) -> Result<PathBuf> {
    let mut deb = Command::new(tools.join("cargo-deb"));
    deb.args(["deb", "--no-build", "--no-strip", "--locked", "--package", "postrider-cli"])
        .args(["--profile", PROFILE, "--target", TARGET, "--output"])
        .arg(folder)
        .current_dir(cargo::root());
    let printed = cargo::output(deb)?;
    let path = printed.lines().map(PathBuf::from).find(|path| path.is_file());
    path.context("cargo deb named no package")
}
