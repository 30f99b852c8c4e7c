//! Questions on a terminal: whether something may be done, and for a secret, which is not shown.

use std::io::{self, BufRead, IsTerminal as _, Read as _, Write as _};

use anyhow::anyhow;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::Failure;
use crate::secret::Secret;

/// More than any key or answer has.
const MAX_TYPED_BYTES: usize = 4_096;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct YesArgs {
    /// Do it without asking; needed where there is no terminal to ask on
    #[arg(long, short)]
    yes: bool,
}

impl YesArgs {
    /// Asks whether it may be done, and fails if not. `what` is a question's beginning: `Delete …`.
    pub(crate) fn confirm(self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !can_ask() {
            return Err(Failure::usage(anyhow!(
                "{what}? Nobody can be asked here: say --yes if you mean it"
            )));
        }
        eprint!("{what}? [y/N] ");
        io::stderr().flush()?;
        let mut answer = String::new();
        let typed = u64::try_from(MAX_TYPED_BYTES).unwrap_or(u64::MAX);
        io::stdin().lock().take(typed).read_line(&mut answer)?;
        if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            Ok(())
        } else {
            Err(anyhow!("nothing was done").into())
        }
    }
}

/// Whether somebody sees a question and can answer it.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks for a secret; an empty answer is none.
pub(crate) fn secret(question: &str) -> Result<Option<Secret>, Failure> {
    eprint!("{question}: ");
    io::stderr().flush()?;
    let typed = {
        let _hidden = Hidden::begin()?;
        typed(io::stdin().lock())
    };
    eprintln!();
    match typed? {
        Typed::Line(line) if line.is_empty() => Ok(None),
        Typed::Line(line) => Ok(Some(Secret(line))),
        Typed::GivenUp => Err(anyhow!("nothing was done").into()),
    }
}

/// A terminal that does not show what is typed, until this is dropped. It makes no signals either:
/// one would end the process with the terminal left so.
struct Hidden {
    before: Termios,
}

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Now, &hidden)?;
        Ok(Self { before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(io::stdin(), OptionalActions::Now, &self.before) {
            eprintln!("postrider: the terminal could not be set back ({error}); try `reset`");
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Typed {
    Line(String),
    /// With Ctrl-C or Ctrl-D.
    GivenUp,
}

/// A line from a terminal that edits none.
fn typed(keys: impl BufRead) -> io::Result<Typed> {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    const CTRL_U: u8 = 21;
    let mut line = Vec::new();
    for key in keys.bytes().take(MAX_TYPED_BYTES) {
        match key? {
            b'\r' | b'\n' => {
                let text = String::from_utf8(line).map_err(io::Error::other)?;
                return Ok(Typed::Line(text.trim().to_owned()));
            }
            CTRL_C | CTRL_D => return Ok(Typed::GivenUp),
            CTRL_U => line.clear(),
            // Backspace and delete.
            8 | 127 => drop(line.pop()),
            key => line.push(key),
        }
    }
    Ok(Typed::GivenUp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_line_can_be_mended_and_given_up() {
        let line = |text: &str| Typed::Line(text.to_owned());
        for (keys, expected) in [
            ("pr_ab\n", line("pr_ab")),
            ("pr_xx\x7f\x08ab\r", line("pr_ab")),
            ("wrong\x15pr_ab\n", line("pr_ab")),
            ("\n", line("")),
            ("pr_\x03", Typed::GivenUp),
            ("\x04", Typed::GivenUp),
            ("cut off", Typed::GivenUp),
        ] {
            assert_eq!(typed(keys.as_bytes()).expect("text"), expected, "{keys:?}");
        }
        assert_eq!(typed(io::BufReader::new(io::repeat(b'x'))).expect("text"), Typed::GivenUp);
    }
}
