//! Running cargo and other programs from the root of the repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The root of the repository: above the package that is run, whichever that is, the folder that has
/// the lock file.
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = package.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(&package).to_owned()
}

/// The cargo that runs this task, in the root, without what `cargo run` told this package about
/// itself: build scripts that watch those variables would run again for nothing.
pub fn command(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    for (name, _) in std::env::vars_os() {
        let told_to_this_package = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        });
        if told_to_this_package {
            command.env_remove(name);
        }
    }
    command
}

/// Where cargo puts what it builds.
pub fn target() -> Result<PathBuf> {
    let metadata = output(command(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let folder = metadata["target_directory"].as_str();
    folder.map(PathBuf::from).context("cargo metadata names no target folder")
}

/// Runs a command with this terminal and fails, naming it, when it does.
pub fn run(mut command: Command) -> Result<()> {
    let said = say(&command);
    let status = command.status().with_context(|| format!("`{said}` could not be started"))?;
    ensure!(status.success(), "`{said}` failed ({status})");
    Ok(())
}

/// Runs a command and returns what it printed; its errors go to this terminal.
pub fn output(mut command: Command) -> Result<String> {
    let said = say(&command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("`{said}` could not be started"))?;
    ensure!(output.status.success(), "`{said}` failed ({})", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("`{said}` printed no UTF-8"))
}

fn say(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    std::iter::once(program)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_in_the_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let error = run(command).expect_err("exit 3 is a failure").to_string();
        assert!(error.contains("sh -c exit 3"), "{error}");
        assert!(error.contains('3'), "{error}");
    }

    #[test]
    fn a_missing_program_is_named_in_the_error() {
        let error = run(Command::new("no-such-program-here")).expect_err("there is none");
        assert!(error.to_string().contains("no-such-program-here"), "{error}");
    }

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("Cargo.toml").is_file());
        assert!(root().join("crates").is_dir());
    }
}
