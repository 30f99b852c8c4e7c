//! A terminal of the test's own: what is typed, and what it shows.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use tokio::sync::watch;

use crate::within;

#[derive(Debug)]
pub(crate) struct Pty {
    keyboard: File,
    /// Kept open, so that it can be looked at after a process has ended.
    line: File,
    shown: watch::Receiver<String>,
}

impl Pty {
    pub(crate) fn open() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("its size");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let path = Path::new(OsStr::from_bytes(name.as_bytes()));
        let line = OpenOptions::new().read(true).write(true).open(path).expect("opened");
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
        Self { keyboard, line, shown }
    }

    /// `postrider` with all its streams here, and of its environment only what is said.
    pub(crate) fn spawn(&self, arguments: &[&str], variables: &[(&str, &OsStr)]) -> Child {
        let end = || self.line.try_clone().expect("another");
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(arguments).env_clear().envs(variables.iter().copied());
        command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts")
    }

    /// Waits until something is on the screen.
    pub(crate) async fn until(&self, what: &str) {
        let mut shown = self.shown.clone();
        let seen = within(what, shown.wait_for(|shown| shown.contains(what))).await;
        assert!(seen.is_ok(), "{what} was not shown");
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("it can be typed");
    }

    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.line).expect("its modes")
    }

    /// Everything so far.
    pub(crate) fn shown(&self) -> String {
        self.shown.borrow().clone()
    }
}
