//! `postrider top`: one picture as text, and a terminal that is left as it was found.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::process::{Child, Command};

use rustix::termios::{LocalModes, Termios};
use serde_json::json;

use crate::gateway::{Gateway, KEY, Launch};
use crate::pty::Pty;
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
    pty: Pty,
    before: Termios,
}

impl Screen {
    fn open(gateway: &str) -> Self {
        Self::open_with(gateway, &[])
    }

    fn open_with(gateway: &str, variables: &[(&str, &OsStr)]) -> Self {
        let pty = Pty::open();
        let before = pty.modes();
        let usual = [("POSTRIDER_KEY", KEY), ("TERM", "xterm-256color")];
        let usual = usual.map(|(name, value)| (name, OsStr::new(value)));
        let child = pty.spawn(&["top", "--gateway", gateway], &[&usual, variables].concat());
        Self { child, pty, before }
    }

    fn is_raw(&self) -> bool {
        let modes = self.pty.modes().local_modes;
        !modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO)
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &command]).status().expect("sh runs");
        assert!(sent.success());
    }

    /// It ends well, and the terminal is what it was.
    async fn expect_left(mut self) {
        self.pty.until(LEAVE).await;
        let status = within(
            "the end",
            tokio::task::spawn_blocking(move || {
                let status = self.child.wait().expect("it can be waited for");
                (status, self)
            }),
        );
        let (status, screen) = status.await.expect("waited");
        let written = screen.pty.shown();
        assert_eq!(status.code(), Some(0), "{written}");
        let after = screen.pty.modes();
        assert_eq!(after.local_modes, screen.before.local_modes);
        assert_eq!(after.input_modes, screen.before.input_modes);
        assert_eq!(after.output_modes, screen.before.output_modes);
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
        screen.pty.until("billing").await;
        assert!(screen.is_raw());
        match way {
            "TERM" | "INT" => screen.signal(way),
            key => screen.pty.types(key),
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
    screen.pty.until("answer").await;
    screen.pty.types("s");
    screen.pty.until("iting").await;
    screen.pty.types("?");
    screen.pty.until("Failures").await;
    screen.pty.types("?p");
    screen.pty.until("paused").await;
    screen.pty.types("p");
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Launch::with(["serve", "--listen", &address.to_string()])
        .with_data(directory.path())
        .variable("POSTRIDER_ADMIN_KEY", KEY)
        .start()
        .await;
    screen.pty.until("There").await;
    screen.pty.types("q");
    screen.expect_left().await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_colours_where_they_are_not_wanted() {
    // A place that nobody listens at is told in red.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = format!("http://{}", silent.local_addr().expect("bound"));
    drop(silent);
    for (no_colour, coloured) in [("", true), ("1", false)] {
        let mut screen = Screen::open_with(&place, &[("NO_COLOR", OsStr::new(no_colour))]);
        screen.pty.until("answer").await;
        screen.pty.types("q");
        screen.pty.until(LEAVE).await;
        let written = screen.pty.shown();
        // The colours of the foreground, by their number.
        assert_eq!(written.contains("\x1b[38;5;"), coloured, "{written:?}");
        screen.expect_left().await;
    }
}
