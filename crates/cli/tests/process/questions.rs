//! What is asked and shown on a terminal: keys that nobody sees, deletes that are meant, colours.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::json;
use tokio::sync::watch;

use crate::gateway::{Gateway, KEY, Launch};
use crate::within;

const CTRL_C: &str = "\x03";

/// A command at a terminal, with somebody at the keyboard.
struct Terminal {
    child: Child,
    keyboard: File,
    line: File,
    shown: watch::Receiver<String>,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    fn run(arguments: &[&str], variables: &[(&str, &OsStr)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let path = Path::new(OsStr::from_bytes(name.as_bytes()));
        let line = OpenOptions::new().read(true).write(true).open(path).expect("opened");
        let end = || line.try_clone().expect("another");
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(arguments).env_clear().envs(variables.iter().copied());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().expect("another");
        let (tell, shown) = watch::channel(String::new());
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                tell.send_modify(|shown| shown.push_str(&text));
            }
        });
        Self { child, keyboard, line, shown }
    }

    /// Waits until something is on the screen.
    async fn until(&self, what: &str) {
        let mut shown = self.shown.clone();
        let seen = within(what, shown.wait_for(|shown| shown.contains(what))).await;
        assert!(seen.is_ok(), "{what} was not shown");
    }

    /// Waits until the terminal shows nothing that is typed.
    async fn until_hidden(&self) {
        within("a hidden question", async {
            while self.echoes() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.line).expect("its modes").local_modes.contains(LocalModes::ECHO)
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("it can be typed");
    }

    /// Waits for its end: the code, and all that was shown up to `last`.
    async fn ends(mut self, last: &str) -> (Option<i32>, String) {
        self.until(last).await;
        let status = self.child.wait().expect("it can be waited for");
        assert!(self.echoes(), "the terminal was left without an echo");
        let shown = self.shown.borrow().clone();
        (status.code(), shown)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_typed_is_kept_and_not_seen() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let home_is = [("HOME", home.path().as_os_str())];
    let file = home.path().join(".config/postrider/profiles.toml");
    let add = ["profile", "add", "prod", "--gateway", "https://hooks.example.com"];

    let mut given_up = Terminal::run(&add, &home_is);
    given_up.until("not shown").await;
    given_up.until_hidden().await;
    given_up.types(&KEY[..9]);
    given_up.types(CTRL_C);
    let (code, shown) = given_up.ends("nothing was done").await;
    assert_eq!(code, Some(1), "{shown}");
    assert!(!file.exists() && !shown.contains(&KEY[..9]), "{shown}");

    let mut kept = Terminal::run(&add, &home_is);
    kept.until_hidden().await;
    kept.types(&format!("{KEY}\r"));
    let (code, shown) = kept.ends("Kept as `prod`").await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains(KEY), "{shown}");
    assert!(std::fs::read_to_string(file).expect("text").contains(KEY));
}

fn at(gateway: &Gateway, arguments: &[&str], no_colour: Option<&str>) -> Terminal {
    let url = format!("http://{}", gateway.address);
    let mut variables = vec![
        ("POSTRIDER_GATEWAY", OsStr::new(&url)),
        ("POSTRIDER_KEY", OsStr::new(KEY)),
        ("TERM", OsStr::new("xterm")),
    ];
    variables.extend(no_colour.map(|value| ("NO_COLOR", OsStr::new(value))));
    Terminal::run(arguments, &variables)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_is_asked_about_and_only_yes_is_yes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let id = gateway.create_endpoint(json!({ "name": "billing", "pull": true })).await;
    let delete = ["endpoints", "delete", "billing"];
    for (answer, code, last) in [
        ("n\r", 1, "nothing was done"),
        ("\r", 1, "nothing was done"),
        ("yeah\r", 1, "nothing was done"),
        ("y\r", 0, "Deleted billing"),
    ] {
        assert_eq!(gateway.get("/v1/endpoints").await["data"][0]["id"], id.as_str());
        let mut asked = at(&gateway, &delete, None);
        asked.until("[y/N]").await;
        asked.types(answer);
        let (ended, shown) = asked.ends(last).await;
        assert_eq!(ended, Some(code), "{shown}");
        assert!(shown.contains(&format!("Delete the endpoint billing ({id})")), "{shown}");
    }
    assert_eq!(gateway.get("/v1/endpoints").await["data"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_colours_on_a_terminal_unless_they_are_not_wanted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    gateway.create_endpoint(json!({ "name": "billing", "pull": true })).await;
    let list = ["endpoints", "list"];
    for (no_colour, coloured) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let (code, shown) = at(&gateway, &list, no_colour).ends("standard\r\n").await;
        assert_eq!(code, Some(0), "{shown}");
        assert_eq!(shown.contains("\x1b[32mactive\x1b[0m"), coloured, "{shown:?}");
        assert_eq!(shown.contains('\x1b'), coloured, "{shown:?}");
    }
}
