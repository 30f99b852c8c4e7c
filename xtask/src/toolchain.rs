//! What the checks need on the machine, and what to install where it is missing.

use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

use crate::cargo;

/// Finds a C compiler, rustfmt and clippy. A missing C compiler is installed where that needs no
/// question: as root, with apt. Everything else is named, with the package that brings it.
pub fn require() -> Result<()> {
    if !answers(&mut c_compiler()) {
        install_c_compiler()?;
        ensure!(answers(&mut c_compiler()), "the installed C compiler does not answer");
    }
    let components = [("fmt", "rustfmt", "rustfmt"), ("clippy", "clippy", "rust-clippy")];
    let missing: Vec<String> = components
        .iter()
        .filter(|(subcommand, ..)| !answers(&mut cargo::command([subcommand, "--version"])))
        .map(|(_, component, package)| {
            format!("`rustup component add {component}` (Debian's own toolchain: {package})")
        })
        .collect();
    ensure!(missing.is_empty(), "missing from the Rust toolchain: {}", missing.join(", "));
    Ok(())
}

fn c_compiler() -> Command {
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.arg("--version");
    command
}

fn install_c_compiler() -> Result<()> {
    install(
        &["gcc", "libc6-dev"],
        "a C compiler is needed for the bundled SQLite: install gcc and libc6-dev (Debian), \
         or what your system calls them",
    )
}

/// Finds a Python that can make environments, and installs it where that needs no question.
pub fn require_python() -> Result<()> {
    let can_make = || answers(Command::new("python3").args(["-c", "import venv, ensurepip"]));
    if !can_make() {
        install(
            &["python3", "python3-venv"],
            "Python is needed to test with real libraries: install python3 and python3-venv \
             (Debian), or what your system calls them",
        )?;
        ensure!(can_make(), "the installed Python makes no environments");
    }
    Ok(())
}

/// Finds what the guide's code for verifying signatures runs with: the way each says that it is there,
/// and the package that brings it. npm brings Node.
pub fn require_languages() -> Result<()> {
    const LANGUAGES: [(&str, &str, &str); 4] = [
        ("go", "version", "golang-go"),
        ("javac", "--version", "default-jdk-headless"),
        ("php", "--version", "php-cli"),
        ("ruby", "--version", "ruby"),
    ];
    let missing = || -> Vec<&str> {
        let absent = LANGUAGES
            .iter()
            .filter(|(program, question, _)| !answers(Command::new(program).arg(question)));
        absent.map(|(.., package)| *package).collect()
    };
    let packages = missing();
    if !packages.is_empty() {
        install(
            &packages,
            "the guide's code is run in the languages it is written in: install golang-go, \
             default-jdk-headless, php-cli and ruby (Debian), or what your system calls them",
        )?;
        ensure!(missing().is_empty(), "still missing: {}", missing().join(", "));
    }
    Ok(())
}

/// Installs Debian packages as root, or says `otherwise` what to install.
pub fn install(packages: &[&str], otherwise: &'static str) -> Result<()> {
    if !is_root() || !answers(Command::new("apt-get").arg("--version")) {
        bail!(otherwise);
    }
    let mut update = Command::new("apt-get");
    update.arg("update");
    cargo::run(update)?;
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    cargo::run(install)
}

pub fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

pub fn answers(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_answers_only_when_it_exists_and_succeeds() {
        assert!(answers(Command::new("true").arg("--version")));
        assert!(!answers(&mut Command::new("false")));
        assert!(!answers(&mut Command::new("no-such-compiler-here")));
    }
}
