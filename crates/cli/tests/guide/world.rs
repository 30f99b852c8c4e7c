//! Where commands are typed: an empty folder, and a network of its own, so that the ports that the pages
//! name are free. Where no such network can be made, free ports take the place of those.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::terminal::{Running, Terminal};
use crate::{KEY, root};

/// The ports that pages name.
const PORTS: [&str; 3] = ["7070", "9000", "9001"];
/// Which binary is tried, if not the one that was built for this test.
const BINARY: &str = "POSTRIDER_GUIDE_BINARY";

/// What a shell knows before the first command. What the server refuses is an error here, and `cargo run`
/// has been done already.
const PRELUDE: &str = r#"set -eo pipefail
curl() { command curl --fail-with-body --silent --show-error --write-out '\n' "$@"; }
cargo() {
  [ "$1 $2 $3" = "run --release --" ] || { echo "cargo $* is not run here" >&2; return 1; }
  shift 3; postrider "$@"
}
"#;

#[derive(Debug)]
pub(crate) struct World {
    folder: TempDir,
    network: Network,
    files: usize,
}

#[derive(Debug)]
enum Network {
    /// One of its own, which lives as long as this process.
    Own(Child),
    /// The machine's, with other ports in the place of those in [`PORTS`].
    Shared([String; 3]),
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Self::Own(holder) = self {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

impl World {
    pub(crate) fn make() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("bin")).expect("a folder");
        fs::create_dir(folder.path().join("here")).expect("a folder");
        std::os::unix::fs::symlink(binary(), folder.path().join("bin/postrider")).expect("a link");
        fs::write(folder.path().join("prelude.sh"), PRELUDE).expect("a file");
        Self { folder, network: Network::make(), files: 0 }
    }

    /// The folder that was empty at first.
    pub(crate) fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    pub(crate) fn terminal(&self) -> Terminal {
        let mut terminal = Terminal::open(self.shell().arg("-s"));
        terminal.run(&self.folder.path().join("prelude.sh").display().to_string());
        terminal
    }

    /// Starts commands in a terminal of their own.
    pub(crate) fn start(&mut self, code: &str) -> Running {
        let prelude = self.folder.path().join("prelude.sh");
        let file = self.file(code);
        let both = format!("source {}; source {file}", prelude.display());
        Running::start(self.shell().args(["-c", &both]).stdin(Stdio::null()))
    }

    /// Writes commands down, as they are typed in this world.
    pub(crate) fn file(&mut self, code: &str) -> String {
        self.files += 1;
        let path = self.folder.path().join(format!("block-{}.sh", self.files));
        fs::write(&path, self.in_this_world(code)).expect("a file");
        path.display().to_string()
    }

    /// Whether commands succeed.
    pub(crate) fn holds(&self, code: &str) -> bool {
        self.output(code).is_some()
    }

    /// What the gateway says.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let code =
            format!("curl -sS -H 'Authorization: Bearer {KEY}' 'http://127.0.0.1:7070{path}'");
        let answer = self.output(&code).unwrap_or_else(|| panic!("no answer to {path}"));
        serde_json::from_slice(&answer).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn output(&self, code: &str) -> Option<Vec<u8>> {
        let code = self.in_this_world(code);
        let output = self.shell().args(["-c", &code]).stdin(Stdio::null()).output();
        let output = output.expect("the shell runs");
        output.status.success().then_some(output.stdout)
    }

    fn in_this_world(&self, code: &str) -> String {
        match &self.network {
            Network::Own(_) => code.to_owned(),
            Network::Shared(ports) => PORTS
                .iter()
                .zip(ports)
                .fold(code.to_owned(), |code, (named, port)| code.replace(named, port)),
        }
    }

    /// A shell in the folder, with nothing in its environment but what every shell has.
    fn shell(&self) -> Command {
        let mut command = match &self.network {
            Network::Own(holder) => {
                let mut enter = Command::new("nsenter");
                enter.args(["--target", &holder.id().to_string()]);
                enter.args(["--user", "--net", "--preserve-credentials", "bash"]);
                enter
            }
            Network::Shared(_) => Command::new("bash"),
        };
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.folder.path().join("bin");
        command
            .current_dir(self.here())
            .env_clear()
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HOME", self.folder.path())
            // What a receiver prints is to be seen when it is printed.
            .env("PYTHONUNBUFFERED", "1");
        if let Network::Shared([gateway, ..]) = &self.network {
            command.env("POSTRIDER_LISTEN", format!("127.0.0.1:{gateway}"));
            command.env("POSTRIDER_GATEWAY", format!("http://127.0.0.1:{gateway}"));
        }
        command
    }
}

impl Network {
    fn make() -> Self {
        let up = "ip link set lo up && echo up && exec cat";
        let holder = Command::new("unshare")
            .args(["--map-root-user", "--net", "sh", "-c", up])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut holder) = holder else { return Self::shared() };
        let mut said = [0; 3];
        let is_up = holder.stdout.as_mut().is_some_and(|stdout| {
            std::io::Read::read_exact(stdout, &mut said).is_ok() && &said == b"up\n"
        });
        let own = Self::Own(holder);
        if is_up { own } else { Self::shared() }
    }

    fn shared() -> Self {
        // All are held at once, so that they differ.
        let held = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        Self::Shared(held.map(|port| port.local_addr().expect("bound").port().to_string()))
    }
}

fn binary() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_postrider")).to_owned();
    std::env::var_os(BINARY).map_or(built, |named| root().join(PathBuf::from(named)))
}
