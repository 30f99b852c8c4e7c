//! Single keys from a terminal, without waiting for the end of a line; nothing where there is none.

use std::io::{self, IsTerminal as _, Read as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Keys that have been pressed and not looked at.
const TYPED_AHEAD: usize = 64;
/// Larger than any number that is shown.
const MAX_NUMBER: usize = 999_999;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Replay(Option<usize>),
    Inspect(Option<usize>),
    Help,
    Quit,
}

/// The terminal, as it was found when this is dropped.
#[derive(Debug)]
pub(crate) struct Keyboard {
    before: Option<Termios>,
    typed: mpsc::Receiver<u8>,
    typing: Typing,
}

impl Keyboard {
    pub(crate) fn open() -> io::Result<Self> {
        let (press, typed) = mpsc::channel(TYPED_AHEAD);
        let terminal = io::stdin();
        let mut before = None;
        if terminal.is_terminal() {
            let found = tcgetattr(&terminal)?;
            let mut keys = found.clone();
            keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(&terminal, OptionalActions::Now, &keys)?;
            before = Some(found);
            // A thread of its own, because a read from a terminal cannot be called off: it ends with
            // the process.
            std::thread::spawn(move || {
                for byte in io::stdin().lock().bytes() {
                    let Ok(byte) = byte else { return };
                    if press.blocking_send(byte).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { before, typed, typing: Typing::default() })
    }

    /// The next thing that was asked for. Never ends where nobody can type.
    pub(crate) async fn next(&mut self) -> Command {
        loop {
            let Some(byte) = self.typed.recv().await else { return std::future::pending().await };
            if let Some(command) = self.typing.take(byte) {
                return command;
            }
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = tcsetattr(io::stdin(), OptionalActions::Now, before)
        {
            eprintln!("postrider: the terminal could not be set back ({error}); try `reset`");
        }
    }
}

/// What has been typed of a command.
#[derive(Debug, Default)]
struct Typing {
    number: Option<usize>,
}

impl Typing {
    fn take(&mut self, byte: u8) -> Option<Command> {
        if byte.is_ascii_digit() {
            let number = self.number.unwrap_or(0) * 10 + usize::from(byte - b'0');
            self.number = Some(number.min(MAX_NUMBER));
            return None;
        }
        let number = self.number.take();
        match byte {
            b'r' | b'R' => Some(Command::Replay(number)),
            b'i' | b'I' => Some(Command::Inspect(number)),
            b'q' | b'Q' => Some(Command::Quit),
            b'?' | b'h' | b'H' => Some(Command::Help),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_the_letter_after_it() {
        for (typed, expected) in [
            ("r", &[Command::Replay(None)][..]),
            ("12r", &[Command::Replay(Some(12))]),
            ("12ir", &[Command::Inspect(Some(12)), Command::Replay(None)]),
            ("3xi", &[Command::Inspect(None)]),
            ("99999999999999999999i", &[Command::Inspect(Some(MAX_NUMBER))]),
            ("?q", &[Command::Help, Command::Quit]),
            ("\x1b[A \n", &[]),
        ] {
            let mut typing = Typing::default();
            let commands: Vec<_> = typed.bytes().filter_map(|byte| typing.take(byte)).collect();
            assert_eq!(commands, expected, "{typed}");
        }
    }
}
