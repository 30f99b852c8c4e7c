//! `postrider top`: one picture as text, and a terminal that is left as it was found.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::json;
use tokio::sync::watch;

use crate::gateway::{Gateway, KEY, Launch};
use crate::sink::{Reply, Sink};
use crate::within;

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

fn top(gateway: &str) -> Launch {
    Launch::with(["top", "--gateway", gateway]).variable("POSTRIDER_KEY", KEY)
}

fn url(gateway: &Gateway) -> String {
    format!("http://{}", gateway.address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_picture_is_printed_where_there_is_no_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let failing = Sink::start(|_| Reply::Now(http::StatusCode::BAD_GATEWAY)).await;
    // Turns the direction of text around, where a terminal obeys it.
    let name = "bill\u{202e}ing";
    gateway.create_endpoint(json!({ "name": name, "url": failing.url() })).await;
    gateway.send(1).await;
    failing.until("an attempt", |seen| !seen.arrivals.is_empty()).await;
    let shown = within("a failure that is counted", async {
        loop {
            let shown = top(&url(&gateway)).run().await.expect_code(0).stdout;
            if shown.contains("502") {
                return shown;
            }
        }
    });
    let shown = shown.await;
    for part in ["postrider top", "waiting 1 ", "endpoint", "bill", "active"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains(['\x1b', '\u{202e}']), "{shown:?}");
    let asked = top(&url(&gateway)).and(["--once"]).run().await.expect_code(0);
    assert!(asked.stdout.contains("bill"), "{}", asked.stdout);
    let refused = top(&url(&gateway)).variable("POSTRIDER_KEY", "pr_not_this_one");
    let refused = refused.run().await.expect_code(2);
    assert!(refused.stderr.contains("401"), "{}", refused.stderr);
    let place = url(&gateway);
    gateway.stop().await;
    let away = top(&place).run().await.expect_code(1);
    assert!(away.stderr.contains("does not answer"), "{}", away.stderr);
}

/// The binary on a terminal of its own.
struct Screen {
    child: Child,
    keyboard: File,
    /// Kept open, so that it can be looked at after the process has ended.
    terminal: File,
    before: Termios,
    written: watch::Receiver<String>,
}

impl Screen {
    fn open(gateway: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("its size");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let terminal = OpenOptions::new().read(true).write(true).open(path).expect("opened");
        let before = tcgetattr(&terminal).expect("its modes");
        let end = || terminal.try_clone().expect("another");
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["top", "--gateway", gateway]).env_clear();
        command.env("POSTRIDER_KEY", KEY).env("TERM", "xterm-256color");
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("it starts");
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().expect("another");
        let (tell, written) = watch::channel(String::new());
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                tell.send_modify(|written| written.push_str(&text));
            }
        });
        Self { child, keyboard, terminal, before, written }
    }

    /// Waits until something has been written.
    async fn until(&self, what: &str) {
        let mut written = self.written.clone();
        let seen = within(what, written.wait_for(|written| written.contains(what))).await;
        assert!(seen.is_ok(), "{what} was not written");
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.terminal).expect("its modes").local_modes;
        !modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO)
    }

    fn press(&mut self, key: &str) {
        self.keyboard.write_all(key.as_bytes()).expect("typed");
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &command]).status().expect("sh runs");
        assert!(sent.success());
    }

    /// It ends well, and the terminal is what it was.
    async fn expect_left(mut self) {
        self.until(LEAVE).await;
        let status = within(
            "the end",
            tokio::task::spawn_blocking(move || {
                let status = self.child.wait().expect("it can be waited for");
                (status, self)
            }),
        );
        let (status, screen) = status.await.expect("waited");
        assert_eq!(status.code(), Some(0), "{}", *screen.written.borrow());
        let after = tcgetattr(&screen.terminal).expect("its modes");
        assert_eq!(after.local_modes, screen.before.local_modes);
        assert_eq!(after.input_modes, screen.before.input_modes);
        assert_eq!(after.output_modes, screen.before.output_modes);
        let written = screen.written.borrow();
        assert!(written.rfind(LEAVE) > written.rfind(ENTER), "{written:?}");
        assert!(written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l"), "the cursor is back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_terminal_is_left_as_it_was_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Launch::serve(directory.path()).start().await;
    gateway.create_endpoint(json!({ "name": "billing", "pull": true })).await;
    for way in ["q", "\x03", "TERM", "INT"] {
        let mut screen = Screen::open(&url(&gateway));
        screen.until("billing").await;
        assert!(screen.is_raw());
        match way {
            "TERM" | "INT" => screen.signal(way),
            key => screen.press(key),
        }
        screen.expect_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_change_the_picture_and_a_gateway_that_is_away_is_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound");
    drop(silent);
    let mut screen = Screen::open(&format!("http://{address}"));
    // Only what changes is written, so blanks need not be between words.
    screen.until("answer").await;
    screen.press("s");
    screen.until("iting").await;
    screen.press("?");
    screen.until("Failures").await;
    screen.press("?p");
    screen.until("paused").await;
    screen.press("p");
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Launch::with(["serve", "--listen", &address.to_string()])
        .with_data(directory.path())
        .variable("POSTRIDER_ADMIN_KEY", KEY)
        .start()
        .await;
    screen.until("There").await;
    screen.press("q");
    screen.expect_left().await;
    gateway.stop().await;
}
