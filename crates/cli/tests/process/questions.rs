//! What is asked and shown on a terminal: keys that nobody sees, deletes that are meant, colours.

use std::ffi::OsStr;
use std::process::{Child, Command};

use rustix::termios::LocalModes;
use serde_json::json;

use crate::gateway::{Gateway, KEY, Launch};
use crate::pty::Pty;
use crate::within;

const CTRL_C: &str = "\x03";

/// A command at a terminal, with somebody at the keyboard.
struct Terminal {
    child: Child,
    pty: Pty,
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
        let pty = Pty::open();
        Self { child: pty.spawn(arguments, variables), pty }
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
        self.pty.modes().local_modes.contains(LocalModes::ECHO)
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &command]).status().expect("sh runs");
        assert!(sent.success(), "no {name} could be sent");
    }

    /// Waits for its end: the code, and all that was shown up to `last`.
    async fn ends(mut self, last: &str) -> (Option<i32>, String) {
        self.pty.until(last).await;
        let status = self.child.wait().expect("it can be waited for");
        assert!(self.echoes(), "the terminal was left without an echo");
        (status.code(), self.pty.shown())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_typed_is_kept_and_not_seen() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let home_is = [("HOME", home.path().as_os_str())];
    let file = home.path().join(".config/postrider/profiles.toml");
    let add = ["profile", "add", "prod", "--gateway", "https://hooks.example.com"];

    let mut given_up = Terminal::run(&add, &home_is);
    given_up.pty.until("not shown").await;
    given_up.until_hidden().await;
    given_up.pty.types(&KEY[..9]);
    given_up.pty.types(CTRL_C);
    let (code, shown) = given_up.ends("nothing was done").await;
    assert_eq!(code, Some(1), "{shown}");
    assert!(!file.exists() && !shown.contains(&KEY[..9]), "{shown}");

    let mut kept = Terminal::run(&add, &home_is);
    kept.until_hidden().await;
    kept.pty.types(&format!("{KEY}\r"));
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
        asked.pty.until("[y/N]").await;
        asked.pty.types(answer);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_programs_read_has_no_colours_and_no_bar_anywhere() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    gateway.create_endpoint(json!({ "name": "billing", "pull": true })).await;
    gateway.send(1).await;
    let (code, shown) = at(&gateway, &["endpoints", "list", "--json"], None).ends("}\r\n").await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown:?}");

    // A bar where there is a terminal for it, and none among the lines that it would stand between.
    let file = directory.path().join("all.ndjson");
    let to = ["export", "--to", file.to_str().expect("text")];
    let (code, shown) = at(&gateway, &to, Some("1")).ends("1 events").await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("\r\x1b[2Kexporting 1 events"), "{shown:?}");
    let (code, shown) = at(&gateway, &["export"], None).ends("1 events").await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("load.tick") && !shown.contains("exporting"), "{shown:?}");
    assert!(!shown.contains('\x1b'), "{shown:?}");

    // Without a terminal there are plain lines, beside the answer and not in it.
    let piped = crate::traffic::launch(&gateway, &["export"]).run().await.expect_code(0);
    assert_eq!(piped.stdout.lines().count(), 1, "{}", piped.stdout);
    assert!(piped.stderr.contains("exporting: 1 events"), "{}", piped.stderr);
    assert!(!(piped.stdout + &piped.stderr).contains(['\x1b', '\r']));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_at_a_terminal_has_colours_unless_they_are_not_wanted() {
    for (no_colour, coloured) in [(None, true), (Some("1"), false)] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("postrider.toml");
        std::fs::write(&file, "[endpoints.billing]\npull = true\n").expect("written");
        let mut variables = vec![
            ("POSTRIDER_CONFIG", file.as_os_str()),
            ("POSTRIDER_DATA", directory.path().as_os_str()),
            ("POSTRIDER_LISTEN", OsStr::new("127.0.0.1:0")),
            ("TERM", OsStr::new("xterm")),
        ];
        variables.extend(no_colour.map(|value| ("NO_COLOR", OsStr::new(value))));
        let serving = Terminal::run(&["serve"], &variables);
        serving.pty.until("/v1/events").await;
        // There is no job control at this terminal, so it makes no signal of the key.
        serving.signal("INT");
        let (code, shown) = serving.ends("stopped").await;
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains("+ endpoint billing"), "{shown}");
        assert_eq!(shown.contains("\x1b[32m+ endpoint billing\x1b[0m"), coloured, "{shown:?}");
        // The plan, and every line of the log.
        assert_eq!(shown.contains('\x1b'), coloured, "{shown:?}");
    }
}
