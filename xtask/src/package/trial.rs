//! Trying what was made: the binary as the only file of a system, and the package on a copy of this
//! system that is thrown away.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use xtask::{cargo, toolchain};

/// Where the gateway under trial listens. It has a network of its own, so nobody else can be there.
const GATEWAY: &str = "http://127.0.0.1:7070";

/// In a system whose only file is the binary: as in an image made from nothing.
pub(super) fn alone(binary: &Path) -> Result<()> {
    let system = tempfile::tempdir()?;
    fs::copy(binary, system.path().join("postrider"))?;
    fs::create_dir(system.path().join("tmp"))?;
    let script = "ip link set lo up && exec chroot \"$0\" /postrider serve --data /data";
    let mut unshare = Command::new("unshare");
    if !toolchain::is_root() {
        unshare.arg("--map-root-user");
    }
    unshare.args(["--net", "sh", "-c", script]).arg(system.path());
    let gateway = Trial::start(&mut unshare)?;
    gateway.check(&["/postrider", "health", "--gateway", GATEWAY])?;
    gateway.stop()
}

/// On this system, with everything that it changes in memory: users, files, the package database.
pub(super) fn installed(package: &Path) -> Result<()> {
    if !toolchain::is_root() {
        println!("skipped: only root can install a package, even where it is thrown away");
        return Ok(());
    }
    let system = tempfile::tempdir()?;
    let script = r#"
set -e
ip link set lo up
mount -t tmpfs none "$1"
mkdir "$1/changes" "$1/work" "$1/system"
mount -t overlay none -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$1/system"
mount --bind /dev "$1/system/dev"
mount -t proc none "$1/system/proc"
cp "$2" "$1/system/postrider.deb"
cat > "$1/system/trial" <<'END'
set -e
dpkg --install /postrider.deb >&2
install -d -m 0700 -o postrider -g postrider /var/lib/postrider
postrider config check /etc/postrider/postrider.toml >&2
man -l /usr/share/man/man1/postrider.1* >/dev/null 2>&1 || test -s /usr/share/man/man1/postrider.1*
cd /var/lib/postrider
setpriv --reuid=postrider --regid=postrider --clear-groups \
    postrider serve --config /etc/postrider/postrider.toml &
gateway=$!
trap 'kill "$gateway"' TERM
wait "$gateway" || wait "$gateway"
dpkg --purge postrider >&2
test ! -e /var/lib/postrider
test ! -e /usr/bin/postrider
echo removed
END
exec chroot "$1/system" sh /trial
"#;
    let gateway = Trial::start(
        Command::new("unshare")
            .args(["--mount", "--net", "sh", "-c", script, "trial"])
            .arg(system.path())
            .arg(package),
    )?;
    gateway.check(&["postrider", "health", "--gateway", GATEWAY])?;
    gateway.stop()
}

/// A gateway in surroundings of its own. It is killed when it is dropped.
struct Trial {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Trial {
    /// Returns when it says where it listens.
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().context("unshare")?;
        let output = child.stdout.take().context("no output")?;
        let mut trial = Self { child, lines: BufReader::new(output).lines() };
        for line in trial.lines.by_ref() {
            if line?.contains("Send a first event") {
                return Ok(trial);
            }
        }
        bail!("the gateway did not start ({})", trial.child.wait()?)
    }

    /// Runs a command where the gateway is.
    fn check(&self, words: &[&str]) -> Result<()> {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &self.child.id().to_string(), "--net", "--mount"]);
        if !toolchain::is_root() {
            enter.args(["--user", "--preserve-credentials"]);
        }
        enter.args(["--root", "--wd", "--"]).args(words);
        cargo::run(enter)
    }

    /// Asks it to stop, and sees it end well.
    fn stop(mut self) -> Result<()> {
        let mut kill = Command::new("kill");
        kill.args(["-TERM", &self.child.id().to_string()]);
        cargo::run(kill)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the gateway ended badly ({status})");
        Ok(())
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
